//! What stands below the matrix: prefill, all cells, key numbers of other kinds of reports, events, method.

use super::markup::Markup;
use crate::data::cell;
use crate::data::facts;
use crate::data::library::Entry;
use crate::state::Inspected;
use tokscope_shared::render::{self, Table};
use tokscope_shared::report::cell::Cell;
use tokscope_shared::verdict::Judgement;

/// Everything below the matrix.
pub(super) fn sections(entry: &Entry) -> Markup {
    let report = &entry.report;
    let mut out = Markup::default();
    if let Some(table) = render::prefill_table(report) {
        out.put("<section><h2>Prefill</h2>", &[]);
        plain(&mut out, &table, "prefill");
        out.put("</section>", &[]);
    }
    if entry.metrics().is_empty() {
        key_numbers(&mut out, entry);
    }
    let decode: Vec<_> = report.cells().zip(&entry.review.cells).collect();
    let burst: Vec<_> = report.burst_results.items().zip(&entry.review.burst).collect();
    cells(&mut out, ["Cells", "cells-table"], &decode, Inspected::Decode);
    cells(&mut out, ["Burst", "burst-table"], &burst, Inspected::Burst);
    notes(&mut out, entry);
    out
}

/// A table whose first column is text and whose others are numbers. It scrolls inside itself.
pub(super) fn plain(out: &mut Markup, table: &Table, test: &str) {
    out.put(r#"<div class="scroll"><table class="plain" data-test="{}"><thead><tr>"#, &[test]);
    for head in &table.head {
        out.put(r#"<th scope="col">{}</th>"#, &[head]);
    }
    out.put("</tr></thead><tbody>", &[]);
    for row in &table.rows {
        out.put("<tr>", &[]);
        for cell in row {
            out.put("<td>{}</td>", &[cell]);
        }
        out.put("</tr>", &[]);
    }
    out.put("</tbody></table></div>", &[]);
}

/// Names with what belongs to them.
pub(super) fn definitions(out: &mut Markup, facts: &[(&'static str, String)]) {
    out.put(r#"<dl class="facts">"#, &[]);
    for (label, value) in facts {
        out.put("<dt>{}</dt><dd>{}</dd>", &[label, value]);
    }
    out.put("</dl>", &[]);
}

/// Key numbers of a report without a matrix.
fn key_numbers(out: &mut Markup, entry: &Entry) {
    let groups = facts::groups(&entry.report);
    out.put(r#"<section class="groups" data-test="facts">"#, &[]);
    if groups.is_empty() && render::prefill_table(&entry.report).is_none() {
        out.put("<p>Nothing was measured in this report, or nothing that this version knows. Its settings and events are below.</p>", &[]);
    }
    for group in groups {
        out.put("<div><h2>{}</h2>", &[group.title]);
        definitions(out, &group.facts);
        out.put("</div>", &[]);
    }
    out.put("</section>", &[]);
}

/// All cells with verdict and reasons.
fn cells(out: &mut Markup, [title, test]: [&str; 2], cells: &[(&Cell, &Judgement)], open: fn(usize) -> Inspected) {
    if cells.is_empty() {
        return;
    }
    out.put(
        r#"<section><h2>{}</h2><div class="scroll"><table class="list cells" data-test="{}"><thead><tr><th scope="col">context</th><th scope="col" class="number">C</th>"#,
        &[title, test],
    );
    for metric in cell::columns() {
        out.put(r#"<th scope="col" class="number" title="{}">{}</th>"#, &[metric.definition, &metric.head()]);
    }
    out.put(r#"<th scope="col">verdict</th><th scope="col">reasons</th></tr></thead><tbody>"#, &[]);
    for (index, (cell, judgement)) in cells.iter().enumerate() {
        let verdict = judgement.verdict.name();
        let mut line = cell::line(cell, judgement.verdict).into_iter();
        out.put(
            r#"<tr data-test="cell-row" data-cell="{}" data-verdict="{}"><th scope="row"><button class="link">{}</button></th>"#,
            &[&open(index).name(), verdict, &line.next().unwrap_or_default()],
        );
        for text in line {
            out.put(r#"<td class="number">{}</td>"#, &[&text]);
        }
        out.put(
            r#"<td class="verdict" data-verdict="{}">{}</td><td class="reasons">{}</td></tr>"#,
            &[verdict, verdict, &cell::reasons(judgement)],
        );
    }
    out.put("</tbody></table></div></section>", &[]);
}

/// Events, method and settings, folded.
fn notes(out: &mut Markup, entry: &Entry) {
    let events = facts::events(&entry.report);
    let settings = facts::settings(&entry.bytes);
    let methods = facts::methods(&entry.report);
    out.put(r#"<section class="notes">"#, &[]);
    if !events.is_empty() {
        out.put(
            r#"<details data-test="events"><summary>Events <small>{}</small></summary><pre>{}</pre></details>"#,
            &[&events.len().to_string(), &events.join("\n")],
        );
    }
    if !methods.is_empty() {
        out.put(r#"<details data-test="methodology"><summary>Method</summary><dl class="facts">"#, &[]);
        for (title, texts) in methods {
            out.put("<dt>{}</dt><dd>", &[title]);
            for text in texts {
                out.put("<p>{}</p>", &[&text]);
            }
            out.put("</dd>", &[]);
        }
        out.put("</dl></details>", &[]);
    }
    if !settings.is_empty() {
        out.put(r#"<details data-test="settings"><summary>Settings as recorded</summary><dl class="facts">"#, &[]);
        for (key, value) in settings {
            out.put("<dt><code>{}</code></dt><dd><code>{}</code></dd>", &[&key, &value]);
        }
        out.put("</dl></details>", &[]);
    }
    out.put("</section>", &[]);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::data::library::Library;

    fn html(bytes: &[u8]) -> String {
        let mut library = Library::default();
        let id = library.add("a", None, bytes).id().unwrap();
        sections(&library.get(id).unwrap()).into_html()
    }

    #[test]
    fn every_cell_is_listed_with_its_verdict_and_reasons() {
        let html = html(crate::data::sample());
        assert_eq!(html.matches("data-test=\"cell-row\"").count(), 3);
        assert!(html.contains("data-cell=\"decode-2\"") && html.contains("10.8 s at 64k"));
        assert!(html.contains("data-test=\"events\"") && !html.contains("data-test=\"facts\""));
    }

    #[test]
    fn a_profile_shows_its_key_numbers_and_no_table_of_cells() {
        let html = html(br#"{"metadata": {"mode": "completion_stats"}, "selected_summary": {"attempted": 30}}"#);
        assert!(html.contains("<dt>attempted</dt><dd>30</dd>") && !html.contains("cells-table"), "{html}");
    }

    #[test]
    fn a_report_without_anything_says_so() {
        assert!(html(br#"{"metadata": {"model": "m"}, "results": []}"#).contains("Nothing was measured"));
    }
}
