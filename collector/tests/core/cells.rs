//! Cells on servers that misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokscope_collector::cell::{Bench, CellMeasurement, CellOptions, FailurePhase, Isolation};
use tokscope_collector::clock::Clock;
use tokscope_collector::event::{Event, Events};
use tokscope_collector::load::Load;
use tokscope_collector::load::endpoint::Endpoint;
use tokscope_collector::load::stop::Stop;
use tokscope_collector::plan::PlannedCell;
use tokscope_collector::prompt::calibrate;
use tokscope_collector::scrape::Scraper;
use tokscope_collector::target::{Target, TargetOptions};

use crate::server::{DONE, Do, STREAM_HEAD, Server, event, finish, send, whole};

pub(crate) fn metrics(running: usize) -> Vec<u8> {
    let text = format!("vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\nvllm:generation_tokens_total 5\n");
    whole("200 OK", "text/plain", &text)
}

/// A stream of `n` events, one each 10 ms.
pub(crate) fn stream(n: u32) -> Vec<Do> {
    let mut steps = vec![send(STREAM_HEAD)];
    for i in 1..=n {
        steps.extend([send(event("a", Some(i))), Do::Sleep(10)]);
    }
    steps
}

pub(crate) fn short() -> CellOptions {
    CellOptions {
        duration_us: 1_500_000,
        stable_us: 300_000,
        warmup_timeout_us: Some(8_000_000),
        drain_limit_us: 300_000,
        ..CellOptions::default()
    }
}

/// Measures a cell of two streams; the texts of its events.
async fn measure(server: &Server) -> (CellMeasurement, Vec<String>) {
    let (mut cells, events) = measure_each(server, &[2], &short()).await;
    let texts = events.iter().filter(|e| !matches!(e, Event::Tick { .. })).filter_map(Event::log_text);
    (cells.remove(0), texts.collect())
}

/// Measures a cell of each concurrency, one after the other; all their events.
pub(crate) async fn measure_each(server: &Server, concurrency: &[u32], options: &CellOptions) -> (Vec<CellMeasurement>, Vec<Event>) {
    let cells: Vec<PlannedCell> = concurrency.iter().map(|concurrency| PlannedCell::sustained(0, *concurrency, 4096)).collect();
    measure_all(server, &cells, options).await
}

/// Measures these cells, one after the other; all their events.
pub(crate) async fn measure_all(server: &Server, planned: &[PlannedCell], options: &CellOptions) -> (Vec<CellMeasurement>, Vec<Event>) {
    let clock = Clock::start();
    let target =
        Target::detect(&TargetOptions { host: format!("http://{}", server.addr), ..TargetOptions::default() }, &mut |_| {}).await.unwrap();
    let endpoint = Endpoint::resolve(&target.address, &target.roots, Duration::from_secs(5)).await;
    let endpoint = Arc::new(endpoint.unwrap());
    let prompts = calibrate(&target, &[0], 1).await;
    let scraper = (target.metrics_warning().is_none()).then(|| Scraper::start(clock, &target));
    let (to, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let load = Load::start(clock, 1).unwrap();
    let bench = Bench {
        target: &target,
        endpoint: &endpoint,
        load: &load,
        prompts: &prompts,
        scraper: scraper.as_ref(),
        events: &Events::new(clock, to),
        isolation: &Isolation::new(),
    };
    let mut cells = Vec::new();
    for (index, cell) in planned.iter().enumerate() {
        cells.push(bench.measure(index, *cell, options, &Stop::never()).await);
    }
    let mut events = Vec::new();
    while let Ok(stamped) = heard.try_recv() {
        events.push(stamped.event);
    }
    (cells, events)
}

/// `/v1/models` and the calibration answered; `chat` for streams, `scrape` for `/metrics`.
pub(crate) async fn server(
    chat: impl Fn(usize) -> Vec<Do> + Send + Sync + 'static,
    scrape: impl Fn(usize) -> Vec<Do> + Send + Sync + 'static,
) -> Server {
    let (chats, scrapes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    Server::start(false, move |line, _| {
        let json = |text| vec![send(whole("200 OK", "application/json", text))];
        match line.split(' ').nth(1).unwrap() {
            "/v1/models" => json("{\"data\":[{\"id\":\"m\"}]}"),
            "/metrics" => scrape(scrapes.fetch_add(1, Ordering::SeqCst)),
            // The calibration sends two of its own.
            "/v1/chat/completions" => match chats.fetch_add(1, Ordering::SeqCst).checked_sub(2) {
                Some(n) => chat(n),
                None => json("{\"usage\":{\"prompt_tokens\":40}}"),
            },
            _ => vec![send(whole("404 Not Found", "text/plain", ""))],
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_in_the_window_leaves_no_number_but_a_reason() {
    let chat = |n| if n == 0 { stream(80) } else { stream(2000) };
    let server = server(chat, |_| vec![send(whole("404 No", "text/plain", ""))]).await;
    let (m, texts) = measure(&server).await;
    assert_eq!(m.aggregate_tps(), None);
    assert_eq!(m.failure_phase, Some(FailurePhase::Measurement));
    let reason = m.failure.as_deref().unwrap();
    assert_eq!(reason, "truncated: the connection closed before the stream ended");
    assert_eq!(m.failed_streams(), 1);
    assert_eq!(m.window.unwrap().seconds(), 1.5, "the window keeps its edges");
    assert!(m.tokens.unwrap().tokens > 80, "what came is kept");
    assert_eq!(texts.last().unwrap(), &format!("ERROR C=2 ctx=0: {reason}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_all_die_end_the_cell_at_once() {
    let server = server(|_| stream(100), |_| vec![send(whole("404 No", "text/plain", ""))]).await;
    let (m, _) = measure(&server).await;
    assert!(m.window.unwrap().seconds() < 1.5);
    assert!(m.failure.is_some() && m.aggregate_tps().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_every_request_fails_in_the_warm_up() {
    let refuse = |_| vec![send(whole("400 Bad Request", "application/json", "{\"error\":\"no\"}"))];
    let server = server(refuse, |_| vec![send(whole("404 No", "text/plain", ""))]).await;
    let (m, _) = measure(&server).await;
    assert_eq!(m.window, None);
    assert_eq!(m.failure_phase, Some(FailurePhase::Warmup));
    assert_eq!(m.failure.unwrap(), "http: HTTP 400: {\"error\":\"no\"}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_still_works_on_something_is_waited_for() {
    // The first scrape is the detection's; some more find it busy.
    let scrape = |n| {
        let running = if n < 4 {
            1
        } else if n == 4 {
            0
        } else {
            2
        };
        vec![send(metrics(running))]
    };
    let server = server(|_| stream(2000), scrape).await;
    let (m, texts) = measure(&server).await;
    assert_eq!(m.idle.idle, Some(true));
    assert!(m.idle.waited_us > 0);
    assert_eq!(texts[0], "waiting for scheduler drain before C=2 ctx=0: running=1 queue=0");
    assert_eq!(texts[1], "scheduler drained before C=2 ctx=0");
    assert_eq!(texts[2], "cell start C=2 ctx=0");
    assert!(texts[3].starts_with("ready C=2 ctx=0 running_reqs=2/2, queue_reqs=0, active_streams=2/2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_and_failing_metrics_change_neither_the_window_nor_the_count() {
    // Idle at first, then slow, and every third one fails.
    let scrape = |n: usize| match n {
        0..2 => vec![send(metrics(0))],
        n if n % 3 == 0 => vec![Do::Sleep(700), send(whole("502 Bad Gateway", "text/html", "<p>"))],
        _ => vec![Do::Sleep(700), send(metrics(2))],
    };
    let server = server(|_| stream(2000), scrape).await;
    let (m, _) = measure(&server).await;
    assert_eq!(m.failure, None);
    assert_eq!(m.window.unwrap().seconds(), 1.5);
    if let Some(running) = m.server.running {
        assert_eq!(running.min, 2.0, "a failed scrape is no zero");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_restarts_all_the_time_is_measured() {
    let chat = |_| {
        let mut steps = stream(5);
        steps.push(send(finish()));
        steps.push(send(DONE));
        steps
    };
    let server = server(chat, |_| vec![send(whole("404 No", "text/plain", ""))]).await;
    let (m, _) = measure(&server).await;
    assert_eq!(m.failure, None);
    assert!(m.streams.iter().all(|s| s.requests.len() > 5));
    assert!(m.aggregate_tps().unwrap() > 0.0);
}
