//! vLLM's page: V1 as recorded; V0, which had other names for some, after its public documentation.

use super::super::counters::{Counters, Histogram};
use super::super::model::Settings;
use super::super::quirks::MetricsVersion;
use super::Snapshot;
use super::prometheus::{Page, Part};

type Family = (&'static str, &'static str, fn(&Counters) -> u64);

/// Counters that V1 always has.
const COUNTERS: [Family; 10] = [
    ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", |c| c.cache_queries),
    ("prefix_cache_hits", "Prompt tokens found in the prefix cache.", |c| c.cache_hits),
    ("external_prefix_cache_queries", "Not simulated.", |_| 0),
    ("external_prefix_cache_hits", "Not simulated.", |_| 0),
    ("mm_cache_queries", "Not simulated.", |_| 0),
    ("mm_cache_hits", "Not simulated.", |_| 0),
    ("num_preemptions", "Preemptions; there are none.", |_| 0),
    ("prompt_tokens", "Prompt tokens processed.", |c| c.prompt_tokens),
    ("prompt_tokens_cached", "Prompt tokens that were cached.", |c| c.cached_tokens),
    ("generation_tokens", "Tokens generated.", |c| c.generation_tokens),
];

type Measured = (&'static str, &'static str, fn(&Counters) -> &Histogram);

const HISTOGRAMS: [Measured; 16] = [
    ("request_prompt_tokens", "Prompt tokens a request.", |c| &c.request_prompt),
    ("request_generation_tokens", "Generated tokens a request.", |c| &c.request_generation),
    ("iteration_tokens_total", "Tokens a step.", |c| &c.iteration),
    ("request_max_num_generation_tokens", "Most tokens asked for.", |c| &c.max_tokens),
    ("request_params_n", "Answers asked for.", |c| &c.ones),
    ("request_params_max_tokens", "max_tokens of requests.", |c| &c.max_tokens),
    ("time_to_first_token_seconds", "Time to first token.", |c| &c.first_token),
    ("inter_token_latency_seconds", "Time between outputs.", |c| &c.between_tokens),
    ("request_time_per_output_token_seconds", "Mean time a token.", |c| &c.per_output_token),
    ("e2e_request_latency_seconds", "Whole time of requests.", |c| &c.whole),
    ("request_queue_time_seconds", "Time before the prefill.", |c| &c.queue),
    ("request_inference_time_seconds", "Time in prefill and decode.", |c| &c.inference),
    ("request_prefill_time_seconds", "Time in prefill.", |c| &c.prefill),
    ("request_decode_time_seconds", "Time in decode.", |c| &c.decode),
    ("request_num_preemptions", "Preemptions a request.", |c| &c.zeros),
    ("request_prefill_kv_computed_tokens", "Prompt tokens computed.", |c| &c.computed_tokens),
];

fn by<T>(values: &[(&str, T)]) -> Vec<(String, T)>
where
    T: Copy,
{
    values.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
}

pub(super) fn page(settings: &Settings, snapshot: &Snapshot, started_s: f64) -> String {
    match settings.metrics_version {
        MetricsVersion::V0 => v0(settings, snapshot),
        MetricsVersion::V1 => v1(settings, snapshot, started_s),
    }
}

fn v1(settings: &Settings, snapshot: &Snapshot, started_s: f64) -> String {
    let parts = snapshot.parts(|engine| vec![("engine", engine.to_string()), ("model_name", settings.model.clone())]);
    let mut page = Page { text: String::new(), parts, created: Some(started_s) };
    let p = &mut page;
    if !settings.spec_accept.is_empty() {
        speculation(p);
    }
    for name in ["flops", "read_bytes", "write_bytes"] {
        p.counter(&format!("vllm:estimated_{name}_per_gpu"), "Not simulated.", |_| 0);
    }
    requests(p);
    let name = "vllm:num_requests_waiting_by_reason";
    p.gauge_by(name, "Requests in the queue, by reason.", "reason", |part| {
        by(&[("capacity", part.gauges.waiting as f64), ("deferred", 0.0)])
    });
    let states = [("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)];
    p.gauge_by("vllm:engine_sleep_state", "Whether it sleeps.", "sleep_state", |_| by(&states));
    p.gauge("vllm:kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", |part| part.gauges.kv_usage());
    for (name, help, value) in COUNTERS {
        p.counter(&format!("vllm:{name}"), help, |part| value(&part.counters));
    }
    p.counter_by("vllm:prompt_tokens_by_source", "Prompt tokens, by source.", "source", |part| {
        let counters = &part.counters;
        let computed = counters.prompt_tokens - counters.cached_tokens;
        by(&[("local_compute", computed), ("local_cache_hit", counters.cached_tokens), ("external_kv_transfer", 0)])
    });
    let name = "vllm:prompt_tokens_cached_by_source";
    p.counter_by(name, "Cached prompt tokens, by tier.", "source", |part| {
        let cached = part.counters.cached_tokens;
        by(&[("device", cached), ("host", 0), ("p2p", 0), ("disk", 0), ("external_unspecified", 0)])
    });
    successes(p, &["stop", "length", "abort", "error", "repetition"]);
    for (name, help, histogram) in HISTOGRAMS {
        p.histogram(&format!("vllm:{name}"), help, &[], histogram);
    }
    // Of the whole server, not of its engines.
    let engines = std::mem::take(&mut p.parts);
    p.parts = snapshot.parts(|_| vec![("model_name", settings.model.clone())]);
    p.parts.truncate(1);
    let reasons = [("max_num_queued_reqs", 0), ("max_num_queued_tokens", 0)];
    p.counter_by("vllm:admission_rejections", "Not simulated.", "reason", |_| by(&reasons));
    cache_config(p, settings, engines.len());
    page.text
}

fn requests(p: &mut Page) {
    p.gauge("vllm:num_requests_running", "Requests in execution.", |part| part.gauges.running as f64);
    p.gauge("vllm:num_requests_waiting", "Requests in the queue.", |part| part.gauges.waiting as f64);
}

/// As recorded: what a client gave up is not counted as aborted.
fn successes(p: &mut Page, reasons: &[&str]) {
    p.counter_by("vllm:request_success", "Requests ended, by reason.", "finished_reason", |part: &Part| {
        let count = |reason: &str| match reason {
            "stop" => part.counters.ended_stop,
            "length" => part.counters.ended_length,
            _ => 0,
        };
        reasons.iter().map(|reason| ((*reason).to_owned(), count(reason))).collect()
    });
}

fn speculation(p: &mut Page) {
    let base = "vllm:spec_decode_num";
    p.counter(&format!("{base}_drafts"), "Drafts made.", |part| part.counters.drafts);
    p.counter(&format!("{base}_draft_tokens"), "Tokens drafted.", |part| part.counters.draft_tokens);
    p.counter(&format!("{base}_accepted_tokens"), "Drafted tokens accepted.", |part| part.counters.accepted_tokens);
    let name = format!("{base}_accepted_tokens_per_pos");
    p.counter_by(&name, "Drafted tokens accepted, by position.", "position", |part| {
        part.counters.accepted_per_pos.iter().enumerate().map(|(at, count)| (at.to_string(), *count)).collect()
    });
}

fn cache_config(p: &mut Page, settings: &Settings, engines: usize) {
    let blocks = settings.kv_blocks();
    p.head("vllm:cache_config_info", "gauge", "Settings of the KV cache.");
    for engine in 0..engines {
        let labels = [
            ("block_size", Some(settings.block_tokens.to_string())),
            ("cache_dtype", Some("auto".to_owned())),
            ("enable_prefix_caching", Some(if settings.prefix_cache { "True" } else { "False" }.to_owned())),
            ("engine", (settings.metrics_version == MetricsVersion::V1).then(|| engine.to_string())),
            ("gpu_memory_utilization", Some("0.92".to_owned())),
            ("kv_cache_size_tokens", settings.kv_size_label.then(|| (blocks * settings.block_tokens).to_string())),
            ("num_cpu_blocks", Some("None".to_owned())),
            ("num_gpu_blocks", Some(blocks.to_string())),
            ("num_gpu_blocks_override", Some("None".to_owned())),
            ("sliding_window", Some("None".to_owned())),
        ];
        let labels: Vec<_> = labels.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?))).collect();
        p.series("vllm:cache_config_info", &labels, 1.0);
    }
}

fn v0(settings: &Settings, snapshot: &Snapshot) -> String {
    let parts = snapshot.parts(|_| vec![("model_name", settings.model.clone())]);
    let mut page = Page { text: String::new(), parts, created: None };
    let p = &mut page;
    requests(p);
    p.gauge("vllm:num_requests_swapped", "Requests swapped to CPU; there are none.", |_| 0.0);
    p.gauge("vllm:gpu_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", |part| part.gauges.kv_usage());
    p.gauge("vllm:cpu_cache_usage_perc", "Not simulated.", |_| 0.0);
    p.gauge("vllm:gpu_prefix_cache_hit_rate", "Share of looked-up prompt tokens found in the prefix cache.", |part| {
        part.counters.cache_hits as f64 / part.counters.cache_queries.max(1) as f64
    });
    p.gauge("vllm:avg_generation_throughput_toks_per_s", "Tokens a second, of the last steps.", |part| part.counters.recent_tok_s);
    for (name, help, value) in
        COUNTERS.iter().filter(|(name, ..)| matches!(*name, "num_preemptions" | "prompt_tokens" | "generation_tokens"))
    {
        p.counter(&format!("vllm:{name}"), help, |part| value(&part.counters));
    }
    if !settings.spec_accept.is_empty() {
        let base = "vllm:spec_decode_num";
        p.gauge("vllm:spec_decode_draft_acceptance_rate", "Share of drafted tokens accepted.", |part| {
            part.counters.accepted_tokens as f64 / part.counters.draft_tokens.max(1) as f64
        });
        p.counter(&format!("{base}_accepted_tokens"), "Drafted tokens accepted.", |part| part.counters.accepted_tokens);
        p.counter(&format!("{base}_draft_tokens"), "Tokens drafted.", |part| part.counters.draft_tokens);
    }
    successes(p, &["stop", "length", "abort"]);
    for (name, help, histogram) in HISTOGRAMS {
        let newer = ["iteration_tokens_total", "request_prefill_kv_computed_tokens", "request_num_preemptions"];
        let name = match name {
            "inter_token_latency_seconds" => "time_per_output_token_seconds",
            name if newer.contains(&name) || name == "request_time_per_output_token_seconds" => continue,
            name => name,
        };
        p.histogram(&format!("vllm:{name}"), help, &[], histogram);
    }
    cache_config(p, settings, 1);
    page.text
}
