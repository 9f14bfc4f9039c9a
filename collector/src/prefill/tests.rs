#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn with_the_matrix_its_contexts_and_those_asked_for_are_recorded() {
    let found = contexts(&[0, 32_768, 16_384, 200_000], &[8_192, 16_384, 131_072], None, false);
    assert_eq!(found.recorded, [8_192, 16_384, 32_768, 131_072]);
    assert_eq!(found.extras, [8_192, 131_072], "those that the matrix doesn't send");
    let found = contexts(&[0, 16_384], &[8_192, 65_536], Some(65_536), false);
    assert_eq!(found.recorded, [8_192, 16_384], "64 tokens stay free");
    assert_eq!(found.too_long, [(65_536, 65_472)], "and what is asked for in vain is told");
    assert_eq!(contexts(&[0], &[300_000], None, true).too_long, [(300_000, 131_072)]);
    assert_eq!(contexts(&[0], &[], None, false), PrefillContexts::default());
}

#[test]
fn in_a_phase_of_its_own_only_those_asked_for_or_the_longest_that_fits() {
    let recorded = |asked: &[u32], limit| contexts(&[0, 4_096], asked, limit, true);
    assert_eq!(recorded(&[65_536, 8_192], None).recorded, [65_536, 8_192], "in their order");
    assert_eq!(recorded(&[65_536], Some(32_768)).recorded, [32_704]);
    assert_eq!(recorded(&[], None).recorded, [131_072]);
    assert!(recorded(&[8_192], Some(64)).recorded.is_empty(), "nothing fits");
    assert!(recorded(&[8_192], None).extras.is_empty());
}

fn scout(prompt: Option<u32>, cached: Option<u32>, ttft_us: Option<u64>) -> Scout {
    Scout { id: "i".into(), sent_us: Some(1), ttft_us, prompt_tokens: prompt, cached_tokens: cached, error: None }
}

#[test]
fn cached_tokens_are_taken_out_of_the_rate() {
    let of = |cached, before| row(8_192, &scout(Some(8_200), cached, Some(500_000)), before, Method::IntegratedScout, None);
    let cold = of(Some(0), SentBefore::No);
    assert_eq!((cold.tok_per_sec, cold.cold, cold.samples), (Some(16_400.0), true, 1));
    let part = of(Some(2_200), SentBefore::No);
    assert_eq!((part.tok_per_sec, part.cold), (Some(12_000.0), false));
    let most = of(Some(8_192), SentBefore::No);
    assert_eq!((most.tok_per_sec, most.cold), (None, false));
    assert_eq!(most.reason.as_deref(), Some("8192 of 8200 prompt tokens came from the prefix cache"));
    assert_eq!(most.ttft_s, Some(0.5), "what was measured is kept");
    let template = of(Some(48), SentBefore::No);
    assert!(template.cold, "the chat template's beginning is no context");
}

#[test]
fn what_was_sent_before_is_never_cold() {
    let of = |cached, before| row(8_192, &scout(Some(8_200), cached, Some(500_000)), before, Method::IntegratedScout, None);
    for finding in [Finding::Works, Finding::Unknown] {
        let row = of(None, SentBefore::Yes(finding));
        assert_eq!((row.tok_per_sec, row.cold), (None, false), "{finding:?}");
        assert!(row.reason.unwrap().contains("sent before"));
    }
    let kept_nothing = of(None, SentBefore::Yes(Finding::DoesNot));
    assert_eq!((kept_nothing.tok_per_sec, kept_nothing.cold), (Some(16_400.0), false));
    assert!(!of(Some(0), SentBefore::Yes(Finding::Works)).cold);
    assert!(of(None, SentBefore::No).cold);
}

#[test]
fn a_request_that_failed_leaves_a_reason_and_no_number() {
    let failed = Scout { error: Some("http: HTTP 500".into()), ..scout(None, None, None) };
    let failed = row(8_192, &failed, SentBefore::No, Method::ScoutOnly, None);
    assert_eq!((failed.ttft_s, failed.tok_per_sec, failed.samples, failed.cold), (None, None, 0, false));
    assert_eq!(failed.reason.as_deref(), Some("http: HTTP 500"));
    // An error after the first token is no success either.
    let late = Scout { error: Some("in-stream-error: no".into()), ..scout(Some(8_192), None, Some(5)) };
    assert_eq!(row(8_192, &late, SentBefore::No, Method::ScoutOnly, None).tok_per_sec, None);
}

#[test]
fn the_counters_prevail_over_a_usage_that_says_nothing_of_the_cache() {
    let server = ServerValidation { tok_per_sec: Some(1.0), cached_tokens: Some(4_100), ..ServerValidation::default() };
    let row = row(8_192, &scout(Some(8_200), None, Some(500_000)), SentBefore::No, Method::IntegratedScout, Some(server));
    assert_eq!((row.cached_tokens, row.tok_per_sec, row.cold), (Some(4_100), Some(8_200.0), false));
}
