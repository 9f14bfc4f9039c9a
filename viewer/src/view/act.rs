//! What the reader does: presses, keys, the pointer, files. One listener for the whole page; an element says by
//! its attributes what it is.

use super::{Shown, open_addresses, open_files, open_sample};
use crate::data::export::markdown;
use crate::data::geometry::{cell_at, chart_key, nearest, place_from_name, place_of, step};
use crate::data::library::Library;
use crate::platform;
use crate::state::{Inspected, Place, State};
use leptos::prelude::*;

/// The attribute that says what a press does.
const DO: &str = "data-do";

/// Listens from now on.
pub(super) fn listen(state: State, shown: Shown) {
    platform::listen("click", move |event| press(state, shown, event));
    platform::listen("mouseover", move |event| ask(state, event));
    platform::listen("focusin", move |event| ask(state, event));
    platform::listen("pointermove", move |event| point(state, shown, event));
    platform::listen("keydown", move |event| key(state, shown, event));
    platform::listen("change", move |event| match platform::id(event).as_str() {
        "metric" => state.metric.set(platform::value(event)),
        "pick" => open_files(state, platform::picked(event)),
        _ => {}
    });
}

fn press(state: State, shown: Shown, event: &web_sys::Event) {
    let wanted = platform::attribute(event, DO);
    if state.help.get_untracked() && wanted.is_none() {
        // Anywhere beside or in the list of keys closes it.
        state.help.set(false);
    } else if let Some(wanted) = wanted {
        act(state, shown, &wanted);
    } else if let Some(cell) = platform::attribute(event, "data-cell").and_then(|name| Inspected::from_name(&name)) {
        state.inspected.set(Some(cell));
    } else if platform::attribute(event, "data-at").is_some() || platform::attribute(event, "data-chart").is_some() {
        ask(state, event);
        open(state, shown);
    }
}

fn act(state: State, shown: Shown, wanted: &str) {
    let (what, which) = wanted.split_once(' ').unwrap_or((wanted, ""));
    let index: usize = which.parse().unwrap_or_default();
    let entry = || state.library.with_untracked(|library| library.entries().get(index).map(|entry| entry.id));
    let hosted = || state.hosted.get_untracked().into_iter().map(|hosted| hosted.address);
    match what {
        "library" => state.place.set(Place::Library),
        "run" if state.selected.get_untracked().is_some() => state.place.set(Place::Run),
        "pick" => platform::click("pick"),
        "sample" => open_sample(state),
        "clear" => state.library.update(Library::clear_failed),
        "open" => entry().into_iter().for_each(|id| state.show(id)),
        "remove" => entry().into_iter().for_each(|id| state.library.update(|library| library.remove(id))),
        "hosted" => open_addresses(state, hosted().skip(index).take(1).collect()),
        "hosted-all" => open_addresses(state, hosted().collect()),
        "copy" => copy(state, shown),
        "close" => close(state),
        "help" => state.help.update(|open| *open = !*open),
        "theme" => {
            state.theme.update(|theme| *theme = theme.next());
            platform::store_theme(state.theme.get_untracked().name());
        }
        "metric" => platform::focus("metric"),
        "beside" => {
            let step = if index == 0 { -1 } else { 1 };
            let beside = |id| state.library.with_untracked(|library| library.beside(id, step));
            state.selected.get_untracked().and_then(beside).into_iter().for_each(|id| state.show(id));
        }
        _ => {}
    }
}

fn copy(state: State, shown: Shown) {
    let text = shown.entry.get_untracked().zip(shown.metric.get_untracked()).map(|(entry, metric)| markdown(&entry, metric));
    let Some(text) = text else { return };
    platform::spawn(async move {
        let done = platform::copy(text).await;
        state.said.set(if done { "table copied" } else { "the browser did not allow copying" }.to_owned());
    });
}

/// Closes the panel and puts the focus back where it was opened from.
fn close(state: State) {
    let open = state.inspected.get_untracked();
    if open.is_none() {
        return;
    }
    state.inspected.set(None);
    if let (Some(Inspected::Decode(_)), Some(at)) = (open, state.asked.get_untracked()) {
        platform::focus(&super::matrix::cell_id(at));
    }
}

fn ask(state: State, event: &web_sys::Event) {
    let at = platform::attribute(event, "data-at").and_then(|name| place_from_name(&name));
    if at.is_some() && at != state.asked.get_untracked() {
        state.asked.set(at);
    }
}

/// The pointer is over the chart: the nearest point is asked about.
fn point(state: State, shown: Shown, event: &web_sys::Event) {
    let Some((x, y)) = platform::place_inside(event, "data-chart") else { return };
    let at = shown.drawn.with_untracked(|drawn| drawn.as_ref().and_then(|drawn| place_of(&drawn.plot, nearest(&drawn.chart.marks, x, y)?)));
    if at.is_some() && at != state.asked.get_untracked() {
        state.asked.set(at);
    }
}

/// Opens the cell that is asked about.
fn open(state: State, shown: Shown) {
    let cell = state.asked.get_untracked().zip(shown.entry.get_untracked()).and_then(|(at, entry)| cell_at(&entry, at));
    if let Some(index) = cell {
        state.inspected.set(Some(Inspected::Decode(index)));
    }
}

fn key(state: State, shown: Shown, event: &web_sys::Event) {
    let Some(key) = platform::key(event) else { return };
    if key == "Escape" {
        state.help.set(false);
        return close(state);
    }
    if platform::typing(event) {
        return;
    }
    let on_matrix = platform::attribute(event, "data-at").is_some();
    if (on_matrix || platform::attribute(event, "data-chart").is_some()) && move_or_open(state, shown, &key, on_matrix) {
        return event.prevent_default();
    }
    let wanted = match key.as_str() {
        "t" => "theme",
        "?" => "help",
        "o" => "pick",
        "l" => "library",
        "r" => "run",
        "m" => "metric",
        "[" => "beside 0",
        "]" => "beside 1",
        _ => return,
    };
    act(state, shown, wanted);
    event.prevent_default();
}

/// Moves what is asked about by an arrow key, or opens it; false where the key is for neither.
fn move_or_open(state: State, shown: Shown, key: &str, on_matrix: bool) -> bool {
    let Some(entry) = shown.entry.get_untracked() else { return false };
    if key == "Enter" || key == " " {
        open(state, shown);
        return true;
    }
    let (rows, columns) = (entry.matrix.contexts.len(), entry.matrix.levels.len());
    let along = if on_matrix { key } else { chart_key(key, rows == 1 && columns > 1) };
    let Some(to) = step(state.asked.get_untracked().unwrap_or_default(), along, rows, columns) else { return false };
    state.asked.set(Some(to));
    if on_matrix {
        platform::focus(&super::matrix::cell_id(to));
    }
    if state.inspected.get_untracked().is_some() {
        open(state, shown);
    }
    true
}
