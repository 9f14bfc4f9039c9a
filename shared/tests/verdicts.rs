//! Each rule over a cell, alone: it fires where it should and not beside it.
#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::{Value, json};
use tokscope_shared::import;
use tokscope_shared::verdict::{Judgement, REASONS, Reason, Verdict, judge};

/// A cell of the predecessor with nothing wrong, with some keys changed or (by null) removed.
fn judged(changes: &Value) -> Judgement {
    let mut cell = json!({
        "concurrency": 4, "context_tokens": 16384, "aggregate_tps": 400.0, "aggregate_source": "openai_continuous_usage",
        "measurement_seconds": 10.0, "measurement_wall_seconds": 10.0, "client_output_tokens": 4000,
        "num_errors": 0, "failure_reason": "", "request_count": 12, "server_gen_throughput": 401.0,
        "server_spec_accept_length": 2.5, "server_spec_pos_accept": [0.9, 0.6], "avg_running_reqs": 4, "max_running_reqs": 4,
        "queue_fraction": 0.0, "underfilled": false, "warmup_timed_out": false, "capacity_limited": false,
        "ttft_p50": 0.1, "warmup_duration": 9.0, "timeout_reason": "", "loop_detection_enabled": true,
    });
    for (key, value) in changes.as_object().unwrap() {
        if value.is_null() {
            cell.as_object_mut().unwrap().remove(key);
        } else {
            cell[key] = value.clone();
        }
    }
    let file = json!({ "metadata": { "model": "m" }, "results": [cell] }).to_string();
    let report = import::open(file.as_bytes()).unwrap().report;
    judge(report.cells().next().unwrap())
}

fn codes(judgement: &Judgement) -> Vec<&str> {
    judgement.reasons.iter().map(|reason| reason.code.as_str()).collect()
}

#[test]
fn each_rule_fires_alone() {
    let cases = [
        (json!({}), vec![]),
        (json!({ "aggregate_tps": 0.0 }), vec!["no-tokens"]),
        (json!({ "aggregate_tps": -1 }), vec!["not-run"]),
        (json!({ "aggregate_tps": -2 }), vec!["not-run"]),
        (json!({ "aggregate_tps": -3.0 }), vec!["repetition"]),
        (json!({ "aggregate_tps": -3.0, "num_errors": 4 }), vec!["repetition"]),
        (json!({ "aggregate_tps": -4.0, "num_errors": 4, "failure_reason": "ReadTimeout" }), vec!["stream-failed"]),
        (json!({ "aggregate_tps": null }), vec!["no-tokens"]),
        (json!({ "aggregate_tps": null, "failure_reason": "nothing came" }), vec!["no-tokens"]),
        (json!({ "failure_reason": "ReadTimeout" }), vec!["stream-failed"]),
        (json!({ "num_errors": 1 }), vec!["stream-failed"]),
        (
            json!({ "aggregate_source": "prometheus_fallback", "server_gen_throughput": 400.0, "client_output_tokens": 5 }),
            vec!["server-fallback"],
        ),
        (json!({ "warmup_timed_out": true, "timeout_reason": "running_reqs=3/4", "capacity_limited": true }), vec!["warmup-timed-out"]),
        (json!({ "underfilled": true, "avg_running_reqs": 3.2 }), vec!["underfilled"]),
        (json!({ "capacity_limited": true, "queue_fraction": 0.1 }), vec!["capacity-limited"]),
        (json!({ "aggregate_source": null }), vec!["source-unknown"]),
        (json!({ "aggregate_source": "openai_stream_chunks_fallback" }), vec!["chunks-as-tokens"]),
        (json!({ "server_gen_throughput": 411.9 }), vec![]),
        (json!({ "server_gen_throughput": 412.1 }), vec!["server-disagrees"]),
        (json!({ "server_gen_throughput": 387.9 }), vec!["server-disagrees"]),
        (json!({ "server_gen_throughput": 0.0 }), vec![]),
        (json!({ "measurement_wall_seconds": 10.5 }), vec![]),
        (json!({ "measurement_wall_seconds": 10.6 }), vec!["trailing-stall"]),
        (json!({ "client_output_tokens": 4001 }), vec!["rate-inconsistent"]),
        (json!({ "measurement_seconds": 0.0 }), vec!["rate-inconsistent"]),
        (json!({ "measurement_seconds": -1 }), vec!["rate-inconsistent"]),
        (json!({ "concurrency": 0 }), vec!["place-unknown"]),
        (json!({ "concurrency": "x" }), vec!["place-unknown"]),
        (json!({ "context_tokens": null }), vec!["place-unknown"]),
        (json!({ "server_spec_pos_accept": [0.9, 0.61] }), vec!["counters-mixed"]),
        (json!({ "server_spec_pos_accept": [] }), vec![]),
        (json!({ "request_count": 9 }), vec!["few-requests"]),
        (json!({ "queue_fraction": 0.2 }), vec!["queue-seen"]),
        (json!({ "concurrency": 1, "ttft_p50": 1.9 }), vec![]),
        (json!({ "concurrency": 1, "ttft_p50": 2.1 }), vec!["no-prefix-caching"]),
        (json!({ "concurrency": 1, "ttft_p50": 2.1, "context_tokens": 4096 }), vec![]),
        (json!({ "loop_detection_enabled": null, "request_samples": [{ "output_tokens": 2048 }] }), vec!["loop-unguarded"]),
        (json!({ "loop_detection_enabled": null, "request_samples": [{ "output_tokens": 2047 }] }), vec![]),
    ];
    for (changes, expected) in cases {
        let judgement = judged(&changes);
        assert_eq!(codes(&judgement), expected, "{changes}");
        let worst = judgement.reasons.iter().map(|reason| reason.verdict).max().unwrap_or(Verdict::Valid);
        assert_eq!(judgement.verdict, worst);
        for reason in &judgement.reasons {
            assert!(REASONS.iter().any(|rule| rule.code == reason.code && rule.verdict == reason.verdict));
            assert!(!reason.text.is_empty());
        }
    }
}

#[test]
fn a_rule_whose_keys_are_absent_does_not_fire() {
    let file = json!({ "metadata": { "model": "m" }, "results": [{ "concurrency": 4, "context_tokens": 65536, "aggregate_tps": 5.0 }] });
    let report = import::open(file.to_string().as_bytes()).unwrap().report;
    let judgement = judge(report.cells().next().unwrap());
    assert_eq!(codes(&judgement), ["source-unknown"]);
}

#[test]
fn our_own_cells_are_judged_by_lasting_lack_and_by_what_was_found_while_measuring() {
    let own = |extra: Value| {
        let mut changes = json!({ "tokscope": { "verdict": "valid", "reasons": [] }, "underfilled": true, "capacity_limited": true });
        for (key, value) in extra.as_object().unwrap() {
            changes[key] = value.clone();
        }
        judged(&changes)
    };
    assert_eq!(own(json!({ "avg_running_reqs": 3.7 })).verdict, Verdict::Valid, "one low sample is no lack");
    assert_eq!(codes(&own(json!({ "avg_running_reqs": 3.5 }))), ["underfilled"]);
    assert_eq!(codes(&own(json!({ "queue_fraction": 0.3 }))), ["queued"]);
    let limited = json!({ "tokscope": { "verdict": "limited", "reasons": [{ "code": "client-limited", "text": "late" }] } });
    assert_eq!((codes(&own(limited.clone())), own(limited).verdict), (vec!["client-limited"], Verdict::Limited));
    let later = json!({ "tokscope": { "verdict": "invalid", "reasons": [{ "code": "of-a-later-version", "text": "x" }] } });
    assert_eq!(own(later).verdict, Verdict::Invalid, "a later version's verdict is kept");
}

#[test]
fn every_code_stands_once_and_reads_as_one() {
    for (i, rule) in REASONS.iter().enumerate() {
        assert!(REASONS[..i].iter().all(|other| other.code != rule.code));
        assert!(rule.code.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
        assert!(rule.meaning.ends_with('.'));
    }
    assert_eq!(Reason::new("unheard-of", "x").verdict, Verdict::Suspect);
}
