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

/// One value, the names it goes by (best first), and how several series combine.
struct Rule {
    names: &'static [&'static str],
    combine: Combine,
    set: Set,
}

const fn rule(names: &'static [&'static str], combine: Combine, set: Set) -> Rule {
    Rule { names, combine, set }
}

const VLLM: &[Rule] = &[
    rule(&["vllm:num_requests_running"], Sum, |v, x| v.running = Some(x)),
    rule(&["vllm:num_requests_waiting"], Sum, |v, x| v.waiting = Some(x)),
    rule(
        // V0 and early V1 had the second name.
        &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
        Mean,
        |v, x| v.kv_usage = Some(x),
    ),
    rule(&["vllm:generation_tokens_total", "vllm:generation_tokens"], Sum, |v, x| v.generation_tokens = Some(x)),
    rule(&["vllm:prompt_tokens_total", "vllm:prompt_tokens"], Sum, |v, x| v.prompt_tokens = Some(x)),
    rule(&["vllm:prompt_tokens_cached_total", "vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"], Sum, |v, x| {
        v.cached_prompt_tokens = Some(x)
    }),
    rule(&["vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_drafts"], Sum, |v, x| v.spec_drafts = Some(x)),
    rule(&["vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_draft_tokens"], Sum, |v, x| v.spec_draft_tokens = Some(x)),
    rule(&["vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens"], Sum, |v, x| {
        v.spec_accepted_tokens = Some(x)
    }),
    rule(
        // V0 only.
        &["vllm:avg_generation_throughput_toks_per_s"],
        Sum,
        |v, x| v.gen_throughput = Some(x),
    ),
    rule(&["vllm:request_success_total"], Sum, |v, x| {
        v.request_success = Some(x);
    }),
    rule(&["vllm:num_preemptions_total"], Sum, |v, x| {
        v.preemptions = Some(x);
    }),
];

const SGLANG: &[Rule] = &[
    rule(&["sglang:num_running_reqs"], Sum, |v, x| v.running = Some(x)),
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
];

/// llama.cpp's token counters move only when a request ends, so a window can't use them.
const LLAMA_CPP: &[Rule] = &[
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

/// Picks an engine's values out of its metrics.
#[must_use]
pub fn values(engine: Engine, text: &str) -> (Values, Skipped) {
    let rules = match engine {
        Engine::Vllm => VLLM,
        Engine::Sglang => SGLANG,
        Engine::LlamaCpp => LLAMA_CPP,
        Engine::OpenaiProxy => &[],
    };
    // By rule and name: sum and number of series.
    let mut seen: Vec<Vec<(f64, u32)>> = rules.iter().map(|r| vec![(0.0, 0); r.names.len()]).collect();
    let mut positions: Vec<f64> = Vec::new();
    let skipped = parse(text, |sample| {
        // Tensor-parallel ranks repeat what the first one says.
        if sample.label("tp_rank").is_some_and(|rank| rank != "0") {
            return;
        }
        if PER_POSITION.contains(&sample.name) {
            add_position(&mut positions, &sample);
            return;
        }
        for (rule, seen) in rules.iter().zip(&mut seen) {
            let at = rule.names.iter().position(|n| same_name(sample.name, n));
            if let Some(acc) = at.and_then(|at| seen.get_mut(at)) {
                acc.0 += sample.value;
                acc.1 += 1;
            }
        }
    });
    let mut values = Values { spec_accepted_per_pos: positions, ..Values::default() };
    for (rule, seen) in rules.iter().zip(&seen) {
        let Some((sum, series)) = seen.iter().find(|(_, n)| *n > 0) else {
            continue;
        };
        let value = match rule.combine {
            Sum => *sum,
            Mean => sum / f64::from(*series),
        };
        (rule.set)(&mut values, value);
    }
    (values, skipped)
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
