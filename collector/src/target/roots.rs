//! Certificates of authorities that are trusted besides the usual ones (`--ca-cert`).

use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::error::TargetError;

/// Trusted besides the usual authorities.
#[derive(Clone, Debug, Default)]
pub struct TrustedRoots {
    certificates: Vec<CertificateDer<'static>>,
}

impl TrustedRoots {
    /// Those of a PEM file; none without a file.
    ///
    /// # Errors
    /// The file can't be read, or holds no certificate.
    pub fn read(file: Option<&Path>) -> Result<Self, TargetError> {
        let Some(file) = file else { return Ok(Self::default()) };
        let bad = |reason: String| TargetError::BadRoots { file: PathBuf::from(file), reason };
        let found = CertificateDer::pem_file_iter(file).map_err(|e| bad(e.to_string()))?;
        let certificates: Vec<_> = found.collect::<Result<_, _>>().map_err(|e| bad(e.to_string()))?;
        if certificates.is_empty() {
            return Err(bad("there is no certificate in it".to_owned()));
        }
        Ok(Self { certificates })
    }

    /// Them.
    #[must_use]
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_without_a_certificate_and_one_that_is_not_there_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let words = |e: TargetError| e.to_string();
        assert!(words(TrustedRoots::read(Some(&file)).unwrap_err()).contains("ca.pem"));
        std::fs::write(&file, "hello").unwrap();
        assert!(words(TrustedRoots::read(Some(&file)).unwrap_err()).contains("no certificate"));
        assert!(TrustedRoots::read(None).unwrap().certificates().is_empty());
    }
}
