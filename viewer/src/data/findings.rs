//! What is to be said of a run before its numbers: the reasons of all its cells, gathered by kind.

use super::library::Entry;
use tokscope_shared::report::cell::Cell;
use tokscope_shared::report::identity::context_label;
use tokscope_shared::verdict::{Judgement, REASONS, Verdict};

/// One kind of reason, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its code.
    pub code: String,
    /// What it makes of a cell; valid is a hint.
    pub verdict: Verdict,
    /// What it means, in a sentence.
    pub meaning: String,
    /// The cells, each with what was seen there.
    pub places: Vec<(String, String)>,
}

impl Finding {
    /// Where, in words: two places with what was seen there, or of many one, and how many more.
    pub fn seen(&self) -> String {
        let most = if self.places.len() > 2 { 1 } else { 2 };
        let mut parts: Vec<String> = self.places.iter().take(most).map(|(place, text)| format!("{place}: {text}")).collect();
        if let Some(more) = self.places.len().checked_sub(most).filter(|more| *more > 0) {
            parts.push(format!("and {more} more"));
        }
        parts.join("; ")
    }
}

/// A cell's place in words.
pub fn place(cell: &Cell) -> String {
    let context = cell.context_tokens.i64().map_or_else(|| "?".to_owned(), context_label);
    let concurrency = cell.concurrency.i64().map_or_else(|| "?".to_owned(), |level| level.to_string());
    format!("{context} · C={concurrency}")
}

/// All reasons of a run by kind, the worst first; among equals what is rarer and says more.
pub fn findings(entry: &Entry) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    let decode = entry.report.cells().zip(&entry.review.cells).map(|(cell, judgement)| (place(cell), judgement));
    let burst =
        entry.report.burst_results.items().zip(&entry.review.burst).map(|(cell, judgement)| (format!("burst {}", place(cell)), judgement));
    for (place, judgement) in decode.chain(burst) {
        gather(&mut found, &place, judgement);
    }
    found
}

/// The worse the higher, then the later in the table of reasons.
fn rank(finding: &Finding) -> (Verdict, Option<usize>) {
    (finding.verdict, REASONS.iter().position(|rule| rule.code == finding.code))
}

fn gather(found: &mut Vec<Finding>, place: &str, judgement: &Judgement) {
    for reason in &judgement.reasons {
        let at = (place.to_owned(), reason.text.clone());
        match found.iter_mut().find(|finding| finding.code == reason.code && finding.verdict == reason.verdict) {
            Some(finding) => finding.places.push(at),
            None => {
                let rule = REASONS.iter().find(|rule| rule.code == reason.code);
                let meaning = rule.map_or_else(|| reason.text.clone(), |rule| rule.meaning.to_owned());
                let new = Finding { code: reason.code.clone(), verdict: reason.verdict, meaning, places: vec![at] };
                let before = found.iter().position(|finding| rank(finding) < rank(&new)).unwrap_or(found.len());
                found.insert(before, new);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::data::library::Library;

    fn entry(bytes: &[u8]) -> std::sync::Arc<Entry> {
        let mut library = Library::default();
        let id = library.add("a.json", None, bytes).id().unwrap();
        library.get(id).unwrap()
    }

    #[test]
    fn the_sample_says_that_prefix_caching_did_not_work() {
        let found = findings(&entry(crate::data::sample()));
        let hint = &found[0];
        assert_eq!(hint.code, "no-prefix-caching");
        assert_eq!(hint.verdict, Verdict::Valid);
        let places: Vec<_> = hint.places.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(places, ["32k · C=1", "64k · C=1"]);
        assert!(hint.places[1].1.contains("10.8 s"), "{}", hint.places[1].1);
        assert!(hint.seen().contains("32k · C=1: ") && hint.seen().contains("64k · C=1: "));
        let everywhere = found.iter().find(|finding| finding.places.len() == 3).unwrap();
        assert!(everywhere.seen().ends_with("and 2 more"));
    }

    #[test]
    fn the_worst_comes_first() {
        let text = br#"{"metadata": {"model": "m"}, "results": [
            {"context_tokens": 0, "concurrency": 1, "aggregate_tps": 5.0, "request_count": 1},
            {"context_tokens": 0, "concurrency": 2, "aggregate_tps": 0.0}]}"#;
        let verdicts: Vec<_> = findings(&entry(text)).iter().map(|finding| finding.verdict).collect();
        assert_eq!(verdicts[0], Verdict::Invalid);
        assert!(verdicts.is_sorted_by(|a, b| a >= b));
    }
}
