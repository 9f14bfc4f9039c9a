//! The first screen: where to drop, a sample one click away, and the command that makes a report.

use super::library::{Failures, Hosted};
use super::open_sample;
use crate::platform;
use crate::state::State;
use leptos::prelude::*;

/// What is shown while no report is loaded.
#[component]
pub(super) fn First() -> impl IntoView {
    let state = expect_context::<State>();
    view! {
        <section class="first">
            <button class="drop" data-test="drop" on:click=|_| platform::click("pick")>
                <strong>"Drop report files here"</strong>
                <span>"or click to pick them. They stay on this machine."</span>
            </button>
            <Failures />
            <Hosted />
            <dl class="ways">
                <dt>"No report at hand?"</dt>
                <dd>
                    <button class="link" data-test="sample" on:click=move |_| open_sample(state)>"Open the sample"</button>
                    ": GLM‑5.3‑Flash on vLLM, three contexts at one stream."
                </dd>
                <dt>"To make one"</dt>
                <dd>
                    "on the machine where the server runs:"
                    <pre data-test="command">"tokscope run --port 8000"</pre>
                    "It writes "<code>"benchmark_results.json"</code>". Reports of "<code>"llm_decode_bench"</code>" open too."
                </dd>
            </dl>
        </section>
    }
}
