//! How wide lines may be, and lines made to fit. What goes into a file or a pipe stays a line a fact.

/// Columns where the output is no terminal and nobody says how wide it is.
const PIPED: usize = 160;
/// Nothing is made narrower than this.
const LEAST: usize = 60;

/// Of tables.
pub(super) fn width() -> usize {
    told().unwrap_or(PIPED)
}

/// `COLUMNS` where it is set, else the terminal's width.
fn told() -> Option<usize> {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col)).filter(|n| *n > 0);
    told.or_else(terminal).map(|columns: usize| columns.max(LEAST))
}

/// A text as lines of the terminal's width, those after the first of each set in by so much more.
#[must_use]
pub fn fitted(text: &str) -> String {
    let Some(width) = told() else { return text.to_owned() };
    text.lines().map(|line| wrapped(line, width)).collect::<Vec<_>>().join("\n")
}

fn wrapped(line: &str, width: usize) -> String {
    const FURTHER: usize = 4;
    let count = |text: &str| text.chars().count();
    if count(line) <= width {
        return line.to_owned();
    }
    let indent = count(line) - count(line.trim_start());
    let mut out = " ".repeat(indent);
    let mut at = indent;
    for (n, word) in line.split_whitespace().enumerate() {
        if n > 0 && at + 1 + count(word) > width {
            at = indent + FURTHER;
            out.push('\n');
            out.push_str(&" ".repeat(at));
        } else if n > 0 {
            out.push(' ');
            at += 1;
        }
        out.push_str(word);
        at += count(word);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_break_between_words_and_no_word_is_lost() {
        let line = "  left out: C=1 at 128k: context 128k does not fit";
        assert_eq!(wrapped(line, 100), line);
        let broken = wrapped(line, 24);
        assert_eq!(broken, "  left out: C=1 at 128k:\n      context 128k does\n      not fit");
        assert!(wrapped("a-word-that-is-longer-than-the-line and", 10).starts_with("a-word-that-is-longer-than-the-line\n"));
    }
}
