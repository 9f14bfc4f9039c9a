//! The tables after a run: prefill and decode, with what can't be believed marked and said in words.

use super::say;
use tokscope_shared::metric;
use tokscope_shared::render::{legend, matrix_table, prefill_table};
use tokscope_shared::report::Report;
use tokscope_shared::report::identity::context_label;
use tokscope_shared::verdict::{Review, Verdict};

/// Metrics shown after a run, where the report has any value of them.
const SHOWN: [&str; 5] = ["aggregate-tps", "user-tps-p50", "ttft-p50", "steps-per-s", "accept-length"];

/// Prints the tables and the verdict.
pub fn print_summary(report: &Report, review: &Review) {
    let id = report.identity();
    let engine = [id.engine.as_deref(), id.engine_version.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    say(&format!("\n{} · {engine} · {}", id.model.unwrap_or_default(), id.server.unwrap_or_default()));
    if let Some(table) = prefill_table(report) {
        say(&format!("\nPrefill\n{}", table.text().trim_end()));
    }
    for metric in SHOWN.iter().filter_map(|id| metric::by_id(id)) {
        if report.cells().any(|cell| metric.read(cell).value().is_some()) {
            let table = matrix_table(report, review, metric);
            say(&format!("\n{}\n{}", metric.head(), table.text().trim_end()));
            let marks = legend(&table);
            if !marks.is_empty() {
                say(&marks);
            }
        }
    }
    say(&format!("\n{}", review.sentence()));
    for (cell, judgement) in report.cells().zip(&review.cells) {
        let place = format!("C={} at {}", cell.concurrency.i64().unwrap_or(0), context_label(cell.context_tokens.i64().unwrap_or(0)));
        for reason in &judgement.reasons {
            // That a short run has few requests goes without saying after it.
            if reason.verdict > Verdict::Valid || reason.code == "no-prefix-caching" {
                say(&format!("  {place}: {} ({})", reason.text, reason.code));
            }
        }
    }
    for left in report.tokscope.get().into_iter().flat_map(|own| own.left_out.items()) {
        say(&format!("  left out: {}", left.text.str().unwrap_or_default()));
    }
}
