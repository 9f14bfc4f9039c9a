//! SGLang: known by `/get_server_info` or, in newer versions, `/server_info`. From its documentation; there is no
//! recording of it.

use serde_json::Value;

use super::Engine;
use super::detect::{Answers, Asked, Found, thousands};

pub(super) fn recognise(answers: &Answers, asked: Asked) -> Option<Found> {
    let routes = [("/get_server_info", &answers.get_server_info), ("/server_info", &answers.server_info)];
    let told = routes.into_iter().find_map(|(route, info)| Some((route, info.as_ref().filter(|i| is_sglang(i))?)));
    let Some((route, info)) = told else {
        let by_metrics = answers.metrics_of(Engine::Sglang).is_some();
        let source = if by_metrics { "/metrics" } else { "owned_by sglang" };
        return (by_metrics || answers.owned_by() == Some("sglang")).then(|| Found::new(Engine::Sglang, source));
    };
    let mut found = Found::new(Engine::Sglang, route);
    found.version = field(info, "version").and_then(Value::as_str).map(str::to_owned);
    let engines = number(info, "dp_size").unwrap_or(1);
    if engines > 1 {
        found.limit("data_parallel_engines", engines, &format!("{route} dp_size"));
    }
    running(info, route, engines, &mut found);
    if let Some(n) = number(info, "context_length") {
        found.limit("max_model_len", n, &format!("{route} context_length"));
    }
    kv_budget(info, route, engines, asked, &mut found);
    Some(found)
}

/// Without `--max-running-requests` the setting is null, and only each engine's own state knows the number.
fn running(info: &Value, route: &str, engines: u64, found: &mut Found) {
    if let Some(each) = number(info, "effective_max_running_requests_per_dp") {
        let times = if engines > 1 { format!(" x dp_size {engines}") } else { String::new() };
        let source = format!("{route} effective_max_running_requests_per_dp{times}");
        found.limit("max_running_requests", each.saturating_mul(engines), &source);
    } else if let Some(n) = number(info, "max_running_requests") {
        found.limit("max_running_requests", n, &format!("{route} max_running_requests"));
    }
}

/// With decode context parallelism it tells the tokens of one rank, and data-parallel engines tell each their own.
fn kv_budget(info: &Value, route: &str, engines: u64, asked: Asked, found: &mut Found) {
    let Some(local) = number(info, "max_total_num_tokens") else { return };
    let own = ["dcp_size", "decode_context_parallel_size"].into_iter().find_map(|key| number(info, key)).filter(|n| *n > 1);
    let (factor, by) = match (asked.context_parallel, own) {
        (Some((n, by)), _) => (n, by),
        (None, Some(n)) => {
            found.warnings.push(format!(
                "SGLang says how many tokens one rank's KV cache holds ({}), and runs with DCP {n}: give --dcp-size {n} or --kv-budget, \
                 else the size of the KV cache counts as unknown",
                thousands(local)
            ));
            return;
        }
        (None, None) => (1, ""),
    };
    let each = local.saturating_mul(factor);
    let total = each.saturating_mul(engines);
    let mut source = format!("{route} max_total_num_tokens");
    let mut line = format!("KV cache budget: {} tokens", thousands(total));
    if factor > 1 {
        let by = if by == "argument" { "--dcp-size" } else { by };
        source += &format!(" x {by} {factor}");
        line += &format!(" (SGLang reported {} x DCP {factor})", thousands(local));
    }
    if engines > 1 {
        source += &format!(" x dp_size {engines}");
        found.limit("kv_budget_tokens_per_engine", each, &format!("{route} max_total_num_tokens, of one engine"));
    }
    found.limit("kv_budget_tokens", total, &source);
    if let Some(page) = number(info, "page_size") {
        found.limit("kv_block_tokens", page.saturating_mul(factor), &format!("{route} page_size"));
    }
    found.startup_lines.push(line);
}

fn is_sglang(info: &Value) -> bool {
    field(info, "max_total_num_tokens").is_some()
}

fn number(info: &Value, key: &str) -> Option<u64> {
    field(info, key).and_then(Value::as_u64).filter(|n| *n > 0)
}

/// A field at the top or in the first engine's state.
fn field<'a>(info: &'a Value, key: &str) -> Option<&'a Value> {
    let inner = || info.get("internal_states")?.get(0)?.get(key);
    info.get(key).filter(|v| !v.is_null()).or_else(inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn found(info: Value, asked: Asked) -> Found {
        let models = json!({"data": [{"id": "m"}]});
        let answers = Answers { get_server_info: Some(info), ..Answers::of(models, "m", Err("HTTP 404".into())) };
        recognise(&answers, asked).unwrap()
    }

    fn limit(found: &Found, name: &str) -> Option<(u64, String)> {
        found.limits.iter().find(|l| l.name == name).map(|l| (l.value, l.source.clone()))
    }

    #[test]
    fn with_dcp_one_ranks_cache_is_no_budget_unless_the_size_is_given() {
        let info = json!({"max_total_num_tokens": 100_000, "page_size": 64, "dcp_size": 4});
        let unknown = found(info.clone(), Asked::default());
        assert_eq!(limit(&unknown, "kv_budget_tokens"), None);
        assert!(unknown.warnings[0].contains("--dcp-size 4"), "{:?}", unknown.warnings);
        let asked = Asked { context_parallel: Some((4, "argument")) };
        let known = found(info, asked);
        assert_eq!(limit(&known, "kv_budget_tokens").unwrap().0, 400_000);
        assert_eq!(limit(&known, "kv_block_tokens").unwrap().0, 256);
        assert!(known.warnings.is_empty());
    }

    #[test]
    fn data_parallel_engines_add_and_each_ones_own_limit_is_kept() {
        let info = json!({
            "max_total_num_tokens": 1000, "dp_size": 2, "max_running_requests": null, "page_size": 1,
            "internal_states": [{"effective_max_running_requests_per_dp": 24}, {"effective_max_running_requests_per_dp": 24}],
        });
        let found = found(info, Asked::default());
        let values =
            ["kv_budget_tokens", "kv_budget_tokens_per_engine", "max_running_requests", "data_parallel_engines", "kv_block_tokens"];
        assert_eq!(values.map(|name| limit(&found, name).unwrap().0), [2000, 1000, 48, 2, 1]);
        assert!(limit(&found, "kv_budget_tokens").unwrap().1.ends_with("x dp_size 2"));
    }

    #[test]
    fn the_newer_route_is_read_as_well() {
        let models = json!({"data": [{"id": "m"}]});
        let info = json!({"max_total_num_tokens": 7000, "version": "0.5.9"});
        let answers = Answers { server_info: Some(info), ..Answers::of(models, "m", Err(String::new())) };
        let found = recognise(&answers, Asked::default()).unwrap();
        assert_eq!((found.source.as_str(), found.version.as_deref()), ("/server_info", Some("0.5.9")));
        assert_eq!(limit(&found, "kv_budget_tokens").unwrap().0, 7000);
    }
}
