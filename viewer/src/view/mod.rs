//! The page's components. They draw what `data` and the shared crate say, and pass on what the reader does;
//! they compute nothing. What changes while it is seen is a component; what doesn't is markup (see `markup`),
//! whose events are heard by the component around it.

// The component macro makes its own items public.
#![allow(unreachable_pub)]

mod bar;
mod chart;
mod detail;
mod help;
mod home;
mod markup;
mod matrix;
mod run;
mod sections;

use crate::platform;
use crate::state::fragment::Fragment;
use crate::state::{Arrived, Place, State, Theme, host};
use leptos::ev;
use leptos::prelude::*;

/// The whole page.
#[component]
pub fn App() -> impl IntoView {
    let state = State::new();
    provide_context(state);
    colours(state);
    address(state);
    keys(state);
    drops(state);
    let body = move || match (state.place.get(), state.run()) {
        (Place::Run, Some(entry)) => view! { <run::Run entry /> }.into_any(),
        _ => view! { <home::Home /> }.into_any(),
    };
    view! {
        <bar::Bar />
        <main>{body}</main>
        <detail::Detail />
        <help::Help />
        <div class="drop-overlay" data-test="drop-overlay" hidden=move || !state.dragging.get()><p>"Drop to open"</p></div>
    }
}

/// Opens files of the reader's disk.
fn open_files(state: State, files: Vec<web_sys::File>) {
    if files.is_empty() {
        return;
    }
    state.busy.update(|n| *n += 1);
    platform::spawn(async move {
        let mut arrived = Vec::new();
        for file in files {
            arrived.push(platform::read(file).await);
        }
        state.add(arrived);
        state.busy.update(|n| *n -= 1);
    });
}

/// Opens reports of the host; those that are open already are not fetched again.
fn open_addresses(state: State, addresses: Vec<String>) {
    let known = |address: &String| state.library.with_untracked(|library| library.from_address(address));
    if let [address] = addresses.as_slice()
        && let Some(id) = known(address)
    {
        return state.show(id);
    }
    let wanted: Vec<String> = addresses.into_iter().filter(|address| known(address).is_none()).collect();
    if wanted.is_empty() {
        return;
    }
    state.busy.update(|n| *n += 1);
    platform::spawn(async move {
        let mut arrived = Vec::new();
        for address in wanted {
            arrived.push(platform::fetch_report(address).await);
        }
        state.add(arrived);
        state.busy.update(|n| *n -= 1);
    });
}

/// Opens the report that is part of the page.
fn open_sample(state: State) {
    let bytes = platform::text_of("sample").map(String::into_bytes).ok_or_else(|| "this page was made without it".to_owned());
    state.add(vec![Arrived { name: "sample.json".to_owned(), address: None, bytes }]);
}

fn colours(state: State) {
    state.width.set(platform::width());
    let _ = window_event_listener(ev::resize, move |_| state.width.set(platform::width()));
    platform::watch_dark(move |dark| state.system_dark.set(dark));
    if let Some(name) = platform::stored_theme() {
        state.theme.set(Theme::from_name(&name));
    }
    Effect::new(move |_| platform::show_theme(state.theme.get().name()));
}

/// The fragment is read when the page opens and when the reader changes it, and follows what is shown.
fn address(state: State) {
    let follow = move || {
        let fragment = Fragment::read(&platform::fragment());
        if let Some(metric) = fragment.metric {
            state.metric.set(metric);
        }
        open_addresses(state, fragment.open);
    };
    follow();
    let _ = window_event_listener(ev::hashchange, move |_| follow());
    Effect::new(move |before: Option<()>| {
        let open: Vec<String> = state.run().and_then(|entry| entry.address.clone()).into_iter().collect();
        let metric = state.metric.get();
        let metric = (metric != "aggregate-tps").then_some(metric);
        // What the address asks for may still be on its way.
        if state.busy.get() == 0 && before.is_some() {
            platform::set_fragment(&Fragment { open, metric }.write());
        }
    });
    if let Some(list) = platform::host_list() {
        platform::spawn(async move {
            if let Ok(bytes) = platform::fetch(&list).await {
                state.hosted.set(host::read(&String::from_utf8_lossy(&bytes)));
            }
        });
    }
}

fn set_theme(state: State) {
    state.theme.update(|theme| *theme = theme.next());
    platform::store_theme(state.theme.get_untracked().name());
}

fn keys(state: State) {
    let _ = window_event_listener(ev::keydown, move |event| {
        let key = event.key();
        if key == "Escape" {
            state.help.set(false);
            detail::close(state);
            return;
        }
        if event.ctrl_key() || event.meta_key() || event.alt_key() || platform::typing(&event) {
            return;
        }
        match key.as_str() {
            "t" => set_theme(state),
            "?" => state.help.update(|open| *open = !*open),
            "o" => platform::click("pick"),
            "l" => state.place.set(Place::Library),
            "r" if state.selected.get_untracked().is_some() => state.place.set(Place::Run),
            "m" => platform::focus("metric"),
            "[" | "]" => {
                let step = if key == "]" { 1 } else { -1 };
                let beside = state.selected.get_untracked().and_then(|id| state.library.with_untracked(|library| library.beside(id, step)));
                if let Some(id) = beside {
                    state.show(id);
                }
            }
            _ => return,
        }
        event.prevent_default();
    });
}

/// The whole window is a drop target. Enter and leave fire for every element on the way: they are counted.
fn drops(state: State) {
    let depth = StoredValue::new(0_i32);
    let _ = window_event_listener(ev::dragenter, move |event| {
        if platform::holds_files(&event) {
            event.prevent_default();
            depth.update_value(|n| *n += 1);
            state.dragging.set(true);
        }
    });
    let _ = window_event_listener(ev::dragover, move |event| {
        if platform::holds_files(&event) {
            event.prevent_default();
        }
    });
    let _ = window_event_listener(ev::dragleave, move |_| {
        depth.update_value(|n| *n = (*n - 1).max(0));
        state.dragging.set(depth.get_value() > 0);
    });
    let _ = window_event_listener(ev::drop, move |event| {
        event.prevent_default();
        depth.set_value(0);
        state.dragging.set(false);
        open_files(state, platform::dropped(&event));
    });
}
