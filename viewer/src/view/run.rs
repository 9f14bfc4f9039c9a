//! The first lines of a run: who measured what, and whether to believe it.

use super::markup::{Markup, el, tel, text};
use crate::data::findings::{Finding, findings};
use crate::data::library::Entry;
use crate::data::summary::identity_line;
use tokscope_shared::verdict::Verdict;

/// Who measured what, and what to think of it.
pub(super) fn head(entry: &Entry) -> Markup {
    let summary = &entry.summary;
    let mut all = tel("h1", &[("data-test", "model")], summary.identity.model.as_deref().unwrap_or("model not recorded"));
    let mut identity: Markup = identity_line(summary).iter().map(|part| tel("span", &[], part)).collect();
    identity.tel("span", &[("class", "faint")], &entry.name);
    let saved = summary.identity.timestamp.as_deref().unwrap_or_default();
    all.add(&el("p", &[("class", "identity"), ("data-test", "identity"), ("title", saved)], &identity));
    if !(entry.review.cells.is_empty() && entry.review.burst.is_empty()) {
        all.tel("p", &[("class", "sentence"), ("data-test", "verdict-sentence")], &format!("{}.", entry.review.sentence()));
    }
    let mut lines: Markup =
        entry.review.doubts.iter().map(|doubt| said("suspect", "file", doubt.code, &text(&format!("{}.", doubt.text)))).collect();
    for finding in findings(entry) {
        lines.add(&line(&finding));
    }
    if lines != Markup::default() {
        all.add(&el("ul", &[("class", "findings"), ("data-test", "hints")], &lines));
    }
    all
}

fn line(finding: &Finding) -> Markup {
    let word = if finding.verdict == Verdict::Valid { "hint" } else { finding.verdict.name() };
    let mut inside = text(&finding.meaning);
    inside.text(" ").tel("small", &[], &finding.seen());
    said(word, word, &finding.code, &inside)
}

/// A line that says something in a verdict's colour.
pub(super) fn said(verdict: &str, word: &str, code: &str, inside: &Markup) -> Markup {
    let mut line = tel("b", &[], word);
    line.add(&el("span", &[], inside));
    el("li", &[("data-verdict", verdict), ("data-code", code)], &line)
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
