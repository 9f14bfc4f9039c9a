//! Whole cells: what a window counts, how it ends, and what is said of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokscope_collector::calibrate::{CalibrateOptions, calibrate};
use tokscope_collector::cell::{CellMeasurement, CellOptions};
use tokscope_collector::event::Event;
use tokscope_collector::load::LoadLimits;
use tokscope_collector::load::record::{Outcome, RequestRecord};
use tokscope_collector::load::stop::Stop;
use tokscope_collector::report::{self, ArrivalsLimit, CellContext};
use tokscope_shared::field::Json as _;
use tokscope_shared::report::cell::Cell;

use super::{Count, all};
use crate::cells::{measure_each, metrics, server, short, stream};
use crate::server::{DONE, Do, STREAM_HEAD, event, finish, send, whole};

/// The cell as the report has it.
pub(super) fn reported(measured: &CellMeasurement) -> Cell {
    report::cell(
        measured,
        &CellContext {
            mode: "duration",
            prompts: "shared",
            prompt_tokens: None,
            accept_len_ref: 0.0,
            scout_was_first: true,
            calibration: None,
            arrivals: ArrivalsLimit { bytes: 0, seed: 1 },
        },
    )
}

pub(super) fn reasons(cell: &Cell) -> Vec<String> {
    let own = cell.tokscope.get().unwrap();
    own.reasons.items().filter_map(|reason| reason.code.str().map(str::to_owned)).collect()
}

pub(super) fn no_metrics(_: usize) -> Vec<Do> {
    vec![send(whole("404 Not Found", "text/plain", ""))]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_never_ends_is_ended_with_a_reason_and_the_next_cell_is_measured() {
    // The second stream of the first cell begins, and then neither goes on nor closes.
    let chat = |n| match n {
        1 => vec![send(format!("{STREAM_HEAD}{}", event("a", Some(1)))), Do::Hang],
        _ => stream(1000),
    };
    let server = server(chat, no_metrics).await;
    let limits = LoadLimits { stall: Duration::from_millis(400), ..LoadLimits::default() };
    let options = CellOptions { duration_us: 500_000, warmup_timeout_us: Some(2_000_000), limits, ..short() };
    let (cells, _) = measure_each(&server, &[2, 1], &options).await;
    assert_eq!(cells[0].failure.as_deref(), Some("stalled: the stream fell silent for 0.4 s"));
    assert_eq!(cells[0].aggregate_tps(), None);
    assert_eq!(cells[1].failure, None);
    assert!(cells[1].aggregate_tps().unwrap() > 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_longer_than_the_window_count_by_what_came_inside_it_and_are_cut_not_failed() {
    // Ten seconds each; the window has 1.5.
    let server = server(|_| stream(1000), no_metrics).await;
    let (cells, _) = measure_each(&server, &[2], &short()).await;
    let m = &cells[0];
    assert_eq!(m.failure, None);
    let window = m.window.unwrap();
    let inside = m.streams.iter().flat_map(|s| &s.arrivals).filter(|a| a.kinds.is_output() && window.contains(a.t_us)).count();
    assert!(inside > 20, "{inside}");
    let rate = inside as f64 / window.seconds();
    assert!((m.aggregate_tps().unwrap() / rate - 1.0).abs() < 1e-9, "{:?} instead of {rate}", m.aggregate_tps());
    assert!(all(&m.streams).all(|r| r.outcome == Outcome::CutByUs && r.error.is_none()));
    let cell = reported(m);
    assert_eq!((cell.num_errors.i64(), cell.completed_request_count.i64()), (Some(0), Some(0)), "neither failed nor finished");
    assert_eq!(cell.write()["tokscope"]["series"]["requests"]["class"], serde_json::json!(["cut-by-us", "cut-by-us"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_cut_and_failed_are_three_classes_and_all_their_tokens_are_kept() {
    let chat = |n| match n {
        0 => [stream(10), vec![send(finish()), send(DONE)]].concat(),
        // Breaks off long after the window has opened.
        1 => stream(110),
        _ => stream(1000),
    };
    let server = server(chat, no_metrics).await;
    let (cells, _) = measure_each(&server, &[3], &CellOptions { duration_us: 2_500_000, ..short() }).await;
    let m = &cells[0];
    let of = |outcome| all(&m.streams).filter(|r| r.outcome == outcome).map(RequestRecord::output_tokens).collect::<Vec<u32>>();
    assert_eq!(of(Outcome::Finished), [10]);
    assert_eq!(of(Outcome::Truncated), [110]);
    assert_eq!(of(Outcome::CutByUs).len(), 2, "the other, and the one after the finished");
    assert!(m.failure.is_some() && m.aggregate_tps().is_none(), "with a failed stream there is no rate");
    assert!(m.tokens.as_ref().unwrap().per_stream.iter().all(|n| *n > 0), "but what came is told: {:?}", m.tokens);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_one_at_a_time_is_said_to() {
    let slot = Count::default();
    let waiting = Arc::new(AtomicUsize::new(0));
    let (taken, queue) = (slot.clone(), Arc::clone(&waiting));
    let chat = move |_| {
        queue.fetch_add(1, Ordering::SeqCst);
        let left = Arc::clone(&queue);
        let leave = Do::When(Arc::new(move || left.fetch_sub(1, Ordering::SeqCst) > 0));
        [vec![taken.taken(), leave], stream(20), vec![send(finish()), send(DONE), taken.given_back()]].concat()
    };
    let scrape = move |_| {
        let (running, waiting) = (slot.get(), waiting.load(Ordering::SeqCst));
        let text = format!("vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\nvllm:generation_tokens_total 5\n");
        vec![send(whole("200 OK", "text/plain", &text))]
    };
    let server = server(chat, scrape).await;
    let options = CellOptions { warmup_timeout_us: Some(1_000_000), idle_limit_us: 0, ..short() };
    let (cells, _) = measure_each(&server, &[4], &options).await;
    let cell = reported(&cells[0]);
    let effective = cell.effective_concurrency.f64().unwrap();
    assert!(effective <= 1.0, "{effective} ran at once");
    let found = reasons(&cell);
    for code in ["underfilled", "queued"] {
        assert!(found.iter().any(|reason| reason == code), "{code} is missing: {found:?}");
    }
    // It is the server that let them wait: they had been sent.
    assert!(all(&cells[0].streams).all(|r| r.sent_us.is_some_and(|sent_us| sent_us - r.due_us < 100_000)));
    let ttft = all(&cells[0].streams).filter_map(RequestRecord::ttft_us).max().unwrap();
    assert!(ttft > 300_000, "waiting at the server is part of it: {ttft} µs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_finds_its_own_error_against_a_server_of_known_times() {
    let options = CalibrateOptions { concurrency: 4, tokens_per_chunk: 3, step_us: 20_000, window_us: 1_000_000 };
    let found = calibrate(&options, Stop::never()).await.unwrap();
    assert!(found.tokens > 4 * 3 * 20, "{found:?}");
    let a_chunk_a_stream = 4 * 3;
    let allowed = a_chunk_a_stream + found.tokens / 100;
    assert!(found.tokens_off.unsigned_abs() <= allowed, "{found:?}");
    let (ttft, itl) = (found.ttft_off.unwrap(), found.itl_off.unwrap());
    assert!(ttft.n >= 4 && itl.n > 4 * 20, "{found:?}");
    assert!(itl.p50_us < options.step_us / 3 / 2, "half of the time a token takes would be no measurement: {itl:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_that_take_three_seconds_make_no_window_longer() {
    let scrape = |n: usize| match n {
        0..2 => vec![send(metrics(0))],
        2..6 => vec![send(metrics(2))],
        _ => vec![Do::Sleep(3_000), send(metrics(2))],
    };
    let server = server(|_| stream(2000), scrape).await;
    let (cells, _) = measure_each(&server, &[2], &short()).await;
    let m = &cells[0];
    assert_eq!(m.failure, None);
    let window = m.window.unwrap();
    assert_eq!(window.end_us - window.start_us, 1_500_000, "edge to edge as asked for");
    let inside = m.streams.iter().flat_map(|s| &s.arrivals).filter(|a| a.kinds.is_output() && window.contains(a.t_us)).count();
    assert_eq!(m.tokens.as_ref().unwrap().tokens, inside as u64);
    assert!((m.aggregate_tps().unwrap() * 1.5 / inside as f64 - 1.0).abs() < 1e-9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_stream_is_null_with_a_reason_in_the_report() {
    let chat = |n| if n == 0 { stream(80) } else { stream(2000) };
    let server = server(chat, no_metrics).await;
    let (cells, _) = measure_each(&server, &[2], &short()).await;
    let cell = reported(&cells[0]);
    let json = cell.write();
    assert_eq!(json["aggregate_tps"], serde_json::Value::Null);
    assert_eq!(json["per_request_avg_tps"], serde_json::Value::Null);
    assert_eq!(json["failure_reason"], "truncated: the connection closed before the stream ended");
    assert_eq!(json["tokscope"]["verdict"], "invalid");
    assert_eq!(reasons(&cell)[0], "stream-failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_goes_on_while_the_first_token_is_waited_for() {
    let chat = |_| [vec![Do::Sleep(2_600)], stream(1000)].concat();
    let server = server(chat, no_metrics).await;
    let (cells, events) = measure_each(&server, &[1], &CellOptions { duration_us: 500_000, ..short() }).await;
    assert_eq!(cells[0].failure, None);
    let waiting = events.iter().filter_map(|event| match event {
        Event::Tick { in_window: false, elapsed_us, tokens: 0, active_streams: 0, .. } => Some(*elapsed_us),
        _ => None,
    });
    let shown: Vec<u64> = waiting.collect();
    assert!(shown.len() >= 4, "one each half second of 2.6: {shown:?}");
    assert!(shown.is_sorted() && shown.last() > shown.first());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_one_token_has_no_time_per_token() {
    let chat = |_| [stream(1), vec![send(finish()), send(DONE)]].concat();
    let server = server(chat, no_metrics).await;
    let (cells, _) = measure_each(&server, &[1], &short()).await;
    let json = reported(&cells[0]).write();
    assert_eq!(json["inter_token_latency_avg"], serde_json::Value::Null);
    assert_eq!(json["output_tps_per_user_avg"], serde_json::Value::Null);
    let samples = json["request_samples"].as_array().unwrap();
    assert!(samples.len() > 5);
    for sample in samples {
        assert_eq!(sample["output_tokens"], 1);
        assert_eq!(sample["inter_token_latency_avg"], serde_json::Value::Null);
        assert_eq!(sample["time_to_second_token"], serde_json::Value::Null);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_beginning_is_in_no_rate_but_in_the_one_of_everything_beside_it() {
    // One of the first two answers begins after 2.5 s; all tokens come as fast as others.
    let chat = |n| if n == 0 { [vec![Do::Sleep(2_500)], stream(2_000)].concat() } else { stream(2_000) };
    let server = server(chat, no_metrics).await;
    let (cells, _) = measure_each(&server, &[2], &short()).await;
    let m = &cells[0];
    assert_eq!(m.failure, None);
    let (window, cell) = (m.window.unwrap(), reported(m));
    let begun_us = all(&m.streams).map(|r| r.first_token_us.unwrap()).max().unwrap();
    assert!(window.start_us >= begun_us + 250_000, "both had gone on for a while: {} µs", window.start_us - begun_us);
    // Both streams are in the window alike, and the rate is theirs.
    let rate = cell.aggregate_tps.f64().unwrap();
    let gaps: Vec<u64> = m.streams.iter().flat_map(|s| s.arrivals.windows(2)).map(|pair| pair[1].t_us - pair[0].t_us).collect();
    let steady = 2e6 / (gaps.iter().sum::<u64>() as f64 / gaps.len() as f64);
    assert!((rate / steady - 1.0).abs() < 0.1, "{rate} tok/s, {steady} while both went on");
    let own = cell.tokscope.get().unwrap();
    let whole = own.whole.get().unwrap();
    let sent_us = all(&m.streams).filter_map(|r| r.sent_us).min().unwrap();
    let last_us = all(&m.streams).filter_map(|r| r.last_us).max().unwrap();
    let tokens: u64 = all(&m.streams).map(|r| u64::from(r.output_tokens())).sum();
    let in_report = [&whole.start_us, &whole.end_us, &whole.tokens].map(|field| field.i64().unwrap() as u64);
    assert_eq!(in_report, [sent_us, last_us, tokens]);
    let of_all = whole.tps.f64().unwrap();
    assert!((of_all * (last_us - sent_us) as f64 / 1e6 / tokens as f64 - 1.0).abs() < 1e-9, "{of_all}");
    assert!(of_all < 0.85 * rate, "{of_all} over everything, {rate} in the window");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_long_a_server_had_rested_before_a_cell_is_in_the_report() {
    let server = server(|_| stream(2_000), no_metrics).await;
    let options = CellOptions { duration_us: 300_000, ..short() };
    let (cells, _) = measure_each(&server, &[1, 1], &options).await;
    let idle_us = |at: usize| reported(&cells[at]).tokscope.get().unwrap().idle_before_us.i64();
    assert_eq!(idle_us(0), None, "nothing had been sent");
    let closed_us = all(&cells[0].streams).map(|r| r.ended_us).max().unwrap();
    let wanted_us = (cells[1].started_us - closed_us) as i64;
    let found_us = idle_us(1).unwrap();
    // Without metrics a second is waited after a close.
    assert!(wanted_us > 900_000 && (found_us - wanted_us).abs() < wanted_us / 10, "{found_us} instead of {wanted_us}");
}
