//! The page: where it starts. A placeholder until the views are there.
use leptos::prelude::*;

fn main() {
    console_error_panic_hook::set_once();
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(r#"{"title":"Tokscope"}"#);
    let title = parsed.ok().and_then(|v| v.get("title").and_then(|t| t.as_str()).map(str::to_owned)).unwrap_or_default();
    mount_to_body(move || view! { <h1>{title.clone()}</h1> });
}
