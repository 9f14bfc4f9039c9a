//! The first lines of a run: who measured what, and whether to believe it.

use super::markup::Markup;
use crate::data::findings::findings;
use crate::data::library::Entry;
use crate::data::summary::identity_line;
use tokscope_shared::verdict::Verdict;

/// Who measured what, and what to think of it.
pub(super) fn head(entry: &Entry) -> Markup {
    let summary = &entry.summary;
    let mut out = Markup::default();
    let model = summary.identity.model.as_deref().unwrap_or("model not recorded");
    let saved = summary.identity.timestamp.as_deref().unwrap_or_default();
    out.put(r#"<h1 data-test="model">{}</h1><p class="identity" data-test="identity" title="{}">"#, &[model, saved]);
    for part in identity_line(summary) {
        out.put("<span>{}</span>", &[&part]);
    }
    out.put(r#"<span class="faint">{}</span></p>"#, &[&entry.name]);
    if !(entry.review.cells.is_empty() && entry.review.burst.is_empty()) {
        out.put(r#"<p class="sentence" data-test="verdict-sentence">{}.</p>"#, &[&entry.review.sentence()]);
    }
    let mut lines = Markup::default();
    for doubt in &entry.review.doubts {
        said(&mut lines, ["suspect", "file", doubt.code], &format!("{}.", doubt.text), "");
    }
    for finding in findings(entry) {
        let word = if finding.verdict == Verdict::Valid { "hint" } else { finding.verdict.name() };
        said(&mut lines, [word, word, &finding.code], &finding.meaning, &finding.seen());
    }
    if !lines.is_empty() {
        out.put(r#"<ul class="findings" data-test="hints">"#, &[]);
        out.add(&lines);
        out.put("</ul>", &[]);
    }
    out
}

/// A line that says something: the verdict whose colour it has, a word, a code, then text and smaller text.
pub(super) fn said(out: &mut Markup, [verdict, word, code]: [&str; 3], text: &str, small: &str) {
    out.put(r#"<li data-verdict="{}" data-code="{}"><b>{}</b><span>{} <small>{}</small></span></li>"#, &[verdict, code, word, text, small]);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::data::library::Library;

    #[test]
    fn the_head_says_who_measured_what_and_what_to_think_of_it() {
        let mut library = Library::default();
        let id = library.add("seed.json", None, crate::data::sample()).id().unwrap();
        let html = head(&library.get(id).unwrap()).into_html();
        for part in [
            "GLM-5.3-Flash-EXL3-4bpw",
            "3 of 3 cells valid.",
            "data-code=\"no-prefix-caching\"><b>hint</b>",
            "Prefix caching did not seem to work",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
    }

    #[test]
    fn a_report_without_cells_has_no_verdict() {
        let mut library = Library::default();
        let id = library.add("p.json", None, br#"{"metadata": {"mode": "completion_stats"}}"#).id().unwrap();
        let html = head(&library.get(id).unwrap()).into_html();
        assert!(!html.contains("verdict-sentence") && html.contains("profile report"), "{html}");
    }
}
