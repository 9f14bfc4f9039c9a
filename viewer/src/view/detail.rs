//! The panel with everything a report says of one cell.

use super::matrix::cell_id;
use super::table::Plain;
use crate::data::cell::{circumstances, distributions, requests, sample};
use crate::data::findings::place;
use crate::platform;
use crate::state::{Inspected, State};
use leptos::prelude::*;
use tokscope_shared::metric::{self, Metric};
use tokscope_shared::report::cell::Cell;
use tokscope_shared::verdict::Verdict;

/// Requests that are listed.
const REQUESTS: usize = 20;

/// The panel, while a cell is open.
#[component]
pub(super) fn Detail() -> impl IntoView {
    let state = expect_context::<State>();
    let content = move || {
        let open = state.inspected.get()?;
        let entry = state.run()?;
        let (cell, judgement, layer) = match open {
            Inspected::Decode(index) => (entry.report.cells().nth(index)?, entry.review.cells.get(index)?, ""),
            Inspected::Burst(index) => (entry.report.burst_results.items().nth(index)?, entry.review.burst.get(index)?, "burst "),
        };
        let reasons = judgement.reasons.iter().map(|reason| {
            let kind = if reason.verdict == Verdict::Valid { "hint" } else { reason.verdict.name() };
            view! { <li data-verdict=kind><b>{kind}</b><span>{reason.text.clone()}" "<code>{reason.code.clone()}</code></span></li> }
        });
        let how = circumstances(cell).into_iter().map(|(label, value)| view! { <dt>{label}</dt><dd>{value}</dd> });
        let requests = requests(cell, REQUESTS).map(|(table, more)| {
            let more = (more > 0).then(|| view! { <p class="faint">{format!("and {more} more in the file")}</p> });
            view! { <h2>"Requests"</h2><Plain table test="requests" />{more} }
        });
        let spread = distributions(cell).map(|table| view! { <h2>"Inside the window"</h2><Plain table test="distributions" /> });
        Some(view! {
            <aside class="detail" data-test="detail" aria-label="Cell">
                <header>
                    <h2>{layer}{place(cell)}</h2>
                    <span class="verdict" data-verdict=judgement.verdict.name()>{judgement.verdict.name()}</span>
                    <button
                        class="icon"
                        data-test="close-detail"
                        title="Close (Esc)"
                        aria-label="Close"
                        on:click=move |_| {
                            state.inspected.set(None);
                            focus_back(state, open);
                        }
                    >
                        "✕"
                    </button>
                </header>
                <p class="faint">{sample(cell)}</p>
                <ul class="findings">{reasons.collect_view()}</ul>
                <table class="metrics" data-test="detail-metrics">
                    <tbody>{metric::ALL.iter().map(|metric| line(metric, cell)).collect_view()}</tbody>
                </table>
                {spread}
                {requests}
                <h2>"How it was measured"</h2>
                <dl class="facts">{how.collect_view()}</dl>
            </aside>
        })
    };
    view! { {content} }
}

fn line(metric: &'static Metric, cell: &Cell) -> impl IntoView + use<> {
    let reading = metric.read(cell);
    let (class, text, unit) = match reading.value() {
        Some(value) => ("", metric.format(value), metric.unit),
        None => ("absent", reading.absence().unwrap_or_default().to_owned(), ""),
    };
    let title = reading.value().map(|value| format!("{value} {} · {}", metric.unit, metric.source));
    view! {
        <tr class=class data-metric=metric.id>
            <th scope="row" title=metric.definition>{metric.label}</th>
            <td class="number" title=title colspan=if class.is_empty() { 1 } else { 2 }>{text}</td>
            {class.is_empty().then(|| view! { <td>{unit}</td> })}
        </tr>
    }
}

/// Puts the focus back where the panel was opened from.
pub(super) fn focus_back(state: State, open: Inspected) {
    if let (Inspected::Decode(_), Some(at)) = (open, state.asked.get_untracked()) {
        platform::focus(&cell_id(at));
    }
}
