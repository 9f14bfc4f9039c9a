//! The panel with everything a report says of one cell.

use super::act::DO;
use super::markup::{Markup, el, tel, text};
use super::run::said;
use super::sections::{definitions, plain};
use crate::data::cell::{circumstances, distributions, requests, sample};
use crate::data::findings::place;
use crate::data::library::Entry;
use crate::state::Inspected;
use tokscope_shared::metric::{self, Metric};
use tokscope_shared::report::cell::Cell;
use tokscope_shared::verdict::Verdict;

/// Requests that are listed.
const REQUESTS: usize = 20;

/// The panel of a cell.
pub(super) fn panel(entry: &Entry, open: Inspected) -> Option<Markup> {
    let (cell, judgement, layer) = match open {
        Inspected::Decode(index) => (entry.report.cells().nth(index)?, entry.review.cells.get(index)?, ""),
        Inspected::Burst(index) => (entry.report.burst_results.items().nth(index)?, entry.review.burst.get(index)?, "burst "),
    };
    let verdict = judgement.verdict.name();
    let mut head = tel("h2", &[], &format!("{layer}{}", place(cell)));
    head.tel("span", &[("class", "verdict"), ("data-verdict", verdict)], verdict);
    let button = [("class", "icon"), ("data-test", "close-detail"), (DO, "close"), ("title", "Close (Esc)"), ("aria-label", "Close")];
    head.tel("button", &button, "✕");
    let reasons = judgement.reasons.iter().map(|reason| {
        let kind = if reason.verdict == Verdict::Valid { "hint" } else { reason.verdict.name() };
        let mut inside = text(&reason.text);
        inside.text(" ").tel("code", &[], &reason.code);
        said(kind, kind, &reason.code, &inside)
    });
    let mut all = el("header", &[], &head);
    all.tel("p", &[("class", "faint")], &sample(cell)).add(&el("ul", &[("class", "findings")], &reasons.collect()));
    let lines = metric::ALL.iter().map(|metric| line(metric, cell)).collect();
    all.add(&el("table", &[("class", "metrics"), ("data-test", "detail-metrics")], &lines));
    if let Some(table) = distributions(cell) {
        all.tel("h2", &[], "Inside the window").add(&plain(&table, "distributions"));
    }
    if let Some((table, more)) = requests(cell, REQUESTS) {
        all.tel("h2", &[], "Requests").add(&plain(&table, "requests"));
        if more > 0 {
            all.tel("p", &[("class", "faint")], &format!("and {more} more in the file"));
        }
    }
    all.tel("h2", &[], "How it was measured");
    all.add(&definitions(circumstances(cell).into_iter().map(|(label, value)| (label, text(&value)))));
    Some(all)
}

fn line(metric: &Metric, cell: &Cell) -> Markup {
    let mut inside = tel("th", &[("scope", "row"), ("title", metric.definition)], metric.label);
    let reading = metric.read(cell);
    let class = match reading.value() {
        Some(value) => {
            let raw = format!("{value} {} · {}", metric.unit, metric.source);
            inside.tel("td", &[("class", "number"), ("title", &raw)], &metric.format(value)).tel("td", &[], metric.unit);
            ""
        }
        None => {
            inside.tel("td", &[("class", "number"), ("colspan", "2")], reading.absence().unwrap_or_default());
            "absent"
        }
    };
    el("tr", &[("class", class), ("data-metric", metric.id)], &inside)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::data::library::Library;

    #[test]
    fn the_panel_has_every_metric_with_its_value_or_why_there_is_none() {
        let mut library = Library::default();
        let id = library.add("a", None, crate::data::sample()).id().unwrap();
        let entry = library.get(id).unwrap();
        let html = panel(&entry, Inspected::Decode(2)).unwrap().into_html();
        assert_eq!(html.matches("data-metric=").count(), metric::ALL.len());
        for part in ["64k · C=1", "10\u{2009}824.4", "written as 0, which means: no value", "no-prefix-caching", "data-test=\"requests\""]
        {
            assert!(html.contains(part), "{part}");
        }
        assert!(panel(&entry, Inspected::Burst(0)).is_none());
    }
}
