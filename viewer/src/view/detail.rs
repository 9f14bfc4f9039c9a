//! The panel with everything a report says of one cell.

use super::markup::Markup;
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
    let mut out = Markup::default();
    out.put(
        r#"<header><h2>{}{}</h2><span class="verdict" data-verdict="{}">{}</span><button class="icon" data-test="close-detail" data-do="close" title="Close (Esc)" aria-label="Close">✕</button></header><p class="faint">{}</p><ul class="findings">"#,
        &[layer, &place(cell), verdict, verdict, &sample(cell)],
    );
    for reason in &judgement.reasons {
        let kind = if reason.verdict == Verdict::Valid { "hint" } else { reason.verdict.name() };
        said(&mut out, [kind, kind, &reason.code], &reason.text, &reason.code);
    }
    out.put(r#"</ul><table class="metrics" data-test="detail-metrics">"#, &[]);
    for metric in metric::ALL {
        line(&mut out, metric, cell);
    }
    out.put("</table>", &[]);
    if let Some(table) = distributions(cell) {
        out.put("<h2>Inside the window</h2>", &[]);
        plain(&mut out, &table, "distributions");
    }
    if let Some((table, more)) = requests(cell, REQUESTS) {
        out.put("<h2>Requests</h2>", &[]);
        plain(&mut out, &table, "requests");
        if more > 0 {
            out.put(r#"<p class="faint">and {} more in the file</p>"#, &[&more.to_string()]);
        }
    }
    out.put("<h2>How it was measured</h2>", &[]);
    definitions(&mut out, &circumstances(cell));
    Some(out)
}

fn line(out: &mut Markup, metric: &Metric, cell: &Cell) {
    let reading = metric.read(cell);
    match reading.value() {
        Some(value) => out.put(
            r#"<tr data-metric="{}"><th scope="row" title="{}">{}</th><td class="number" title="{} {} · {}">{}</td><td>{}</td></tr>"#,
            &[
                metric.id,
                metric.definition,
                metric.label,
                &value.to_string(),
                metric.unit,
                metric.source,
                &metric.format(value),
                metric.unit,
            ],
        ),
        None => out.put(
            r#"<tr class="absent" data-metric="{}"><th scope="row" title="{}">{}</th><td class="number" colspan="2">{}</td></tr>"#,
            &[metric.id, metric.definition, metric.label, reading.absence().unwrap_or_default()],
        ),
    }
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
