#![allow(clippy::unwrap_used)]
use super::*;
use crate::scrape::snapshot::Values;

fn sample(ttft_us: u64, server: Option<ServerValidation>) -> PrefillRow {
    let scout = crate::cell::Scout {
        id: "i".into(),
        sent_us: Some(1),
        ttft_us: Some(ttft_us),
        prompt_tokens: Some(1_000),
        cached_tokens: Some(0),
        error: None,
    };
    row(1_000, &scout, SentBefore::No, Method::Client, server)
}

#[test]
fn a_row_is_its_median_sample_so_that_tokens_over_time_are_the_rate() {
    let samples = [100_000, 400_000, 200_000, 300_000].map(|us| sample(us, None));
    let row = median(1_000, &samples, PrefillMetric::Client, None);
    assert_eq!((row.samples, row.ttft_s, row.tok_per_sec), (4, Some(0.3), Some(1_000.0 / 0.3)), "of an even number the slower");
    assert!(row.cold && !row.skipped && row.reason.is_none());
    assert_eq!(row.method, Method::Client);
}

#[test]
fn nothing_measured_is_skipped_or_failed_and_never_zero() {
    let skipped = median(1_000, &[], PrefillMetric::Client, None);
    assert_eq!((skipped.tok_per_sec, skipped.ttft_s, skipped.samples, skipped.cold, skipped.skipped), (None, None, 0, false, true));
    let failed = median(1_000, &[], PrefillMetric::Auto, Some("http: HTTP 500".into()));
    assert_eq!((failed.tok_per_sec, failed.skipped, failed.reason.as_deref()), (None, false, Some("http: HTTP 500")));
}

fn at(requests: f64, seconds: f64, computed: f64, total: f64) -> Idle {
    let values = Values {
        prefill_seconds_sum: Some(seconds),
        prefill_count: Some(requests),
        request_success: Some(requests),
        kv_computed_tokens: Some(computed),
        prompt_tokens: Some(total),
        ..Values::default()
    };
    Idle { values, idle: true }
}

#[test]
fn counters_are_believed_where_they_moved_by_the_request_alone() {
    let before = at(10.0, 5.0, 7_000.0, 9_000.0);
    let one = validate(Some(&before), Some(&at(11.0, 5.5, 8_000.0, 10_050.0)), Some(1_050), true);
    assert!(one.is_valid(), "{}", one.invalid_reason);
    assert_eq!((one.tok_per_sec, one.prefill_seconds, one.prompt_tokens), (Some(2_000.0), Some(0.5), Some(1_000)));
    assert_eq!((one.cached_tokens, one.method().as_str()), (Some(50), "prometheus:kv_computed"), "what was not computed was there");
    let two = at(12.0, 5.5, 8_000.0, 10_050.0);
    let told = validate(Some(&before), Some(&two), Some(1_050), true);
    assert!(!told.is_valid() && told.tok_per_sec.is_none() && told.method().is_empty());
    assert!(told.invalid_reason.contains("prefills=2 requests=2 tokens=1000 (kv_computed) usage=1050"), "{}", told.invalid_reason);
    assert!(validate(Some(&before), Some(&two), Some(1_050), false).is_valid(), "in a phase of its own only the lower bound counts");
    assert!(!validate(Some(&before), Some(&before), Some(1_050), false).is_valid(), "nothing moved");
}

#[test]
fn a_server_that_counts_no_requests_is_believed_to_the_token() {
    let uncounted = |seconds: f64, computed: f64, cached: f64| Idle {
        values: Values {
            prefill_seconds_sum: Some(seconds),
            local_compute_tokens: Some(computed),
            cached_prompt_tokens: Some(cached),
            ..Values::default()
        },
        idle: true,
    };
    let (before, after) = (uncounted(1.0, 100.0, 10.0), uncounted(1.5, 1_100.0, 60.0));
    let one = validate(Some(&before), Some(&after), Some(1_050), true);
    assert_eq!((one.tok_per_sec, one.cached_tokens), (Some(2_000.0), Some(50)), "{}", one.invalid_reason);
    assert_eq!(one.method(), "prometheus:local_compute");
    for usage in [Some(1_000), Some(1_052), None] {
        assert!(!validate(Some(&before), Some(&after), usage, true).is_valid(), "{usage:?}: others' tokens may be among them");
    }
}

#[test]
fn without_computed_tokens_the_total_has_to_be_the_request() {
    let total_only = |requests: f64, seconds: f64, total: f64| {
        let mut at = at(requests, seconds, 0.0, total);
        at.values.kv_computed_tokens = None;
        at
    };
    let before = total_only(1.0, 1.0, 100.0);
    let after = total_only(2.0, 2.0, 1_150.0);
    assert_eq!(validate(Some(&before), Some(&after), Some(1_050), true).method(), "prometheus:request_total");
    assert!(!validate(Some(&before), Some(&after), Some(1_048), true).is_valid());
    assert!(validate(Some(&before), Some(&after), None, true).is_valid(), "a usage that is not told contradicts nothing");
}

#[test]
fn missing_counters_and_a_busy_server_have_reasons() {
    let before = at(1.0, 1.0, 1.0, 1.0);
    let reason = |before: Option<&Idle>, after: Option<&Idle>| validate(before, after, Some(5), true).invalid_reason;
    assert_eq!(reason(None, Some(&before)), "the server's metrics could not be read");
    let busy = Idle { idle: false, ..before.clone() };
    assert_eq!(reason(Some(&busy), Some(&before)), "the server was not idle before the request");
    assert_eq!(reason(Some(&before), Some(&busy)), "the server was not idle after the request");
    let silent = Idle { values: Values::default(), idle: true };
    assert_eq!(reason(Some(&silent), Some(&silent)), "the server does not count prompt tokens and the time of prefills");
}

#[test]
fn where_the_counters_are_the_headline_only_valid_samples_count() {
    let valid = |rate: f64| ServerValidation {
        tok_per_sec: Some(rate),
        prefill_seconds: Some(1_000.0 / rate),
        samples: 1,
        ..ServerValidation::default()
    };
    let invalid = ServerValidation { invalid_reason: "foreign".into(), ..ServerValidation::default() };
    let samples =
        vec![sample(100_000, Some(valid(5_000.0))), sample(100_000, Some(invalid.clone())), sample(100_000, Some(valid(4_000.0)))];
    let row = median(1_000, &samples, PrefillMetric::Prometheus, None);
    assert_eq!((row.tok_per_sec, row.prefill_s, row.samples, row.method), (Some(4_000.0), Some(0.25), 2, Method::Prometheus));
    assert_eq!(row.ttft_s, Some(0.1), "the client's time stands beside it");
    let row = median(1_000, &samples, PrefillMetric::Auto, None);
    assert_eq!((row.tok_per_sec, row.samples), (Some(10_000.0), 3));
    assert_eq!(row.server.unwrap().samples, 2);
    let none = median(1_000, &[sample(100_000, Some(invalid))], PrefillMetric::Prometheus, None);
    assert_eq!((none.tok_per_sec, none.samples, none.reason.as_deref()), (None, 0, Some("foreign")));
}
