//! vLLM: known by its metrics, or by `/version` together with the owner of its models; `/version`
//! alone is what many servers have. Its KV cache is described by an info metric.

use super::detect::{Answers, Found, thousands};
use super::{Engine, TargetOptions};
use crate::scrape::text::{Sample, parse};

pub(super) fn recognise(answers: &Answers, options: &TargetOptions) -> Option<Found> {
    let version = answers.version.as_ref().and_then(|v| v["version"].as_str());
    let metrics = answers.metrics_of(Engine::Vllm);
    let owned = answers.owned_by() == Some("vllm");
    let source = match (version, metrics, owned) {
        (Some(_), Some(_), _) => "/version and vllm: metrics",
        (None, Some(_), _) => "vllm: metrics",
        (Some(_), None, true) => "/version and owned_by vllm",
        _ => return None,
    };
    let mut found = Found::new(Engine::Vllm, source);
    found.version = version.map(str::to_owned);
    if let Some(text) = metrics {
        kv_budget(text, answers, options, &mut found);
    }
    Some(found)
}

/// The parts of the info metrics that matter here.
#[derive(Default)]
struct Info {
    size_tokens: Option<u64>,
    blocks: Option<u64>,
    block_size: Option<u64>,
    max_num_seqs: Option<u64>,
    context_parallel: Option<(u64, String)>,
    engines: Vec<String>,
}

fn kv_budget(text: &str, answers: &Answers, options: &TargetOptions, found: &mut Found) {
    let info = read_info(text);
    if let Some(n) = info.max_num_seqs {
        found.limit("max_running_requests", n, "/metrics max_num_seqs");
    }
    if let Some(total) = info.size_tokens {
        found.limit("kv_budget_tokens", total, "/metrics vllm:cache_config_info kv_cache_size_tokens");
        let shown = thousands(total);
        let line = format!("KV cache budget from vLLM metrics: {shown} tokens");
        found.startup_lines.push(line);
        return;
    }
    let (Some(blocks), Some(block_size)) = (info.blocks, info.block_size) else {
        return;
    };
    let local = blocks.saturating_mul(block_size);
    let by_option = options.dcp_size.filter(|n| *n > 0);
    let factor = by_option.map(|n| (u64::from(n), "argument".to_owned())).or(info.context_parallel);
    let model_len = answers.models["data"][0]["max_model_len"].as_u64();
    let (factor, factor_source) = match factor {
        Some(known) => known,
        // A cache smaller than one context is a sign of context parallelism that is not told.
        None if model_len.is_some_and(|len| local < len) => {
            found.warnings.push(format!(
                "the KV cache seems to hold {} tokens, less than one context: give --kv-budget or --dcp-size",
                thousands(local)
            ));
            return;
        }
        None => (1, "default".to_owned()),
    };
    let total = local.saturating_mul(factor);
    let shown = thousands(total);
    let (source, line) = if factor > 1 {
        (
            format!("/metrics vllm:cache_config_info num_gpu_blocks x block_size x CP {factor} ({factor_source})"),
            format!(
                "KV cache budget from vLLM metrics: {shown} tokens ({blocks} blocks x {block_size}; local {} × CP {factor}; CP source: {factor_source})",
                thousands(local)
            ),
        )
    } else {
        (
            "/metrics vllm:cache_config_info num_gpu_blocks x block_size".to_owned(),
            format!("KV cache budget from vLLM metrics: {shown} tokens ({blocks} blocks x {block_size})"),
        )
    };
    found.limit("kv_budget_tokens", total, &source);
    found.startup_lines.push(line);
}

/// Several data-parallel engines hold several caches: their blocks add.
fn read_info(text: &str) -> Info {
    let mut info = Info::default();
    let mut by_rank: [Option<(u64, String)>; 2] = [None, None];
    parse(text, |s| {
        let is_info = ["vllm:cache_config_info", "vllm:parallel_config_info", "vllm:vllm_config_info"].contains(&s.name);
        if !is_info {
            return;
        }
        info.max_num_seqs = info.max_num_seqs.or(number(&s, "max_num_seqs"));
        context_parallel(&s, &mut by_rank);
        if s.name != "vllm:cache_config_info" {
            return;
        }
        let engine = s.label("engine").unwrap_or_default().into_owned();
        if info.engines.contains(&engine) {
            return;
        }
        info.engines.push(engine);
        add(&mut info.size_tokens, number(&s, "kv_cache_size_tokens"));
        add(&mut info.blocks, number(&s, "num_gpu_blocks"));
        info.block_size = info.block_size.or(number(&s, "block_size"));
    });
    let [world, dcp] = by_rank;
    info.context_parallel = world.or(dcp);
    info
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0) + more);
    }
}

fn number(s: &Sample<'_>, label: &str) -> Option<u64> {
    s.label(label)?.parse().ok().filter(|n| *n > 0)
}

fn context_parallel(s: &Sample<'_>, by_rank: &mut [Option<(u64, String)>; 2]) {
    let product = || {
        let prefill = number(s, "prefill_context_parallel_size")?;
        Some(prefill * number(s, "decode_context_parallel_size")?)
    };
    let [world, dcp] = by_rank;
    if world.is_none() {
        let n = number(s, "cp_world_size").or_else(product);
        *world = n.map(|n| (n, s.name.to_owned()));
    }
    if dcp.is_none() {
        *dcp = number(s, "dcp_world_size").map(|n| (n, s.name.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::Value;

    fn answers(metrics: &str, max_model_len: u64) -> Answers {
        Answers {
            models: serde_json::json!({"data": [{"id": "m", "max_model_len": max_model_len}]}),
            server_info: None,
            version: Some(serde_json::json!({"version": "0.11.0"})),
            props: None,
            metrics: Ok(metrics.to_owned()),
        }
    }

    fn budget(metrics: &str, options: &TargetOptions) -> Option<(u64, String)> {
        let found = recognise(&answers(metrics, 4096), options).unwrap();
        let l = found.limits.into_iter().find(|l| l.name == "kv_budget_tokens")?;
        Some((l.value, l.source))
    }

    #[test]
    fn blocks_times_size_is_the_budget_and_context_parallelism_multiplies_it() {
        let metrics = "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\"} 1\n";
        let none = TargetOptions::default();
        assert_eq!(budget(metrics, &none).unwrap().0, 16_000);
        let dcp = TargetOptions { dcp_size: Some(2), ..TargetOptions::default() };
        let (tokens, source) = budget(metrics, &dcp).unwrap();
        assert_eq!(tokens, 32_000);
        assert!(source.contains("argument"), "{source}");
        let label = "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\",cp_world_size=\"4\"} 1\n";
        assert_eq!(budget(label, &none).unwrap().0, 64_000);
    }

    #[test]
    fn a_told_size_is_taken_and_data_parallel_engines_add() {
        let metrics = "vllm:cache_config_info{engine=\"0\",kv_cache_size_tokens=\"500\"} 1\n\
                       vllm:cache_config_info{engine=\"1\",kv_cache_size_tokens=\"700\"} 1\n";
        assert_eq!(budget(metrics, &TargetOptions::default()).unwrap().0, 1200);
    }

    #[test]
    fn a_cache_smaller_than_a_context_is_unknown_and_said() {
        let metrics = "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10\"} 1\n";
        let found = recognise(&answers(metrics, 4096), &TargetOptions::default()).unwrap();
        assert!(found.limits.is_empty());
        assert!(found.warnings[0].contains("--dcp-size"));
    }

    #[test]
    fn a_version_alone_is_not_vllm() {
        let mut a = answers("process_x 1\n", 1);
        assert!(recognise(&a, &TargetOptions::default()).is_none());
        a.models["data"][0]["owned_by"] = Value::from("vllm");
        assert!(recognise(&a, &TargetOptions::default()).is_some());
    }
}
