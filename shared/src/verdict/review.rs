//! A whole file, judged: its cells, and what is doubtful beside them. The rules over a cell are one level up.

use super::{Judgement, Verdict, judge};
use crate::field::Findings;
use crate::report::Report;
use crate::report::identity::context_label;

/// What is doubtful about a file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// A code in kebab-case.
    pub code: &'static str,
    /// In words.
    pub text: String,
}

/// A whole report, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    /// Of each cell of the sustained matrix, in order.
    pub cells: Vec<Judgement>,
    /// Of each cell of the burst matrix, in order.
    pub burst: Vec<Judgement>,
    /// Of each cell of the open loop, in order.
    pub open_loop: Vec<Judgement>,
    /// Of the file.
    pub doubts: Vec<Doubt>,
}

impl Review {
    /// How many cells of the sustained matrix have that verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        count(&self.cells, verdict)
    }

    /// Whether any cell, of whatever part, is invalid.
    pub fn any_invalid(&self) -> bool {
        self.cells.iter().chain(&self.burst).chain(&self.open_loop).any(|judgement| judgement.verdict == Verdict::Invalid)
    }

    /// The counts in words: `3 of 3 cells valid`, `39 cells: 16 valid, 23 limited; 4 of 4 burst cells valid`.
    pub fn sentence(&self) -> String {
        let decode = if self.cells.is_empty() { "no decode cells".to_owned() } else { counted("", &self.cells) };
        let others = [("burst ", &self.burst), ("open-loop ", &self.open_loop)];
        let others = others.into_iter().filter(|(_, cells)| !cells.is_empty()).map(|(what, cells)| counted(what, cells));
        std::iter::once(decode).chain(others).collect::<Vec<_>>().join("; ")
    }
}

fn count(cells: &[Judgement], verdict: Verdict) -> usize {
    cells.iter().filter(|judgement| judgement.verdict == verdict).count()
}

/// How many cells have which verdict; `what` stands before the word.
fn counted(what: &str, cells: &[Judgement]) -> String {
    let n = cells.len();
    match cells {
        [one] => format!("1 {what}cell, {}", one.verdict),
        _ if count(cells, Verdict::Valid) == n => format!("{n} of {n} {what}cells valid"),
        _ => {
            let parts: Vec<String> = Verdict::ALL
                .into_iter()
                .filter_map(|verdict| Some((verdict, count(cells, verdict))).filter(|(_, n)| *n > 0))
                .map(|(verdict, n)| format!("{n} {verdict}"))
                .collect();
            format!("{n} {what}cells: {}", parts.join(", "))
        }
    }
}

/// Judges every cell and the file, with what was found when it was read.
pub fn review(report: &Report, findings: &Findings) -> Review {
    Review {
        cells: report.cells().map(judge).collect(),
        burst: report.burst_results.items().map(judge).collect(),
        open_loop: report.tokscope.get().into_iter().flat_map(|own| own.open_loop.items()).map(judge).collect(),
        doubts: file_doubts(report, findings),
    }
}

fn file_doubts(report: &Report, findings: &Findings) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let mut add = |code: &'static str, text: String| doubts.push(Doubt { code, text });
    let n = findings.non_finite;
    if n > 0 {
        add("non-finite", format!("{n} numbers are written as NaN or Infinity and count as not measured"));
    }
    if let Some(first) = findings.odd.first() {
        add(
            "odd-values",
            format!("{} values are of another kind than expected, the first at {first}; they count as not measured", findings.odd.len()),
        );
    }
    let Some(meta) = report.metadata.get() else { return doubts };
    let status = report.tokscope.get().and_then(|own| own.status.str());
    let old_interrupt = meta.engine.str() == Some("") && !report.is_ours();
    if meta.interrupted.yes() || old_interrupt || status == Some("interrupted") {
        add("interrupted", "the run was interrupted".to_owned());
    } else if status == Some("failed") {
        add("failed", "the run failed".to_owned());
    }
    if let Some(warning) = meta.metrics_warning.str().filter(|text| !text.is_empty()) {
        add("no-metrics", format!("the server's metrics were not read: {warning}"));
    }
    if let Some(text) = missing_cells(report) {
        add("cells-missing", text);
    }
    doubts
}

/// Cells that were asked for and are not there, but for those the file says it left out.
fn missing_cells(report: &Report) -> Option<String> {
    let meta = report.metadata.get()?;
    if meta.mode.get().is_some() || meta.prefill_only.yes() || report.cells().next().is_none() {
        return None;
    }
    let number = |n: &crate::field::Int| n.i64();
    let there: Vec<_> = report.cells().map(|cell| (cell.context_tokens.i64(), cell.concurrency.i64())).collect();
    let explained: Vec<_> = report
        .tokscope
        .get()
        .map(|own| {
            own.left_out
                .items()
                .filter(|left| left.layer.str() != Some("prefill"))
                .map(|left| (left.context_tokens.i64(), left.concurrency.i64()))
                .collect()
        })
        .unwrap_or_default();
    let mut missing = Vec::new();
    for context in meta.context_lengths.items().map(number) {
        for level in meta.concurrency_levels.items().map(number) {
            let cell = (Some(context), Some(level));
            if !there.contains(&cell) && !explained.contains(&cell) {
                missing.push(format!("C={level} at {}", context_label(context)));
            }
        }
    }
    let n = missing.len();
    if n == 0 {
        return None;
    }
    let more = if n > 4 { format!(" and {} more", n - 4) } else { String::new() };
    missing.truncate(4);
    let what = if n == 1 { "1 cell that was asked for is" } else { &format!("{n} cells that were asked for are") };
    Some(format!("{what} missing (skipped, left out or interrupted): {}{more}", missing.join(", ")))
}
