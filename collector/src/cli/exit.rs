//! Exit codes: what a script learns from a run without reading what was printed.

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Measured, or nothing to complain of.
    Ok,
    /// The tool failed: server unreachable, port taken, a file unreadable.
    Failed,
    /// Wrong usage, or an output path that can't be written.
    Usage,
    /// A cell is invalid, or nothing was measured.
    Invalid,
    /// A measurement was interrupted; the partial report is written.
    Interrupted,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        std::process::ExitCode::from(match exit {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Invalid => 3,
            Exit::Interrupted => 130,
        })
    }
}
