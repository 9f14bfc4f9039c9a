//! Contexts by concurrency as numbers on a heat scale, and the lines that answer what a number is.

use super::act::DO;
use super::markup::{Markup, el, tel, text};
use crate::data::cell::{raw, sample};
use crate::data::geometry::{Heat, cell_at, place_name, split_mark};
use crate::data::library::Entry;
use tokscope_shared::matrix::{Slot, shown_at};
use tokscope_shared::metric::Metric;
use tokscope_shared::render;
use tokscope_shared::report::identity::context_label;

/// Row and column.
type At = (usize, usize);

/// The element of a place in the matrix.
pub(super) fn cell_id(at: At) -> String {
    format!("cell-{}", place_name(at))
}

/// The metric chooser and the copy button.
pub(super) fn tools(entry: &Entry, chosen: &str) -> Markup {
    let options = entry.metrics().into_iter().map(|metric| {
        let attributes = [("value", metric.id), ("selected", "")];
        tel("option", if metric.id == chosen { &attributes } else { &attributes[..1] }, &metric.head())
    });
    let mut all = tel("label", &[("for", "metric")], "metric");
    all.add(&el("select", &[("id", "metric"), ("data-test", "metric-select")], &options.collect()));
    all.tel("button", &[("data-test", "copy-markdown"), (DO, "copy")], "Copy as Markdown");
    el("div", &[("class", "tools")], &all)
}

/// The marks in the matrix, in words.
pub(super) fn legend(entry: &Entry, metric: &Metric) -> Markup {
    text(&render::legend(&render::matrix_table(&entry.report, &entry.review, metric)))
}

/// The numbers.
pub(super) fn grid(entry: &Entry, metric: &Metric, asked: Option<At>) -> Markup {
    let heat = Heat::new(entry, metric);
    let mut head = tel("th", &[("scope", "col"), ("class", "corner")], "context");
    for level in &entry.matrix.levels {
        let mut label = tel("span", &[], "C=");
        label.text(&level.to_string());
        head.add(&el("th", &[("scope", "col")], &label));
    }
    let rows = entry.matrix.rows().enumerate().map(|(row, (context, slots))| {
        let mut line = tel("th", &[("scope", "row")], &context_label(context));
        for (column, slot) in slots.iter().enumerate() {
            line.add(&cell(entry, metric, heat, slot, (row, column), asked));
        }
        el("tr", &[], &line)
    });
    let mut table = el("thead", &[], &el("tr", &[], &head));
    table.add(&el("tbody", &[], &rows.collect()));
    el("table", &[("class", "matrix"), ("role", "grid"), ("data-test", "matrix"), ("data-metric", metric.id)], &table)
}

fn cell(entry: &Entry, metric: &Metric, heat: Option<Heat>, slot: &Slot, at: At, asked: Option<At>) -> Markup {
    let shown = shown_at(metric, slot, &entry.report, &entry.review);
    let (number, mark) = split_mark(&shown);
    let (value, verdict) = match slot {
        Slot::Cell(index) => {
            let value = entry.report.cells().nth(*index).and_then(|cell| metric.read(cell).value());
            (value, entry.review.cells.get(*index).map_or("", |judgement| judgement.verdict.name()))
        }
        Slot::LeftOut(_) => (None, "left-out"),
        Slot::Missing => (None, "missing"),
    };
    let warmth = value.zip(heat).filter(|_| verdict != "invalid").map(|(value, heat)| format!("--h:{:.3}", heat.of(value)));
    let (id, name) = (cell_id(at), place_name(at));
    let (context, level) = (entry.matrix.contexts[at.0].to_string(), entry.matrix.levels[at.1].to_string());
    // Struck only where there is a number to strike.
    let mut inside = tel(if verdict == "invalid" && value.is_some() { "s" } else { "span" }, &[], number);
    inside.tel("i", &[("class", "mark")], mark);
    let attributes = [
        ("id", id.as_str()),
        ("role", "gridcell"),
        ("tabindex", if asked.unwrap_or_default() == at { "0" } else { "-1" }),
        ("class", if asked == Some(at) { "asked" } else { "" }),
        ("data-at", &name),
        ("data-test", "cell"),
        ("data-context", &context),
        ("data-concurrency", &level),
        ("data-verdict", verdict),
        ("style", warmth.as_deref().unwrap_or_default()),
    ];
    el("td", if warmth.is_some() { &attributes } else { &attributes[..9] }, &inside)
}

/// What the number that is asked about is: raw value, sample, verdict and reasons.
pub(super) fn answer(entry: &Entry, metric: &Metric, asked: Option<At>) -> Markup {
    let definition = tel("p", &[("class", "faint"), ("data-test", "definition")], metric.definition);
    let Some(at) = asked else {
        let mut all = tel("p", &[], "Point at a number, or go to it with the arrow keys. Enter opens the cell.");
        all.add(&definition);
        return all;
    };
    let (Some(context), Some(level)) = (entry.matrix.contexts.get(at.0), entry.matrix.levels.get(at.1)) else { return definition };
    let mut first = tel("b", &[], &format!("{} · C={level}", context_label(*context)));
    let slot = entry.matrix.at(at.0, at.1);
    let found = cell_at(entry, at).and_then(|index| Some((entry.report.cells().nth(index)?, entry.review.cells.get(index)?)));
    let Some((cell, judgement)) = found else {
        first.text(&if let Slot::LeftOut(why) = slot { format!(" left out: {why}") } else { " not in the report".to_owned() });
        return el("p", &[], &first);
    };
    let verdict = judgement.verdict.name();
    first.text(&format!(" {} ", metric.label)).tel("b", &[("class", "big")], &shown_at(metric, slot, &entry.report, &entry.review));
    first.text(&format!(" {}", metric.unit)).tel("span", &[("class", "verdict"), ("data-verdict", verdict)], verdict);
    let mut second = tel("span", &[("data-test", "raw")], &raw(metric, cell));
    second.text(&format!(" · {} · ", sample(cell))).tel("code", &[], metric.source);
    let reasons = judgement.reasons.iter().map(|reason| {
        let mut line = tel("code", &[], &reason.code);
        line.text(&format!(" {}", reason.text));
        el("li", &[], &line)
    });
    let mut all = el("p", &[], &first);
    all.add(&el("p", &[("class", "faint")], &second)).add(&definition).add(&el("ul", &[], &reasons.collect()));
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::data::library::Library;
    use std::sync::Arc;
    use tokscope_shared::metric;

    fn entry(cells: &str) -> Arc<Entry> {
        let mut library = Library::default();
        let text = format!(r#"{{"metadata": {{"model": "m"}}, "results": [{cells}]}}"#);
        let id = library.add("a", None, text.as_bytes()).id().unwrap();
        library.get(id).unwrap()
    }

    fn rate() -> &'static Metric {
        metric::by_id("aggregate-tps").unwrap()
    }

    const CELLS: &str = r#"{"context_tokens": 0, "concurrency": 1, "aggregate_tps": 10.0, "aggregate_source": "openai_continuous_usage"},
        {"context_tokens": 0, "concurrency": 4, "aggregate_tps": 30.0, "aggregate_source": "openai_continuous_usage", "underfilled": true},
        {"context_tokens": 1024, "concurrency": 1, "aggregate_tps": 20.0, "num_errors": 1}"#;

    #[test]
    fn a_number_that_is_not_valid_never_stands_bare() {
        let html = grid(&entry(CELLS), rate(), None).into_html();
        assert!(
            html.contains(r#"data-concurrency="1" data-verdict="valid" style="--h:0.000"><span>10.0</span><i class="mark"></i>"#),
            "{html}"
        );
        assert!(html.contains(r#"data-verdict="limited" style="--h:1.000"><span>30.0</span><i class="mark">*</i>"#));
        assert!(html.contains(r#"data-verdict="invalid"><s>20.0</s><i class="mark">✗</i>"#));
        assert!(html.contains(r#"data-verdict="missing"><span>—</span>"#));
        assert_eq!(legend(&entry(CELLS), rate()).into_html(), "* limited · ✗ invalid · — no value");
    }

    #[test]
    fn one_cell_is_reachable_by_tab_and_the_asked_one_is_marked() {
        let html = grid(&entry(CELLS), rate(), Some((1, 0))).into_html();
        assert_eq!(html.matches(r#"tabindex="0""#).count(), 1);
        assert!(html.contains(r#"id="cell-1-0" role="gridcell" tabindex="0" class="asked""#), "{html}");
    }

    #[test]
    fn the_answer_has_raw_value_sample_definition_verdict_and_reasons() {
        let entry = entry(CELLS);
        let html = answer(&entry, rate(), Some((0, 1))).into_html();
        for part in ["<b>0 · C=4</b>", "30.0*", "30 tok/s", "limited", "underfilled", rate().definition] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert!(answer(&entry, rate(), Some((1, 1))).into_html().contains("not in the report"));
    }
}
