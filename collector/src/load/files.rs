//! The open-file limit: one connection a stream needs one descriptor each.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For everything else that is open: files, scrapes, the host, the terminal.
const BESIDES: u64 = 64;

/// The system allows too few open files.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{streams} streams need {need} open files, this process may have {limit}; raise the limit (ulimit -n {need}) or lower --concurrency"
)]
pub struct TooFewFiles {
    /// Streams at once.
    pub streams: u32,
    /// Open files needed.
    pub need: u64,
    /// The hard limit.
    pub limit: u64,
}

/// Raises the open-file limit so that `streams` connections fit.
///
/// # Errors
/// [`TooFewFiles`] if the hard limit is below what is needed.
pub fn raise_open_files(streams: u32) -> Result<(), TooFewFiles> {
    let need = u64::from(streams) + BESIDES;
    let now = getrlimit(Resource::Nofile);
    // `None` means without limit.
    if now.current.is_none_or(|soft| soft >= need) {
        return Ok(());
    }
    let refused = |limit| TooFewFiles { streams, need, limit };
    if let Some(hard) = now.maximum
        && hard < need
    {
        return Err(refused(hard));
    }
    let wanted = Rlimit { current: Some(need), maximum: now.maximum };
    setrlimit(Resource::Nofile, wanted).map_err(|_| refused(now.current.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_needed_is_there_afterwards_or_the_number_is_named() {
        raise_open_files(1).unwrap();
        let hard = getrlimit(Resource::Nofile).maximum;
        match raise_open_files(u32::MAX) {
            Err(e) => {
                assert_eq!(e.need, u64::from(u32::MAX) + BESIDES);
                assert!(e.to_string().contains("ulimit -n 4294967359"), "{e}");
            }
            Ok(()) => assert!(hard.is_none_or(|h| h > u64::from(u32::MAX))),
        }
    }
}
