//! The Prometheus text format, read tolerantly: a line that can't be read is counted and skipped,
//! nothing is ever made up. It knows no engine.

use std::borrow::Cow;

/// One line with a finite value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// Metric name.
    pub name: &'a str,
    /// What stands between the braces, raw; empty without braces.
    labels: &'a str,
    /// Value: finite.
    pub value: f64,
}

/// What was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Lines with NaN or an infinity.
    pub non_finite: u64,
    /// Lines that are neither comment nor sample.
    pub malformed: u64,
    /// Times of creation (`..._created`): they are no measurements.
    pub created: u64,
}

/// Reads `text` and hands each sample to `each`.
pub fn parse<'a>(text: &'a str, mut each: impl FnMut(Sample<'a>)) -> Skipped {
    let mut skipped = Skipped::default();
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match parse_line(line) {
            None => skipped.malformed += 1,
            Some(s) if s.name.ends_with("_created") => skipped.created += 1,
            Some(s) if !s.value.is_finite() => skipped.non_finite += 1,
            Some(s) => each(s),
        }
    }
    skipped
}

fn parse_line(line: &str) -> Option<Sample<'_>> {
    let name_end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).unwrap_or(line.len());
    let (name, rest) = line.split_at(name_end);
    let starts_well = name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    if !starts_well {
        return None;
    }
    let rest = rest.trim_start();
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => {
            let end = closing_brace(inside)?;
            (&inside[..end], &inside[end + 1..])
        }
        None => ("", rest),
    };
    // Behind the value a time or an exemplar may follow.
    let value = rest.split_ascii_whitespace().next()?;
    let value = value.parse().ok()?;
    Some(Sample { name, labels, value })
}

/// Where the label set ends: a brace inside a quoted value is none.
fn closing_brace(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (i, b) in text.bytes().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(i),
            _ => {}
        }
    }
    None
}

impl<'a> Sample<'a> {
    /// The value of a label; `None` if it is not there.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<Cow<'a, str>> {
        self.labels().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// All labels, in order.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> {
        let mut rest = self.labels;
        std::iter::from_fn(move || {
            let (name, after) = rest.split_once('=')?;
            let name = name.trim().trim_start_matches(',').trim_start();
            let quoted = after.trim_start().strip_prefix('"')?;
            let end = closing_quote(quoted)?;
            rest = &quoted[end + 1..];
            Some((name, unescape(&quoted[..end])))
        })
    }
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (i, b) in text.bytes().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(i),
            _ => {}
        }
    }
    None
}

fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            (c, false) => out.push(c),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn all(text: &str) -> (Vec<(String, f64)>, Skipped) {
        let mut samples = Vec::new();
        let skipped = parse(text, |s| samples.push((s.name.to_owned(), s.value)));
        (samples, skipped)
    }

    #[test]
    fn labels_may_hold_braces_quotes_commas_and_line_ends() {
        let mut seen = 0;
        let text = r#"m{a="x}y",b="q\"u,o=te",c="back\\slash\n"} 3.5e1 1700000000000"#;
        parse(text, |s| {
            seen += 1;
            assert_eq!(s.value, 35.0);
            assert_eq!(s.label("a").unwrap(), "x}y");
            assert_eq!(s.label("b").unwrap(), "q\"u,o=te");
            assert_eq!(s.label("c").unwrap(), "back\\slash\n");
            assert_eq!(s.label("d"), None);
        });
        assert_eq!(seen, 1);
    }

    #[test]
    fn non_finite_values_are_dropped_and_counted() {
        let (samples, skipped) = all("a NaN\nb +Inf\nc -Inf\nd 1\ne -nan\nf Infinity\n");
        assert_eq!(samples, [("d".to_owned(), 1.0)]);
        assert_eq!(skipped.non_finite, 5);
    }

    #[test]
    fn times_of_creation_are_no_data() {
        let (samples, skipped) = all("x_total 4\nx_created 1.79e9\n");
        assert_eq!(samples, [("x_total".to_owned(), 4.0)]);
        assert_eq!(skipped.created, 1);
    }

    #[test]
    fn what_is_no_sample_is_counted_and_the_rest_is_read() {
        let text = "a{b=\"c\" 1\n1a 2\n<html>\nd\ne x\n# TYPE f gauge\n\r\nf{} 6\r\ng{h=\"i\",} 7 # {t=\"u\"} 1\n";
        let (samples, skipped) = all(text);
        assert_eq!(samples, [("f".to_owned(), 6.0), ("g".to_owned(), 7.0)]);
        assert_eq!(skipped.malformed, 5);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[ -~\\n\"{}\\\\]{0,200}") {
            parse(&text, |s| s.labels().for_each(drop));
        }

        #[test]
        fn each_line_is_a_finite_sample_or_counted_or_a_comment(
            lines in proptest::collection::vec("(vllm:x|m_created|\\PC{0,4})(\\{a=\"\\PC{0,6}\"\\}|\\{|)( (1|NaN|[+-]Inf|1e999|\\PC{0,4}))?", 0..12)
        ) {
            let text = lines.join("\n");
            let mut samples = 0;
            let skipped = parse(&text, |s| {
                samples += 1;
                assert!(s.value.is_finite() && !s.name.ends_with("_created"));
                s.labels().for_each(drop);
            });
            let said = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).count() as u64;
            prop_assert_eq!(samples + skipped.non_finite + skipped.malformed + skipped.created, said);
        }
    }
}
