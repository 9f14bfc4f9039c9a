//! The metric over the context, drawn by the shared crate, with hover and keyboard on top.

use super::markup::{Markup, el, tel, text};
use super::matrix::cell_id;
use crate::data::geometry::{cell_at, chart_key, chart_size, mark_of, nearest, place_of, step};
use crate::data::library::Entry;
use crate::platform;
use crate::state::{Inspected, State};
use leptos::prelude::*;
use std::sync::Arc;
use tokscope_shared::chart::{Mark, Theme, lines};
use tokscope_shared::matrix::shown_at;
use tokscope_shared::metric::Metric;
use tokscope_shared::plot;
use tokscope_shared::report::identity::context_label;

/// The chart. The point that is asked about is the matrix's, and the other way round.
#[component]
pub(super) fn Chart(entry: Arc<Entry>, metric: Memo<Option<&'static Metric>>) -> impl IntoView {
    let state = expect_context::<State>();
    let of = entry.clone();
    let size = Memo::new(move |_| chart_size(state.width.get()));
    let drawn = Memo::new(move |_| {
        let plot = plot::of_matrix(&of.report, &of.review, &of.matrix, metric.get()?);
        let theme = if state.dark() { Theme::DARK } else { Theme::LIGHT };
        let (width, height) = size.get();
        let chart = lines(&plot.lines, &theme, width, height);
        Some((plot, chart))
    });
    let (rows, columns) = (entry.matrix.contexts.len(), entry.matrix.levels.len());
    let over_levels = rows == 1 && columns > 1;
    let hover = move |event: leptos::ev::PointerEvent| {
        let found = drawn.with_untracked(|drawn| {
            let ((plot, chart), (x, y)) = (drawn.as_ref()?, platform::place_inside(&event)?);
            place_of(plot, nearest(&chart.marks, x, y)?)
        });
        if found.is_some() && found != state.asked.get_untracked() {
            state.asked.set(found);
        }
    };
    let of = entry.clone();
    let open = move || {
        if let Some(index) = state.asked.get_untracked().and_then(|at| cell_at(&of, at)) {
            state.inspected.set(Some(Inspected::Decode(index)));
        }
    };
    let click = open.clone();
    let keys = move |event: leptos::ev::KeyboardEvent| {
        let key = event.key();
        if key == "Enter" {
            open();
        } else if let Some(to) = step(state.asked.get_untracked().unwrap_or_default(), chart_key(&key, over_levels), rows, columns) {
            state.asked.set(Some(to));
        } else {
            return;
        }
        event.prevent_default();
    };
    let label = move || {
        let what = metric.get().map(Metric::head).unwrap_or_default();
        format!("{what} over {}; arrow keys go from point to point", if over_levels { "the concurrency" } else { "the context" })
    };
    let cross = move || {
        let found = state.asked.get().zip(metric.get()).and_then(|(at, metric)| {
            let mark = drawn.with(|drawn| drawn.as_ref().and_then(|(plot, chart)| mark_of(plot, &chart.marks, at)))?;
            Some(cross(&entry, metric, at, mark, size.get().1))
        });
        found.unwrap_or_default().into_html()
    };
    view! {
        <section class="pane" aria-label="Chart">
            <div
                class="chart"
                data-test="chart"
                tabindex="0"
                role="group"
                aria-label=label
                style=move || format!("width:{}px;height:{}px", size.get().0, size.get().1)
                on:pointermove=hover
                on:click=move |_| click()
                on:keydown=keys
            >
                <div inner_html=move || drawn.with(|drawn| drawn.as_ref().map(|(_, chart)| chart.svg.clone()).unwrap_or_default())></div>
                <div inner_html=cross></div>
            </div>
            <p class="legend">"Filled points are valid; hollow ones have a verdict. Invalid numbers are not drawn."</p>
        </section>
    }
}

/// The crosshair, the ring and the words at a point.
fn cross(entry: &Entry, metric: &Metric, at: (usize, usize), mark: Mark, height: u32) -> Markup {
    let place = format!("{} · C={} ", context_label(entry.matrix.contexts[at.0]), entry.matrix.levels[at.1]);
    let shown = shown_at(metric, entry.matrix.at(at.0, at.1), &entry.report, &entry.review);
    let mut tip = text(&place);
    tip.tel("b", &[], &shown).text(&format!(" {}", metric.unit));
    let mut all = tel("i", &[("class", "cross"), ("style", &format!("left:{:.0}px;height:{}px", mark.x, height.saturating_sub(64)))], "");
    all.tel("i", &[("class", "ring"), ("style", &format!("left:{:.0}px;top:{:.0}px", mark.x, mark.y))], "");
    all.add(&el("p", &[("class", "tip"), ("data-test", "chart-tip"), ("data-for", &cell_id(at))], &tip));
    all
}
