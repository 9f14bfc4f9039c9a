//! The body of a generation: its beginning up to the prompt's own end, and what follows the prompt. Pure.

use serde_json::json;

use super::Shape;
use crate::target::UsageOption;

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
pub(super) fn fields(shape: &Shape) -> serde_json::Value {
    let mut fields = json!({"stream": true});
    fields[shape.accepted.max_tokens_name] = shape.max_tokens.into();
    match shape.accepted.usage {
        UsageOption::Continuous => fields["stream_options"] = json!({"include_usage": true, "continuous_usage_stats": true}),
        UsageOption::Final => fields["stream_options"] = json!({"include_usage": true}),
        UsageOption::None => {}
    }
    if shape.ignore_eos && shape.accepted.ignore_eos {
        fields["ignore_eos"] = true.into();
    }
    if let Some(temperature) = shape.temperature {
        fields["temperature"] = temperature.into();
    }
    fields
}
