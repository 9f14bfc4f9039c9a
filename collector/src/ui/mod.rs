//! What a person sees while a run goes on, and after it. It listens; nothing waits for it.

mod eta;
pub mod keys;
mod left_out;
mod progress;
mod summary;
mod tables;
mod width;

use crate::secrets::printable;
pub use left_out::{Left, left_out_lines};
pub use progress::{Listener, Progress};
use std::sync::atomic::{AtomicBool, Ordering};
pub use summary::print_summary;
pub use width::fitted;

static LOST_OUTPUT: AtomicBool = AtomicBool::new(false);

/// Prints a line to standard output; a closed pipe ends the output, not the program. Any other failure is said once.
pub fn say(line: &str) {
    use std::io::{ErrorKind, Write};
    let mut out = std::io::stdout();
    let Err(error) = writeln!(out, "{}", printable(line)).and_then(|()| out.flush()) else { return };
    if error.kind() != ErrorKind::BrokenPipe && !LOST_OUTPUT.swap(true, Ordering::Relaxed) {
        complain(&format!("tokscope: standard output can't be written: {error}"));
    }
}

/// A name from a server or a file, as part of a line.
pub fn in_line(name: &str) -> String {
    name.replace(char::is_control, " ")
}

/// Prints a table; where it is wider than the terminal in parts, each with the first `keys` columns.
pub fn say_table(table: &tokscope_shared::render::Table, keys: usize) {
    say(&tables::within(table, keys, width::width()));
}

/// Whether something that was to be printed is lost.
pub fn is_output_lost() -> bool {
    LOST_OUTPUT.load(Ordering::Relaxed)
}

/// Prints a line to standard error; a closed pipe is no reason to end.
pub fn complain(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{}", printable(line));
}

/// Seconds as people say them: `12s`, `3m 05s`, `1h 02m`.
pub fn span(seconds: f64) -> String {
    let s = seconds.max(0.0).round() as u64;
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m {:02}s", s / 60, s % 60),
        _ => format!("{}h {:02}m", s / 3600, s % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_with_line_breaks_stays_in_its_line() {
        assert_eq!(super::in_line("a\nb\r\u{1b}[31mc"), "a b  [31mc");
    }

    #[test]
    fn spans_read_as_people_say_them() {
        let shown = [0.4, 59.4, 59.6, 185.0, 3725.0].map(super::span);
        assert_eq!(shown, ["0s", "59s", "1m 00s", "3m 05s", "1h 02m"]);
    }
}
