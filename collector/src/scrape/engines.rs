//! Which metric means what, by engine and by the names it had over the years. Several series of
//! one metric are one server: counters and numbers of requests add, shares and rates of one kind
//! are averaged.

use super::snapshot::Values;
use super::text::{Sample, Skipped, parse};
use crate::target::Engine;

#[derive(Clone, Copy)]
enum Combine {
    Sum,
    Mean,
}
use Combine::{Mean, Sum};

type Set = fn(&mut Values, f64);

/// Which series of a metric a rule takes.
#[derive(Clone, Copy)]
enum Series {
    All,
    /// Those whose label has this value.
    Where(&'static str, &'static str),
    /// Those whose label has none of these values.
    Unless(&'static str, &'static [&'static str]),
}

/// One value, the names it goes by (best first), which of its series count, and how several combine.
struct Rule {
    names: &'static [&'static str],
    series: Series,
    combine: Combine,
    set: Set,
}

const fn rule(names: &'static [&'static str], combine: Combine, set: Set) -> Rule {
    Rule { names, series: Series::All, combine, set }
}

const fn sum_of(names: &'static [&'static str], series: Series, set: Set) -> Rule {
    Rule { names, series, combine: Sum, set }
}

impl Series {
    fn takes(self, sample: &Sample<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Where(label, value) => sample.label(label).is_some_and(|is| is == value),
            Self::Unless(label, values) => sample.label(label).is_none_or(|is| !values.contains(&&*is)),
        }
    }
}

const VLLM: &[Rule] = &[
    rule(&["vllm:num_requests_running"], Sum, |v, x| {
        v.running = Some(x);
    }),
    rule(&["vllm:num_requests_waiting"], Sum, |v, x| {
        v.waiting = Some(x);
    }),
    rule(
        // V0 and early V1 had the second name.
        &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
        Mean,
        |v, x| v.kv_usage = Some(x),
    ),
    rule(&["vllm:generation_tokens_total", "vllm:generation_tokens"], Sum, |v, x| v.generation_tokens = Some(x)),
    rule(&["vllm:prompt_tokens_total", "vllm:prompt_tokens"], Sum, |v, x| v.prompt_tokens = Some(x)),
    rule(
        &[
            "vllm:prompt_tokens_cached_total",
            "vllm:prefix_cache_hits_total",
            "vllm:gpu_prefix_cache_hits_total",
            "vllm:gpu_prefix_cache_hits",
        ],
        Sum,
        |v, x| {
            v.cached_prompt_tokens = Some(x);
        },
    ),
    rule(&["vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_drafts"], Sum, |v, x| v.spec_drafts = Some(x)),
    rule(&["vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_draft_tokens"], Sum, |v, x| v.spec_draft_tokens = Some(x)),
    rule(&["vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens"], Sum, |v, x| {
        v.spec_accepted_tokens = Some(x);
    }),
    rule(
        // V0 only.
        &["vllm:avg_generation_throughput_toks_per_s"],
        Sum,
        |v, x| v.gen_throughput = Some(x),
    ),
    sum_of(
        &["vllm:request_success_total", "vllm:request_success"],
        // They ended, and not well.
        Series::Unless("finished_reason", &["abort", "error"]),
        |v, x| v.request_success = Some(x),
    ),
    sum_of(&["vllm:prompt_tokens_by_source_total", "vllm:prompt_tokens_by_source"], Series::Where("source", "local_compute"), |v, x| {
        v.local_compute_tokens = Some(x);
    }),
    rule(&["vllm:request_prefill_kv_computed_tokens_sum"], Sum, |v, x| {
        v.kv_computed_tokens = Some(x);
    }),
    rule(&["vllm:request_prefill_time_seconds_sum"], Sum, |v, x| {
        v.prefill_seconds_sum = Some(x);
    }),
    rule(&["vllm:request_prefill_time_seconds_count"], Sum, |v, x| {
        v.prefill_count = Some(x);
    }),
    rule(&["vllm:num_preemptions_total"], Sum, |v, x| {
        v.preemptions = Some(x);
    }),
];

const SGLANG: &[Rule] = &[
    rule(&["sglang:num_running_reqs"], Sum, |v, x| {
        v.running = Some(x);
    }),
    rule(&["sglang:num_queue_reqs"], Sum, |v, x| v.waiting = Some(x)),
    rule(&["sglang:token_usage", "sglang:utilization"], Mean, |v, x| {
        v.kv_usage = Some(x);
    }),
    rule(&["sglang:generation_tokens_total"], Sum, |v, x| {
        v.generation_tokens = Some(x);
    }),
    rule(&["sglang:prompt_tokens_total"], Sum, |v, x| {
        v.prompt_tokens = Some(x);
    }),
    rule(&["sglang:cached_tokens_total"], Sum, |v, x| {
        v.cached_prompt_tokens = Some(x);
    }),
    rule(&["sglang:gen_throughput"], Sum, |v, x| {
        v.gen_throughput = Some(x);
    }),
    rule(&["sglang:spec_accept_length"], Mean, |v, x| {
        v.spec_accept_length = Some(x);
    }),
    rule(&["sglang:spec_accept_rate"], Mean, |v, x| {
        v.spec_accept_rate = Some(x);
    }),
    rule(&["sglang:num_requests_total"], Sum, |v, x| {
        v.request_success = Some(x);
    }),
    sum_of(&["sglang:per_stage_req_latency_seconds_sum"], Series::Where("stage", "prefill_forward"), |v, x| {
        v.prefill_seconds_sum = Some(x);
    }),
    sum_of(&["sglang:per_stage_req_latency_seconds_count"], Series::Where("stage", "prefill_forward"), |v, x| {
        v.prefill_count = Some(x);
    }),
];

/// llama.cpp's counters of generated tokens and drafts move only when a request ends, so a window can't use them;
/// and its counter of prompt tokens leaves out cached ones, which are added behind.
const LLAMA_CPP: &[Rule] = &[
    rule(&["llamacpp:prompt_tokens_total"], Sum, |v, x| {
        v.local_compute_tokens = Some(x);
    }),
    rule(&["llamacpp:prompt_tokens_cached_total"], Sum, |v, x| {
        v.cached_prompt_tokens = Some(x);
    }),
    rule(&["llamacpp:prompt_seconds_total"], Sum, |v, x| {
        v.prefill_seconds_sum = Some(x);
    }),
    rule(&["llamacpp:requests_processing"], Sum, |v, x| {
        v.running = Some(x);
    }),
    rule(&["llamacpp:requests_deferred"], Sum, |v, x| {
        v.waiting = Some(x);
    }),
    rule(&["llamacpp:kv_cache_usage_ratio"], Mean, |v, x| {
        v.kv_usage = Some(x);
    }),
];

const PER_POSITION: [&str; 2] = ["vllm:spec_decode_num_accepted_tokens_per_pos_total", "vllm:spec_decode_num_accepted_tokens_per_pos"];
const MAX_POSITIONS: usize = 64;

/// What every metric name of an engine begins with; the second is SGLang's newer way.
#[must_use]
pub fn prefixes(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::Vllm => &["vllm:"],
        Engine::Sglang => &["sglang:", "sglang_"],
        Engine::LlamaCpp => &["llamacpp:"],
        Engine::OpenaiProxy => &[],
    }
}

/// Whether the text holds any metric of the engine.
#[must_use]
pub fn has_metrics_of(engine: Engine, text: &str) -> bool {
    let begins = |line: &str| prefixes(engine).iter().any(|p| line.starts_with(p));
    text.lines().any(begins)
}

/// The series of one metric under one of a rule's names.
#[derive(Default)]
struct Seen {
    sum: f64,
    series: u32,
    /// Of series that each rank of a model tells: all their labels but the rank, the rank, the value.
    ranks: Vec<(String, u32, f64)>,
}

impl Seen {
    /// All ranks of a model say the same, so the first one's word is taken; engines side by side, which differ in
    /// another label, are each taken.
    fn add(&mut self, sample: &Sample<'_>) {
        let Some(rank) = sample.label("tp_rank").and_then(|rank| rank.parse::<u32>().ok()) else {
            self.sum += sample.value;
            self.series += 1;
            return;
        };
        let others: String =
            sample.labels().filter(|(name, _)| *name != "tp_rank").map(|(name, value)| format!("{name}={value:?},")).collect();
        match self.ranks.iter_mut().find(|(labels, ..)| *labels == others) {
            Some((_, first, value)) if rank < *first => (*first, *value) = (rank, sample.value),
            Some(_) => {}
            None => self.ranks.push((others, rank, sample.value)),
        }
    }

    fn value(&self, combine: Combine) -> Option<f64> {
        let series = f64::from(self.series) + self.ranks.len() as f64;
        let sum = self.sum + self.ranks.iter().map(|(_, _, value)| value).sum::<f64>();
        (series > 0.0).then(|| match combine {
            Sum => sum,
            Mean => sum / series,
        })
    }
}

/// Picks an engine's values out of its metrics; names it doesn't know are passed over.
#[must_use]
pub fn values(engine: Engine, text: &str) -> (Values, Skipped) {
    let rules = match engine {
        Engine::Vllm => VLLM,
        Engine::Sglang => SGLANG,
        Engine::LlamaCpp => LLAMA_CPP,
        Engine::OpenaiProxy => &[],
    };
    // By rule and name.
    let mut seen: Vec<Vec<Seen>> = rules.iter().map(|r| r.names.iter().map(|_| Seen::default()).collect()).collect();
    let mut positions: Vec<f64> = Vec::new();
    let skipped = parse(text, |sample| {
        if PER_POSITION.contains(&sample.name) {
            add_position(&mut positions, &sample);
            return;
        }
        for (rule, seen) in rules.iter().zip(&mut seen) {
            let at = rule.names.iter().position(|n| same_name(sample.name, n));
            if let Some(seen) = at.and_then(|at| seen.get_mut(at)).filter(|_| rule.series.takes(&sample)) {
                seen.add(&sample);
            }
        }
    });
    let mut values = Values { spec_accepted_per_pos: positions, ..Values::default() };
    for (rule, seen) in rules.iter().zip(&seen) {
        if let Some(value) = seen.iter().find_map(|seen| seen.value(rule.combine)) {
            (rule.set)(&mut values, value);
        }
    }
    if engine == Engine::LlamaCpp {
        let cached = values.cached_prompt_tokens.unwrap_or(0.0);
        values.prompt_tokens = values.local_compute_tokens.map(|computed| computed + cached);
    }
    (values, skipped)
}

/// What a measurement wants to know and these metrics tell under no name that is known: an engine may have renamed
/// it, and a value that is missing in silence would look like one that was not asked for.
#[must_use]
pub fn missing(engine: Engine, text: &str) -> Vec<&'static str> {
    let (v, _) = values(engine, text);
    let wanted = [
        ("the number of running requests", v.running.is_some()),
        ("the number of waiting requests", v.waiting.is_some()),
        ("the use of the KV cache", v.kv_usage.is_some()),
        ("generated tokens", v.generation_tokens.is_some()),
        ("prompt tokens", v.prompt_tokens.is_some()),
        ("cached prompt tokens", v.cached_prompt_tokens.is_some()),
        ("the time of prefills", v.prefill_seconds_sum.is_some()),
    ];
    wanted.into_iter().filter(|(_, told)| !told).map(|(name, _)| name).collect()
}

/// `sglang_x` is `sglang:x`.
fn same_name(name: &str, wanted: &str) -> bool {
    if name == wanted {
        return true;
    }
    let newer = name.strip_prefix("sglang_");
    newer.is_some() && newer == wanted.strip_prefix("sglang:")
}

fn add_position(positions: &mut Vec<f64>, sample: &Sample<'_>) {
    let Some(at) = sample.label("position").and_then(|p| p.parse().ok()) else {
        return;
    };
    if at >= MAX_POSITIONS {
        return;
    }
    if positions.len() <= at {
        positions.resize(at + 1, 0.0);
    }
    if let Some(p) = positions.get_mut(at) {
        *p += sample.value;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn old_and_new_names_give_the_same_value_and_the_new_one_wins() {
        let old = values(Engine::Vllm, "vllm:gpu_cache_usage_perc 0.5\n").0;
        assert_eq!(old.kv_usage, Some(0.5));
        let both = "vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.25\n";
        assert_eq!(values(Engine::Vllm, both).0.kv_usage, Some(0.25));
        for name in ["sglang:num_running_reqs", "sglang_num_running_reqs"] {
            let text = format!("{name}{{model_name=\"m\"}} 3\n");
            assert_eq!(values(Engine::Sglang, &text).0.running, Some(3.0));
            assert!(has_metrics_of(Engine::Sglang, &text));
        }
    }

    #[test]
    fn several_engines_add_up_and_shares_are_averaged() {
        let text = "vllm:num_requests_running{engine=\"0\"} 3\n\
                    vllm:num_requests_running{engine=\"1\"} 4\n\
                    vllm:kv_cache_usage_perc{engine=\"0\"} 0.2\n\
                    vllm:kv_cache_usage_perc{engine=\"1\"} 0.4\n";
        let v = values(Engine::Vllm, text).0;
        assert_eq!(v.running, Some(7.0));
        assert!((v.kv_usage.unwrap() - 0.3).abs() < 1e-12);
    }

    #[test]
    fn tensor_parallel_ranks_count_once() {
        let text = "sglang:num_running_reqs{tp_rank=\"0\"} 5\nsglang:num_running_reqs{tp_rank=\"1\"} 5\n";
        assert_eq!(values(Engine::Sglang, text).0.running, Some(5.0));
    }

    #[test]
    fn engines_side_by_side_add_whatever_their_ranks() {
        let text = "sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\"} 5\nsglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"1\"} 5\n\
                    sglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"3\"} 2\nsglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"2\"} 2\n\
                    sglang:token_usage{dp_rank=\"0\",tp_rank=\"0\"} 0.5\nsglang:token_usage{dp_rank=\"1\",tp_rank=\"2\"} 0.25\n";
        let v = values(Engine::Sglang, text).0;
        assert_eq!((v.running, v.kv_usage), (Some(7.0), Some(0.375)));
    }

    #[test]
    fn prefill_is_told_by_time_count_and_computed_tokens() {
        let text = "vllm:request_prefill_time_seconds_sum{engine=\"0\"} 1.5\nvllm:request_prefill_time_seconds_sum{engine=\"1\"} 0.5\n\
                    vllm:request_prefill_time_seconds_count 3\nvllm:request_prefill_time_seconds_bucket{le=\"+Inf\"} 3\n\
                    vllm:request_prefill_kv_computed_tokens_sum 70\n\
                    vllm:prompt_tokens_by_source_total{source=\"local_compute\"} 80\n\
                    vllm:prompt_tokens_by_source_total{source=\"local_cache_hit\"} 900\n\
                    vllm:request_success_total{finished_reason=\"stop\"} 1\nvllm:request_success_total{finished_reason=\"length\"} 2\n\
                    vllm:request_success_total{finished_reason=\"abort\"} 40\n";
        let v = values(Engine::Vllm, text).0;
        assert_eq!((v.prefill_seconds_sum, v.prefill_count, v.kv_computed_tokens), (Some(2.0), Some(3.0), Some(70.0)));
        assert_eq!((v.local_compute_tokens, v.request_success), (Some(80.0), Some(3.0)));
        let text = "sglang:per_stage_req_latency_seconds_sum{stage=\"prefill_forward\"} 4\n\
                    sglang:per_stage_req_latency_seconds_sum{stage=\"decode_forward\"} 9\n\
                    sglang_per_stage_req_latency_seconds_count{stage=\"prefill_forward\"} 2\n";
        let v = values(Engine::Sglang, text).0;
        assert_eq!((v.prefill_seconds_sum, v.prefill_count), (Some(4.0), Some(2.0)));
        let v = values(Engine::LlamaCpp, "llamacpp:prompt_tokens_total 10\nllamacpp:prompt_tokens_cached_total 30\n").0;
        assert_eq!((v.prompt_tokens, v.local_compute_tokens, v.cached_prompt_tokens), (Some(40.0), Some(10.0), Some(30.0)));
    }

    #[test]
    fn the_same_server_reads_the_same_in_the_names_of_four_versions() {
        let versions = [
            // V0
            "vllm:num_requests_running 2\nvllm:num_requests_waiting 1\nvllm:num_requests_swapped 0\nvllm:gpu_cache_usage_perc 0.5\n\
             vllm:prompt_tokens_total 40\nvllm:generation_tokens_total 90\nvllm:avg_generation_throughput_toks_per_s 12\n\
             vllm:time_per_output_token_seconds_sum 3\n",
            // early V1
            "vllm:num_requests_running 2\nvllm:num_requests_waiting 1\nvllm:gpu_cache_usage_perc 0.5\n\
             vllm:gpu_prefix_cache_queries_total 40\nvllm:gpu_prefix_cache_hits_total 7\nvllm:prompt_tokens_total 40\n\
             vllm:generation_tokens_total 90\n",
            // V1
            "vllm:num_requests_running 2\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc 0.5\n\
             vllm:prefix_cache_hits_total 7\nvllm:prompt_tokens_total 40\nvllm:generation_tokens_total 90\n",
            // V1 today
            "vllm:num_requests_running 2\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc 0.5\n\
             vllm:prompt_tokens_cached_total 7\nvllm:prefix_cache_hits_total 9\nvllm:prompt_tokens_total 40\n\
             vllm:generation_tokens_total 90\nvllm:request_prefill_time_seconds_sum 1\nvllm:some_name_of_tomorrow 5\n",
        ];
        for (at, text) in versions.into_iter().enumerate() {
            let v = values(Engine::Vllm, text).0;
            assert_eq!((v.running, v.waiting, v.kv_usage), (Some(2.0), Some(1.0), Some(0.5)), "{at}");
            assert_eq!((v.prompt_tokens, v.generation_tokens), (Some(40.0), Some(90.0)), "{at}");
            assert_eq!(v.cached_prompt_tokens, (at > 0).then_some(7.0), "{at}");
            assert_eq!(v.gen_throughput, (at == 0).then_some(12.0), "{at}");
            assert_eq!(missing(Engine::Vllm, text).contains(&"cached prompt tokens"), at == 0, "{at}");
        }
        assert!(missing(Engine::Vllm, versions[3]).is_empty());
    }

    #[test]
    fn a_longer_name_with_the_same_beginning_is_another_metric() {
        let text = "vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 9\n";
        assert_eq!(values(Engine::Vllm, text).0.waiting, None);
    }

    #[test]
    fn what_is_not_there_is_absent_and_not_zero() {
        let (v, skipped) = values(Engine::Vllm, "vllm:num_requests_running NaN\n");
        assert_eq!(v, Values::default());
        assert_eq!(skipped.non_finite, 1);
    }
}
