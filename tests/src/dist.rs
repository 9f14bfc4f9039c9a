//! The record in `dist/BUILD.json`: from what, and with which tools, the page was built, and what its
//! files are. Building it is the business of `tests/build-dist.sh`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::fingerprint::{self, FingerprintError, sha256_hex};

/// The record's name inside `dist/`.
pub const RECORD: &str = "BUILD.json";

/// How the page was built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildRecord {
    /// Of the sources; see [`fingerprint::of_checkout`].
    pub fingerprint: String,
    /// Each tool that decides over the bytes, with its version in its own words.
    pub tools: BTreeMap<String, String>,
    /// Each file beside the record, by name.
    pub files: BTreeMap<String, FileRecord>,
}

/// One file of the page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its size.
    pub bytes: u64,
    /// Its size after `brotli -q 11`, for information; absent where that was not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub brotli_bytes: Option<u64>,
    /// Its SHA-256, as 64 hexadecimal digits.
    pub sha256: String,
}

/// Why a record could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum DistError {
    /// A file or folder could not be read or written.
    #[error("{path} can't be read or written: {source}; tests/build-dist.sh makes it anew")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The record is not one.
    #[error("{path} is no record of a build: {source}; tests/build-dist.sh writes it anew")]
    Parse {
        /// The record.
        path: PathBuf,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// The sources' fingerprint could not be taken.
    #[error(transparent)]
    Fingerprint(#[from] FingerprintError),
}

impl BuildRecord {
    /// Reads the record in the folder `dist`.
    ///
    /// # Errors
    /// Where it is absent or is no record.
    pub fn read(dist: &Path) -> Result<Self, DistError> {
        let path = dist.join(RECORD);
        let bytes = fs::read(&path).map_err(|source| io_error(&path, source))?;
        serde_json::from_slice(&bytes).map_err(|source| DistError::Parse { path, source })
    }

    /// Writes the record into the folder `dist`.
    ///
    /// # Errors
    /// Where the file can't be written.
    pub fn write(&self, dist: &Path) -> Result<(), DistError> {
        let path = dist.join(RECORD);
        let mut text = serde_json::to_string_pretty(self).map_err(|source| DistError::Parse { path: path.clone(), source })?;
        text.push('\n');
        fs::write(&path, text).map_err(|source| io_error(&path, source))
    }

    /// The record of the folder `dist` as it is now, built from `checkout` with `tools`. `brotli_bytes`
    /// holds the compressed sizes that are known, by file name.
    ///
    /// # Errors
    /// Where a file can't be read, or the fingerprint can't be taken.
    pub fn take(
        checkout: &Path,
        dist: &Path,
        tools: BTreeMap<String, String>,
        brotli_bytes: &BTreeMap<String, u64>,
    ) -> Result<Self, DistError> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(dist).map_err(|source| io_error(dist, source))? {
            let entry = entry.map_err(|source| io_error(dist, source))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == RECORD {
                continue;
            }
            let bytes = fs::read(entry.path()).map_err(|source| io_error(&entry.path(), source))?;
            files.insert(
                name.clone(),
                FileRecord { bytes: bytes.len() as u64, brotli_bytes: brotli_bytes.get(&name).copied(), sha256: sha256_hex(&bytes) },
            );
        }
        Ok(Self { fingerprint: fingerprint::of_checkout(checkout)?, tools, files })
    }

    /// Where `found`, what is there now, differs from this record in sources or files, in sentences.
    #[must_use]
    pub fn differences(&self, found: &Self) -> Vec<String> {
        let mut told = Vec::new();
        if self.fingerprint != found.fingerprint {
            told.push(format!(
                "dist/ was built from other sources (fingerprint {}, now {}); run tests/build-dist.sh",
                short(&self.fingerprint),
                short(&found.fingerprint)
            ));
        }
        let names: BTreeSet<&String> = self.files.keys().chain(found.files.keys()).collect();
        for name in names {
            let sha256 = |record: &Self| record.files.get(name).map(|file| file.sha256.clone());
            if sha256(self) != sha256(found) {
                told.push(format!("dist/{name} is not the file that was built; restore it or run tests/build-dist.sh"));
            }
        }
        told
    }

    /// Where the tools at hand, `here`, differ from this record's, a sentence a tool.
    #[must_use]
    pub fn other_tools(&self, here: &BTreeMap<String, String>) -> Vec<String> {
        let absent = String::from("none");
        let names: BTreeSet<&String> = self.tools.keys().chain(here.keys()).collect();
        names
            .into_iter()
            .filter(|name| self.tools.get(*name) != here.get(*name))
            .map(|name| {
                format!(
                    "{name}: dist/ was built with {:?}, here is {:?}",
                    self.tools.get(name).unwrap_or(&absent),
                    here.get(name).unwrap_or(&absent)
                )
            })
            .collect()
    }
}

fn io_error(path: &Path, source: io::Error) -> DistError {
    DistError::Io { path: path.to_owned(), source }
}

fn short(fingerprint: &str) -> &str {
    fingerprint.get(..12).unwrap_or(fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(fingerprint: &str, tool: &str, files: &[(&str, &str)]) -> BuildRecord {
        let file = |sha256: &str| FileRecord { bytes: 1, brotli_bytes: None, sha256: sha256.to_owned() };
        BuildRecord {
            fingerprint: fingerprint.to_owned(),
            tools: BTreeMap::from([(String::from("rustc"), tool.to_owned())]),
            files: files.iter().map(|(name, sha256)| ((*name).to_owned(), file(sha256))).collect(),
        }
    }

    #[test]
    fn other_sources_and_changed_missing_and_foreign_files_are_each_told_once() {
        let built = record("aa", "1", &[("a.js", "1"), ("b.css", "2"), ("c.wasm", "3")]);
        assert!(built.differences(&built.clone()).is_empty());
        let found = record("ab", "1", &[("a.js", "1"), ("b.css", "9"), ("d.map", "4")]);
        let told = built.differences(&found);
        assert_eq!(told.len(), 4, "{told:?}");
        for part in ["fingerprint", "b.css", "c.wasm", "d.map"] {
            assert!(told.iter().any(|line| line.contains(part)), "{part}");
        }
    }

    #[test]
    fn the_tool_that_differs_is_told_with_both_versions() {
        let built = record("aa", "rustc 1", &[]);
        let mut here = built.tools.clone();
        assert!(built.other_tools(&here).is_empty());
        here.insert(String::from("rustc"), String::from("rustc 2"));
        let told = built.other_tools(&here);
        assert_eq!(told, ["rustc: dist/ was built with \"rustc 1\", here is \"rustc 2\""]);
    }
}
