//! llama.cpp's server: known by `/props` and the owner of its models. Each of its slots has a
//! context of its own.

use super::Engine;
use super::detect::{Answers, Found};

pub(super) fn recognise(answers: &Answers) -> Option<Found> {
    let props = answers.props.as_ref();
    let has_props = props.is_some_and(|p| p.get("default_generation_settings").is_some());
    let source = match (has_props, answers.owned_by(), answers.metrics_of(Engine::LlamaCpp)) {
        (true, ..) => "/props",
        (_, Some("llamacpp"), _) => "owned_by llamacpp",
        (_, _, Some(_)) => "llamacpp: metrics",
        _ => return None,
    };
    let mut found = Found::new(Engine::LlamaCpp, source);
    if let Some(props) = props {
        found.version = props["build_info"].as_str().map(str::to_owned);
        if let Some(slots) = props["total_slots"].as_u64().filter(|n| *n > 0) {
            found.limit("max_running_requests", slots, "/props total_slots");
        }
    }
    let slot = props.and_then(|p| p["default_generation_settings"]["n_ctx"].as_u64());
    let meta = answers.models["data"][0]["meta"]["n_ctx"].as_u64();
    let known = slot.map(|n| (n, "/props default_generation_settings.n_ctx")).or(meta.map(|n| (n, "/v1/models meta.n_ctx")));
    if let Some((n, source)) = known.filter(|(n, _)| *n > 0) {
        found.limit("max_model_len", n, source);
    }
    Some(found)
}
