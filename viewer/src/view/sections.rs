//! What stands below the matrix: prefill, all cells, key numbers of other kinds of reports, events, method.

use super::markup::{Markup, el, tel, text};
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
    let mut all = Markup::default();
    if let Some(table) = render::prefill_table(report) {
        all.add(&section("Prefill", &plain(&table, "prefill")));
    }
    if entry.metrics().is_empty() {
        all.add(&key_numbers(entry));
    }
    all.add(&cells("Cells", "cells-table", report.cells().zip(&entry.review.cells), Inspected::Decode));
    all.add(&cells("Burst", "burst-table", report.burst_results.items().zip(&entry.review.burst), Inspected::Burst));
    all.add(&notes(entry));
    all
}

fn section(title: &str, inside: &Markup) -> Markup {
    let mut all = tel("h2", &[], title);
    all.add(inside);
    el("section", &[], &all)
}

/// A table whose first column is text and whose others are numbers. It scrolls inside itself.
pub(super) fn plain(table: &Table, test: &str) -> Markup {
    let head = table.head.iter().map(|head| tel("th", &[("scope", "col")], head)).collect();
    let rows = table.rows.iter().map(|row| el("tr", &[], &row.iter().map(|cell| tel("td", &[], cell)).collect())).collect();
    let mut inside = el("thead", &[], &el("tr", &[], &head));
    inside.add(&el("tbody", &[], &rows));
    el("div", &[("class", "scroll")], &el("table", &[("class", "plain"), ("data-test", test)], &inside))
}

/// Names with what belongs to them.
pub(super) fn definitions<'a>(facts: impl IntoIterator<Item = (&'a str, Markup)>) -> Markup {
    let mut all = Markup::default();
    for (label, inside) in facts {
        all.tel("dt", &[], label).add(&el("dd", &[], &inside));
    }
    el("dl", &[("class", "facts")], &all)
}

/// Key numbers of a report without a matrix.
fn key_numbers(entry: &Entry) -> Markup {
    let groups = facts::groups(&entry.report);
    let known = !groups.is_empty() || render::prefill_table(&entry.report).is_some();
    let mut all = Markup::default();
    if !known {
        all.tel("p", &[], "Nothing was measured in this report, or nothing that this version knows. Its settings and events are below.");
    }
    for group in groups {
        let mut inside = tel("h2", &[], group.title);
        inside.add(&definitions(group.facts.iter().map(|(label, value)| (*label, text(value)))));
        all.add(&el("div", &[], &inside));
    }
    el("section", &[("class", "groups"), ("data-test", "facts")], &all)
}

/// All cells with verdict and reasons.
fn cells<'a>(title: &str, test: &str, cells: impl Iterator<Item = (&'a Cell, &'a Judgement)>, open: fn(usize) -> Inspected) -> Markup {
    let rows: Vec<Markup> = cells.enumerate().map(|(index, (cell, judgement))| row(cell, judgement, open(index))).collect();
    if rows.is_empty() {
        return Markup::default();
    }
    let mut head = tel("th", &[("scope", "col")], "context");
    head.tel("th", &[("scope", "col"), ("class", "number")], "C");
    for metric in cell::columns() {
        head.tel("th", &[("scope", "col"), ("class", "number"), ("title", metric.definition)], &metric.head());
    }
    head.tel("th", &[("scope", "col")], "verdict").tel("th", &[("scope", "col")], "reasons");
    let mut table = el("thead", &[], &el("tr", &[], &head));
    table.add(&el("tbody", &[], &rows.into_iter().collect()));
    section(title, &el("div", &[("class", "scroll")], &el("table", &[("class", "list cells"), ("data-test", test)], &table)))
}

fn row(cell: &Cell, judgement: &Judgement, open: Inspected) -> Markup {
    let verdict = judgement.verdict.name();
    let mut line = cell::line(cell, judgement.verdict).into_iter();
    let context = line.next().unwrap_or_default();
    let mut inside = el("th", &[("scope", "row")], &tel("button", &[("class", "link")], &context));
    for text in line {
        inside.tel("td", &[("class", "number")], &text);
    }
    inside.tel("td", &[("class", "verdict"), ("data-verdict", verdict)], verdict);
    inside.tel("td", &[("class", "reasons")], &cell::reasons(judgement));
    el("tr", &[("data-test", "cell-row"), ("data-cell", &open.name()), ("data-verdict", verdict)], &inside)
}

/// Events, method and settings, folded.
fn notes(entry: &Entry) -> Markup {
    let events = facts::events(&entry.report);
    let settings = facts::settings(&entry.bytes);
    let methods = facts::methods(&entry.report);
    let mut all = Markup::default();
    if !events.is_empty() {
        all.add(&folded(&format!("Events {}", events.len()), "events", &tel("pre", &[], &events.join("\n"))));
    }
    if !methods.is_empty() {
        let said = |texts: Vec<String>| texts.iter().map(|text| tel("p", &[], text)).collect();
        all.add(&folded("Method", "methodology", &definitions(methods.into_iter().map(|(title, texts)| (title, said(texts))))));
    }
    if !settings.is_empty() {
        all.add(&folded("Settings as recorded", "settings", &tel("pre", &[], &settings)));
    }
    el("section", &[("class", "notes")], &all)
}

fn folded(title: &str, test: &str, inside: &Markup) -> Markup {
    let mut all = tel("summary", &[], title);
    all.add(inside);
    el("details", &[("data-test", test)], &all)
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
