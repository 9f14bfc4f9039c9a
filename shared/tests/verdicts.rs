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

/// A cell of our own with nothing wrong but for what stands in its `tokscope` section.
fn own(section: &Value) -> Judgement {
    let mut changes = json!({ "tokscope": { "verdict": "valid", "reasons": [] } });
    for (key, value) in section.as_object().unwrap() {
        changes["tokscope"][key] = value.clone();
    }
    judged(&changes)
}

#[test]
fn what_the_client_recorded_of_itself_is_judged() {
    let late = |p99: f64| json!({ "client": { "tick_late_p99_us": p99, "tick_late_max_us": 91000 } });
    let cases = [
        (late(2000.0), vec![]),
        (late(2001.0), vec!["client-limited"]),
        (json!({ "client": { "tick_late_p99_us": null, "busy_share": 0.9 } }), vec![]),
        (json!({ "client": { "tick_late_p99_us": null, "busy_share": 0.91 } }), vec!["client-limited"]),
        (json!({ "client": { "stamp": "kernel", "tick_late_p99_us": 10_000 } }), vec![]),
        (json!({ "client": { "stamp": "kernel", "tick_late_p99_us": 10_001 } }), vec!["client-limited"]),
        (json!({ "client": { "calibration": { "ttft_off_p99_us": 10_000, "itl_off_p99_us": 5_000 } } }), vec![]),
        (json!({ "client": { "calibration": { "ttft_off_p99_us": 10_001, "itl_off_p99_us": 0 } } }), vec!["client-limited"]),
        (json!({ "client": { "calibration": { "ttft_off_p99_us": null, "itl_off_p99_us": 5_001 } } }), vec!["client-limited"]),
        (
            json!({ "client": { "calibration": { "tokens": 10_000, "tokens_off": -51, "concurrency": 16, "tokens_per_chunk": 3 } } }),
            vec!["client-limited"],
        ),
        (json!({ "client": { "calibration": { "tokens": 10_000, "tokens_off": -51, "concurrency": 17, "tokens_per_chunk": 3 } } }), vec![]),
        (json!({ "client": { "calibration": { "tokens": 10_200, "tokens_off": 51, "concurrency": 16, "tokens_per_chunk": 3 } } }), vec![]),
        (
            json!({ "client": { "calibration": { "tokens": 10_000, "tokens_off": i64::MIN, "concurrency": 16, "tokens_per_chunk": 3 } } }),
            vec!["client-limited"],
        ),
        (json!({ "reconciled": { "running_mean": 4.6 } }), vec![]),
        (json!({ "reconciled": { "running_mean": 4.8 } }), vec!["foreign-traffic"]),
        (json!({ "client": { "bad_events": 0 } }), vec![]),
        (json!({ "client": { "bad_events": null } }), vec![]),
        (json!({ "client": { "bad_events": 1 } }), vec!["bad-events"]),
        (json!({ "window": { "start_spread_us": 100_000 } }), vec![]),
        (json!({ "window": { "start_spread_us": 100_001 } }), vec!["start-spread"]),
        (json!({ "window": { "start_spread_us": null } }), vec![]),
    ];
    for (section, expected) in cases {
        assert_eq!(codes(&own(&section)), expected, "{section}");
    }
    assert_eq!(own(&late(3000.0)).reasons[0].text, "the client's tick was late by 3.0 ms (p99), 91.0 at most");
    let twice = json!({ "client": { "tick_late_p99_us": 3000 }, "reasons": [{ "code": "client-limited", "text": "as measured" }] });
    assert_eq!(codes(&own(&twice)), ["client-limited"], "a reason found twice stands once");
}

#[test]
fn counters_of_the_same_instants_decide_over_the_servers_rate() {
    // The cell's own server rate is near enough; here it would not be.
    let counted = |server: Value, client: Value, rate: f64| {
        let reconciled = json!({ "seconds": 9.9, "server_tokens": server, "client_tokens": client, "asked": 4, "running_mean": 4.0 });
        judged(&json!({ "server_gen_throughput": rate, "tokscope": { "verdict": "valid", "reasons": [], "reconciled": reconciled } }))
    };
    let cases = [
        (json!(4000), json!(4000), 401.0, false),
        (json!(4000), json!(4000), 500.0, false),
        (json!(4120), json!(4000), 401.0, false),
        (json!(4121), json!(4000), 401.0, true),
        (json!(3879), json!(4000), 401.0, true),
        // Few tokens: what is under way at the two instants is a good part of them.
        (json!(48), json!(40), 401.0, false),
        (json!(49), json!(40), 401.0, true),
        (json!(100), json!(0), 401.0, true),
        (json!(0), json!(0), 401.0, false),
        // Without counters the rate is all there is.
        (Value::Null, json!(4000), 401.0, false),
        (Value::Null, json!(4000), 500.0, true),
        (json!(4000), Value::Null, 500.0, true),
    ];
    for (server, client, rate, fires) in cases {
        let judgement = counted(server.clone(), client.clone(), rate);
        assert_eq!(codes(&judgement) == ["server-disagrees"], fires, "{server} {client} {rate}");
        assert_eq!(judgement.verdict == Verdict::Valid, !fires);
    }
    let text = |server: i64, client: i64| counted(json!(server), json!(client), 401.0).reasons[0].text.clone();
    assert_eq!(
        text(5000, 4000),
        "the server counted 5000 tokens, 4000 were counted here between the same instants (+25.0 %): it may have worked for somebody else as well"
    );
    assert_eq!(text(3000, 4000), "the server counted 3000 tokens, 4000 were counted here between the same instants (-25.0 %)");
    assert!(text(100, 0).starts_with("the server counted 100 tokens, 0 were counted here between the same instants: "));
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
