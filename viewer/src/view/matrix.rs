//! Contexts by concurrency as numbers on a heat scale, and the line that answers what a number is.

use crate::data::cell::{raw, sample};
use crate::data::export::markdown;
use crate::data::geometry::{Heat, cell_at, split_mark, step};
use crate::data::library::Entry;
use crate::platform;
use crate::state::{Inspected, State};
use leptos::prelude::*;
use std::sync::Arc;
use tokscope_shared::matrix::{Slot, shown_at};
use tokscope_shared::metric::Metric;
use tokscope_shared::render;
use tokscope_shared::report::identity::context_label;

/// The element of a place in the matrix.
pub(super) fn cell_id((row, column): (usize, usize)) -> String {
    format!("cell-{row}-{column}")
}

/// The matrix with its metric chooser.
#[component]
pub(super) fn Matrix(entry: Arc<Entry>, metric: Memo<Option<&'static Metric>>) -> impl IntoView {
    let state = expect_context::<State>();
    let choose = {
        let entry = entry.clone();
        move || {
            let current = metric.get().map(|metric| metric.id);
            let option = |offered: &'static Metric| view! { <option value=offered.id selected=current == Some(offered.id)>{offered.head()}</option> };
            entry.metrics().into_iter().map(option).collect_view()
        }
    };
    let copy = {
        let entry = entry.clone();
        move |_| {
            let Some(metric) = metric.get_untracked() else { return };
            let text = markdown(&entry, metric);
            platform::spawn(async move {
                let done = platform::copy(text).await;
                state.said.set(if done { "table copied" } else { "the browser did not allow copying" }.to_owned());
            });
        }
    };
    let table = {
        let entry = entry.clone();
        move || metric.get().map(|metric| view! { <Grid entry=entry.clone() metric /> })
    };
    let legend = {
        let entry = entry.clone();
        move || metric.get().map(|metric| render::legend(&render::matrix_table(&entry.report, &entry.review, metric)))
    };
    view! {
        <section class="pane" aria-label="Matrix">
            <div class="tools">
                <label for="metric">"metric"</label>
                <select id="metric" data-test="metric-select" on:change=move |event| state.metric.set(event_target_value(&event))>{choose}</select>
                <button data-test="copy-markdown" on:click=copy>"Copy as Markdown"</button>
            </div>
            {table}
            <p class="legend" data-test="legend">{legend}</p>
            <Readout entry metric />
        </section>
    }
}

#[component]
fn Grid(entry: Arc<Entry>, metric: &'static Metric) -> impl IntoView {
    let state = expect_context::<State>();
    let heat = Heat::new(&entry, metric);
    let (rows, columns) = (entry.matrix.contexts.len(), entry.matrix.levels.len());
    let of = entry.clone();
    let keys = move |event: leptos::ev::KeyboardEvent| {
        let at = state.asked.get_untracked().unwrap_or_default();
        let key = event.key();
        if key == "Enter" || key == " " {
            open(state, &of, at);
        } else if let Some(to) = step(at, &key, rows, columns) {
            platform::focus(&cell_id(to));
            if state.inspected.get_untracked().is_some() {
                open(state, &of, to);
            }
        } else {
            return;
        }
        event.prevent_default();
    };
    let body = entry
        .matrix
        .rows()
        .enumerate()
        .map(|(row, (context, slots))| {
            let cells = slots
                .iter()
                .enumerate()
                .map(|(column, slot)| view! { <Cell entry=entry.clone() metric heat here=slot.clone() at=(row, column) /> });
            view! { <tr><th scope="row">{context_label(context)}</th>{cells.collect_view()}</tr> }
        })
        .collect_view();
    let heads = entry.matrix.levels.iter().map(|level| view! { <th scope="col"><span>"C="</span>{*level}</th> }).collect_view();
    view! {
        <div class="scroll">
            <table class="matrix" role="grid" data-test="matrix" data-metric=metric.id on:keydown=keys>
                <thead><tr><th scope="col" class="corner">"context"</th>{heads}</tr></thead>
                <tbody>{body}</tbody>
            </table>
        </div>
    }
}

/// Opens the details of what stands at a place.
fn open(state: State, entry: &Entry, at: (usize, usize)) {
    if let Some(index) = cell_at(entry, at) {
        state.inspected.set(Some(Inspected::Decode(index)));
    }
}

#[component]
fn Cell(entry: Arc<Entry>, metric: &'static Metric, heat: Option<Heat>, here: Slot, at: (usize, usize)) -> impl IntoView {
    let state = expect_context::<State>();
    let text = shown_at(metric, &here, &entry.report, &entry.review);
    let (number, mark) = split_mark(&text);
    let (value, verdict) = match &here {
        Slot::Cell(index) => {
            let value = entry.report.cells().nth(*index).and_then(|cell| metric.read(cell).value());
            (value, entry.review.cells.get(*index).map_or("", |judgement| judgement.verdict.name()))
        }
        Slot::LeftOut(_) => (None, "left-out"),
        Slot::Missing => (None, "missing"),
    };
    let warmth = value.zip(heat).filter(|_| verdict != "invalid").map(|(value, heat)| format!("--h:{:.3}", heat.of(value)));
    let asked = move || state.asked.get() == Some(at);
    let tab = move || if asked() || (state.asked.get().is_none() && at == (0, 0)) { 0 } else { -1 };
    let of = entry.clone();
    view! {
        <td
            id=cell_id(at)
            role="gridcell"
            data-test="cell"
            data-context=entry.matrix.contexts[at.0]
            data-concurrency=entry.matrix.levels[at.1]
            data-verdict=verdict
            style=warmth
            class:asked=asked
            class:warm=value.is_some() && heat.is_some()
            tabindex=tab
            on:mouseenter=move |_| state.asked.set(Some(at))
            on:focus=move |_| state.asked.set(Some(at))
            on:click=move |_| open(state, &of, at)
        >
            <span>{number.to_owned()}</span><i class="mark">{mark.to_owned()}</i>
        </td>
    }
}

/// What the number that is asked about is: raw value, sample, verdict and reasons.
#[component]
fn Readout(entry: Arc<Entry>, metric: Memo<Option<&'static Metric>>) -> impl IntoView {
    let state = expect_context::<State>();
    let answer = move || {
        let metric = metric.get()?;
        let definition = view! { <p class="faint" data-test="definition">{metric.definition}</p> };
        let Some(at) = state.asked.get() else {
            let how = view! { <p>"Point at a number, or go to it with the arrow keys. Enter opens the cell."</p> };
            return Some((how, definition).into_any());
        };
        let place = format!("{} · C={}", context_label(*entry.matrix.contexts.get(at.0)?), entry.matrix.levels.get(at.1)?);
        let slot = entry.matrix.at(at.0, at.1);
        let (Some(index), text) = (cell_at(&entry, at), shown_at(metric, slot, &entry.report, &entry.review)) else {
            let why = if let Slot::LeftOut(text) = slot { format!("left out: {text}") } else { "not in the report".to_owned() };
            return Some(view! { <p><b>{place}</b>" "{why}</p> }.into_any());
        };
        let cell = entry.report.cells().nth(index)?;
        let judgement = entry.review.cells.get(index)?;
        let reasons = judgement.reasons.iter().map(|reason| view! { <li><code>{reason.code.clone()}</code>" "{reason.text.clone()}</li> });
        Some(
            view! {
                <p>
                    <b>{place}</b>" "{metric.label}" "<b class="big">{text}</b>" "{metric.unit}
                    <span class="verdict" data-verdict=judgement.verdict.name()>{judgement.verdict.name()}</span>
                </p>
                <p class="faint"><span data-test="raw">{raw(metric, cell)}</span>" · "{sample(cell)}" · "<code>{metric.source}</code></p>
                {definition}
                <ul>{reasons.collect_view()}</ul>
            }
            .into_any(),
        )
    };
    view! { <div class="readout" data-test="readout">{answer}</div> }
}
