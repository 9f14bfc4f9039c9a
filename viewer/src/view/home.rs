//! The place without a run: the first screen, or the list of reports with what failed and what the host offers.

use super::act::DO;
use super::markup::{Markup, el, tel, text};
use crate::data::geometry::split_mark;
use crate::data::library::{Entry, Failed, Id, Library};
use crate::state::host::Hosted;
use tokscope_shared::metric::format_number;

/// The first screen or the list.
pub(super) fn home(library: &Library, selected: Option<Id>, hosted: &[Hosted]) -> Markup {
    if library.entries().is_empty() { first(library, hosted) } else { list(library, selected, hosted) }
}

fn link(test: &str, what: &str, label: &str) -> Markup {
    tel("button", &[("class", "link"), ("data-test", test), (DO, what)], label)
}

fn first(library: &Library, hosted: &[Hosted]) -> Markup {
    let mut target = tel("strong", &[], "Drop report files here");
    target.tel("span", &[], "or click to pick them. They stay on this machine.");
    let mut sample = link("sample", "sample", "Open the sample");
    sample.text(": GLM\u{2011}5.3\u{2011}Flash on vLLM, three contexts at one stream.");
    let mut make = text("on the machine where the server runs:");
    make.tel("pre", &[("data-test", "command")], "tokscope run --port 8000").text("It writes ").tel("code", &[], "benchmark_results.json");
    make.text(". Reports of ").tel("code", &[], "llm_decode_bench").text(" open too.");
    let mut ways = tel("dt", &[], "No report at hand?");
    ways.add(&el("dd", &[], &sample)).tel("dt", &[], "To make one").add(&el("dd", &[], &make));
    let mut all = el("button", &[("class", "drop"), ("data-test", "drop"), (DO, "pick")], &target);
    all.add(&failures(library.failed())).add(&offered(hosted)).add(&el("dl", &[("class", "ways")], &ways));
    el("section", &[("class", "first")], &all)
}

fn list(library: &Library, selected: Option<Id>, hosted: &[Hosted]) -> Markup {
    let head: Markup = [
        ("run", ""),
        ("engine", ""),
        ("GPUs", ""),
        ("saved", ""),
        ("C", "number"),
        ("context", "number"),
        ("best tok/s", "number"),
        ("cells", ""),
        ("", ""),
    ]
    .into_iter()
    .map(|(label, class)| tel("th", &[("scope", "col"), ("class", class)], label))
    .collect();
    let rows: Markup = library.entries().iter().enumerate().map(|(index, entry)| row(entry, index, selected == Some(entry.id))).collect();
    let mut table = el("thead", &[], &el("tr", &[], &head));
    table.add(&el("tbody", &[], &rows));
    let mut more = text("Drop more files anywhere, or ");
    more.add(&link("sample", "sample", "open the sample")).text(".");
    let mut all = tel("h1", &[], "Library");
    all.add(&failures(library.failed()));
    all.add(&el("div", &[("class", "scroll")], &el("table", &[("class", "list"), ("data-test", "file-list")], &table)));
    all.add(&offered(hosted)).add(&el("p", &[("class", "faint")], &more));
    el("section", &[("class", "library")], &all)
}

fn row(entry: &Entry, index: usize, selected: bool) -> Markup {
    let summary = &entry.summary;
    let identity = &summary.identity;
    let engine = [identity.engine.as_deref(), identity.engine_version.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let gpus = identity.gpus.as_deref().unwrap_or_default();
    let (best, mark) = split_mark(&summary.best);
    let verdicts = if summary.worst.is_some() { &summary.verdicts } else { identity.kind };
    let mut name = tel("button", &[("class", "link")], identity.model.as_deref().unwrap_or("model not recorded"));
    name.tel("small", &[], &entry.name);
    let mut cells = el("th", &[("scope", "row")], &name);
    cells.tel("td", &[("class", "clip"), ("title", &engine)], &engine);
    cells.tel("td", &[("class", "clip"), ("title", gpus)], gpus);
    cells.tel("td", &[("class", "date")], &summary.date);
    cells.tel("td", &[("class", "number")], &summary.levels);
    cells.tel("td", &[("class", "number")], &summary.contexts);
    let mut rate = text(best);
    rate.tel("i", &[("class", "mark")], mark);
    cells.add(&el("td", &[("class", "number strong")], &rate));
    cells.tel("td", &[("class", "verdict"), ("data-verdict", summary.worst.map_or("", |worst| worst.name()))], verdicts);
    let remove = format!("remove {index}");
    let away = [("class", "icon quiet"), ("title", "Take off the list"), ("aria-label", "Take off the list"), (DO, &remove)];
    cells.add(&el("td", &[], &tel("button", &away, "✕")));
    let open = format!("open {index}");
    el("tr", &[("data-test", "file"), ("aria-selected", if selected { "true" } else { "false" }), (DO, &open)], &cells)
}

/// Files that could not be read, each with the reason.
fn failures(failed: &[Failed]) -> Markup {
    if failed.is_empty() {
        return Markup::default();
    }
    let mut head = text("Not readable");
    head.add(&link("clear-errors", "clear", "clear"));
    let mut files = Markup::default();
    for file in failed {
        files.tel("dt", &[], &file.name).tel("dd", &[("data-test", "file-error")], &file.reason);
    }
    let mut all = el("h2", &[], &head);
    all.add(&el("dl", &[], &files));
    el("section", &[("class", "failures")], &all)
}

/// What the host offers.
fn offered(hosted: &[Hosted]) -> Markup {
    if hosted.is_empty() {
        return Markup::default();
    }
    let mut head = text("On this host");
    head.add(&link("hosted-all", "hosted-all", "open all"));
    let items: Markup = hosted
        .iter()
        .enumerate()
        .map(|(index, hosted)| {
            let mut item = link("hosted", &format!("hosted {index}"), &hosted.name);
            if let Some(bytes) = hosted.size {
                item.tel("small", &[], &format!("{} kB", format_number(bytes as f64 / 1e3, 1)));
            }
            el("li", &[], &item)
        })
        .collect();
    let mut all = el("h2", &[], &head);
    all.add(&el("ul", &[], &items));
    el("section", &[("class", "hosted")], &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_screen_has_the_target_the_sample_and_the_command() {
        let html = first(&Library::default(), &[]).into_html();
        for part in ["data-test=\"drop\"", "data-test=\"sample\"", "tokscope run --port 8000"] {
            assert!(html.contains(part), "{part}");
        }
        assert!(!html.contains("Not readable"));
    }

    #[test]
    fn a_name_with_markup_in_it_stays_text() {
        let mut library = Library::default();
        library.add("<img src=x onerror=alert(1)>", None, b"{");
        library.add("ok", None, br#"{"metadata": {"model": "<b>m</b>"}, "results": []}"#);
        let html = list(&library, None, &[]).into_html();
        assert!(html.contains("&lt;img src=x") && html.contains("&lt;b&gt;m&lt;/b&gt;"));
        assert!(!html.contains("<img") && !html.contains("<b>m"));
    }

    #[test]
    fn reports_and_failed_files_stand_together_in_the_list() {
        let mut library = Library::default();
        library.add("a.json", None, crate::data::sample());
        library.add("empty.json", None, b"");
        let html = list(&library, None, &[]).into_html();
        assert!(html.contains("GLM-5.3-Flash-EXL3-4bpw") && html.contains(">151.5<") && html.contains("3 valid"));
        assert!(html.contains("data-test=\"file-error\">the file is empty"));
    }
}
