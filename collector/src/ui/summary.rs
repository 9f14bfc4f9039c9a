//! What is printed after a run: the tables of what was measured, with what can't be believed marked and said in words.

use super::tables::{self, Part, beside, within};
use super::width::{fitted, width};
use super::{Left, in_line, left_out_lines, say};
use tokscope_shared::render::{Table, answer_limits, legend, prefill_table};
use tokscope_shared::report::Report;
use tokscope_shared::report::cell::Cell;
use tokscope_shared::report::identity::context_label;
use tokscope_shared::verdict::{Judgement, Review, Verdict};

/// Prints the tables and the verdict.
pub fn print_summary(report: &Report, review: &Review) {
    say(&summary(report, review, width()));
}

/// All of it as text.
pub(super) fn summary(report: &Report, review: &Review, width: usize) -> String {
    let id = report.identity();
    let engine = [id.engine.as_deref(), id.engine_version.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let mut blocks =
        vec![format!("\n{}", in_line(&format!("{} · {engine} · {}", id.model.unwrap_or_default(), id.server.unwrap_or_default())))];
    let finite = report.metadata.get().and_then(|meta| meta.request_count.i64()).unwrap_or(0) > 0;
    let primary_layer = if finite { "burst_e2e_decode" } else { "sustained_decode" };
    let primary = Part::new(report, &[primary_layer], report.cells(), &review.cells);
    let burst = Part::new(report, if finite { &[] } else { &["burst_e2e_decode"] }, report.burst_results.items(), &review.burst);

    let rate = if finite { tables::finite } else { tables::rate };
    let head = if finite { "Tokens a second of finite requests (done/wanted)" } else { "Sustained decode, tok/s" };
    let lengths = answer_limits(report, report.cells());
    let main = (!primary.is_empty()).then(|| titled(&format!("{head} · {lengths}"), &primary.matrix(rate), width));
    let prefill = prefill_table(report).map(|table| titled("Prefill", &table, width));
    blocks.extend(match (prefill, main) {
        (Some(prefill), Some(main)) => vec![beside(&prefill, &main, width)],
        (prefill, main) => prefill.into_iter().chain(main).collect(),
    });
    blocks.extend(legend_of(&primary.matrix(rate)));
    let ttft = ttft_title(report, report.cells());
    blocks.extend(pairs(&matrices(&primary, &lengths, &ttft, width), width));
    if !burst.is_empty() {
        let lengths = answer_limits(report, report.burst_results.items());
        blocks.push(titled(&format!("Bursts, tok/s (requests done/wanted) · {lengths}"), &burst.matrix(tables::finite), width));
        blocks.extend(legend_of(&burst.matrix(tables::finite)));
        let ttft = ttft_title(report, report.burst_results.items());
        blocks.extend(pairs(&matrices(&burst, &lengths, &ttft, width), width));
    }
    if let Some(table) = tables::open_loop(report) {
        let cells = report.tokscope.get().into_iter().flat_map(|own| own.open_loop.items());
        blocks.push(titled_by(&format!("Open loop, times in ms · {}", answer_limits(report, cells)), &table, 2, width));
        blocks.extend(legend_of(&table));
    }
    if let Some(table) = tables::repeats(report) {
        let repeats = report.tokscope.get().into_iter().flat_map(|own| own.repeats.items()).filter_map(|repeat| repeat.cell.get());
        blocks.push(titled_by(&format!("Repeats, tok/s · {}", answer_limits(report, repeats)), &table, 3, width));
    }
    blocks.push(fitted(&words(report, review)));
    blocks.join("\n\n")
}

/// The tables beside the rate, as far as there are values.
fn matrices(part: &Part<'_>, lengths: &str, ttft: &str, width: usize) -> Vec<String> {
    let of = |head: &str, show: fn(&Cell) -> Option<String>| part.any(show).then(|| titled(head, &part.matrix(show), width));
    let user = part.metric("user-tps-p50").map(|(head, table)| titled(&format!("{head} · {lengths}"), &table, width));
    [
        user,
        of(ttft, tables::ttft_itl),
        of("Request latency, p50 / p90, ms", tables::latency),
        of("Steps/s (acceptance length)", tables::steps),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What stands above times to the first token: next to those of prefill they are short where only a prompt's end is
/// computed.
fn ttft_title<'a>(report: &Report, cells: impl Iterator<Item = &'a Cell>) -> String {
    const TITLE: &str = "TTFT / ITL, median, ms";
    let own = report.tokscope.get().and_then(|own| own.server.get()?.prefix_cache.get());
    let works = own.and_then(|found| found.finding.str()) == Some("works");
    let mut cells = cells.filter(|cell| cell.context_tokens.i64().is_some_and(|tokens| tokens > 0)).peekable();
    let kept = cells.peek().is_some() && cells.all(|cell| is_context_kept(cell, works));
    if kept { format!("{TITLE} · contexts already cached") } else { TITLE.to_owned() }
}

/// Whether a cell's requests found their context in the server's cache: as it told, else as it `works` in general.
fn is_context_kept(cell: &Cell, works: bool) -> bool {
    let Some(prompt) = cell.tokscope.get().and_then(|own| own.prompt.get()) else { return false };
    let common = matches!(prompt.mode.str(), Some("shared" | "identical"));
    common && works && prompt.cached_share.f64().is_none_or(|share| share > 0.5)
}

/// Blocks two by two.
fn pairs(blocks: &[String], width: usize) -> Vec<String> {
    blocks
        .chunks(2)
        .map(|pair| match pair {
            [left, right] => beside(left, right, width),
            other => other.join("\n\n"),
        })
        .collect()
}

fn titled(title: &str, table: &Table, width: usize) -> String {
    titled_by(title, table, 1, width)
}

/// With lines that are told apart by so many columns.
fn titled_by(title: &str, table: &Table, keys: usize, width: usize) -> String {
    format!("{title}\n{}", within(table, keys, width))
}

fn legend_of(table: &Table) -> Option<String> {
    Some(legend(table)).filter(|marks| !marks.is_empty())
}

/// The verdict, and each doubt in words.
fn words(report: &Report, review: &Review) -> String {
    let only_prefill = report.metadata.get().is_some_and(|meta| meta.prefill_only.yes());
    let rows = report.prefill.entries().filter(|(_, row)| row.tok_per_sec.f64().is_some()).count();
    let mut lines = vec![if only_prefill {
        format!("prefill of {rows} context{} measured, and no decode", if rows == 1 { "" } else { "s" })
    } else {
        review.sentence()
    }];
    lines.extend(review.doubts.iter().map(|doubt| format!("  {}", doubt.text)));
    let burst = report.burst_results.items().zip(&review.burst);
    let own = report.tokscope.get();
    let open_loop = own.into_iter().flat_map(|own| own.open_loop.items()).zip(&review.open_loop);
    let all = report.cells().zip(&review.cells).map(|of| ("", of));
    let all = all.chain(burst.map(|of| ("burst ", of))).chain(open_loop.map(|of| ("open loop ", of)));
    for (what, (cell, judgement)) in all {
        lines.extend(reasons(what, cell, judgement));
    }
    let few = |judgement: &Judgement| Some(judgement.reasons.iter().find(|reason| reason.code == "few-requests")?.text.clone());
    let few: Vec<String> = review.cells.iter().filter_map(few).collect();
    match few.as_slice() {
        [] => {}
        [one] => lines.push(format!("  hint: {one} (few-requests)")),
        [first, ..] => lines.push(format!("  hint: few requests in {} cells, e.g. {first} (few-requests)", few.len())),
    }
    let left_out = report.tokscope.get().into_iter().flat_map(|own| own.left_out.items()).map(|left| Left {
        layer: left.layer.str().unwrap_or_default(),
        context: left.context_tokens.i64(),
        level: left.concurrency.i64(),
        code: left.code.str().unwrap_or_default(),
        text: left.text.str().unwrap_or_default(),
    });
    lines.extend(left_out_lines(left_out).into_iter().map(|line| format!("  left out: {line}")));
    lines.join("\n")
}

fn reasons(what: &str, cell: &Cell, judgement: &Judgement) -> Vec<String> {
    let context = context_label(cell.context_tokens.i64().unwrap_or(0));
    let load = tables::asked_rate(cell).map_or_else(|| format!("C={}", cell.concurrency.i64().unwrap_or(0)), |rate| format!("{rate}/s"));
    // That a short run has few requests goes without saying after it.
    let worth = judgement.reasons.iter().filter(|reason| reason.verdict > Verdict::Valid || reason.code == "no-prefix-caching");
    worth.map(|reason| format!("  {what}{load} at {context}: {} ({})", reason.text, reason.code)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokscope_shared::field::Field;
    use tokscope_shared::report::own::{CellOwn, PrefixCache, Prompt, RunOwn, ServerOwn};

    fn cell(context: u64, mode: &str, cached_share: Option<f64>) -> Cell {
        let cached_share = Field::opt(cached_share);
        let prompt = Prompt { mode: Field::text(mode), cached_share, ..Prompt::default() };
        let tokscope = Field::Is(CellOwn { prompt: Field::Is(prompt), ..CellOwn::default() });
        Cell { context_tokens: Field::count(context), tokscope, ..Cell::default() }
    }

    fn says_cached(finding: &str, cells: &[Cell]) -> bool {
        let prefix_cache = Field::Is(PrefixCache { finding: Field::text(finding), ..PrefixCache::default() });
        let server = Field::Is(ServerOwn { prefix_cache, ..ServerOwn::default() });
        let report = Report { tokscope: Field::Is(RunOwn { server, ..RunOwn::default() }), ..Report::default() };
        ttft_title(&report, cells.iter()).contains("already cached")
    }

    #[test]
    fn times_to_the_first_token_say_that_contexts_are_cached_only_where_all_are() {
        let (empty, long) = (cell(0, "shared", Some(0.1)), cell(16_384, "shared", Some(0.98)));
        assert!(says_cached("works", &[empty.clone(), long.clone()]));
        assert!(says_cached("works", &[cell(16_384, "identical", None)]), "the server doesn't tell of each request");
        assert!(!says_cached("works", &[empty]), "there is no context");
        assert!(!says_cached("unknown", std::slice::from_ref(&long)) && !says_cached("does not", std::slice::from_ref(&long)));
        assert!(!says_cached("works", &[long.clone(), cell(32_768, "distinct", None)]), "prompts have nothing in common");
        assert!(!says_cached("works", &[long, cell(32_768, "shared", Some(0.2))]), "the cache lost it");
    }
}
