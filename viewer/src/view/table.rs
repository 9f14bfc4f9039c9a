//! A table of texts as the shared crate makes them.

use leptos::prelude::*;
use tokscope_shared::render::Table;

/// A table whose first column is text and whose others are numbers. It scrolls inside itself.
#[component]
pub(super) fn Plain(table: Table, #[prop(default = "")] test: &'static str) -> impl IntoView {
    view! {
        <div class="scroll">
            <table class="plain" data-test=test>
                <thead><tr>{table.head.into_iter().map(|head| view! { <th scope="col">{head}</th> }).collect_view()}</tr></thead>
                <tbody>
                    {table
                        .rows
                        .into_iter()
                        .map(|row| view! { <tr>{row.into_iter().map(|cell| view! { <td>{cell}</td> }).collect_view()}</tr> })
                        .collect_view()}
                </tbody>
            </table>
        </div>
    }
}
