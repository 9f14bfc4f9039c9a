//! Several tokens a chunk, acceptance, and errors among the answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokscope_collector::cell::CellOptions;
use tokscope_collector::load::record::Outcome;
use tokscope_collector::load::tokens::TokenSource;
use tokscope_collector::scrape::snapshot::{Snapshot, Values};
use tokscope_collector::scrape::window::server_window;

use super::windows::{no_metrics, reasons, reported};
use super::{Count, all};
use crate::cells::{measure_each, server, short, stream};
use crate::server::{DONE, Do, STREAM_HEAD, chunk, event, finish, send, whole};

/// A stream of `n` chunks of `each` tokens, a chunk every 20 ms, with usage in each.
fn many(n: u32, each: u32) -> Vec<Do> {
    let mut steps = vec![send(STREAM_HEAD)];
    steps.extend((1..=n).flat_map(|i| [send(event("abcd", Some(i * each))), Do::Sleep(20)]));
    steps
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gap_between_chunks_and_the_time_of_a_token_are_two_numbers() {
    let server = server(|_| many(2_000, 4), no_metrics).await;
    let (cells, _) = measure_each(&server, &[1], &short()).await;
    let cell = reported(&cells[0]);
    let own = cell.tokscope.get().unwrap().distributions.get().unwrap();
    let mean = |of: &tokscope_shared::field::Field<tokscope_shared::report::own::Distribution>| of.get().unwrap().mean.f64().unwrap();
    let apart = mean(&own.chunk_gap_s) / mean(&own.itl_s);
    assert!((apart / 4.0 - 1.0).abs() < 0.02, "{apart} times");
    let of_requests = cell.chunk_inter_token_latency_avg.f64().unwrap() / cell.inter_token_latency_avg.f64().unwrap();
    assert!((of_requests / 4.0 - 1.0).abs() < 0.05, "{of_requests} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_tokens_a_chunk_are_three_tokens_by_their_usage() {
    let server = server(|_| many(2_000, 3), no_metrics).await;
    let (cells, _) = measure_each(&server, &[2], &short()).await;
    let tokens = cells[0].tokens.as_ref().unwrap();
    assert_eq!(tokens.source, Some(TokenSource::ContinuousUsage));
    assert!(tokens.chunks > 20);
    assert_eq!(tokens.tokens, 3 * tokens.chunks);
    let cell = reported(&cells[0]);
    let per_second: i64 =
        cell.tokscope.get().unwrap().series.get().unwrap().tokens_per_s.items().map(tokscope_shared::field::Int::i64).sum();
    let rate = cell.aggregate_tps.f64().unwrap();
    assert!((per_second as f64 / rate - 1.0).abs() < 0.2, "a whole second has {per_second} tokens, the rate is {rate}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_tokens_a_chunk_are_three_tokens_where_usage_comes_at_the_end() {
    let chat = |_| {
        let mut steps = vec![send(STREAM_HEAD)];
        steps.extend((0..20).flat_map(|_| [send(event("abcd", None)), Do::Sleep(10)]));
        let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":60}}\n\n";
        steps.extend([send(finish()), send(chunk(usage)), send(DONE)]);
        steps
    };
    let server = server(chat, no_metrics).await;
    let (cells, _) = measure_each(&server, &[2], &short()).await;
    let tokens = cells[0].tokens.as_ref().unwrap();
    assert_eq!(tokens.source, Some(TokenSource::FinalUsageSpread));
    let apart = tokens.tokens as f64 / tokens.chunks as f64;
    assert!((apart / 3.0 - 1.0).abs() < 0.05, "{apart} tokens a chunk");
}

#[test]
fn acceptance_is_that_of_the_window_and_never_the_last_gauge() {
    let s = 1_000_000;
    let at = |t_us: u64, drafts: f64, accepted: f64, length: f64| {
        let values = Values {
            spec_drafts: Some(drafts),
            spec_draft_tokens: Some(4.0 * drafts),
            spec_accepted_tokens: Some(accepted),
            spec_accept_length: Some(length),
            gen_throughput: Some(100.0 * length),
            ..Values::default()
        };
        Ok(Snapshot { sent_us: t_us - 1_000, t_us, values })
    };
    // Before the window everything was accepted, and after it nothing.
    let scrapes = [
        at(9 * s, 500.0, 2_000.0, 5.0),
        at(10 * s + 1_000, 1_000.0, 4_000.0, 3.0),
        at(11 * s, 1_050.0, 4_100.0, 3.0),
        at(12 * s, 1_100.0, 4_200.0, 3.0),
        at(13 * s - 1_000, 1_200.0, 4_400.0, 1.5),
        at(14 * s, 9_000.0, 4_400.0, 1.0),
    ];
    let window = server_window(&scrapes, 10 * s, 13 * s);
    let spec = window.spec.unwrap();
    assert_eq!((spec.drafts, spec.accepted_tokens, spec.draft_tokens), (200.0, 400.0, 800.0));
    let gauge = window.spec_accept_length.unwrap();
    assert_eq!((gauge.samples, gauge.mean), (4, 10.5 / 4.0), "all gauges of the window");
    assert_eq!(window.steps_per_s, [100.0; 4], "each rate by the length of the same scrape");
    // A server that drafts nothing says 0, which is no length.
    let none = server_window(&[at(10 * s, 0.0, 0.0, 0.0), at(12 * s, 0.0, 0.0, 0.0)], 10 * s, 13 * s);
    assert_eq!((none.spec_accept_length, none.steps_per_s), (None, Vec::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_among_the_answers_make_the_cell_invalid_with_their_share() {
    // Every fifth is refused, as by a server that is overrun.
    let chat = |n: usize| match (n + 1) % 5 {
        0 => vec![send(whole("500 Internal Server Error", "application/json", "{\"error\":\"overrun\"}"))],
        _ => [stream(10), vec![send(finish()), send(DONE)]].concat(),
    };
    let server = server(chat, no_metrics).await;
    let (cells, _) = measure_each(&server, &[2], &short()).await;
    assert_eq!(all(&cells[0].streams).filter(|r| r.outcome == Outcome::Http).count(), 1, "a stream that was refused sends no more");
    let cell = reported(&cells[0]);
    assert_eq!(cell.aggregate_tps.f64(), None);
    let own = cell.tokscope.get().unwrap();
    assert_eq!(own.verdict.str(), Some("invalid"));
    let reason = own.reasons.items().next().unwrap();
    assert_eq!(reason.code.str(), Some("stream-failed"));
    let text = reason.text.str().unwrap();
    assert!(text.starts_with("http: HTTP 500: {\"error\":\"overrun\"}; 1 of "), "{text}");
    assert!(text.contains(" requests that ended failed ("), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_metrics_too_a_server_that_takes_one_at_a_time_is_never_ready() {
    for concurrency in [2, 4] {
        let slot = Count::default();
        let most = Arc::new(AtomicUsize::new(0));
        let (taken, seen) = (slot.clone(), Arc::clone(&most));
        let chat = move |_| {
            seen.fetch_max(taken.get(), Ordering::SeqCst);
            [vec![taken.taken()], stream(20), vec![send(finish()), send(DONE), taken.given_back()]].concat()
        };
        let server = server(chat, no_metrics).await;
        let options = CellOptions { warmup_timeout_us: Some(3_000_000), ..short() };
        let (cells, _) = measure_each(&server, &[concurrency], &options).await;
        let m = &cells[0];
        assert!(m.warmup.timed_out, "{:?}", m.warmup);
        let active = m.warmup.timeout_reason.strip_prefix("active_streams=").and_then(|text| text.strip_suffix(&format!("/{concurrency}")));
        assert!(active.unwrap().parse::<u32>().unwrap() < concurrency, "{}", m.warmup.timeout_reason);
        let found = reasons(&reported(m));
        for code in ["warmup-timed-out", "underfilled"] {
            assert!(found.iter().any(|reason| reason == code), "{code} is missing: {found:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_share_of_cached_prompt_tokens_belongs_to_the_cell() {
    for (cached, share) in [(Some(30), Some(0.75)), (Some(0), Some(0.0)), (None, None)] {
        let chat = move |_| {
            let details = cached.map_or_else(String::new, |n: u32| format!(",\"prompt_tokens_details\":{{\"cached_tokens\":{n}}}"));
            let one = move |i: u32| {
                let usage = format!("\"usage\":{{\"prompt_tokens\":40,\"completion_tokens\":{i}{details}}}");
                chunk(&format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"a\"}}}}],{usage}}}\n\n"))
            };
            [send(STREAM_HEAD)].into_iter().chain((1..1_000).flat_map(move |i| [send(one(i)), Do::Sleep(10)])).collect()
        };
        let server = server(chat, no_metrics).await;
        let (cells, _) = measure_each(&server, &[1], &short()).await;
        let cell = reported(&cells[0]);
        assert_eq!(cell.tokscope.get().unwrap().prompt.get().unwrap().cached_share.f64(), share, "{cached:?}");
    }
}
