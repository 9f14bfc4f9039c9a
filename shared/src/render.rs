//! Tables as text and as Markdown: what is printed after a run and pasted into reports.

use crate::matrix::{Matrix, shown_at};
use crate::metric::{Metric, format_number};
use crate::report::Report;
use crate::report::cell::Cell;
use crate::report::identity::context_label;
use crate::verdict::Review;

/// A table of texts: the first column is left-aligned, the others right-aligned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Heads of the columns.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// For a terminal: columns two spaces apart, a line under the head.
    pub fn text(&self) -> String {
        let widths = self.widths();
        let line = |cells: &[String]| {
            let mut out = String::new();
            for (i, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let gap = " ".repeat(width - cell.chars().count().min(*width));
                if i == 0 {
                    out += &format!("{cell}{gap}");
                } else {
                    out += &format!("  {gap}{cell}");
                }
            }
            out.trim_end().to_owned() + "\n"
        };
        let rule = "─".repeat(widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1));
        let body: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}{rule}\n{body}", line(&self.head))
    }

    /// For Markdown.
    pub fn markdown(&self) -> String {
        let line =
            |cells: &[String]| format!("| {} |\n", cells.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>().join(" | "));
        let rule = std::iter::once("---").chain(std::iter::repeat_n("--:", self.head.len().saturating_sub(1))).collect::<Vec<_>>();
        let body: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}|{}|\n{body}", line(&self.head), rule.join("|"))
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.head.iter().map(|cell| cell.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }
}

/// Contexts by concurrency for one metric.
pub fn matrix_table(report: &Report, review: &Review, metric: &Metric) -> Table {
    let matrix = Matrix::new(report);
    Table {
        head: std::iter::once("context".to_owned()).chain(matrix.levels.iter().map(|level| format!("C={level}"))).collect(),
        rows: matrix
            .rows()
            .map(|(context, slots)| {
                std::iter::once(context_label(context)).chain(slots.iter().map(|slot| shown_at(metric, slot, report, review))).collect()
            })
            .collect(),
    }
}

/// The marks that [`matrix_table`] uses and that occur in the table, in words.
pub fn legend(table: &Table) -> String {
    const MARKS: [(&str, &str); 5] = [("*", "limited"), ("?", "suspect"), ("✗", "invalid"), ("∅", "left out"), ("—", "no value")];
    let used = |mark: &str| table.rows.iter().flatten().any(|cell| cell.contains(mark));
    let parts: Vec<String> = MARKS.iter().filter(|(mark, _)| used(mark)).map(|(mark, word)| format!("{mark} {word}")).collect();
    parts.join(" · ")
}

/// An output limit, and whether a file of prompts may say less.
type Limit = (Option<i64>, bool);

/// How long the answers of these cells could get, in words: rates of unlike lengths are not to be compared. By context
/// where it is not the same for all.
pub fn answer_limits<'a>(report: &Report, cells: impl Iterator<Item = &'a Cell>) -> String {
    let of_run = report.metadata.get().and_then(|meta| meta.max_tokens.i64());
    let mut limits: Vec<(Limit, Vec<String>)> = Vec::new();
    for cell in cells {
        let prompt = cell.tokscope.get().and_then(|own| own.prompt.get());
        let limit = prompt.and_then(|prompt| prompt.max_tokens.i64()).or(of_run).filter(|limit| *limit > 0);
        // A line of a file may have a lower limit of its own.
        let limit = (limit, prompt.and_then(|prompt| prompt.mode.str()) == Some("dataset"));
        let context = cell.context_tokens.i64().map_or_else(|| "—".to_owned(), context_label);
        match limits.iter_mut().find(|(known, _)| *known == limit) {
            Some((_, contexts)) if contexts.contains(&context) => {}
            Some((_, contexts)) => contexts.push(context),
            None => limits.push((limit, vec![context])),
        }
    }
    let words = |(limit, by_file): &Limit| match (limit, by_file) {
        (None, false) => "of a length that is not known".to_owned(),
        (Some(limit), false) => format!("up to {limit} tokens"),
        (None, true) => "as the dataset says".to_owned(),
        (Some(limit), true) => format!("as the dataset says, else up to {limit} tokens"),
    };
    match &limits[..] {
        [] => format!("answers {}", words(&(of_run.filter(|limit| *limit > 0), false))),
        [(limit, _)] => format!("answers {}", words(limit)),
        several => {
            let parts = several.iter().map(|(limit, contexts)| format!("{} at {}", words(limit), contexts.join(", ")));
            format!("answers {}", parts.collect::<Vec<_>>().join("; "))
        }
    }
}

/// Prefill by context; `None` where the report has none.
pub fn prefill_table(report: &Report) -> Option<Table> {
    let positive = |value: Option<f64>| value.filter(|value| *value > 0.0);
    let number = |value: Option<f64>, decimals| positive(value).map_or_else(|| "—".to_owned(), |value| format_number(value, decimals));
    let rows: Vec<Vec<String>> = report
        .prefill
        .entries()
        .map(|(context, row)| {
            let server = row.server_validation.get().and_then(|server| server.tok_per_sec.f64());
            vec![
                context.parse().map_or_else(|_| context.to_owned(), context_label),
                number(row.prompt_tokens.i64().map(|n| n as f64), 0),
                number(row.ttft_seconds.f64(), 3),
                number(row.tok_per_sec.f64(), 0),
                number(server, 0),
                row.samples.i64().filter(|n| *n > 0).map_or_else(|| "—".to_owned(), |n| n.to_string()),
            ]
        })
        .collect();
    let head = ["context", "prompt tok", "TTFT s", "tok/s", "server tok/s", "n"].map(str::to_owned).to_vec();
    (!rows.is_empty()).then_some(Table { head, rows })
}
