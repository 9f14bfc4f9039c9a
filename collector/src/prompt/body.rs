//! The body of a generation: its beginning up to the prompt's own end, and what follows the prompt. Pure.

use serde_json::Value;

use super::Shape;

/// Up to and without the prompt's own end; `text` as it stands inside a string of JSON.
pub(super) fn body_start(model: &str, text: &str) -> String {
    format!("{{\"model\":{},\"messages\":[{{\"role\":\"user\",\"content\":\"{}", serde_json::Value::from(model), text)
}

/// From the prompt's last character on.
pub(super) fn body_end(shape: &Shape) -> String {
    let fields = fields(shape).to_string();
    format!("\"}}],{}", fields.get(1..).unwrap_or_default())
}

/// The options of a generation.
pub(super) fn fields(shape: &Shape) -> Value {
    shape.accepted.fields(shape.max_tokens, shape.ignore_eos, shape.temperature).into()
}
