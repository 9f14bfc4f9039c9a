//! llama.cpp's server: known by `/props` and the owner of its models. Each of its slots has a
//! context of its own; of a cache that all share it tells nothing.

use serde_json::Value;

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
    found.version = props.and_then(|p| p["build_info"].as_str()).map(str::to_owned);
    let slots = answers.slots.as_ref().and_then(Value::as_array);
    let told = props.and_then(|p| p["total_slots"].as_u64()).map(|n| (n, "/props total_slots"));
    let counted = slots.map(|slots| (slots.len() as u64, "/slots"));
    if let Some((n, source)) = told.or(counted).filter(|(n, _)| *n > 0) {
        found.limit("max_running_requests", n, source);
    }
    let of_props = props.and_then(|p| p["default_generation_settings"]["n_ctx"].as_u64());
    // Slots of different sizes: the smallest holds for all.
    let of_slots = slots.and_then(|slots| slots.iter().filter_map(|slot| slot["n_ctx"].as_u64()).min());
    let of_models = answers.entry().and_then(|entry| entry["meta"]["n_ctx"].as_u64());
    let known = [(of_props, "/props default_generation_settings.n_ctx"), (of_slots, "/slots n_ctx"), (of_models, "/v1/models meta.n_ctx")];
    if let Some((n, source)) = known.into_iter().find_map(|(n, source)| Some((n.filter(|n| *n > 0)?, source))) {
        found.limit("max_model_len", n, source);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn without_props_the_slots_tell_their_number_and_size() {
        let models = json!({"data": [{"id": "m", "owned_by": "llamacpp"}]});
        let slots = json!([{"id": 0, "n_ctx": 4096}, {"id": 1, "n_ctx": 2048}]);
        let answers = Answers { slots: Some(slots), ..Answers::of(models, "m", Err(String::new())) };
        let limits: Vec<_> = recognise(&answers).unwrap().limits.into_iter().map(|l| (l.name, l.value, l.source)).collect();
        assert_eq!(limits, [("max_running_requests", 2, "/slots".to_owned()), ("max_model_len", 2048, "/slots n_ctx".to_owned())]);
    }
}
