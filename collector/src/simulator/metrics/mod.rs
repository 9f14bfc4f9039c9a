//! What `/metrics` says, in the Prometheus text format: vLLM's families as recorded, SGLang's as
//! its documentation names them. Families that the simulated engine has nothing for stand at 0.

use super::clock;
use super::counters::{Counters, Gauges};
use super::engine::Occupied;
use super::model::{Flavour, Settings};

mod llama_cpp;
mod prometheus;

pub(crate) use llama_cpp::{Scraped, page as llama_cpp};
use prometheus::Page;

/// What a scrape is made from.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Of each engine; there is one at least.
    pub(crate) engines: Vec<(Counters, Gauges)>,
    /// Requests in a slot.
    pub(crate) occupied: Vec<Occupied>,
}

impl Snapshot {
    /// Of the first engine, which for many servers is the only one.
    fn first(&self) -> (Counters, Gauges) {
        self.engines.first().cloned().unwrap_or_else(|| (Counters::new(0), Gauges::default()))
    }
}

/// The page of the imitated server; a proxy has none.
pub(crate) fn page(settings: &Settings, snapshot: &Snapshot, started_s: f64) -> Option<String> {
    match settings.flavour {
        Flavour::Vllm => Some(vllm(settings, snapshot, started_s)),
        Flavour::Sglang => Some(sglang(settings, snapshot)),
        Flavour::LlamaCpp | Flavour::Proxy => None,
    }
}

fn vllm(settings: &Settings, snapshot: &Snapshot, started_s: f64) -> String {
    let (counters, gauges) = &snapshot.first();
    let mut page = Page { text: String::new(), common: vec![("engine", "0"), ("model_name", &settings.model)], created: Some(started_s) };
    let p = &mut page;
    if !counters.accepted_per_pos.is_empty() {
        vllm_speculation(p, counters);
    }
    for name in ["flops", "read_bytes", "write_bytes"] {
        p.counter(&format!("vllm:estimated_{name}_per_gpu"), "Not simulated.", 0);
    }
    let (running, waiting) = (gauges.running as f64, gauges.waiting as f64);
    p.gauge("vllm:num_requests_running", "Requests in execution.", running);
    p.gauge("vllm:num_requests_waiting", "Requests in the queue.", waiting);
    let reasons = [("capacity", waiting), ("deferred", 0.0)];
    let name = "vllm:num_requests_waiting_by_reason";
    p.gauge_by(name, "Requests in the queue, by reason.", "reason", &reasons);
    let states = [("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)];
    p.gauge_by("vllm:engine_sleep_state", "Whether it sleeps.", "sleep_state", &states);
    p.gauge("vllm:kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", gauges.kv_usage());
    let (computed, cached) = (counters.prompt_tokens - counters.cached_tokens, counters.cached_tokens);
    for (name, help, value) in [
        ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", counters.cache_queries),
        ("prefix_cache_hits", "Prompt tokens found in the prefix cache.", counters.cache_hits),
        ("external_prefix_cache_queries", "Not simulated.", 0),
        ("external_prefix_cache_hits", "Not simulated.", 0),
        ("mm_cache_queries", "Not simulated.", 0),
        ("mm_cache_hits", "Not simulated.", 0),
        ("num_preemptions", "Preemptions; there are none.", 0),
        ("prompt_tokens", "Prompt tokens processed.", counters.prompt_tokens),
        ("prompt_tokens_cached", "Prompt tokens that were cached.", cached),
        ("generation_tokens", "Tokens generated.", counters.generation_tokens),
    ] {
        p.counter(&format!("vllm:{name}"), help, value);
    }
    let sources = [("local_compute", computed), ("local_cache_hit", cached), ("external_kv_transfer", 0)];
    p.counter_by("vllm:prompt_tokens_by_source", "Prompt tokens, by source.", "source", &sources);
    let tiers = [("device", cached), ("host", 0), ("p2p", 0), ("disk", 0), ("external_unspecified", 0)];
    let name = "vllm:prompt_tokens_cached_by_source";
    p.counter_by(name, "Cached prompt tokens, by tier.", "source", &tiers);
    // As recorded: what a client gave up is not counted as aborted.
    let reasons = [("stop", counters.ended_stop), ("length", counters.ended_length), ("abort", 0), ("error", 0), ("repetition", 0)];
    p.counter_by("vllm:request_success", "Requests ended, by reason.", "finished_reason", &reasons);
    vllm_histograms(p, counters);
    p.common = vec![("model_name", &settings.model)];
    let reasons = [("max_num_queued_reqs", 0), ("max_num_queued_tokens", 0)];
    p.counter_by("vllm:admission_rejections", "Not simulated.", "reason", &reasons);
    vllm_cache_config(p, settings);
    page.text
}

fn vllm_speculation(p: &mut Page<'_>, counters: &Counters) {
    let base = "vllm:spec_decode_num";
    p.counter(&format!("{base}_drafts"), "Drafts made.", counters.drafts);
    p.counter(&format!("{base}_draft_tokens"), "Tokens drafted.", counters.draft_tokens);
    let name = format!("{base}_accepted_tokens");
    p.counter(&name, "Drafted tokens accepted.", counters.accepted_tokens);
    let positions = counters.accepted_per_pos.iter().enumerate();
    let positions: Vec<_> = positions.map(|(at, count)| (at.to_string(), *count)).collect();
    let positions: Vec<_> = positions.iter().map(|(at, count)| (at.as_str(), *count)).collect();
    let name = format!("{base}_accepted_tokens_per_pos");
    p.counter_by(&name, "Drafted tokens accepted, by position.", "position", &positions);
}

fn vllm_histograms(p: &mut Page<'_>, counters: &Counters) {
    for (name, help, histogram) in [
        ("request_prompt_tokens", "Prompt tokens a request.", &counters.request_prompt),
        ("request_generation_tokens", "Generated tokens a request.", &counters.request_generation),
        ("iteration_tokens_total", "Tokens a step.", &counters.iteration),
        ("request_max_num_generation_tokens", "Most tokens asked for.", &counters.max_tokens),
        ("request_params_n", "Answers asked for.", &counters.ones),
        ("request_params_max_tokens", "max_tokens of requests.", &counters.max_tokens),
        ("time_to_first_token_seconds", "Time to first token.", &counters.first_token),
        ("inter_token_latency_seconds", "Time between outputs.", &counters.between_tokens),
        ("request_time_per_output_token_seconds", "Mean time a token.", &counters.per_output_token),
        ("e2e_request_latency_seconds", "Whole time of requests.", &counters.whole),
        ("request_queue_time_seconds", "Time before the prefill.", &counters.queue),
        ("request_inference_time_seconds", "Time in prefill and decode.", &counters.inference),
        ("request_prefill_time_seconds", "Time in prefill.", &counters.prefill),
        ("request_decode_time_seconds", "Time in decode.", &counters.decode),
        ("request_num_preemptions", "Preemptions a request.", &counters.zeros),
        ("request_prefill_kv_computed_tokens", "Prompt tokens computed.", &counters.computed_tokens),
    ] {
        p.histogram(&format!("vllm:{name}"), help, &[], histogram);
    }
}

fn vllm_cache_config(p: &mut Page<'_>, settings: &Settings) {
    let blocks = settings.kv_blocks();
    p.common.clear();
    p.head("vllm:cache_config_info", "gauge", "Settings of the KV cache.");
    let labels = [
        ("block_size", settings.block_tokens.to_string()),
        ("cache_dtype", "auto".to_owned()),
        ("enable_prefix_caching", if settings.prefix_cache { "True" } else { "False" }.to_owned()),
        ("engine", "0".to_owned()),
        ("gpu_memory_utilization", "0.92".to_owned()),
        ("kv_cache_size_tokens", (blocks * settings.block_tokens).to_string()),
        ("num_cpu_blocks", "None".to_owned()),
        ("num_gpu_blocks", blocks.to_string()),
        ("num_gpu_blocks_override", "None".to_owned()),
        ("sliding_window", "None".to_owned()),
    ];
    let labels: Vec<_> = labels.iter().map(|(key, value)| (*key, value.as_str())).collect();
    p.series("vllm:cache_config_info", &labels, 1.0);
}

fn sglang(settings: &Settings, snapshot: &Snapshot) -> String {
    let (counters, gauges) = &snapshot.first();
    let mut page = Page { text: String::new(), common: vec![("model_name", &settings.model)], created: None };
    let p = &mut page;
    let ratio = |part: u64, whole: u64| {
        if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
    };
    p.counter("sglang:prompt_tokens", "Prompt tokens processed.", counters.prompt_tokens);
    p.counter("sglang:generation_tokens", "Tokens generated.", counters.generation_tokens);
    p.counter("sglang:cached_tokens", "Prompt tokens that were cached.", counters.cached_tokens);
    p.counter("sglang:num_requests", "Requests ended.", counters.succeeded());
    p.counter("sglang:num_aborted_requests", "Requests given up.", counters.aborted);
    let used = f64::from(gauges.kv_blocks_used) * f64::from(settings.block_tokens);
    let accepted_length = match counters.drafts {
        0 => 0.0,
        drafts => 1.0 + ratio(counters.accepted_tokens, drafts),
    };
    for (name, help, value) in [
        ("num_running_reqs", "Requests in execution.", gauges.running as f64),
        ("num_queue_reqs", "Requests in the queue.", gauges.waiting as f64),
        ("num_used_tokens", "Tokens in the KV cache.", used),
        ("token_usage", "Share of the KV cache in use.", gauges.kv_usage()),
        ("utilization", "Share of the KV cache in use.", gauges.kv_usage()),
        ("cache_hit_rate", "Share of prompt tokens cached.", ratio(counters.cache_hits, counters.cache_queries)),
        ("gen_throughput", "Tokens a second, of the last steps.", counters.recent_tok_s),
        ("spec_accept_rate", "Share of drafted tokens accepted.", ratio(counters.accepted_tokens, counters.draft_tokens)),
        ("spec_accept_length", "Tokens a sequence and step.", accepted_length),
    ] {
        p.gauge(&format!("sglang:{name}"), help, value);
    }
    for (name, help, own, histogram) in [
        ("time_to_first_token_seconds", "Time to first token.", &[][..], &counters.first_token),
        ("inter_token_latency_seconds", "Time between outputs.", &[], &counters.between_tokens),
        ("e2e_request_latency_seconds", "Whole time of requests.", &[], &counters.whole),
        ("queue_time_seconds", "Time before the prefill.", &[], &counters.queue),
        ("per_stage_req_latency_seconds", "Time in a stage.", &[("stage", "prefill_forward")], &counters.prefill),
    ] {
        p.histogram(&format!("sglang:{name}"), help, own, histogram);
    }
    page.text
}

/// When the counters of a server that starts now began.
pub(crate) fn started_s() -> f64 {
    clock::unix_s()
}

#[cfg(test)]
mod tests;
