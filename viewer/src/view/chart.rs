//! The metric over the context, drawn by the shared crate, and what stands on top of it.

use super::markup::Markup;
use super::matrix::cell_id;
use crate::data::library::Entry;
use tokscope_shared::chart::{Chart, Mark, Theme, lines};
use tokscope_shared::matrix::shown_at;
use tokscope_shared::metric::Metric;
use tokscope_shared::plot::{Plot, of_matrix};
use tokscope_shared::report::identity::context_label;

/// A chart, and which cells its points are.
#[derive(Clone, Debug)]
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
    let lines = &drawn.plot.lines;
    let mut out = Markup::default();
    out.put(
        r#"<div class="canvas" data-chart tabindex="0" role="group" aria-label="{} over the {}; arrow keys go from point to point" style="width:{}px;height:{}px">"#,
        &[&lines.y_head, &lines.x_head, &drawn.size.0.to_string(), &drawn.size.1.to_string()],
    );
    out.add(&Markup::of_chart(&drawn.chart));
    out.put("</div>", &[]);
    out
}

/// The crosshair, the ring and the words at a point.
pub(super) fn cross(entry: &Entry, metric: &Metric, at: (usize, usize), mark: Mark, height: u32) -> Markup {
    let (x, y) = (format!("{:.0}", mark.x), format!("{:.0}", mark.y));
    let place = format!("{} · C={}", context_label(entry.matrix.contexts[at.0]), entry.matrix.levels[at.1]);
    let shown = shown_at(metric, entry.matrix.at(at.0, at.1), &entry.report, &entry.review);
    let mut out = Markup::default();
    out.put(
        r#"<i class="cross" style="left:{}px;height:{}px"></i><i class="ring" style="left:{}px;top:{}px"></i>"#,
        &[&x, &height.saturating_sub(64).to_string(), &x, &y],
    );
    out.put(r#"<p class="tip" data-test="chart-tip" data-for="{}">{} <b>{}</b> {}</p>"#, &[&cell_id(at), &place, &shown, metric.unit]);
    out
}
