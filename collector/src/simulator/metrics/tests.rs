#![allow(clippy::unwrap_used)]

use super::prometheus::number;
use super::*;
use std::collections::BTreeSet;

fn page_of(flavour: Flavour, spec_accept: Vec<f64>) -> String {
    let settings = Settings { flavour, spec_accept, model: "tiny\"llama".to_owned(), ..Settings::default() };
    let mut counters = Counters::new(settings.spec_accept.len());
    counters.prompt_tokens = 2_500_000;
    counters.first_token.observe(0.05);
    let snapshot = Snapshot { engines: vec![(counters, Gauges { running: 3, ..Gauges::default() })], occupied: Vec::new() };
    page(&settings, &snapshot, 1.796e9)
}

fn families(page: &str) -> BTreeSet<&str> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter(|family| family.starts_with("vllm:")).collect()
}

/// Label keys of each series, sorted out by name.
fn label_keys(page: &str) -> BTreeSet<(String, String)> {
    let series = page.lines().filter(|line| line.starts_with("vllm:"));
    series
        .filter(|line| !line.starts_with("vllm:cache_config_info"))
        .map(|line| {
            let (name, rest) = line.split_once('{').unwrap();
            let (labels, _) = rest.rsplit_once('}').unwrap();
            let keys = labels.split(',').map(|label| label.split_once('=').unwrap().0);
            (name.to_owned(), keys.collect::<Vec<_>>().join(","))
        })
        .collect()
}

#[test]
fn families_types_and_labels_are_those_recorded() {
    let recorded = include_str!("../../../tests/fixtures/transcripts/vllm/metrics.response.http");
    let recorded_spec = include_str!("../../../tests/fixtures/transcripts/vllm-spec-ngram/metrics.response.http");
    for (recorded, accept) in [(recorded, vec![]), (recorded_spec, vec![0.5; 4])] {
        let ours = page_of(Flavour::Vllm, accept).replace("tiny\\\"llama", "tiny-llama");
        assert_eq!(families(&ours), families(recorded));
        assert_eq!(label_keys(&ours), label_keys(recorded));
    }
}

fn of_two_engines(flavour: Flavour) -> String {
    let settings = Settings { flavour, model: "m".to_owned(), ..Settings::default() };
    let engine = |tokens, running| {
        let mut counters = Counters::new(0);
        counters.generation_tokens = tokens;
        (counters, Gauges { running, kv_blocks_used: running as u32, kv_blocks: 8, ..Gauges::default() })
    };
    page(&settings, &Snapshot { engines: vec![engine(10, 3), engine(20, 4)], occupied: Vec::new() }, 1.0)
}

#[test]
fn each_engine_has_its_series_under_one_head() {
    let vllm = of_two_engines(Flavour::Vllm);
    for line in [
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 10.0",
        "vllm:generation_tokens_total{engine=\"1\",model_name=\"m\"} 20.0",
        "vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"} 0.5",
        "vllm:request_prefill_time_seconds_count{engine=\"1\",model_name=\"m\"} 0.0",
    ] {
        assert!(vllm.lines().any(|found| found == line), "{line}");
    }
    let sglang = of_two_engines(Flavour::Sglang);
    assert!(sglang.contains("sglang:num_running_reqs{dp_rank=\"1\",model_name=\"m\"} 4.0\n"));
    for page in [&vllm, &sglang] {
        let heads: Vec<_> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
        assert_eq!(heads.len(), heads.iter().collect::<BTreeSet<_>>().len());
    }
    assert_eq!(vllm.matches("vllm:cache_config_info{").count(), 2);
}

#[test]
fn the_older_names_stand_alone() {
    let settings = Settings { metrics_version: super::super::quirks::MetricsVersion::V0, kv_size_label: false, ..Settings::default() };
    let snapshot = Snapshot { engines: vec![(Counters::new(0), Gauges::default())], occupied: Vec::new() };
    let page = page(&settings, &snapshot, 1.0);
    for name in [
        "vllm:gpu_cache_usage_perc{",
        "vllm:avg_generation_throughput_toks_per_s{",
        "vllm:generation_tokens_total{",
        "num_gpu_blocks=\"8192\"",
    ] {
        assert!(page.contains(name), "{name}");
    }
    for name in ["vllm:kv_cache_usage_perc", "engine=", "kv_cache_size_tokens", "_created"] {
        assert!(!page.contains(name), "{name}");
    }
}

#[test]
fn numbers_are_written_as_pythons_client_does() {
    for (value, text) in [
        (0.0, "0.0"),
        (24.0, "24.0"),
        (0.28, "0.28"),
        (2_500_000.0, "2.5e+06"),
        (1_796_174_240.530_151_6, "1.7961742405301516e+09"),
        (1e12, "1.0e+12"),
    ] {
        assert_eq!(number(value), text);
    }
}

#[test]
fn names_that_the_collector_reads_are_there() {
    let vllm = page_of(Flavour::Vllm, vec![0.5, 0.4]);
    let sglang = page_of(Flavour::Sglang, vec![0.5]);
    for name in [
        "vllm:generation_tokens_total{",
        "vllm:num_requests_running{",
        "vllm:num_requests_waiting{",
        "vllm:kv_cache_usage_perc{",
        "vllm:spec_decode_num_drafts_total{",
        "vllm:spec_decode_num_draft_tokens_total{",
        "vllm:spec_decode_num_accepted_tokens_total{",
        "vllm:prompt_tokens_total{",
        "vllm:prompt_tokens_cached_total{",
        "vllm:request_prefill_kv_computed_tokens_sum{",
        "vllm:request_success_total{",
        "vllm:request_prefill_time_seconds_sum{",
        "vllm:request_prefill_time_seconds_count{",
        "position=\"1\"}",
        "source=\"local_compute\"}",
        "kv_cache_size_tokens=\"1048576\"",
    ] {
        assert!(vllm.contains(name), "{name}");
    }
    for name in [
        "sglang:gen_throughput{",
        "sglang:generation_tokens_total{",
        "sglang:num_running_reqs{",
        "sglang:num_queue_reqs{",
        "sglang:utilization{",
        "sglang:spec_accept_rate{",
        "sglang:spec_accept_length{",
        "sglang:prompt_tokens_total{",
        "sglang:num_requests_total{",
        "sglang:per_stage_req_latency_seconds_sum{model_name=\"tiny\\\"llama\",stage=\"prefill_forward\"}",
        "sglang:per_stage_req_latency_seconds_count{model_name=\"tiny\\\"llama\",stage=\"prefill_forward\"}",
    ] {
        assert!(sglang.contains(name), "{name}");
    }
    assert!(vllm.contains("model_name=\"tiny\\\"llama\""));
    assert!(vllm[..2000].contains("vllm:"));
}
