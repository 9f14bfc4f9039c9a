//! SGLang: known by `/get_server_info`. From its documentation; there is no recording of it.

use serde_json::Value;

use super::detect::{Answers, Found, thousands};
use super::{Engine, TargetOptions};

pub(super) fn recognise(answers: &Answers, options: &TargetOptions) -> Option<Found> {
    let Some(info) = answers.server_info.as_ref().filter(|i| is_sglang(i)) else {
        answers.metrics_of(Engine::Sglang)?;
        return Some(Found::new(Engine::Sglang, "/metrics"));
    };
    let mut found = Found::new(Engine::Sglang, "/get_server_info");
    found.version = field(info, "version").and_then(Value::as_str).map(str::to_owned);
    let number = |key| field(info, key).and_then(Value::as_u64).filter(|n| *n > 0);
    if let Some(n) = number("max_running_requests") {
        found.limit("max_running_requests", n, "/get_server_info max_running_requests");
    }
    if let Some(n) = number("context_length") {
        found.limit("max_model_len", n, "/get_server_info context_length");
    }
    if let Some(local) = number("max_total_num_tokens") {
        let dcp = u64::from(options.dcp_size.unwrap_or(0)).max(1);
        let total = local.saturating_mul(dcp);
        let (shown, local) = (thousands(total), thousands(local));
        let (source, line) = if dcp > 1 {
            (
                format!("/get_server_info max_total_num_tokens x --dcp-size {dcp}"),
                format!("KV cache budget: {shown} tokens (SGLang reported {local} x DCP {dcp})"),
            )
        } else {
            ("/get_server_info max_total_num_tokens".to_owned(), format!("KV cache budget: {shown} tokens"))
        };
        found.limit("kv_budget_tokens", total, &source);
        found.startup_lines.push(line);
    }
    Some(found)
}

fn is_sglang(info: &Value) -> bool {
    field(info, "max_total_num_tokens").is_some()
}

/// A field at the top or, in newer versions, in the first internal state.
fn field<'a>(info: &'a Value, key: &str) -> Option<&'a Value> {
    let inner = || info.get("internal_states")?.get(0)?.get(key);
    info.get(key).filter(|v| !v.is_null()).or_else(inner)
}
