//! The place without a run: the first screen, or the list of reports with what failed and what the host offers.

use super::markup::Markup;
use crate::data::geometry::split_mark;
use crate::data::library::{Entry, Failed, Id, Library};
use crate::state::host::Hosted;
use tokscope_shared::metric::format_number;

/// The first screen or the list.
pub(super) fn home(library: &Library, selected: Option<Id>, hosted: &[Hosted]) -> Markup {
    if library.entries().is_empty() { first(library, hosted) } else { list(library, selected, hosted) }
}

fn first(library: &Library, hosted: &[Hosted]) -> Markup {
    let mut out = Markup::default();
    out.put(
        r#"<section class="first"><button class="drop" data-test="drop" data-do="pick"><strong>Drop report files here</strong><span>or click to pick them. They stay on this machine.</span></button>"#,
        &[],
    );
    failures(&mut out, library.failed());
    offered(&mut out, hosted);
    out.put(
        r#"<dl class="ways"><dt>No report at hand?</dt><dd><button class="link" data-test="sample" data-do="sample">Open the sample</button>: GLM‑5.3‑Flash on vLLM, three contexts at one stream.</dd><dt>To make one</dt><dd>on the machine where the server runs:<pre data-test="command">tokscope run --port 8000</pre>It writes <code>benchmark_results.json</code>. Reports of <code>llm_decode_bench</code> open too.</dd></dl></section>"#,
        &[],
    );
    out
}

fn list(library: &Library, selected: Option<Id>, hosted: &[Hosted]) -> Markup {
    let mut out = Markup::default();
    out.put(r#"<section class="library"><h1>Library</h1>"#, &[]);
    failures(&mut out, library.failed());
    out.put(
        r#"<div class="scroll"><table class="list" data-test="file-list"><thead><tr><th scope="col">run</th><th scope="col">engine</th><th scope="col">GPUs</th><th scope="col">saved</th><th scope="col" class="number">C</th><th scope="col" class="number">context</th><th scope="col" class="number">best tok/s</th><th scope="col">cells</th><th></th></tr></thead><tbody>"#,
        &[],
    );
    for (index, entry) in library.entries().iter().enumerate() {
        row(&mut out, entry, index, selected == Some(entry.id));
    }
    out.put("</tbody></table></div>", &[]);
    offered(&mut out, hosted);
    out.put(
        r#"<p class="faint">Drop more files anywhere, or <button class="link" data-test="sample" data-do="sample">open the sample</button>.</p></section>"#,
        &[],
    );
    out
}

fn row(out: &mut Markup, entry: &Entry, index: usize, selected: bool) {
    let summary = &entry.summary;
    let identity = &summary.identity;
    let engine = [identity.engine.as_deref(), identity.engine_version.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let gpus = identity.gpus.as_deref().unwrap_or_default();
    let (best, mark) = split_mark(&summary.best);
    let verdicts = if summary.worst.is_some() { &summary.verdicts } else { identity.kind };
    let (index, selected) = (index.to_string(), if selected { "true" } else { "false" });
    let model = identity.model.as_deref().unwrap_or("model not recorded");
    out.put(
        r#"<tr data-test="file" aria-selected="{}" data-do="open {}"><th scope="row"><button class="link">{}</button><small>{}</small></th>"#,
        &[selected, &index, model, &entry.name],
    );
    out.put(r#"<td class="clip" title="{}">{}</td><td class="clip" title="{}">{}</td>"#, &[&engine, &engine, gpus, gpus]);
    out.put(
        r#"<td class="date">{}</td><td class="number">{}</td><td class="number">{}</td><td class="number strong">{}<i class="mark">{}</i></td>"#,
        &[&summary.date, &summary.levels, &summary.contexts, best, mark],
    );
    out.put(
        r#"<td class="verdict" data-verdict="{}">{}</td><td><button class="icon quiet" title="Take off the list" aria-label="Take off the list" data-do="remove {}">✕</button></td></tr>"#,
        &[summary.worst.map_or("", |worst| worst.name()), verdicts, &index],
    );
}

/// Files that could not be read, each with the reason.
fn failures(out: &mut Markup, failed: &[Failed]) {
    if failed.is_empty() {
        return;
    }
    out.put(
        r#"<section class="failures"><h2>Not readable<button class="link" data-test="clear-errors" data-do="clear">clear</button></h2><dl>"#,
        &[],
    );
    for file in failed {
        out.put(r#"<dt>{}</dt><dd data-test="file-error">{}</dd>"#, &[&file.name, &file.reason]);
    }
    out.put("</dl></section>", &[]);
}

/// What the host offers.
fn offered(out: &mut Markup, hosted: &[Hosted]) {
    if hosted.is_empty() {
        return;
    }
    out.put(
        r#"<section class="hosted"><h2>On this host<button class="link" data-test="hosted-all" data-do="hosted-all">open all</button></h2><ul>"#,
        &[],
    );
    for (index, hosted) in hosted.iter().enumerate() {
        let size = hosted.size.map_or_else(String::new, |bytes| format!("{} kB", format_number(bytes as f64 / 1e3, 1)));
        out.put(
            r#"<li><button class="link" data-test="hosted" data-do="hosted {}">{}</button><small>{}</small></li>"#,
            &[&index.to_string(), &hosted.name, &size],
        );
    }
    out.put("</ul></section>", &[]);
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
