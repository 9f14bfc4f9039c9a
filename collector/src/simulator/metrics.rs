//! What `/metrics` says, in the Prometheus text format: vLLM's families as recorded, SGLang's as
//! its documentation names them. Families that the simulated engine has nothing for stand at 0.

use std::fmt::Write as _;

use super::clock;
use super::counters::{Counters, Gauges, Histogram};
use super::model::{Flavour, Settings};

/// What a scrape is made from.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) counters: Counters,
    pub(crate) gauges: Gauges,
}

/// Writes families; each series has the common labels and its own.
struct Page {
    text: String,
    /// Common labels, before and after those in between by the alphabet.
    before: &'static str,
    after: String,
    /// When the counters began, in Unix seconds; vLLM tells it in series of their own.
    created: Option<f64>,
}

/// A number as Prometheus' Python client writes it.
fn number(value: f64) -> String {
    if value.abs() >= 1e6 {
        let text = format!("{value:e}");
        return match text.split_once('e') {
            Some((digits, exponent)) if digits.contains('.') => format!("{digits}e+{exponent:0>2}"),
            Some((digits, exponent)) => format!("{digits}.0e+{exponent:0>2}"),
            None => text,
        };
    }
    format!("{value:?}")
}

/// A label's value with its special characters escaped.
fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn series(&mut self, name: &str, own: &str, value: f64) {
        let labels = format!("{}{own}{}", self.before, self.after);
        let value = number(value);
        let _ = writeln!(self.text, "{name}{{{labels}}} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        self.series(name, "", value);
    }

    fn created(&mut self, base: &str, help: &str, own: &[String]) {
        if let Some(created) = self.created {
            let name = format!("{base}_created");
            self.head(&name, "gauge", help);
            for own in own {
                self.series(&name, own, created);
            }
        }
    }

    fn counters(&mut self, base: &str, help: &str, values: &[(String, f64)]) {
        let name = format!("{base}_total");
        self.head(&name, "counter", help);
        for (own, value) in values {
            self.series(&name, own, *value);
        }
        let own: Vec<String> = values.iter().map(|(own, _)| own.clone()).collect();
        self.created(base, help, &own);
    }

    fn counter(&mut self, base: &str, help: &str, value: u64) {
        self.counters(base, help, &[(String::new(), value as f64)]);
    }

    fn counter_by(&mut self, base: &str, help: &str, label: &str, values: &[(&str, u64)]) {
        let own = |key: &str| format!("{label}=\"{key}\",");
        let values: Vec<_> = values.iter().map(|(key, value)| (own(key), *value as f64)).collect();
        self.counters(base, help, &values);
    }

    fn histogram(&mut self, name: &str, help: &str, own: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let mut sum = 0;
        let bounds = histogram.bounds.iter().map(|bound| format!("{bound:?}"));
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&histogram.counts) {
            sum += count;
            self.series(&format!("{name}_bucket"), &format!("le=\"{bound}\",{own}"), sum as f64);
        }
        self.series(&format!("{name}_count"), own, sum as f64);
        self.series(&format!("{name}_sum"), own, histogram.sum);
        self.created(name, help, &[own.to_owned()]);
    }
}

/// The page of the imitated server; a proxy has none.
pub(crate) fn page(settings: &Settings, snapshot: &Snapshot, started_s: f64) -> Option<String> {
    match settings.flavour {
        Flavour::Vllm => Some(vllm(settings, snapshot, started_s)),
        Flavour::Sglang => Some(sglang(settings, snapshot)),
        Flavour::Proxy => None,
    }
}

fn vllm(settings: &Settings, snapshot: &Snapshot, started_s: f64) -> String {
    let Snapshot { counters, gauges } = snapshot;
    let mut page = Page {
        text: String::with_capacity(48 << 10),
        before: "engine=\"0\",",
        after: format!("model_name=\"{}\"", escape(&settings.model)),
        created: Some(started_s),
    };
    let p = &mut page;
    if !counters.accepted_per_pos.is_empty() {
        p.counter("vllm:spec_decode_num_drafts", "Drafts made.", counters.drafts);
        p.counter("vllm:spec_decode_num_draft_tokens", "Tokens drafted.", counters.draft_tokens);
        p.counter("vllm:spec_decode_num_accepted_tokens", "Drafted tokens accepted.", counters.accepted_tokens);
        // Here the label comes after the model's name.
        let after = p.after.clone();
        let per_pos = counters.accepted_per_pos.iter().enumerate();
        let own = |at| format!("{after},position=\"{at}\"");
        let values: Vec<_> = per_pos.map(|(at, count)| (own(at), *count as f64)).collect();
        p.after.clear();
        p.counters("vllm:spec_decode_num_accepted_tokens_per_pos", "Drafted tokens accepted, by position.", &values);
        p.after = after;
    }
    for name in ["flops", "read_bytes", "write_bytes"] {
        p.counter(&format!("vllm:estimated_{name}_per_gpu"), "Not simulated.", 0);
    }
    p.gauge("vllm:num_requests_running", "Requests in execution.", gauges.running as f64);
    p.gauge("vllm:num_requests_waiting", "Requests in the queue.", gauges.waiting as f64);
    p.head("vllm:num_requests_waiting_by_reason", "gauge", "Requests in the queue, by reason.");
    let after = std::mem::take(&mut p.after);
    p.series("vllm:num_requests_waiting_by_reason", &format!("{after},reason=\"capacity\""), gauges.waiting as f64);
    p.series("vllm:num_requests_waiting_by_reason", &format!("{after},reason=\"deferred\""), 0.0);
    p.head("vllm:engine_sleep_state", "gauge", "Whether the engine sleeps.");
    for (state, value) in [("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)] {
        p.series("vllm:engine_sleep_state", &format!("{after},sleep_state=\"{state}\""), value);
    }
    p.after = after;
    p.gauge("vllm:kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", gauges.kv_usage());
    p.counter("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", counters.cache_queries);
    p.counter("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.", counters.cache_hits);
    for name in ["external_prefix_cache", "mm_cache"] {
        p.counter(&format!("vllm:{name}_queries"), "Not simulated.", 0);
        p.counter(&format!("vllm:{name}_hits"), "Not simulated.", 0);
    }
    p.counter("vllm:num_preemptions", "Preemptions; there are none.", 0);
    p.counter("vllm:prompt_tokens", "Prompt tokens processed.", counters.prompt_tokens);
    let computed = counters.prompt_tokens - counters.cached_tokens;
    let mut by_source = |base: &str, help: &str, values: &[(&str, u64)]| {
        let after = std::mem::take(&mut p.after);
        let own = |key: &str| format!("{after},source=\"{key}\"");
        let values: Vec<_> = values.iter().map(|(key, value)| (own(key), *value as f64)).collect();
        p.counters(base, help, &values);
        p.after = after;
    };
    by_source(
        "vllm:prompt_tokens_by_source",
        "Prompt tokens, by where they came from.",
        &[("local_compute", computed), ("local_cache_hit", counters.cached_tokens), ("external_kv_transfer", 0)],
    );
    by_source(
        "vllm:prompt_tokens_cached_by_source",
        "Cached prompt tokens, by tier.",
        &[("device", counters.cached_tokens), ("host", 0), ("p2p", 0), ("disk", 0), ("external_unspecified", 0)],
    );
    p.counter("vllm:prompt_tokens_cached", "Prompt tokens that were cached.", counters.cached_tokens);
    p.counter("vllm:generation_tokens", "Tokens generated.", counters.generation_tokens);
    // As recorded: what the client gave up is not counted as aborted.
    p.counter_by(
        "vllm:request_success",
        "Requests ended, by reason.",
        "finished_reason",
        &[("stop", counters.ended_stop), ("length", counters.ended_length), ("abort", 0), ("error", 0), ("repetition", 0)],
    );
    p.counter("vllm:admission_rejections", "Not simulated.", 0);
    for (name, help, histogram) in [
        ("request_prompt_tokens", "Prompt tokens a request.", &counters.request_prompt),
        ("request_generation_tokens", "Generated tokens a request.", &counters.request_generation),
        ("iteration_tokens_total", "Tokens a step.", &counters.iteration),
        ("request_max_num_generation_tokens", "Most tokens asked for.", &counters.max_tokens),
        ("request_params_n", "Answers asked for.", &counters.ones),
        ("request_params_max_tokens", "max_tokens of requests.", &counters.max_tokens),
        ("time_to_first_token_seconds", "Time to first token.", &counters.first_token),
        ("inter_token_latency_seconds", "Time between outputs of a sequence.", &counters.between_tokens),
        ("request_time_per_output_token_seconds", "Mean time a token.", &counters.per_output_token),
        ("e2e_request_latency_seconds", "Whole time of requests.", &counters.whole),
        ("request_queue_time_seconds", "Time before the prefill.", &counters.queue),
        ("request_inference_time_seconds", "Time from the start of the prefill.", &counters.inference),
        ("request_prefill_time_seconds", "Time in prefill.", &counters.prefill),
        ("request_decode_time_seconds", "Time in decode.", &counters.decode),
        ("request_num_preemptions", "Preemptions a request.", &counters.zeros),
        ("request_prefill_kv_computed_tokens", "Prompt tokens computed, not cached.", &counters.computed_tokens),
    ] {
        p.histogram(&format!("vllm:{name}"), help, "", histogram);
    }
    p.head("vllm:cache_config_info", "gauge", "Settings of the KV cache.");
    p.after.clear();
    let blocks = settings.kv_blocks();
    let info = format!(
        "block_size=\"{}\",cache_dtype=\"auto\",enable_prefix_caching=\"{}\",engine=\"0\",\
         gpu_memory_utilization=\"0.92\",kv_cache_size_tokens=\"{}\",num_cpu_blocks=\"None\",\
         num_gpu_blocks=\"{blocks}\",num_gpu_blocks_override=\"None\",sliding_window=\"None\"",
        settings.block_tokens,
        if settings.prefix_cache { "True" } else { "False" },
        blocks * settings.block_tokens,
    );
    p.before = "";
    p.series("vllm:cache_config_info", &info, 1.0);
    page.text
}

fn sglang(settings: &Settings, snapshot: &Snapshot) -> String {
    let Snapshot { counters, gauges } = snapshot;
    let mut page = Page {
        text: String::with_capacity(16 << 10),
        before: "",
        after: format!("model_name=\"{}\"", escape(&settings.model)),
        created: None,
    };
    let p = &mut page;
    let ratio = |part: u64, whole: u64| {
        if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
    };
    p.counter("sglang:prompt_tokens", "Prompt tokens processed.", counters.prompt_tokens);
    p.counter("sglang:generation_tokens", "Tokens generated.", counters.generation_tokens);
    p.counter("sglang:cached_tokens", "Prompt tokens that were cached.", counters.cached_tokens);
    p.counter("sglang:num_requests", "Requests ended.", counters.succeeded());
    p.counter("sglang:num_aborted_requests", "Requests given up.", counters.aborted);
    p.gauge("sglang:num_running_reqs", "Requests in execution.", gauges.running as f64);
    p.gauge("sglang:num_queue_reqs", "Requests in the queue.", gauges.waiting as f64);
    let used = f64::from(gauges.kv_blocks_used) * f64::from(settings.block_tokens);
    p.gauge("sglang:num_used_tokens", "Tokens in the KV cache.", used);
    p.gauge("sglang:token_usage", "Share of the KV cache in use.", gauges.kv_usage());
    p.gauge("sglang:utilization", "Share of the KV cache in use.", gauges.kv_usage());
    let hit_rate = ratio(counters.cache_hits, counters.cache_queries);
    p.gauge("sglang:cache_hit_rate", "Share of prompt tokens that were cached.", hit_rate);
    p.gauge("sglang:gen_throughput", "Tokens a second, of the last steps.", counters.recent_tok_s);
    let accepted = ratio(counters.accepted_tokens, counters.draft_tokens);
    p.gauge("sglang:spec_accept_rate", "Share of drafted tokens accepted.", accepted);
    let length = match counters.drafts {
        0 => 0.0,
        drafts => 1.0 + ratio(counters.accepted_tokens, drafts),
    };
    p.gauge("sglang:spec_accept_length", "Tokens a sequence and step.", length);
    for (name, help, own, histogram) in [
        ("time_to_first_token_seconds", "Time to first token.", "", &counters.first_token),
        ("inter_token_latency_seconds", "Time between outputs.", "", &counters.between_tokens),
        ("e2e_request_latency_seconds", "Whole time of requests.", "", &counters.whole),
        ("queue_time_seconds", "Time before the prefill.", "", &counters.queue),
        ("per_stage_req_latency_seconds", "Time in a stage.", "stage=\"prefill_forward\",", &counters.prefill),
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn page_of(flavour: Flavour, spec_accept: Vec<f64>) -> String {
        let settings = Settings { flavour, spec_accept, model: "tiny\"llama".to_owned(), ..Settings::default() };
        let mut counters = Counters::new(settings.spec_accept.len());
        counters.prompt_tokens = 2_500_000;
        counters.first_token.observe(0.05);
        let snapshot = Snapshot { counters, gauges: Gauges { running: 3, ..Gauges::default() } };
        page(&settings, &snapshot, 1.796e9).unwrap()
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
        let recorded = include_str!("../../tests/fixtures/transcripts/vllm/metrics.response.http");
        let recorded_spec = include_str!("../../tests/fixtures/transcripts/vllm-spec-ngram/metrics.response.http");
        for (recorded, accept) in [(recorded, vec![]), (recorded_spec, vec![0.5; 4])] {
            let ours = page_of(Flavour::Vllm, accept).replace("tiny\\\"llama", "tiny-llama");
            assert_eq!(families(&ours), families(recorded));
            assert_eq!(label_keys(&ours), label_keys(recorded));
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
            "sglang:per_stage_req_latency_seconds_sum{stage=\"prefill_forward\"",
            "sglang:per_stage_req_latency_seconds_count{stage=\"prefill_forward\"",
        ] {
            assert!(sglang.contains(name), "{name}");
        }
        assert!(vllm.contains("model_name=\"tiny\\\"llama\""));
        assert!(vllm[..2000].contains("vllm:"));
    }
}
