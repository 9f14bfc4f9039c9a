//! What stands below the matrix: prefill, all cells, key numbers of other kinds of reports, events, method.

use super::table::Plain;
use crate::data::cell;
use crate::data::facts;
use crate::data::library::Entry;
use crate::state::{Inspected, State};
use leptos::prelude::*;
use std::sync::Arc;
use tokscope_shared::render;
use tokscope_shared::report::cell::Cell;
use tokscope_shared::verdict::Judgement;

/// Prefill by context, where the report has it.
#[component]
pub(super) fn Prefill(entry: Arc<Entry>) -> impl IntoView {
    render::prefill_table(&entry.report).map(|table| {
        view! {
            <section>
                <h2>"Prefill"</h2>
                <Plain table test="prefill" />
            </section>
        }
    })
}

/// Key numbers of a report without a matrix.
#[component]
pub(super) fn Facts(entry: Arc<Entry>) -> impl IntoView {
    let groups = facts::groups(&entry.report);
    let empty = groups.is_empty() && render::prefill_table(&entry.report).is_none();
    view! {
        <section class="groups" data-test="facts">
            {empty.then(|| view! { <p>"Nothing was measured in this report, or nothing that this version knows. Its settings and events are below."</p> })}
            {groups
                .into_iter()
                .map(|group| {
                    let facts = group.facts.into_iter().map(|(label, value)| view! { <dt>{label}</dt><dd>{value}</dd> });
                    view! { <div><h2>{group.title}</h2><dl class="facts">{facts.collect_view()}</dl></div> }
                })
                .collect_view()}
        </section>
    }
}

/// All cells with verdict and reasons.
#[component]
pub(super) fn Cells(entry: Arc<Entry>) -> impl IntoView {
    let decode: Vec<_> = entry.report.cells().zip(&entry.review.cells).collect();
    let burst: Vec<_> = entry.report.burst_results.items().zip(&entry.review.burst).collect();
    (list("Cells", "cells-table", &decode, Inspected::Decode), list("Burst", "burst-table", &burst, Inspected::Burst))
}

fn list(title: &'static str, test: &'static str, cells: &[(&Cell, &Judgement)], open: fn(usize) -> Inspected) -> impl IntoView + use<> {
    let state = expect_context::<State>();
    let rows: Vec<_> = cells
        .iter()
        .enumerate()
        .map(|(index, (cell, judgement))| {
            let open = open(index);
            let mut line = cell::line(cell, judgement.verdict).into_iter();
            let context = line.next();
            let numbers = line.map(|text| view! { <td class="number">{text}</td> }).collect_view();
            view! {
                <tr
                    data-test="cell-row"
                    data-verdict=judgement.verdict.name()
                    aria-selected=move || (state.inspected.get() == Some(open)).to_string()
                    on:click=move |_| state.inspected.set(Some(open))
                >
                    <th scope="row"><button class="link">{context}</button></th>
                    {numbers}
                    <td class="verdict" data-verdict=judgement.verdict.name()>{judgement.verdict.name()}</td>
                    <td class="reasons">{cell::reasons(judgement)}</td>
                </tr>
            }
        })
        .collect();
    let heads = cell::columns().into_iter().map(|metric| view! { <th scope="col" class="number">{metric.head()}</th> }).collect_view();
    (!rows.is_empty()).then(|| {
        view! {
            <section>
                <h2>{title}</h2>
                <div class="scroll">
                    <table class="list cells" data-test=test>
                        <thead>
                            <tr>
                                <th scope="col">"context"</th>
                                <th scope="col" class="number">"C"</th>
                                {heads}
                                <th scope="col">"verdict"</th>
                                <th scope="col">"reasons"</th>
                            </tr>
                        </thead>
                        <tbody>{rows}</tbody>
                    </table>
                </div>
            </section>
        }
    })
}

/// Events, method and settings, folded.
#[component]
pub(super) fn Notes(entry: Arc<Entry>) -> impl IntoView {
    let events = facts::events(&entry.report);
    let methods = facts::methods(&entry.report);
    let settings = facts::settings(&entry.report);
    view! {
        <section class="notes">
            {(!events.is_empty()).then(|| view! {
                <details data-test="events"><summary>"Events " <small>{events.len()}</small></summary><pre>{events.join("\n")}</pre></details>
            })}
            {(!methods.is_empty()).then(|| view! {
                <details data-test="methodology">
                    <summary>"Method"</summary>
                    <dl class="facts">
                        {methods.into_iter().map(|(title, said)| {
                            let said = said.into_iter().map(|text| view! { <p>{text}</p> }).collect_view();
                            view! { <dt>{title}</dt><dd>{said}</dd> }
                        }).collect_view()}
                    </dl>
                </details>
            })}
            {(!settings.is_empty()).then(|| view! {
                <details data-test="settings"><summary>"Settings as recorded"</summary><pre>{settings}</pre></details>
            })}
        </section>
    }
}
