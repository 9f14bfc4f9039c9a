//! The list of loaded reports, of files that could not be read, and of what the host offers.

use super::{open_addresses, open_sample};
use crate::data::geometry::split_mark;
use crate::data::library::Entry;
use crate::state::State;
use leptos::prelude::*;
use std::sync::Arc;
use tokscope_shared::metric::format_number;

/// The list.
#[component]
pub(super) fn Library() -> impl IntoView {
    let state = expect_context::<State>();
    let rows =
        move || state.library.with(|library| library.entries().to_vec()).into_iter().map(|entry| view! { <Row entry /> }).collect_view();
    view! {
        <section class="library">
            <h1>"Library"</h1>
            <Failures />
            <div class="scroll">
                <table class="list" data-test="file-list">
                    <thead>
                        <tr>
                            <th scope="col">"run"</th>
                            <th scope="col">"engine"</th>
                            <th scope="col">"GPUs"</th>
                            <th scope="col">"saved"</th>
                            <th scope="col" class="number">"C"</th>
                            <th scope="col" class="number">"context"</th>
                            <th scope="col" class="number">"best tok/s"</th>
                            <th scope="col">"cells"</th>
                            <th scope="col"><span class="hidden">"remove"</span></th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
            <Hosted />
            <p class="faint">
                "Drop more files anywhere, or "
                <button class="link" data-test="sample" on:click=move |_| open_sample(state)>"open the sample"</button> "."
            </p>
        </section>
    }
}

#[component]
fn Row(entry: Arc<Entry>) -> impl IntoView {
    let state = expect_context::<State>();
    let id = entry.id;
    let summary = &entry.summary;
    let identity = &summary.identity;
    let engine = [identity.engine.clone(), identity.engine_version.clone()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let gpus = identity.gpus.clone().unwrap_or_default();
    let model = identity.model.clone().unwrap_or_else(|| entry.name.clone());
    let (best, mark) = split_mark(&summary.best);
    let verdicts = if summary.worst.is_some() { summary.verdicts.clone() } else { identity.kind.to_owned() };
    view! {
        <tr
            data-test="file"
            aria-selected=move || (state.selected.get() == Some(id)).to_string()
            on:click=move |_| state.show(id)
        >
            <th scope="row">
                <button class="link" on:click=move |_| state.show(id)>{model}</button>
                <small>{entry.name.clone()}</small>
            </th>
            <td class="clip" title=engine.clone()>{engine.clone()}</td>
            <td class="clip" title=gpus.clone()>{gpus.clone()}</td>
            <td class="date">{summary.date.clone()}</td>
            <td class="number">{summary.levels.clone()}</td>
            <td class="number">{summary.contexts.clone()}</td>
            <td class="number strong">{best.to_owned()}<i class="mark">{mark.to_owned()}</i></td>
            <td class="verdict" data-verdict=summary.worst.map_or("", |worst| worst.name())>{verdicts}</td>
            <td>
                <button
                    class="icon quiet"
                    title="Take off the list"
                    aria-label="Take off the list"
                    on:click=move |event| {
                        event.stop_propagation();
                        state.library.update(|library| library.remove(id));
                    }
                >
                    "✕"
                </button>
            </td>
        </tr>
    }
}

/// Files that could not be read, each with the reason.
#[component]
pub(super) fn Failures() -> impl IntoView {
    let state = expect_context::<State>();
    let failed = move || state.library.with(|library| library.failed().to_vec());
    view! {
        <Show when=move || !failed().is_empty()>
            <section class="failures">
                <h2>
                    "Not readable"
                    <button class="link" on:click=move |_| state.library.update(|library| library.clear_failed())>"clear"</button>
                </h2>
                <dl>
                    {move || {
                        failed()
                            .into_iter()
                            .map(|file| view! { <dt>{file.name}</dt><dd data-test="file-error">{file.reason}</dd> })
                            .collect_view()
                    }}
                </dl>
            </section>
        </Show>
    }
}

/// What the host offers.
#[component]
pub(super) fn Hosted() -> impl IntoView {
    let state = expect_context::<State>();
    let list = move || {
        state.hosted.get().into_iter().map(|hosted| {
            let size = hosted.size.map(|bytes| format!("{} kB", format_number(bytes as f64 / 1e3, 1)));
            let address = hosted.address;
            view! {
                <li>
                    <button class="link" data-test="hosted" on:click=move |_| open_addresses(state, vec![address.clone()])>{hosted.name}</button>
                    <small>{size}</small>
                </li>
            }
        }).collect_view()
    };
    let all = move || state.hosted.get_untracked().into_iter().map(|hosted| hosted.address).collect();
    view! {
        <Show when=move || !state.hosted.get().is_empty()>
            <section class="hosted">
                <h2>
                    "On this host"
                    <button class="link" data-test="hosted-all" on:click=move |_| open_addresses(state, all())>"open all"</button>
                </h2>
                <ul>{list}</ul>
            </section>
        </Show>
    }
}
