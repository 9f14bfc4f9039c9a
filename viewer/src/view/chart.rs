//! The metric over the context, drawn by the shared crate, and what stands on top of it.

use super::markup::{Markup, el, tel, text};
use super::matrix::cell_id;
use crate::data::library::Entry;
use tokscope_shared::chart::{Chart, Mark, Theme, lines};
use tokscope_shared::matrix::shown_at;
use tokscope_shared::metric::Metric;
use tokscope_shared::plot::{Plot, of_matrix};
use tokscope_shared::report::identity::context_label;

/// A chart, and which cells its points are.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Drawn {
    /// The numbers.
    pub(super) plot: Plot,
    /// The picture.
    pub(super) chart: Chart,
    /// Width and height in pixels.
    pub(super) size: (u32, u32),
}

/// Draws a metric.
pub(super) fn draw(entry: &Entry, metric: &Metric, dark: bool, size: (u32, u32)) -> Drawn {
    let plot = of_matrix(&entry.report, &entry.review, &entry.matrix, metric);
    let chart = lines(&plot.lines, if dark { &Theme::DARK } else { &Theme::LIGHT }, size.0, size.1);
    Drawn { plot, chart, size }
}

/// The chart in its box, which the keyboard can reach.
pub(super) fn picture(drawn: &Drawn) -> Markup {
    let label = format!("{} over the {}; arrow keys go from point to point", drawn.plot.lines.y_head, drawn.plot.lines.x_head);
    let style = format!("width:{}px;height:{}px", drawn.size.0, drawn.size.1);
    el(
        "div",
        &[("class", "canvas"), ("data-chart", ""), ("tabindex", "0"), ("role", "group"), ("aria-label", &label), ("style", &style)],
        &Markup::of_chart(&drawn.chart),
    )
}

/// The crosshair, the ring and the words at a point.
pub(super) fn cross(entry: &Entry, metric: &Metric, at: (usize, usize), mark: Mark, height: u32) -> Markup {
    let place = format!("{} · C={} ", context_label(entry.matrix.contexts[at.0]), entry.matrix.levels[at.1]);
    let shown = shown_at(metric, entry.matrix.at(at.0, at.1), &entry.report, &entry.review);
    let mut tip = text(&place);
    tip.tel("b", &[], &shown).text(&format!(" {}", metric.unit));
    let mut all = tel("i", &[("class", "cross"), ("style", &format!("left:{:.0}px;height:{}px", mark.x, height.saturating_sub(64)))], "");
    all.tel("i", &[("class", "ring"), ("style", &format!("left:{:.0}px;top:{:.0}px", mark.x, mark.y))], "");
    all.add(&el("p", &[("class", "tip"), ("data-test", "chart-tip"), ("data-for", &cell_id(at))], &tip));
    all
}
