//! The list of keys.

use crate::state::State;
use leptos::prelude::*;

const KEYS: [(&str, &str); 10] = [
    ("arrows", "move in the matrix and along the chart"),
    ("Enter", "open the cell"),
    ("Esc", "close"),
    ("m", "choose the metric"),
    ("[  ]", "report before, report after"),
    ("l", "library"),
    ("r", "run"),
    ("o", "open files"),
    ("t", "colours: system, light, dark"),
    ("?", "these keys"),
];

/// The keys, over the page.
#[component]
pub(super) fn Help() -> impl IntoView {
    let state = expect_context::<State>();
    view! {
        <Show when=move || state.help.get()>
            <div class="veil" on:click=move |_| state.help.set(false)>
                <section class="help" role="dialog" aria-label="Keys" data-test="help">
                    <h2>"Keys"</h2>
                    <dl class="facts">
                        {KEYS.map(|(key, what)| view! { <dt><kbd>{key}</kbd></dt><dd>{what}</dd> }).collect_view()}
                    </dl>
                </section>
            </div>
        </Show>
    }
}
