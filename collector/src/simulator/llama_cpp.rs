//! What only llama.cpp's server answers: `/props`, `/slots`, `/apply-template`, its list of models, its way to count
//! tokens. Shapes as recorded.

use serde_json::{Value, json};

use super::engine::Occupied;
use super::model::Settings;
use super::openai::{self, Refusal};
use super::tokens;

/// The build it says it is.
const BUILD: &str = "b11434-simulated";

/// `/v1/models` and `/models`.
pub(crate) fn models(settings: &Settings, created: u64) -> Value {
    let name = &settings.model;
    json!({
        "models": [{
            "name": name, "model": name, "modified_at": "", "size": "", "digest": "", "type": "model", "description": "",
            "tags": [""], "capabilities": ["completion"], "parameters": "",
            "details": {"parent_model": "", "format": "gguf", "family": "", "families": [""], "parameter_size": "",
                        "quantization_level": ""},
        }],
        "object": "list",
        "data": [{
            "id": name, "aliases": [name], "tags": [], "object": "model",
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "created": created, "owned_by": "llamacpp",
            "meta": {"vocab_type": 2, "n_vocab": 131_072, "n_ctx": settings.max_context, "n_ctx_train": settings.max_context,
                     "n_embd": 4096, "n_params": 8_000_000_000_u64, "size": 16_000_000_000_u64, "ftype": "F16"},
        }],
    })
}

/// `/props`: the settings that answers are made with, and the number of slots.
pub(crate) fn props(settings: &Settings) -> Value {
    json!({
        "default_generation_settings": {"params": params(-1, false, false), "n_ctx": settings.max_context},
        "total_slots": settings.slots, "model_alias": settings.model, "model_ftype": "F16",
        "model_path": format!("{}.gguf", settings.model),
        "modalities": {"vision": false, "video": false, "audio": false},
        "media_marker": "<__media__>", "endpoint_slots": true, "endpoint_props": true, "endpoint_metrics": true,
        "ui": true, "ui_settings": {},
        "chat_template": "{% for m in messages %}{{ m['role'] }}\u{e000}{{ m['content'] }}\u{e001}{% endfor %}\u{e000}\u{e002}\u{e003}",
        "chat_template_caps": {"supports_object_arguments": false, "supports_parallel_tool_calls": false,
            "supports_preserve_reasoning": false, "supports_reasoning_effort": false, "supports_string_content": true,
            "supports_system_role": true, "supports_tool_calls": false, "supports_tools": false,
            "supports_typed_content": false},
        "bos_token": "<s>", "eos_token": "\u{e001}", "build_info": BUILD, "is_sleeping": false, "cors_proxy_enabled": false,
    })
}

/// Of the sampling, which isn't simulated, only some.
fn params(max_tokens: i64, ignore_eos: bool, stream: bool) -> Value {
    json!({
        "seed": 4_294_967_295_u32, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05,
        "max_tokens": max_tokens, "n_predict": max_tokens, "n_keep": 0, "n_discard": 0,
        "ignore_eos": ignore_eos, "stream": stream, "n_probs": 0, "speculative.types": "none",
        "timings_per_token": false, "lora": [],
    })
}

/// `/slots`: one object each, with more of those that are at work.
pub(crate) fn slots(settings: &Settings, occupied: &[Occupied]) -> Value {
    let all = (0..settings.slots).map(|id| {
        let mut slot = json!({"id": id, "n_ctx": settings.max_context, "speculative": !settings.spec_accept.is_empty(),
                              "is_processing": false});
        if let Some(at_work) = occupied.iter().find(|occupied| occupied.slot == id) {
            let left = at_work.max_output.saturating_sub(at_work.generated);
            slot["is_processing"] = json!(true);
            slot["id_task"] = json!(at_work.key);
            slot["n_prompt_tokens"] = json!(at_work.prompt_tokens + at_work.generated);
            slot["n_prompt_tokens_processed"] = json!(at_work.prompt_tokens - at_work.cached_tokens);
            slot["n_prompt_tokens_cache"] = json!(at_work.cached_tokens);
            slot["params"] = params(i64::from(at_work.max_output), at_work.ignore_eos, true);
            slot["next_token"] = json!([{"has_next_token": left > 0, "has_new_line": false, "n_remain": left,
                                         "n_decoded": at_work.generated}]);
        }
        slot
    });
    Value::Array(all.collect())
}

/// `/tokenize`: of `content` only; messages give no tokens, as recorded.
pub(crate) fn tokenize(body: &[u8]) -> Result<Value, Refusal> {
    let value = openai::parse(body)?;
    let text = value.get("content").and_then(Value::as_str).unwrap_or_default();
    let ids: Vec<u32> = tokens::of_text(text).into_iter().map(tokens::token_id).collect();
    Ok(json!({"tokens": ids}))
}

/// `/apply-template`: a text that has as many tokens as the chat.
pub(crate) fn apply_template(body: &[u8]) -> Result<Value, Refusal> {
    let value = openai::parse(body)?;
    let mut prompt = String::new();
    for (role, texts) in openai::messages(&value) {
        prompt.push_str(role);
        prompt.push('\u{e000}');
        texts.iter().for_each(|text| prompt.push_str(text));
        prompt.push('\u{e001}');
    }
    prompt.push_str("\u{e000}\u{e002}\u{e003}");
    Ok(json!({"prompt": prompt}))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_applied_template_has_the_chats_tokens() {
        let body = json!({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say something."}]});
        let text = apply_template(body.to_string().as_bytes()).unwrap();
        let counted = tokenize(json!({"content": text["prompt"]}).to_string().as_bytes()).unwrap();
        let chat = openai::read_chat(body.to_string().as_bytes(), &Settings::default()).unwrap();
        assert_eq!(counted["tokens"].as_array().unwrap().len(), chat.prompt.tokens as usize);
        let none = tokenize(body.to_string().as_bytes()).unwrap();
        assert_eq!(none, json!({"tokens": []}));
    }

    #[test]
    fn lists_have_the_recorded_keys() {
        let recorded = |text: &str| -> Value { serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap() };
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let settings = Settings::default();
        let theirs = recorded(include_str!("../../tests/fixtures/transcripts/llama-server/get-v1-models.response.http"));
        let ours = models(&settings, 1);
        for pointer in ["", "/models/0", "/data/0", "/data/0/meta"] {
            assert_eq!(keys(ours.pointer(pointer).unwrap()), keys(theirs.pointer(pointer).unwrap()), "{pointer}");
        }
        let theirs = recorded(include_str!("../../tests/fixtures/transcripts/llama-server/get-props.response.http"));
        assert_eq!(keys(&props(&settings)), keys(&theirs));
        let theirs = recorded(include_str!("../../tests/fixtures/transcripts/llama-server/slots-during-load.response.http"));
        let one = Occupied { slot: 2, key: 7, prompt_tokens: 12, cached_tokens: 11, generated: 51, max_output: 1500, ignore_eos: true };
        let ours = slots(&Settings { slots: 4, ..settings }, &[one]);
        assert_eq!(ours.as_array().unwrap().len(), 4);
        assert_eq!(keys(&ours[2]), keys(&theirs[0]));
        assert_eq!(keys(&ours[2]["next_token"][0]), keys(&theirs[0]["next_token"][0]));
        assert_eq!(keys(&ours[0]), ["id", "n_ctx", "speculative", "is_processing"]);
    }
}
