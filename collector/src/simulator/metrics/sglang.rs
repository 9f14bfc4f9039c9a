//! SGLang's page, as its public documentation names it. With several engines each has its `dp_rank`.

use super::super::counters::{Counters, Histogram};
use super::super::model::Settings;
use super::Snapshot;
use super::prometheus::{Labels, Page, Part};

type Measured = (&'static str, &'static str, Labels<'static>, fn(&Counters) -> &Histogram);

const HISTOGRAMS: [Measured; 5] = [
    ("time_to_first_token_seconds", "Time to first token.", &[], |c| &c.first_token),
    ("inter_token_latency_seconds", "Time between outputs.", &[], |c| &c.between_tokens),
    ("e2e_request_latency_seconds", "Whole time of requests.", &[], |c| &c.whole),
    ("queue_time_seconds", "Time before the prefill.", &[], |c| &c.queue),
    ("per_stage_req_latency_seconds", "Time in a stage.", &[("stage", "prefill_forward")], |c| &c.stage_prefill),
];

pub(super) fn page(settings: &Settings, snapshot: &Snapshot) -> String {
    let several = snapshot.engines.len() > 1;
    let parts = snapshot.parts(|engine| {
        let rank = several.then(|| ("dp_rank", engine.to_string()));
        rank.into_iter().chain([("model_name", settings.model.clone())]).collect()
    });
    let mut page = Page { text: String::new(), parts, created: None };
    let p = &mut page;
    p.counter("sglang:prompt_tokens", "Prompt tokens processed.", |part| part.counters.prompt_tokens);
    p.counter("sglang:generation_tokens", "Tokens generated.", |part| part.counters.generation_tokens);
    p.counter("sglang:cached_tokens", "Prompt tokens that were cached.", |part| part.counters.cached_tokens);
    p.counter("sglang:num_requests", "Requests ended.", |part| part.counters.succeeded());
    p.counter("sglang:num_aborted_requests", "Requests given up.", |part| part.counters.aborted);
    let block = f64::from(settings.block_tokens);
    p.gauge("sglang:num_running_reqs", "Requests in execution.", |part| part.gauges.running as f64);
    p.gauge("sglang:num_queue_reqs", "Requests in the queue.", |part| part.gauges.waiting as f64);
    p.gauge("sglang:num_used_tokens", "Tokens in the KV cache.", |part| f64::from(part.gauges.kv_blocks_used) * block);
    p.gauge("sglang:token_usage", "Share of the KV cache in use.", |part| part.gauges.kv_usage());
    p.gauge("sglang:utilization", "Share of the KV cache in use.", |part| part.gauges.kv_usage());
    p.gauge("sglang:cache_hit_rate", "Share of prompt tokens cached.", |part: &Part| {
        part.counters.cache_hits as f64 / part.counters.cache_queries.max(1) as f64
    });
    p.gauge("sglang:gen_throughput", "Tokens a second, of the last steps.", |part| part.counters.recent_tok_s);
    p.gauge("sglang:spec_accept_rate", "Share of drafted tokens accepted, of the last steps.", |part| part.counters.recent_accept_rate);
    p.gauge("sglang:spec_accept_length", "Tokens a sequence and step, of the last steps.", |part| part.counters.recent_accept_length);
    for (name, help, own, histogram) in HISTOGRAMS {
        p.histogram(&format!("sglang:{name}"), help, own, histogram);
    }
    page.text
}
