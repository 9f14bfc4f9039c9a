//! What is printed after a run: the tables of what was measured, with what can't be believed marked and said in words.

use super::say;
use super::tables::{self, Part, beside, within};
use tokscope_shared::render::{Table, answer_limits, legend, prefill_table};
use tokscope_shared::report::Report;
use tokscope_shared::report::cell::Cell;
use tokscope_shared::report::identity::context_label;
use tokscope_shared::verdict::{Judgement, Review, Verdict};

/// Columns where the output is no terminal and nobody says how wide it is.
const PIPED_WIDTH: usize = 160;
/// No table is made narrower than this.
const LEAST_WIDTH: usize = 60;

/// Prints the tables and the verdict.
pub fn print_summary(report: &Report, review: &Review) {
    say(&summary(report, review, width()));
}

/// How wide lines may be: `COLUMNS` where it is set, else the terminal's width.
fn width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col)).filter(|n| *n > 0);
    told.or_else(terminal).unwrap_or(PIPED_WIDTH).max(LEAST_WIDTH)
}

/// All of it as text.
pub(super) fn summary(report: &Report, review: &Review, width: usize) -> String {
    let id = report.identity();
    let engine = [id.engine.as_deref(), id.engine_version.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let mut blocks = vec![format!("\n{} · {engine} · {}", id.model.unwrap_or_default(), id.server.unwrap_or_default())];
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
    blocks.extend(pairs(&matrices(&primary, &lengths, width), width));
    if !burst.is_empty() {
        let lengths = answer_limits(report, report.burst_results.items());
        blocks.push(titled(&format!("Bursts, tok/s (requests done/wanted) · {lengths}"), &burst.matrix(tables::finite), width));
        blocks.extend(legend_of(&burst.matrix(tables::finite)));
        blocks.extend(pairs(&matrices(&burst, &lengths, width), width));
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
    blocks.push(words(report, review));
    blocks.join("\n\n")
}

/// The tables beside the rate, as far as there are values.
fn matrices(part: &Part<'_>, lengths: &str, width: usize) -> Vec<String> {
    let of = |head: &str, show: fn(&Cell) -> Option<String>| part.any(show).then(|| titled(head, &part.matrix(show), width));
    let user = part.metric("user-tps-p50").map(|(head, table)| titled(&format!("{head} · {lengths}"), &table, width));
    [
        user,
        of("TTFT / ITL, median, ms", tables::ttft_itl),
        of("Request latency, p50 / p90, ms", tables::latency),
        of("Steps/s (acceptance length)", tables::steps),
    ]
    .into_iter()
    .flatten()
    .collect()
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
    let mut lines = vec![review.sentence()];
    lines.extend(review.doubts.iter().map(|doubt| format!("  {}", doubt.text)));
    let burst = report.burst_results.items().zip(&review.burst);
    for (what, (cell, judgement)) in report.cells().zip(&review.cells).map(|of| ("", of)).chain(burst.map(|of| ("burst ", of))) {
        lines.extend(reasons(what, cell, judgement));
    }
    for left in report.tokscope.get().into_iter().flat_map(|own| own.left_out.items()) {
        lines.push(format!("  left out: {}", left.text.str().unwrap_or_default()));
    }
    lines.join("\n")
}

fn reasons(what: &str, cell: &Cell, judgement: &Judgement) -> Vec<String> {
    let (level, context) = (cell.concurrency.i64().unwrap_or(0), context_label(cell.context_tokens.i64().unwrap_or(0)));
    // That a short run has few requests goes without saying after it.
    let worth = judgement.reasons.iter().filter(|reason| reason.verdict > Verdict::Valid || reason.code == "no-prefix-caching");
    worth.map(|reason| format!("  {what}C={level} at {context}: {} ({})", reason.text, reason.code)).collect()
}
