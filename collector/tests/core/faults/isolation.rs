//! What is on a server besides the cell: leftovers of the one before, and the requests of others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokscope_collector::cell::{CellMeasurement, CellOptions};
use tokscope_collector::event::Event;
use tokscope_shared::verdict::Verdict;

use super::windows::{reasons, reported};
use crate::cells::{measure_each, server, short, stream};
use crate::server::{Do, STREAM_HEAD, Server, chunk, send, whole};

/// When a stream was last written to, in ms since the beginning; 0 is never.
#[derive(Clone)]
struct Alive {
    since: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Alive {
    fn new() -> Self {
        Self { since: Instant::now(), last_ms: Arc::default() }
    }

    fn ago_ms(&self) -> Option<u64> {
        let last = Some(self.last_ms.load(Ordering::SeqCst)).filter(|ms| *ms > 0)?;
        Some((self.since.elapsed().as_millis() as u64).saturating_sub(last))
    }

    /// A step that leaves a mark.
    fn mark(&self) -> Do {
        let alive = self.clone();
        Do::When(Arc::new(move || {
            alive.last_ms.store((alive.since.elapsed().as_millis() as u64).max(1), Ordering::SeqCst);
            true
        }))
    }

    /// A stream that leaves a mark with each event.
    fn stream(&self) -> Vec<Do> {
        stream(3_000).into_iter().flat_map(|step| [step, self.mark()]).collect()
    }
}

fn gauges(running: usize, more: &str) -> Vec<Do> {
    let text = format!("vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\n{more}");
    vec![send(whole("200 OK", "text/plain", &text))]
}

fn texts(events: &[Event]) -> Vec<String> {
    events.iter().filter(|e| !matches!(e, Event::Tick { .. })).filter_map(Event::log_text).collect()
}

fn place(texts: &[String], text: &str) -> usize {
    texts.iter().position(|t| t.starts_with(text)).unwrap_or_else(|| panic!("'{text}' is missing: {texts:?}"))
}

/// Requests before which the server still had others, by what is said of the cell.
fn text_of(cell: &CellMeasurement, code: &str) -> Option<String> {
    let cell = reported(cell);
    let own = cell.tokscope.get().unwrap();
    own.reasons.items().find(|reason| reason.code.str() == Some(code)).map(|reason| reason.text.str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_on_after_a_close_is_waited_for_and_no_cell_begins_beside_it() {
    // The server notices a close only after three seconds.
    let alive = Alive::new();
    let seen = alive.clone();
    let server = server(move |_| alive.stream(), move |_| gauges(usize::from(seen.ago_ms().is_some_and(|ms| ms < 3_000)), "")).await;
    let options = CellOptions { drain_limit_us: 20_000_000, ..short() };
    let (cells, events) = measure_each(&server, &[1, 1], &options).await;
    let said = texts(&events);
    assert!(
        place(&said, "waiting for scheduler drain after C=1 ctx=0: running=1 queue=0") < place(&said, "scheduler drained after C=1 ctx=0")
    );
    assert!(place(&said, "cell done C=1 ctx=0") < place(&said, "scheduler drained after C=1 ctx=0"));
    assert_eq!(cells[0].drain.back, Some(true));
    let closed_us = cells[0].streams[0].requests.last().unwrap().ended_us;
    let next_us = cells[1].streams[0].requests[0].sent_us.unwrap();
    assert!(next_us - closed_us > 2_500_000, "the next cell began {} ms after the close", (next_us - closed_us) / 1_000);
    assert!(cells.iter().all(|cell| cell.failure.is_none() && !cell.idle.left_over));
    assert_eq!(text_of(&cells[1], "leftovers"), None);
    // It had something to do for three seconds after the close: that was no rest.
    let rested_us = cells[1].idle.rested_us.unwrap();
    assert!(rested_us < 1_500_000, "{rested_us} µs of rest, {} since the close", cells[1].started_us - closed_us);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_come_to_rest_makes_the_next_cell_suspect_and_not_the_last_one_fail() {
    let alive = Alive::new();
    let seen = alive.clone();
    let server = server(move |_| alive.stream(), move |_| gauges(usize::from(seen.ago_ms().is_some()), "")).await;
    let options = CellOptions { idle_limit_us: 400_000, drain_limit_us: 400_000, ..short() };
    let (cells, _) = measure_each(&server, &[1, 1, 1], &options).await;
    for cell in &cells {
        assert!(cell.failure.is_none() && cell.aggregate_tps().is_some(), "{:?} {:?}", cell.failure, cell.warmup);
    }
    assert_eq!(cells[0].drain.back, Some(false));
    assert_eq!(text_of(&cells[0], "leftovers"), None);
    let text = text_of(&cells[1], "leftovers").unwrap();
    assert!(text.contains("1 ran, 0 waited"), "{text}");
    // On a busy machine there may be worse to say of it.
    let judged = tokscope_shared::verdict::judge(&reported(&cells[1]));
    let leftovers = judged.reasons.iter().find(|reason| reason.code == "leftovers").unwrap();
    assert!(leftovers.verdict == Verdict::Suspect && judged.verdict >= Verdict::Suspect);
    // What stays is no news: the third cell doesn't wait for it.
    assert!(cells[2].idle.waited_us < 300_000, "{:?}", cells[2].idle);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_others_that_are_always_there_are_named_and_block_nothing() {
    let alive = Alive::new();
    let seen = alive.clone();
    let server = server(move |_| alive.stream(), move |_| gauges(2 + usize::from(seen.ago_ms().is_some_and(|ms| ms < 100)), "")).await;
    let options = CellOptions { idle_limit_us: 600_000, drain_limit_us: 5_000_000, ..short() };
    let (cells, events) = measure_each(&server, &[1, 1, 1], &options).await;
    for cell in &cells {
        assert_eq!(cell.failure, None);
        let text = text_of(cell, "foreign-traffic").unwrap();
        assert!(text.contains("3.0 requests ran on average, 1 are ours"), "{text}");
        assert_eq!(cell.drain.back, Some(true), "back to what was there before");
    }
    assert!(cells[0].idle.waited_us >= 600_000);
    assert!(cells[1..].iter().all(|cell| cell.idle.waited_us < 300_000), "they are waited for once");
    let said = texts(&events);
    assert_eq!(said.iter().filter(|text| text.contains("not of this run")).count(), 1, "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_less_than_the_server_runs_is_somebody_elses() {
    // One request of somebody else beside the one of the four that run: a cell may run fewer than it asks for.
    let alive = Alive::new();
    let seen = alive.clone();
    let server = server(
        move |_| alive.stream(),
        move |n| gauges(if seen.ago_ms().is_some_and(|ms| ms < 100) { 3 } else { usize::from(n > 1_000) }, ""),
    )
    .await;
    let (cells, _) = measure_each(&server, &[2], &short()).await;
    let text = text_of(&cells[0], "foreign-traffic").unwrap();
    assert!(text.contains("3.0 requests ran on average") || text.starts_with("1.0 requests on average were not ours"), "{text}");
}

/// An SGLang whose requests run until it is told to end them, by their own id.
async fn sglang(aborted: Arc<AtomicUsize>) -> Server {
    let (chats, open) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    Server::start_reading(false, move |line, body, _| {
        let json = |text: &str| vec![send(whole("200 OK", "application/json", text))];
        match line.split(' ').nth(1).unwrap() {
            "/v1/models" => json("{\"data\":[{\"id\":\"m\"}]}"),
            "/get_server_info" | "/server_info" => {
                json("{\"version\":\"0.5.6\",\"max_total_num_tokens\":100000,\"max_running_requests\":64}")
            }
            "/metrics" => {
                let running = open.load(Ordering::SeqCst);
                let text = format!("sglang:num_running_reqs {running}\nsglang:num_queue_reqs 0\nsglang:gen_throughput 1\n");
                vec![send(whole("200 OK", "text/plain", &text))]
            }
            "/abort_request" => {
                let asked: serde_json::Value = serde_json::from_slice(body).unwrap();
                if asked["rid"] == "answer-1" {
                    open.store(0, Ordering::SeqCst);
                    aborted.fetch_add(1, Ordering::SeqCst);
                }
                json("{}")
            }
            "/v1/chat/completions" if String::from_utf8_lossy(body).contains("\"stream\":true") => {
                let n = chats.fetch_add(1, Ordering::SeqCst) + 1;
                open.fetch_add(1, Ordering::SeqCst);
                let one = |i: u32| {
                    let usage = format!("\"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":{i}}}");
                    chunk(&format!(
                        "data: {{\"id\":\"answer-{n}\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"a\"}}}}],{usage}}}\n\n"
                    ))
                };
                [send(STREAM_HEAD)].into_iter().chain((1..3_000).flat_map(|i| [send(one(i)), Do::Sleep(10)])).collect()
            }
            "/v1/chat/completions" => json("{\"usage\":{\"prompt_tokens\":40}}"),
            _ => vec![send(whole("404 Not Found", "text/plain", ""))],
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_sglang_is_told_by_id_to_end_what_was_cut() {
    let aborted = Arc::new(AtomicUsize::new(0));
    let server = sglang(Arc::clone(&aborted)).await;
    let options = CellOptions { drain_limit_us: 2_000_000, ..short() };
    let (cells, _) = measure_each(&server, &[1], &options).await;
    assert_eq!(cells[0].failure, None);
    assert_eq!(cells[0].streams[0].requests[0].server_id.as_deref(), Some("answer-1"));
    assert_eq!(aborted.load(Ordering::SeqCst), 1, "it was asked for by the server's own id");
    assert_eq!((cells[0].drain.open, cells[0].drain.taken_back, cells[0].drain.back), (1, 1, Some(true)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_tokens_of_requests_that_were_cut_are_nobody_elses_and_those_of_others_are_named() {
    // Prompts count as they come, those whose answers are cut as well; then somebody else sends 9,000.
    for others in [0, 9_000] {
        let started = Arc::new(AtomicUsize::new(0));
        let (count, seen) = (Arc::clone(&started), Arc::clone(&started));
        let chat = move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            [stream(20), vec![send(crate::server::finish()), send(crate::server::DONE)]].concat()
        };
        let since = Instant::now();
        let scrape = move |_| {
            let started = seen.load(Ordering::SeqCst);
            let foreign = if since.elapsed() > Duration::from_millis(1_200) && started > 8 { others } else { 0 };
            gauges(2.min(started), &format!("vllm:prompt_tokens_total {}\n", 5 * started + foreign))
        };
        let server = server(chat, scrape).await;
        let options = CellOptions { idle_limit_us: 300_000, ..short() };
        let (cells, _) = measure_each(&server, &[2], &options).await;
        let cell = reported(&cells[0]);
        let found = text_of(&cells[0], "foreign-traffic").filter(|text| text.contains("prompt"));
        let own = cell.tokscope.get().unwrap().reconciled.get().unwrap();
        let (server_side, ours) = (own.server_prompt_tokens.i64().unwrap(), own.client_prompt_tokens.i64().unwrap());
        if others == 0 {
            assert_eq!(found, None, "{server_side} {ours}");
            assert!(!reasons(&cell).contains(&"foreign-traffic".to_owned()));
            assert!(server_side > 0 && ours > server_side, "both are shown, and the edges allowed for: {server_side} {ours}");
        } else {
            let text = found.unwrap_or_else(|| panic!("{server_side} {ours} {:?}", reasons(&cell)));
            assert!(text.contains("somebody else's") && server_side >= 9_000, "{text}");
        }
    }
}
