//! Contexts by concurrency as numbers on a heat scale, and the lines that answer what a number is.

use super::markup::Markup;
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
    let mut out = Markup::default();
    out.put(r#"<div class="tools"><label for="metric">metric</label><select id="metric" data-test="metric-select">"#, &[]);
    for metric in entry.metrics() {
        let template = if metric.id == chosen { r#"<option value="{}" selected>{}</option>"# } else { r#"<option value="{}">{}</option>"# };
        out.put(template, &[metric.id, &metric.head()]);
    }
    out.put(r#"</select><button data-test="copy-markdown" data-do="copy">Copy as Markdown</button></div>"#, &[]);
    out
}

/// The marks in the matrix, in words.
pub(super) fn legend(entry: &Entry, metric: &Metric) -> Markup {
    let mut out = Markup::default();
    out.put("{}", &[&render::legend(&render::matrix_table(&entry.report, &entry.review, metric))]);
    out
}

/// The numbers.
pub(super) fn grid(entry: &Entry, metric: &Metric, asked: Option<At>) -> Markup {
    let heat = Heat::new(entry, metric);
    let mut out = Markup::default();
    out.put(
        r#"<table class="matrix" role="grid" data-test="matrix" data-metric="{}"><thead><tr><th scope="col" class="corner">context</th>"#,
        &[metric.id],
    );
    for level in &entry.matrix.levels {
        out.put(r#"<th scope="col"><span>C=</span>{}</th>"#, &[&level.to_string()]);
    }
    out.put("</tr></thead><tbody>", &[]);
    for (row, (context, slots)) in entry.matrix.rows().enumerate() {
        out.put(r#"<tr><th scope="row">{}</th>"#, &[&context_label(context)]);
        for (column, slot) in slots.iter().enumerate() {
            cell(&mut out, entry, metric, heat, slot, (row, column), asked);
        }
        out.put("</tr>", &[]);
    }
    out.put("</tbody></table>", &[]);
    out
}

fn cell(out: &mut Markup, entry: &Entry, metric: &Metric, heat: Option<Heat>, slot: &Slot, at: At, asked: Option<At>) {
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
    out.put(
        r#"<td id="{}" role="gridcell" tabindex="{}" class="{}" data-at="{}" data-test="cell" data-context="{}" data-concurrency="{}" data-verdict="{}""#,
        &[
            &cell_id(at),
            if asked.unwrap_or_default() == at { "0" } else { "-1" },
            if asked == Some(at) { "asked" } else { "" },
            &place_name(at),
            &entry.matrix.contexts[at.0].to_string(),
            &entry.matrix.levels[at.1].to_string(),
            verdict,
        ],
    );
    if let Some((value, heat)) = value.zip(heat).filter(|_| verdict != "invalid") {
        out.put(r#" style="--h:{}""#, &[&format!("{:.3}", heat.of(value))]);
    }
    // Struck only where there is a number to strike.
    let struck = verdict == "invalid" && value.is_some();
    let template = if struck { r#"><s>{}</s><i class="mark">{}</i></td>"# } else { r#"><span>{}</span><i class="mark">{}</i></td>"# };
    out.put(template, &[number, mark]);
}

/// What the number that is asked about is: raw value, sample, verdict and reasons.
pub(super) fn answer(entry: &Entry, metric: &Metric, asked: Option<At>) -> Markup {
    let mut out = Markup::default();
    let Some(at) = asked else {
        out.put("<p>Point at a number, or go to it with the arrow keys. Enter opens the cell.</p>", &[]);
        define(&mut out, metric);
        return out;
    };
    let (Some(context), Some(level)) = (entry.matrix.contexts.get(at.0), entry.matrix.levels.get(at.1)) else { return out };
    let place = format!("{} · C={level}", context_label(*context));
    let slot = entry.matrix.at(at.0, at.1);
    let found = cell_at(entry, at).and_then(|index| Some((entry.report.cells().nth(index)?, entry.review.cells.get(index)?)));
    let Some((cell, judgement)) = found else {
        let why = if let Slot::LeftOut(why) = slot { format!("left out: {why}") } else { "not in the report".to_owned() };
        out.put("<p><b>{}</b> {}</p>", &[&place, &why]);
        return out;
    };
    let (shown, verdict) = (shown_at(metric, slot, &entry.report, &entry.review), judgement.verdict.name());
    out.put(
        r#"<p><b>{}</b> {} <b class="big">{}</b> {}<span class="verdict" data-verdict="{}">{}</span></p>"#,
        &[&place, metric.label, &shown, metric.unit, verdict, verdict],
    );
    out.put(
        r#"<p class="faint"><span data-test="raw">{}</span> · {} · <code>{}</code></p>"#,
        &[&raw(metric, cell), &sample(cell), metric.source],
    );
    define(&mut out, metric);
    for reason in &judgement.reasons {
        out.put("<p><code>{}</code> {}</p>", &[&reason.code, &reason.text]);
    }
    out
}

fn define(out: &mut Markup, metric: &Metric) {
    out.put(r#"<p class="faint" data-test="definition">{}</p>"#, &[metric.definition]);
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
