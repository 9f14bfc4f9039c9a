//! How warm a cell of the matrix is, and which drawn point is nearest: the little geometry that drawing needs.

use super::library::Entry;
use tokscope_shared::chart::Mark;
use tokscope_shared::matrix::Slot;
use tokscope_shared::metric::Metric;
use tokscope_shared::plot::Plot;
use tokscope_shared::verdict::Verdict;

/// The range of a metric over the cells that aren't invalid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heat {
    low: f64,
    high: f64,
}

impl Heat {
    /// `None` where no cell has a value.
    pub fn new(entry: &Entry, metric: &Metric) -> Option<Self> {
        let values = || {
            let cells = entry.report.cells().zip(&entry.review.cells);
            cells.filter(|(_, judgement)| judgement.verdict != Verdict::Invalid).filter_map(|(cell, _)| metric.read(cell).value())
        };
        values().next()?;
        Some(Heat { low: values().fold(f64::INFINITY, f64::min), high: values().fold(f64::NEG_INFINITY, f64::max) })
    }

    /// 0 for the lowest value, up to 1 for the highest; 0 where all are alike. Values within a few per cent of
    /// each other must not look far apart: the whole scale is a quarter of the highest value at the least.
    pub fn of(self, value: f64) -> f64 {
        let span = (self.high - self.low).max(0.25 * self.high.abs());
        if span > 0.0 { ((value - self.low) / span).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// What stands at a place, if it is a cell: its index in `results`.
pub fn cell_at(entry: &Entry, (row, column): (usize, usize)) -> Option<usize> {
    if let Slot::Cell(index) = entry.matrix.at(row, column) { Some(*index) } else { None }
}

/// A place as the page names it in its markup.
pub fn place_name((row, column): (usize, usize)) -> String {
    format!("{row}-{column}")
}

/// The place of that name.
pub fn place_from_name(name: &str) -> Option<(usize, usize)> {
    let (row, column) = name.split_once('-')?;
    Some((row.parse().ok()?, column.parse().ok()?))
}

/// A shown number and its mark apart, so that the digits of a column stay below each other.
pub fn split_mark(shown: &str) -> (&str, &str) {
    match shown.char_indices().next_back() {
        Some((at, '*' | '?' | '✗')) if at > 0 => shown.split_at(at),
        _ => (shown, ""),
    }
}

/// The mark nearest to a place in pixels.
pub fn nearest(marks: &[Mark], x: f64, y: f64) -> Option<Mark> {
    let distance = |mark: &Mark| (mark.x - x).hypot(mark.y - y);
    marks.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).copied()
}

/// Row and column of the matrix that a mark shows.
pub fn place_of(plot: &Plot, mark: Mark) -> Option<(usize, usize)> {
    plot.places.get(mark.line)?.get(mark.index).copied()
}

/// The mark that shows a row and column of the matrix; none where nothing is drawn for it.
pub fn mark_of(plot: &Plot, marks: &[Mark], place: (usize, usize)) -> Option<Mark> {
    marks.iter().find(|mark| place_of(plot, **mark) == Some(place)).copied()
}

/// Width and height of the chart in pixels, for a window of that width: beside the matrix where there is room,
/// else below it.
pub fn chart_size(window: f64) -> (u32, u32) {
    let wide = if window >= 1240.0 {
        600.0
    } else if window >= 1000.0 {
        460.0
    } else {
        (window - 28.0).clamp(280.0, 720.0)
    };
    (wide as u32, if wide < 460.0 { 260 } else { 320 })
}

/// An arrow key in the chart as the arrow key in the matrix that goes the same way: the rows are the chart's
/// horizontal axis, but for a chart over the concurrency.
pub fn chart_key(key: &str, over_levels: bool) -> &str {
    match (key, over_levels) {
        ("ArrowRight", false) | ("ArrowUp", true) => "ArrowDown",
        ("ArrowLeft", false) | ("ArrowDown", true) => "ArrowUp",
        ("ArrowUp", false) => "ArrowRight",
        ("ArrowDown", false) => "ArrowLeft",
        _ => key,
    }
}

/// A place one step on, inside the matrix; nothing where the key is no arrow.
pub fn step((row, column): (usize, usize), key: &str, rows: usize, columns: usize) -> Option<(usize, usize)> {
    Some(match key {
        "ArrowUp" => (row.saturating_sub(1), column),
        "ArrowDown" => ((row + 1).min(rows.saturating_sub(1)), column),
        "ArrowLeft" => (row, column.saturating_sub(1)),
        "ArrowRight" => (row, (column + 1).min(columns.saturating_sub(1))),
        "Home" => (row, 0),
        "End" => (row, columns.saturating_sub(1)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::data::library::Library;
    use tokscope_shared::metric;

    #[test]
    fn the_lowest_is_cold_the_highest_warm_and_invalid_cells_do_not_count() {
        let text = br#"{"metadata": {"model": "m"}, "results": [
            {"context_tokens": 0, "concurrency": 1, "aggregate_tps": 100.0},
            {"context_tokens": 0, "concurrency": 2, "aggregate_tps": 300.0},
            {"context_tokens": 0, "concurrency": 4, "aggregate_tps": 900.0, "num_errors": 4}]}"#;
        let mut library = Library::default();
        let id = library.add("a", None, text).id().unwrap();
        let heat = Heat::new(&library.get(id).unwrap(), metric::by_id("aggregate-tps").unwrap()).unwrap();
        assert_eq!([100.0, 200.0, 300.0, 900.0].map(|value| heat.of(value)), [0.0, 0.5, 1.0, 1.0]);
    }

    #[test]
    fn a_mark_is_split_off_and_a_lone_sign_is_not() {
        assert_eq!(split_mark("150.1*"), ("150.1", "*"));
        assert_eq!(split_mark("1\u{2009}150.1✗"), ("1\u{2009}150.1", "✗"));
        for whole in ["150.1", "✗", "—", "∅", ""] {
            assert_eq!(split_mark(whole), (whole, ""));
        }
    }

    #[test]
    fn places_are_found_by_their_names() {
        assert_eq!(place_from_name(&place_name((3, 12))), Some((3, 12)));
        assert_eq!(place_from_name("3"), None);
    }

    #[test]
    fn steps_stay_inside() {
        assert_eq!(step((0, 0), "ArrowUp", 2, 3), Some((0, 0)));
        assert_eq!(step((1, 1), "ArrowRight", 2, 3), Some((1, 2)));
        assert_eq!(step((1, 2), "ArrowRight", 2, 3), Some((1, 2)));
        assert_eq!(step((0, 2), "ArrowDown", 2, 3), Some((1, 2)));
        assert_eq!(step((1, 2), "Home", 2, 3), Some((1, 0)));
        assert_eq!(step((0, 0), "a", 2, 3), None);
    }

    #[test]
    fn the_chart_fits_into_narrow_windows() {
        for window in [320.0, 420.0, 800.0, 1000.0, 1240.0, 3000.0] {
            let (width, height) = chart_size(window);
            assert!(f64::from(width) <= window - 28.0 && height < width, "{window}");
        }
    }

    #[test]
    fn keys_in_the_chart_go_along_its_own_axes() {
        assert_eq!(step((0, 0), chart_key("ArrowRight", false), 3, 3), Some((1, 0)));
        assert_eq!(step((0, 0), chart_key("ArrowUp", false), 3, 3), Some((0, 1)));
        assert_eq!(step((0, 0), chart_key("ArrowRight", true), 3, 3), Some((0, 1)));
    }

    #[test]
    fn the_nearest_point_is_found() {
        let mark = |index, x, y| Mark { line: 0, index, x, y };
        let marks = [mark(0, 0.0, 0.0), mark(1, 10.0, 0.0)];
        assert_eq!(nearest(&marks, 7.0, 3.0), Some(marks[1]));
        assert_eq!(nearest(&[], 7.0, 3.0), None);
    }
}
