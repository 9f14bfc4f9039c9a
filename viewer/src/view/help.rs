//! The list of keys.

use super::markup::{Markup, tel};
use super::sections::definitions;
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
        <div class="veil" data-test="help" hidden=move || !state.help.get() on:click=move |_| state.help.set(false)>
            <section class="help" role="dialog" aria-label="Keys" inner_html=keys().into_html()></section>
        </div>
    }
}

fn keys() -> Markup {
    let mut all = tel("h2", &[], "Keys");
    all.add(&definitions(KEYS.map(|(key, what)| (key, super::markup::text(what)))));
    all
}
