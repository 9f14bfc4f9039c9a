//! The bar: the places, what happened last, and the page's own buttons.

use super::{open_files, set_theme};
use crate::platform;
use crate::state::{Place, State, Theme};
use leptos::prelude::*;

/// The bar over every place.
#[component]
pub(super) fn Bar() -> impl IntoView {
    let state = expect_context::<State>();
    let count = move || state.library.with(|library| library.entries().len());
    let place = move |place: Place| if state.place.get() == place { "page" } else { "false" };
    let theme = move || match state.theme.get() {
        Theme::Auto => "◐",
        Theme::Light => "○",
        Theme::Dark => "●",
    };
    view! {
        <header class="bar">
            <span class="name">"tokscope"</span>
            <nav>
                <button data-test="to-library" aria-current=move || place(Place::Library) on:click=move |_| state.place.set(Place::Library)>
                    "Library"<span class="count">{move || (count() > 0).then(|| count().to_string())}</span>
                </button>
                <button
                    data-test="to-run"
                    aria-current=move || place(Place::Run)
                    disabled=move || state.run().is_none()
                    on:click=move |_| state.place.set(Place::Run)
                >
                    "Run"
                </button>
            </nav>
            <span class="said" role="status" data-test="said">
                {move || if state.busy.get() > 0 { "reading …".to_owned() } else { state.said.get() }}
            </span>
            <span class="anywhere">"drop files anywhere"</span>
            <input
                id="pick"
                data-test="pick"
                type="file"
                multiple
                hidden
                on:change=move |event| open_files(state, platform::picked(&event))
            />
            <button data-test="open" title="Open report files (o)" on:click=|_| platform::click("pick")>"Open…"</button>
            <button class="icon" data-test="help-button" title="Keys (?)" aria-label="Keys" on:click=move |_| state.help.update(|open| *open = !*open)>"?"</button>
            <button
                class="icon"
                data-test="theme"
                title=move || format!("Colours: {} (t)", state.theme.get().name())
                aria-label=move || format!("Colours: {}", state.theme.get().name())
                on:click=move |_| set_theme(state)
            >
                {theme}
            </button>
        </header>
    }
}
