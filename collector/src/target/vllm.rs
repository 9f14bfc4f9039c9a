//! vLLM: known by its metrics, or by `/version` together with the owner of its models; `/version`
//! alone is what many servers have. Its KV cache is described by an info metric, a series an engine.

use serde_json::Value;

use super::Engine;
use super::detect::{Answers, Asked, Found, thousands};
use crate::scrape::text::{Sample, parse};

/// Where a context-parallel size may stand, in the order in which it is looked for.
const PARALLEL: [&str; 3] = ["vllm:parallel_config_info", "vllm:vllm_config_info", "vllm:cache_config_info"];

pub(super) fn recognise(answers: &Answers, asked: Asked) -> Option<Found> {
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
    let info = metrics.map(read_info).unwrap_or_default();
    let engines = info.caches.len() as u64;
    if engines > 1 {
        found.limit("data_parallel_engines", engines, "/metrics vllm:cache_config_info, one series an engine");
    }
    running(&info, answers, engines.max(1), &mut found);
    kv_budget(&info, answers, asked, &mut found);
    Some(found)
}

/// Whether the metrics are those of the V0 engine, of which only the documentation is known.
pub(super) fn is_v0(text: &str) -> bool {
    let mut old = false;
    parse(text, |s| old |= ["vllm:avg_generation_throughput_toks_per_s", "vllm:num_requests_swapped"].contains(&s.name));
    old
}

/// What one engine says of its cache.
#[derive(Default)]
struct Cache {
    engine: String,
    size_tokens: Option<u64>,
    blocks: Option<u64>,
    block_size: Option<u64>,
}

impl Cache {
    /// Tokens it holds, reckoned from its blocks.
    fn local(&self) -> Option<u64> {
        Some(self.blocks?.saturating_mul(self.block_size?))
    }
}

/// A context-parallel size as one info metric tells it.
#[derive(Default)]
struct Parallel {
    whole: Option<u64>,
    decode: Option<u64>,
}

/// The parts of the info metrics that matter here.
#[derive(Default)]
struct Info {
    caches: Vec<Cache>,
    max_num_seqs: Option<u64>,
    parallel: [Parallel; PARALLEL.len()],
}

/// Each engine runs as many.
fn running(info: &Info, answers: &Answers, engines: u64, found: &mut Found) {
    // Only servers in development mode have this.
    let config = answers.server_info.as_ref().map(|info| &info["vllm_config"]["scheduler_config"]["max_num_seqs"]);
    let config = config.and_then(Value::as_u64).filter(|n| *n > 0).map(|n| (n, "/server_info max_num_seqs"));
    if let Some((n, source)) = info.max_num_seqs.map(|n| (n, "/metrics max_num_seqs")).or(config) {
        let source = if engines > 1 { format!("{source} x {engines} engines") } else { source.to_owned() };
        found.limit("max_running_requests", n.saturating_mul(engines), &source);
    }
}

/// The whole server's tokens are those of all its engines; no request can use more than one engine's.
fn kv_budget(info: &Info, answers: &Answers, asked: Asked, found: &mut Found) {
    let Some(block_size) = info.caches.iter().filter_map(|cache| cache.block_size).max() else {
        told_size(info, 1, None, found);
        return;
    };
    let known = asked.context_parallel.map(|(n, by)| (n, by.to_owned())).or_else(|| context_parallel(info));
    let factor = known.as_ref().map_or(1, |(n, _)| *n);
    if told_size(info, factor, Some(block_size), found) {
        return;
    }
    let locals: Option<Vec<u64>> = info.caches.iter().map(Cache::local).collect();
    let Some(smallest) = locals.as_ref().and_then(|locals| locals.iter().min().copied()) else { return };
    let model_len = answers.entry().and_then(|entry| entry["max_model_len"].as_u64());
    // A cache smaller than one context is a sign of context parallelism that is not told.
    if known.is_none() && model_len.is_some_and(|len| smallest < len) {
        found.warnings.push(format!(
            "the KV cache seems to hold {} tokens, less than one context: give --kv-budget or --dcp-size",
            thousands(smallest)
        ));
        return;
    }
    let local: u64 = locals.iter().flatten().sum();
    let blocks: u64 = info.caches.iter().filter_map(|cache| cache.blocks).sum();
    let total = local.saturating_mul(factor);
    let shown = thousands(total);
    let base = "/metrics vllm:cache_config_info num_gpu_blocks x block_size";
    let (source, line) = match known.filter(|(n, _)| *n > 1) {
        Some((n, by)) => (
            format!("{base} x CP {n} ({by})"),
            format!(
                "KV cache budget from vLLM metrics: {shown} tokens ({blocks} blocks x {block_size}; local {} × CP {n}; CP source: {by})",
                thousands(local)
            ),
        ),
        None => (base.to_owned(), format!("KV cache budget from vLLM metrics: {shown} tokens ({blocks} blocks x {block_size})")),
    };
    let source = format!("{source}{}", of_engines(info));
    found.limit("kv_budget_tokens", total, &source);
    if info.caches.len() > 1 {
        found.limit("kv_budget_tokens_per_engine", smallest.saturating_mul(factor), &source);
    }
    blocks_of(block_size, factor, found);
    found.startup_lines.push(line);
}

/// Newer versions tell the tokens themselves, with context parallelism in them. Whether they do.
fn told_size(info: &Info, factor: u64, block_size: Option<u64>, found: &mut Found) -> bool {
    let sizes: Option<Vec<u64>> = info.caches.iter().map(|cache| cache.size_tokens).collect();
    let Some(sizes) = sizes.filter(|sizes| !sizes.is_empty()) else { return false };
    let total = sizes.iter().sum();
    let source = format!("/metrics vllm:cache_config_info kv_cache_size_tokens{}", of_engines(info));
    found.limit("kv_budget_tokens", total, &source);
    if let Some(smallest) = sizes.iter().min().filter(|_| sizes.len() > 1) {
        found.limit("kv_budget_tokens_per_engine", *smallest, &source);
    }
    if let Some(block_size) = block_size {
        blocks_of(block_size, factor, found);
    }
    found.startup_lines.push(format!("KV cache budget from vLLM metrics: {} tokens", thousands(total)));
    true
}

/// With context parallelism a block lies on all ranks, and holds as many tokens more.
fn blocks_of(block_size: u64, factor: u64, found: &mut Found) {
    let by = if factor > 1 { format!(" x CP {factor}") } else { String::new() };
    let source = format!("/metrics vllm:cache_config_info block_size{by}");
    found.limit("kv_block_tokens", block_size.saturating_mul(factor), &source);
}

fn of_engines(info: &Info) -> String {
    match info.caches.len() {
        0 | 1 => String::new(),
        n => format!(", of {n} engines"),
    }
}

/// The size by the first metric that has one; one for decoding alone only where no metric has a whole one.
fn context_parallel(info: &Info) -> Option<(u64, String)> {
    let by = |get: fn(&Parallel) -> Option<u64>| {
        let mut metrics = info.parallel.iter().zip(PARALLEL);
        metrics.find_map(|(parallel, name)| Some((get(parallel)?, name.to_owned())))
    };
    by(|parallel| parallel.whole).or_else(|| by(|parallel| parallel.decode))
}

fn read_info(text: &str) -> Info {
    let mut info = Info::default();
    parse(text, |s| {
        if !s.name.starts_with("vllm:") || !s.name.ends_with("_config_info") {
            return;
        }
        info.max_num_seqs = info.max_num_seqs.or(number(&s, "max_num_seqs"));
        let at = PARALLEL.iter().position(|name| *name == s.name);
        if let Some(parallel) = at.and_then(|at| info.parallel.get_mut(at)) {
            let product = || Some(number(&s, "prefill_context_parallel_size")? * number(&s, "decode_context_parallel_size")?);
            parallel.whole = parallel.whole.or_else(|| number(&s, "cp_world_size").or_else(product));
            parallel.decode = parallel.decode.or(number(&s, "dcp_world_size"));
        }
        if s.name == "vllm:cache_config_info" {
            read_cache(&s, &mut info.caches);
        }
    });
    info
}

/// An engine that tells twice (its settings changed while it ran) counts once.
fn read_cache(s: &Sample<'_>, caches: &mut Vec<Cache>) {
    let engine = s.label("engine").unwrap_or_default().into_owned();
    if caches.iter().any(|cache| cache.engine == engine) {
        return;
    }
    caches.push(Cache {
        engine,
        size_tokens: number(s, "kv_cache_size_tokens"),
        blocks: number(s, "num_gpu_blocks"),
        block_size: number(s, "block_size"),
    });
}

fn number(s: &Sample<'_>, label: &str) -> Option<u64> {
    s.label(label)?.parse().ok().filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn answers(metrics: &str, max_model_len: u64) -> Answers {
        let models = serde_json::json!({"data": [{"id": "m", "max_model_len": max_model_len}]});
        let version = Some(serde_json::json!({"version": "0.11.0"}));
        Answers { version, ..Answers::of(models, "m", Ok(metrics.to_owned())) }
    }

    fn limit(metrics: &str, asked: Asked, name: &str) -> Option<(u64, String)> {
        let found = recognise(&answers(metrics, 4096), asked).unwrap();
        let l = found.limits.into_iter().find(|l| l.name == name)?;
        Some((l.value, l.source))
    }

    fn budget(metrics: &str, asked: Asked) -> Option<(u64, String)> {
        limit(metrics, asked, "kv_budget_tokens")
    }

    const ONE: &str = "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\"} 1\n";

    #[test]
    fn blocks_times_size_is_the_budget_and_context_parallelism_multiplies_it() {
        let none = Asked::default();
        assert_eq!(budget(ONE, none).unwrap().0, 16_000);
        assert_eq!(limit(ONE, none, "kv_block_tokens").unwrap().0, 16);
        for by in ["argument", "LLM_BENCH_DCP_SIZE"] {
            let asked = Asked { context_parallel: Some((2, by)) };
            let (tokens, source) = budget(ONE, asked).unwrap();
            assert_eq!(tokens, 32_000);
            assert!(source.contains(by), "{source}");
            assert_eq!(limit(ONE, asked, "kv_block_tokens").unwrap().0, 32);
        }
        let label = "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\",cp_world_size=\"4\"} 1\n";
        assert_eq!(budget(label, none).unwrap().0, 64_000);
    }

    #[test]
    fn the_context_parallel_size_is_looked_for_in_order_of_the_metrics_and_not_of_the_lines() {
        // By the cache's metric it would be 3, by the decode size alone 5.
        let text = "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\",cp_world_size=\"3\"} 1\n\
                    vllm:vllm_config_info{prefill_context_parallel_size=\"2\",decode_context_parallel_size=\"4\"} 1\n\
                    vllm:parallel_config_info{dcp_world_size=\"5\"} 1\n";
        let (tokens, source) = budget(text, Asked::default()).unwrap();
        assert_eq!(tokens, 16_000 * 8);
        assert!(source.contains("vllm:vllm_config_info"), "{source}");
        let decode_only = format!("{ONE}vllm:parallel_config_info{{dcp_world_size=\"5\"}} 1\n");
        assert_eq!(budget(&decode_only, Asked::default()).unwrap().0, 16_000 * 5);
    }

    #[test]
    fn a_told_size_is_taken_and_data_parallel_engines_add() {
        let metrics = "vllm:cache_config_info{engine=\"0\",block_size=\"16\",kv_cache_size_tokens=\"500\",max_num_seqs=\"8\"} 1\n\
                       vllm:cache_config_info{engine=\"1\",block_size=\"16\",kv_cache_size_tokens=\"700\",max_num_seqs=\"8\"} 1\n";
        let of = |name| limit(metrics, Asked::default(), name).unwrap();
        assert_eq!(of("kv_budget_tokens").0, 1200);
        assert!(of("kv_budget_tokens").1.ends_with("of 2 engines"));
        assert_eq!(of("kv_budget_tokens_per_engine").0, 500);
        assert_eq!(of("data_parallel_engines").0, 2);
        assert_eq!(of("max_running_requests").0, 16);
        assert_eq!(of("kv_block_tokens").0, 16);
        assert_eq!(limit(ONE, Asked::default(), "data_parallel_engines"), None);
    }

    #[test]
    fn a_cache_smaller_than_a_context_is_unknown_and_said() {
        // Each of the engines is too small, though both together are not.
        let metrics = "vllm:cache_config_info{engine=\"0\",block_size=\"16\",num_gpu_blocks=\"200\"} 1\n\
                       vllm:cache_config_info{engine=\"1\",block_size=\"16\",num_gpu_blocks=\"200\"} 1\n";
        let found = recognise(&answers(metrics, 4096), Asked::default()).unwrap();
        assert!(found.limits.iter().all(|l| !l.name.starts_with("kv_")));
        assert!(found.warnings[0].contains("--dcp-size"));
    }

    #[test]
    fn a_version_alone_is_not_vllm() {
        let mut a = answers("process_x 1\n", 1);
        assert!(recognise(&a, Asked::default()).is_none());
        a.models["data"][0]["owned_by"] = Value::from("vllm");
        assert!(recognise(&a, Asked::default()).is_some());
    }

    #[test]
    fn a_server_in_development_mode_tells_how_many_it_runs() {
        let mut a = answers(ONE, 4096);
        a.server_info = Some(serde_json::json!({"vllm_config": {"scheduler_config": {"max_num_seqs": 48}}}));
        let found = recognise(&a, Asked::default()).unwrap();
        let running = found.limits.iter().find(|l| l.name == "max_running_requests").unwrap();
        assert_eq!((running.value, running.source.as_str()), (48, "/server_info max_num_seqs"));
    }
}
