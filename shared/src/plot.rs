//! Which numbers of a report become lines, and where each comes from. Drawing them is `chart`'s.

use crate::chart::{Line, Lines};
use crate::matrix::{Matrix, Slot};
use crate::metric::Metric;
use crate::report::Report;
use crate::report::identity::context_label;
use crate::verdict::{Review, Verdict};

/// Lines, and for each of their points the row and column of the matrix that it shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// What is drawn.
    pub lines: Lines,
    /// By line and point: row and column.
    pub places: Vec<Vec<(usize, usize)>>,
}

/// A metric over the context length, a line a concurrency; over the concurrency where there is one context
/// only. Numbers of invalid cells aren't drawn.
pub fn of_matrix(report: &Report, review: &Review, matrix: &Matrix, metric: &Metric) -> Plot {
    let point = |row: usize, column: usize| {
        let Slot::Cell(index) = matrix.at(row, column) else { return None };
        let verdict = review.cells.get(*index)?.verdict;
        let value = metric.read(report.cells().nth(*index)?).value()?;
        (verdict != Verdict::Invalid).then_some((value, verdict == Verdict::Valid))
    };
    let over_levels = matrix.contexts.len() == 1 && matrix.levels.len() > 1;
    let (xs, series): (&[i64], &[i64]) = if over_levels { (&matrix.levels, &matrix.contexts) } else { (&matrix.contexts, &matrix.levels) };
    let mut lines = Vec::new();
    let mut places = Vec::new();
    for (s, value) in series.iter().enumerate() {
        let place = |x: usize| if over_levels { (s, x) } else { (x, s) };
        let found: Vec<_> = (0..xs.len()).filter_map(|x| Some((x, point(place(x).0, place(x).1)?))).collect();
        if found.is_empty() {
            continue;
        }
        lines.push(Line {
            label: if over_levels { context_label(*value) } else { format!("C={value}") },
            points: found.iter().map(|(x, (y, believed))| (xs[*x] as f64, *y, *believed)).collect(),
        });
        places.push(found.iter().map(|(x, _)| place(*x)).collect());
    }
    let ticks = xs.iter().map(|x| (*x as f64, if over_levels { x.to_string() } else { context_label(*x) })).collect();
    let x_head = if over_levels { "concurrency" } else { "context, tok" };
    Plot { lines: Lines { y_head: metric.head(), x_head: x_head.to_owned(), ticks, lines }, places }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{import, metric, verdict};

    fn plot(cells: &str) -> Plot {
        let text = format!(r#"{{"metadata": {{"model": "m"}}, "results": [{cells}]}}"#);
        let report = import::open(text.as_bytes()).unwrap().report;
        let review = verdict::review(&report, &crate::field::Findings::default());
        of_matrix(&report, &review, &Matrix::new(&report), metric::by_id("aggregate-tps").unwrap())
    }

    fn cell(context: i64, concurrency: i64, rate: f64) -> String {
        format!(
            r#"{{"context_tokens": {context}, "concurrency": {concurrency}, "aggregate_tps": {rate}, "aggregate_source": "openai_continuous_usage"}}"#
        )
    }

    #[test]
    fn each_concurrency_is_a_line_and_each_point_knows_its_cell() {
        let plot = plot(&[cell(0, 1, 100.0), cell(1024, 1, 90.0), cell(1024, 4, 300.0)].join(","));
        let labels: Vec<_> = plot.lines.lines.iter().map(|line| line.label.as_str()).collect();
        assert_eq!(labels, ["C=1", "C=4"]);
        assert_eq!(plot.lines.lines[1].points, [(1024.0, 300.0, true)]);
        assert_eq!(plot.places, [vec![(0, 0), (1, 0)], vec![(1, 1)]]);
    }

    #[test]
    fn one_context_is_drawn_over_the_concurrency() {
        let plot = plot(&[cell(0, 1, 100.0), cell(0, 8, 500.0)].join(","));
        assert_eq!(plot.lines.x_head, "concurrency");
        assert_eq!(plot.lines.lines[0].label, "0");
        assert_eq!(plot.lines.lines[0].points, [(1.0, 100.0, true), (8.0, 500.0, true)]);
        assert_eq!(plot.places, [vec![(0, 0), (0, 1)]]);
    }

    #[test]
    fn a_number_of_an_invalid_cell_is_not_drawn() {
        let broken = r#"{"context_tokens": 0, "concurrency": 2, "aggregate_tps": 50.0, "num_errors": 1}"#;
        let plot = plot(&[cell(0, 1, 100.0), broken.to_owned()].join(","));
        assert_eq!(plot.lines.lines[0].points.len(), 1);
    }
}
