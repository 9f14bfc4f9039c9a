//! The page as it is drawn: what `data` and the shared crate say, and nothing computed here. It is made of boxes
//! (`part`) of markup (`markup`) that are drawn anew when what they read changes; what the reader does in them
//! is heard in one place (`act`).

// The component macro makes its own items public.
#![allow(unreachable_pub)]

mod act;
mod chart;
mod detail;
mod help;
mod home;
mod markup;
mod matrix;
mod part;
mod run;
mod sections;

use crate::data::geometry::{chart_size, mark_of};
use crate::data::library::Entry;
use crate::platform;
use crate::state::fragment::Fragment;
use crate::state::{Arrived, Place, State, Theme, host};
use leptos::prelude::*;
use markup::Markup;
use part::{group, part, part_if};
use std::sync::Arc;
use tokscope_shared::metric::Metric;

/// What is shown of the report that is chosen.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// The report.
    entry: Memo<Option<Arc<Entry>>>,
    /// Its metric; none where it has no numbers for a matrix.
    metric: Memo<Option<&'static Metric>>,
    /// The chart of it.
    drawn: Memo<Option<chart::Drawn>>,
}

impl Shown {
    fn new(state: State) -> Self {
        let entry = Memo::new(move |_| state.run());
        let metric = Memo::new(move |_| entry.get()?.metric_or_first(&state.metric.get()));
        let size = Memo::new(move |_| chart_size(state.width.get()));
        // Whatever it is drawn from has changed when it is drawn anew.
        let drawn =
            Memo::new_with_compare(move |_| Some(chart::draw(&*entry.get()?, metric.get()?, state.dark(), size.get())), |_, _| true);
        Shown { entry, metric, drawn }
    }

    /// Markup of the report.
    fn of_entry(self, draw: impl Fn(&Entry) -> Markup) -> Markup {
        self.entry.get().map(|entry| draw(&entry)).unwrap_or_default()
    }

    /// Markup of the report's metric.
    fn of_metric(self, draw: impl Fn(&Entry, &'static Metric) -> Markup) -> Markup {
        self.entry.get().zip(self.metric.get()).map(|(entry, metric)| draw(&entry, metric)).unwrap_or_default()
    }
}

/// The whole page.
#[component]
pub fn App() -> impl IntoView {
    let state = State::new();
    let shown = Shown::new(state);
    colours(state);
    address(state);
    drops(state);
    act::listen(state, shown);
    Effect::new(move |_| platform::set_value("metric", shown.metric.get().map_or("", |metric| metric.id)));
    Effect::new(move |before: Option<Option<(usize, usize)>>| {
        let now = state.asked.get();
        platform::mark(before.flatten().map(matrix::cell_id).as_deref(), now.map(matrix::cell_id).as_deref());
        now
    });
    let on_run = move || state.place.get() == Place::Run && shown.entry.get().is_some();
    let home = move || {
        let (selected, hosted) = (state.selected.get(), state.hosted.get());
        state.library.with(|library| home::home(library, selected, &hosted))
    };
    let panel =
        move || state.inspected.get().zip(shown.entry.get()).and_then(|(open, entry)| detail::panel(&entry, open)).unwrap_or_default();
    view! {
        <header class="bar">
            <span class="name">"tokscope"</span>
            {part("nav", "nav", move || places(state))}
            {part("said", "said", move || if state.busy.get() > 0 { plain("reading …") } else { plain(&state.said.get()) })}
            {part("buttons", "buttons", buttons)}
        </header>
        <main>
            {part_if(move || !on_run(), "home", "home", home)}
            {group("run", on_run, run(state, shown))}
        </main>
        {part_if(move || state.inspected.get().is_some(), "detail", "detail", panel)}
        {part_if(move || state.help.get(), "veil", "help", help::keys)}
        {part_if(move || state.dragging.get(), "drop-overlay", "drop-overlay", || plain("Drop to open"))}
    }
}

fn run(state: State, shown: Shown) -> Vec<AnyView> {
    let has_matrix = move || shown.metric.get().is_some();
    let cross = move || {
        let found = state.asked.get().zip(shown.entry.get()).and_then(|(at, entry)| {
            let mark = |drawn: &chart::Drawn| Some((mark_of(&drawn.plot, &drawn.chart.marks, at)?, drawn.size.1));
            let (mark, height) = shown.drawn.with(|drawn| drawn.as_ref().and_then(mark))?;
            Some(chart::cross(&entry, shown.metric.get()?, at, mark, height))
        });
        found.unwrap_or_default()
    };
    let left = vec![
        part("", "tools", move || shown.of_entry(|entry| matrix::tools(entry, &state.metric.get_untracked()))),
        part("scroll", "", move || shown.of_metric(|entry, metric| matrix::grid(entry, metric, state.asked.get_untracked()))),
        part("legend", "legend", move || shown.of_metric(matrix::legend)),
        part("readout", "readout", move || shown.of_metric(|entry, metric| matrix::answer(entry, metric, state.asked.get()))),
    ];
    let right = vec![
        part("chart", "chart", move || shown.drawn.with(|drawn| drawn.as_ref().map(chart::picture).unwrap_or_default())),
        part("cross-box", "", cross),
        part("legend", "", || plain("Filled points are valid; hollow ones have a verdict. Invalid numbers are not drawn.")),
    ];
    vec![
        part("head", "head", move || shown.of_entry(run::head)),
        group("panes", has_matrix, vec![group("pane", || true, left), group("pane right", || true, right)]),
        part("sections", "sections", move || shown.of_entry(sections::sections)),
    ]
}

fn plain(text: &str) -> Markup {
    let mut out = Markup::default();
    out.put("<p>{}</p>", &[text]);
    out
}

fn places(state: State) -> Markup {
    let here = |place: Place| if state.place.get() == place { "page" } else { "false" };
    let count = state.library.with(|library| library.entries().len());
    let count = if count > 0 { count.to_string() } else { String::new() };
    let mut out = Markup::default();
    out.put(
        r#"<button data-test="to-library" data-do="library" aria-current="{}">Library<span class="count">{}</span></button>"#,
        &[here(Place::Library), &count],
    );
    let run = if state.run().is_some() {
        r#"<button data-test="to-run" data-do="run" aria-current="{}">Run</button>"#
    } else {
        r#"<button data-test="to-run" aria-current="{}" disabled>Run</button>"#
    };
    out.put(run, &[here(Place::Run)]);
    out
}

fn buttons() -> Markup {
    let mut out = Markup::default();
    out.put(
        r#"<span class="anywhere">drop files anywhere</span><input id="pick" data-test="pick" type="file" multiple hidden><button data-test="open" data-do="pick" title="Open report files (o)">Open…</button><button class="icon" data-test="help-button" data-do="help" title="Keys (?)" aria-label="Keys">?</button><button class="icon" data-test="theme" data-do="theme" title="Colours of the system, light or dark (t)" aria-label="Colours"></button>"#,
        &[],
    );
    out
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
    platform::listen("resize", move |_| state.width.set(platform::width()));
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
    platform::listen("hashchange", move |_| follow());
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

/// The whole window is a drop target. Enter and leave fire for every element on the way: they are counted.
fn drops(state: State) {
    let depth = StoredValue::new(0_i32);
    platform::listen("dragenter", move |event| {
        if platform::holds_files(event) {
            event.prevent_default();
            depth.update_value(|n| *n += 1);
            state.dragging.set(true);
        }
    });
    platform::listen("dragover", move |event| {
        if platform::holds_files(event) {
            event.prevent_default();
        }
    });
    platform::listen("dragleave", move |_| {
        depth.update_value(|n| *n = (*n - 1).max(0));
        state.dragging.set(depth.get_value() > 0);
    });
    platform::listen("drop", move |event| {
        event.prevent_default();
        depth.set_value(0);
        state.dragging.set(false);
        open_files(state, platform::dropped(event));
    });
}
