//! Several engines, older names, counters that agree with the truth, and what the truth keeps.

use std::io::BufReader;

use tokscope_collector::simulator::{End, Flavour, MetricsVersion, Quirks, Settings, Truth};

use super::client::*;

fn sum(found: &[(String, f64)]) -> f64 {
    found.iter().map(|(_, value)| value).sum()
}

/// Four requests at once, of the same prompt.
fn four(running: &tokscope_collector::simulator::Running, tokens: u32) {
    let streams: Vec<_> = (0..4).map(|at| send_chat(running, &at.to_string(), &chat_body(&"word ".repeat(100), tokens))).collect();
    for stream in streams {
        assert_eq!(read_reply(&mut BufReader::new(stream)).status, 200);
    }
}

#[test]
fn data_parallel_engines_share_the_requests_and_each_counts_its_own() {
    let running = start(Settings { data_parallel: 2, spec_accept: vec![0.7, 0.4], ..quick() });
    four(&running, 40);
    let tokens = series(&running, "vllm:generation_tokens_total");
    let labels: Vec<_> = tokens.iter().map(|(labels, _)| labels.contains("engine=\"1\"")).collect();
    assert_eq!(labels, [false, true]);
    assert_eq!(tokens.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [80.0, 80.0]);
    assert_eq!(series(&running, "vllm:cache_config_info").len(), 2);
    let truth = truth(&running);
    for engine in 0..2 {
        assert_eq!(truth.requests.iter().filter(|request| request.engine == engine).count(), 2);
    }
    assert_eq!(sum(&series(&running, "vllm:spec_decode_num_drafts_total")), f64::from(truth.history.steps.drafts.iter().sum::<u32>()));
}

#[test]
fn the_counters_of_prefill_cache_and_drafts_are_the_truths() {
    let running = start(Settings { spec_accept: vec![0.7, 0.4], prompt_tokens_details: true, ..quick() });
    four(&running, 40);
    let Truth { requests, .. } = truth(&running);
    let total = |of: fn(&tokscope_collector::simulator::RequestTruth) -> u64| requests.iter().map(of).sum::<u64>() as f64;
    let (prompt, cached) = (total(|r| u64::from(r.prompt_tokens)), total(|r| u64::from(r.cached_tokens)));
    assert!(cached > 0.0);
    for (name, value) in [
        ("vllm:prompt_tokens_total", prompt),
        ("vllm:prompt_tokens_cached_total", cached),
        ("vllm:prefix_cache_queries_total", prompt),
        ("vllm:prefix_cache_hits_total", cached),
        ("vllm:request_prefill_kv_computed_tokens_sum", prompt - cached),
        ("vllm:request_prefill_kv_computed_tokens_count", 4.0),
        ("vllm:request_prefill_time_seconds_count", 4.0),
        ("vllm:request_success_total", 4.0),
        ("vllm:spec_decode_num_drafts_total", total(|r| u64::from(r.drafts))),
        ("vllm:spec_decode_num_accepted_tokens_total", total(|r| u64::from(r.accepted))),
    ] {
        assert_eq!(sum(&series(&running, name)), value, "{name}");
    }
    let sources = series(&running, "vllm:prompt_tokens_by_source_total");
    let source = |name: &str| sources.iter().find(|(labels, _)| labels.contains(name)).unwrap().1;
    assert_eq!((source("local_compute"), source("local_cache_hit")), (prompt - cached, cached));
    let prefill_s = total(|r| r.prefill_end_ns.unwrap() - r.prefill_start_ns.unwrap()) / 1e9;
    let told = sum(&series(&running, "vllm:request_prefill_time_seconds_sum"));
    assert!((told / prefill_s - 1.0).abs() < 1e-6, "{told} {prefill_s}");
}

#[test]
fn the_truth_of_a_request_follows_the_model() {
    let running = start(Settings { prefill_tok_s: 20_000.0, spec_accept: vec![0.6, 0.3], ..quick() });
    four(&running, 30);
    let truth = truth(&running);
    for request in &truth.requests {
        let (start, end) = (request.prefill_start_ns.unwrap(), request.prefill_end_ns.unwrap());
        assert_eq!(end - start, u64::from(request.prompt_tokens - request.cached_tokens) * 50_000);
        assert_eq!(request.handed_ns[0] - request.late_ns[0], end);
        assert_eq!((request.steps as usize, request.drafts), (request.tokens.len() - 1, request.steps));
        // Each step gives the accepted tokens and one more, but for what the end cuts off.
        assert!((29..29 + 3).contains(&(request.accepted + request.drafts)));
    }
    let steps = &truth.history.steps;
    let sequences = truth.requests.iter().map(|request| request.steps).sum::<u32>();
    assert_eq!(steps.sequences.iter().sum::<u32>(), sequences);
    assert!(steps.end_ns.len() < sequences as usize, "steps are shared");
    let load = &truth.history.load;
    assert_eq!((load.running.iter().max(), load.running.last(), load.waiting.last()), (Some(&4), Some(&0), Some(&0)));
    assert!(load.at_ns.is_sorted());
    let between = load.at_ns[load.at_ns.len() / 2];
    let path = format!("/simulator/truth?since_ns={between}");
    let later: Truth = serde_json::from_value(get(&running, &path).json()).unwrap();
    assert!(later.history.load.at_ns.len() < load.at_ns.len() && later.history.load.at_ns[0] <= between);
}

#[test]
fn the_older_metrics_have_their_own_names() {
    let running = start(Settings { metrics_version: MetricsVersion::V0, kv_size_label: false, ..quick() });
    let stream = send_chat(&running, "a", &chat_body("hi", 8_000));
    until("the rate is told", || metric(&running, "vllm:avg_generation_throughput_toks_per_s") > 0.0);
    assert!(metric(&running, "vllm:gpu_cache_usage_perc") > 0.0);
    let (labels, _) = series(&running, "vllm:cache_config_info").remove(0);
    assert!(labels.contains("num_gpu_blocks=\"4096\"") && labels.contains("block_size=\"16\"") && !labels.contains("kv_cache_size_tokens"));
    drop(stream);
}

#[test]
fn sglang_goes_on_until_it_is_told_by_the_requests_id() {
    let running = start(Settings { flavour: Flavour::Sglang, spec_accept: vec![0.9, 0.8], ..quick() });
    let body = chat_body("hi", 8_000).replacen('{', "{\"rid\":\"mine\",", 1);
    let mut stream = send_chat(&running, "other", &body);
    read_until(&mut stream, b"data: ");
    drop(stream);
    until("the hang-up is noticed", || truth(&running).requests[0].end == End::Disconnect);
    let before = metric(&running, "sglang:generation_tokens_total");
    until("it goes on", || metric(&running, "sglang:generation_tokens_total") > before + 20.0);
    assert_eq!(metric(&running, "sglang:num_running_reqs"), 1.0);
    assert_eq!(post(&running, "/abort_request", "{\"rid\":\"another\"}").status, 200);
    assert_eq!(metric(&running, "sglang:num_running_reqs"), 1.0);
    assert_eq!(post(&running, "/abort_request", "{\"rid\":\"mine\"}").status, 200);
    until("it is gone", || metric(&running, "sglang:num_running_reqs") == 0.0);
    // The gauges are of the last forty steps.
    let length = metric(&running, "sglang:spec_accept_length");
    assert!((1.0..=3.0).contains(&length) && length > 1.0, "{length}");
    let rate = metric(&running, "sglang:spec_accept_rate");
    assert!((rate - (length - 1.0) / 2.0).abs() < 1e-9, "{rate} {length}");
    let stage = series(&running, "sglang:per_stage_req_latency_seconds_count");
    assert!(stage[0].0.contains("prefill_forward") && stage[0].1 == 1.0, "told as soon as the prompt is computed");
}

#[test]
fn an_abort_ends_a_stream_that_is_still_read() {
    let running = start(Settings { flavour: Flavour::Sglang, ..quick() });
    let stream = send_chat(&running, "mine", &chat_body("hi", 8_000));
    until("it runs", || metric(&running, "sglang:generation_tokens_total") > 5.0);
    assert_eq!(post(&running, "/abort_request", "{\"rid\":\"mine\"}").status, 200);
    let events = read_reply(&mut BufReader::new(stream)).events();
    assert_eq!(events[events.len() - 2]["choices"][0]["finish_reason"], "abort");
    assert_eq!(truth(&running).requests[0].end, End::Abort);
    until("nothing runs", || metric(&running, "sglang:num_running_reqs") == 0.0);
}

#[test]
fn a_lag_lets_a_request_go_on_without_its_client_and_ends_it_then() {
    let quirks = Quirks { abort_lag_ms: Some(300), ..Quirks::default() };
    let running = start(Settings { quirks, ..quick() });
    let mut stream = send_chat(&running, "a", &chat_body("hi", 8_000));
    read_until(&mut stream, b"data: ");
    drop(stream);
    until("nothing runs", || metric(&running, "vllm:num_requests_running") == 0.0);
    let truth = truth(&running);
    let request = &truth.requests[0];
    assert_eq!(request.end, End::Disconnect);
    let seen: u32 = request.tokens.iter().sum();
    let steps = &truth.history.steps.end_ns;
    // 300 ms are 150 steps of 2 ms; those of a busy machine may be fewer, but not a handful.
    assert!(steps.len() as u32 > seen + 50, "{} after {seen}", steps.len());
    assert!(steps.len() < 7_000);
}
