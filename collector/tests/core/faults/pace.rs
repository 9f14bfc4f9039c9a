//! Requests that are counted, and requests that are due by the time: none too many, none too few, none unsaid.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokscope_collector::cell::{CellMeasurement, CellOptions};
use tokscope_collector::clock::Clock;
use tokscope_collector::event::Event;
use tokscope_collector::load::endpoint::Endpoint;
use tokscope_collector::load::record::{Outcome, RequestRecord};
use tokscope_collector::load::request::RequestSource;
use tokscope_collector::load::schedule::Schedule;
use tokscope_collector::load::{Load, LoadLimits, Pace, StreamsOptions};
use tokscope_collector::plan::{CellLoad, Layer, PlannedCell};
use tokscope_collector::target::{Address, TrustedRoots};
use tokscope_shared::field::Field;
use tokscope_shared::report::cell::Cell;
use tokscope_shared::report::own;

use super::windows::{no_metrics, reasons, reported};
use super::{Count, LIMITS, all, median, one_token};
use crate::cells::{measure_all, server, short, stream};
use crate::server::{DONE, Do, STREAM_HEAD, Server, chunk, finish, send, whole};
use crate::streams::Plain;

/// A whole answer of `n` tokens, one each 10 ms.
fn answer(n: u32) -> Vec<Do> {
    [stream(n), vec![send(finish()), send(DONE)]].concat()
}

fn requests(concurrency: u32, count: u32, warmup: u32) -> PlannedCell {
    let load = CellLoad::Requests { count, warmup };
    PlannedCell { layer: Layer::Burst, load, ..PlannedCell::sustained(0, concurrency, 64) }
}

fn rate(most: u32, per_s: f64) -> PlannedCell {
    let load = CellLoad::Rate { per_s, poisson: false };
    PlannedCell { layer: Layer::OpenLoop, load, ..PlannedCell::sustained(0, most, 64) }
}

async fn one(server: &Server, cell: PlannedCell, options: &CellOptions) -> (CellMeasurement, Cell, Vec<Event>) {
    let (mut cells, events) = measure_all(server, &[cell], options).await;
    let measured = cells.remove(0);
    let cell = reported(&measured);
    (measured, cell, events)
}

fn open_loop(cell: &Cell) -> &own::OpenLoop {
    cell.tokscope.get().unwrap().open_loop.get().unwrap()
}

fn number(field: &Field<tokscope_shared::field::Int>) -> i64 {
    field.i64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_as_many_requests_are_sent_as_were_asked_for() {
    let sent = Count::default();
    let counted = sent.clone();
    let server = server(
        move |_| {
            counted.add();
            answer(5)
        },
        no_metrics,
    )
    .await;
    let (m, cell, events) = one(&server, requests(3, 7, 4), &short()).await;
    assert_eq!(m.failure, None);
    assert_eq!(sent.get(), 4 + 7, "those before, and those that count");
    assert_eq!(all(&m.streams).count(), 7);
    assert_eq!(m.streams.len(), 3);
    let ids: std::collections::HashSet<&str> = all(&m.streams).map(|r| r.id.as_str()).collect();
    assert_eq!(ids.len(), 7, "no two alike: {ids:?}");
    assert_eq!(cell.client_output_tokens.i64(), Some(7 * 5));
    assert_eq!(cell.aggregate_source.str(), Some("openai_completed_usage"));
    assert_eq!((cell.num_completed.i64(), cell.num_errors.i64(), cell.request_count_target.i64()), (Some(7), Some(0), Some(7)));
    assert_eq!((cell.warmup_duration.f64(), cell.underfilled.get()), (Some(0.0), None));
    assert_eq!(cell.ready_reason.str(), Some("request_count=7, warmup_request_count=4"));
    let texts: Vec<String> = events.iter().filter_map(Event::log_text).collect();
    assert!(texts.contains(&"measure start C=3 ctx=0 request-count=7".to_owned()), "{texts:?}");
    let (wall, seconds) = (cell.measurement_wall_seconds.f64(), cell.measurement_seconds.f64());
    assert_eq!(wall, seconds);
    assert!((cell.aggregate_tps.f64().unwrap() / (35.0 / seconds.unwrap()) - 1.0).abs() < 1e-9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_ends_with_its_last_token_and_not_with_what_comes_after_it() {
    // The end mark is a second late, and so is whoever looks.
    let server = server(|_| [stream(5), vec![Do::Sleep(1_000), send(finish()), send(DONE)]].concat(), no_metrics).await;
    let (m, cell, _) = one(&server, requests(2, 2, 0), &short()).await;
    let window = m.window.unwrap();
    let first = all(&m.streams).filter_map(|r| r.sent_us).min().unwrap();
    let last = all(&m.streams).filter_map(|r| r.last_us).max().unwrap();
    assert_eq!((window.start_us, window.end_us), (first, last + 1));
    assert!(all(&m.streams).map(|r| r.ended_us).max().unwrap() > last + 900_000);
    assert_eq!(cell.client_output_tokens.i64(), Some(10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_never_ends_ends_at_twice_its_limit_with_a_reason() {
    // A server that passes over max_tokens, which is 4 here: ten seconds of tokens.
    let server = server(|_| stream(1_000), no_metrics).await;
    let cell = PlannedCell { max_tokens: 4, ..requests(2, 3, 0) };
    let (m, cell, _) = one(&server, cell, &short()).await;
    let reason = "in-stream-error: the answer goes on beyond max_tokens=4: cut after 73 chunks";
    assert_eq!((cell.aggregate_tps.f64(), m.failure.as_deref()), (None, Some(reason)));
    assert_eq!((all(&m.streams).count(), cell.num_errors.i64()), (3, Some(3)));
    let (m, _, _) = one(&server, PlannedCell::sustained(0, 1, 4), &short()).await;
    assert_eq!(m.failure, None, "a stream that goes on until the window is over may be as long as it likes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_only_says_that_it_is_alive_stalls() {
    let alive = || vec![vec![Do::Sleep(50), send(chunk(": alive\n\n"))]; 200].concat();
    let server = server(move |_| [stream(3), alive()].concat(), no_metrics).await;
    let limits = LoadLimits { first_token: Duration::from_millis(500), stall: Duration::from_millis(300), ..LIMITS };
    let (m, _, _) = one(&server, requests(1, 1, 0), &CellOptions { limits, ..short() }).await;
    assert_eq!(m.failure.as_deref(), Some("stalled: the stream brought no token for 0.8 s"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_requests_of_a_burst_are_counted_and_leave_no_number() {
    let chat = |n: usize| if n % 3 == 1 { vec![send(whole("503 Busy", "text/plain", "later"))] } else { answer(3) };
    let server = server(chat, no_metrics).await;
    let (m, cell, _) = one(&server, requests(1, 7, 0), &short()).await;
    assert_eq!(all(&m.streams).count(), 7, "a failure ends no worker");
    assert_eq!((cell.num_completed.i64(), cell.num_errors.i64()), (Some(5), Some(2)));
    assert_eq!((cell.aggregate_tps.f64(), cell.failure_reason.str()), (None, Some("http: HTTP 503: later")));
    assert_eq!(cell.aggregate_source.str(), Some("invalid_stream_failure"));
    assert_eq!(cell.tokscope.get().unwrap().verdict.str(), Some("invalid"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_before_a_burst_that_fails_makes_it_invalid_before_it_begins() {
    let sent = Count::default();
    let counted = sent.clone();
    let chat = move |_| if counted.add() == 1 { vec![send(whole("500 Oops", "text/plain", "broken"))] } else { answer(3) };
    let server = server(chat, no_metrics).await;
    let (m, cell, _) = one(&server, requests(2, 5, 2), &short()).await;
    assert_eq!(sent.get(), 2, "none of those that count");
    assert_eq!(m.window, None);
    assert_eq!(cell.failure_reason.str(), Some("a request before the measured ones failed: http: HTTP 500: broken"));
    assert_eq!(cell.tokscope.get().unwrap().verdict.str(), Some("invalid"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_that_is_not_reached_is_said_with_the_shortfall() {
    // 200 ms each, two at a time: ten a second at most, and 50 are wanted.
    let server = server(|_| answer(20), no_metrics).await;
    let options = CellOptions { duration_us: 1_000_000, answer_limit_us: Some(20_000_000), ..short() };
    let (m, cell, _) = one(&server, rate(2, 50.0), &options).await;
    let open = open_loop(&cell);
    assert_eq!((number(&open.scheduled), number(&open.sent), number(&open.finished)), (50, 50, 50), "late, but none is lost");
    assert_eq!((number(&open.connections), number(&open.most_in_flight)), (2, 2));
    let (asked, sent) = (open.scheduled_per_s.f64().unwrap(), open.sent_per_s.f64().unwrap());
    assert!((asked - 50.0).abs() < 1e-9 && sent < 0.3 * asked, "{sent} of {asked}");
    assert!(reasons(&cell).contains(&"rate-not-reached".to_owned()), "{:?}", reasons(&cell));
    assert_eq!(cell.tokscope.get().unwrap().verdict.str(), Some("limited"));
    // What waited for its turn has waited, and the server is not to blame for it.
    let ttft_from_due = open.ttft_from_due_s.get().unwrap().p50.f64().unwrap();
    assert!(ttft_from_due > 4.0 * cell.ttft_p50.f64().unwrap(), "{ttft_from_due} against {:?}", cell.ttft_p50.f64());
    let delay = open.schedule_delay_s.get().unwrap();
    assert!(delay.max.f64().unwrap() > 1.0 && delay.n.i64() == Some(50), "{delay:?}");
    assert!(all(&m.streams).all(|r| r.sent_us >= Some(r.due_us)), "nothing is sent before it is due");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_that_is_reached_is_not_complained_of_and_requests_go_out_when_due() {
    let server = server(|_| answer(5), no_metrics).await;
    let options = CellOptions { duration_us: 2_000_000, ..short() };
    let (m, cell, _) = one(&server, rate(64, 20.0), &options).await;
    let open = open_loop(&cell);
    assert_eq!((number(&open.scheduled), number(&open.sent), number(&open.finished)), (40, 40, 40));
    assert_eq!((number(&open.unsent), number(&open.cut), number(&open.failed)), (0, 0, 0));
    let due: Vec<u64> = by_due(&m).iter().map(|r| r.due_us - m.window.unwrap().start_us).collect();
    assert_eq!(due, (0..40).map(|n| n * 50_000).collect::<Vec<u64>>(), "each 50 ms");
    let delay = median(all(&m.streams).map(|r| r.sent_us.unwrap() - r.due_us).collect());
    assert!(delay < 10_000, "a fifth of a gap would be no schedule: {delay} µs");
    // On a machine that is far too busy some may be late after all: then, and only then, it is said.
    let late = number(&open.late) > 2;
    assert_eq!(reasons(&cell).contains(&"rate-not-reached".to_owned()), late, "{:?}", reasons(&cell));
}

fn by_due(m: &CellMeasurement) -> Vec<&RequestRecord> {
    let mut requests: Vec<&RequestRecord> = all(&m.streams).collect();
    requests.sort_by_key(|r| r.due_us);
    requests
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn above_what_the_server_can_take_every_request_is_accounted_for() {
    // It answers one at a time, 300 ms each, and 20 a second come.
    let (slot, begun) = (Count::default(), Count::default());
    let counted = begun.clone();
    let chat = move |_| {
        counted.add();
        [vec![slot.taken()], answer(30), vec![slot.given_back()]].concat()
    };
    let server = server(chat, no_metrics).await;
    let options = CellOptions { duration_us: 1_000_000, answer_limit_us: Some(1_000_000), ..short() };
    let (m, cell, _) = one(&server, rate(8, 20.0), &options).await;
    let open = open_loop(&cell);
    let of = |field: &Field<tokscope_shared::field::Int>| number(field);
    assert_eq!(of(&open.scheduled), 20);
    assert_eq!(of(&open.finished) + of(&open.cut) + of(&open.failed) + of(&open.unsent), 20, "{open:?}");
    // With eight under way and seven answered in time at most, some are never sent.
    assert!(of(&open.cut) > 0 && of(&open.finished) > 0 && of(&open.unsent) > 0, "{open:?}");
    assert_eq!(usize::try_from(of(&open.sent)).unwrap(), begun.get(), "the server has seen as many");
    assert!(reasons(&cell).contains(&"unfinished".to_owned()), "{:?}", reasons(&cell));
    assert_eq!(of(&open.most_in_flight), 8, "never more at once than allowed");
    // Those that were cut are in no latency, and it is said how many there were.
    assert_eq!(open.latency_from_due_s.get().unwrap().n.i64(), open.finished.i64());
    assert_eq!(all(&m.streams).filter(|r| r.outcome == Outcome::CutByUs).count(), usize::try_from(of(&open.cut)).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_ends_though_nobody_answers() {
    let server = server(|_| vec![send(STREAM_HEAD), Do::Hang], no_metrics).await;
    let options = CellOptions { duration_us: 500_000, answer_limit_us: Some(500_000), ..short() };
    let measured = tokio::time::timeout(Duration::from_secs(15), one(&server, rate(4, 20.0), &options)).await;
    let (m, cell, _) = measured.expect("it ends by itself");
    let open = open_loop(&cell);
    assert_eq!((number(&open.sent), number(&open.cut), number(&open.unsent)), (4, 4, 6), "{open:?}");
    assert_eq!(open.answer_limit_reached.get(), Some(&true));
    assert_eq!(m.failure.as_deref(), Some("no token arrived in the window"));
    assert_eq!(m.window.unwrap().seconds(), 0.5, "the window keeps its edges");
    assert!(m.ended_us - m.window.unwrap().start_us < 5_000_000);
}

/// What was sent on so many threads, by id: when it was due after the first, and the most at once.
async fn on_threads(threads: usize) -> (BTreeMap<String, u64>, usize, usize) {
    let (now, most, begun) = (Count::default(), Count::default(), Count::default());
    let (counted, seen, served) = (now.clone(), most.clone(), begun.clone());
    let server = Server::start(true, move |_, _| {
        served.add();
        let at_once = counted.add() + 1;
        seen.raise(at_once);
        let left = counted.clone();
        let leave = Do::When(Arc::new(move || left.0.fetch_sub(1, Ordering::SeqCst) > 0));
        vec![Do::Sleep(60), leave, one_token()]
    })
    .await;
    let load = Load::start(Clock::start(), threads).unwrap();
    let address: Address = format!("http://{}", server.addr).parse().unwrap();
    let endpoint = Arc::new(Endpoint::resolve(&address, &TrustedRoots::default(), LIMITS.connect).await.unwrap());
    let source: Arc<dyn RequestSource> = Arc::new(Plain::of(10));
    let options = StreamsOptions { count: 6, max_requests: None, limits: LIMITS, max_tokens: 64, text: None };
    let schedule = Arc::new(Schedule::new(60.0, 1_000_000, Some(5)).unwrap());
    let streams = load.open_paced(&endpoint, &source, &options, &Pace::Scheduled(Arc::clone(&schedule))).await;
    let begin_us = streams.start();
    let ended = tokio::time::timeout(Duration::from_secs(20), streams.ended()).await;
    ended.expect("the streams end by themselves");
    let (records, _) = streams.join(Duration::from_secs(2)).await;
    let sent: Vec<&RequestRecord> = all(&records).collect();
    assert!(sent.iter().all(|r| r.outcome == Outcome::Finished), "{sent:?}");
    assert_eq!(sent.len(), begun.get());
    let due: BTreeMap<String, u64> = sent.iter().map(|r| (r.id.clone(), r.due_us - begin_us)).collect();
    assert_eq!(due.values().copied().collect::<std::collections::BTreeSet<_>>(), schedule.due_us().iter().copied().collect());
    (due, most.get(), sent.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_share_one_schedule_and_one_limit() {
    let (alone, most, sent) = on_threads(1).await;
    assert_eq!((sent, alone.len()), (60, 60));
    assert!(most <= 6, "{most}");
    for threads in [2, 3] {
        let (due, most, sent) = on_threads(threads).await;
        assert_eq!((sent, &due), (60, &alone), "{threads} threads send what one sends, each once");
        assert!(most <= 6, "{most} at once on {threads} threads");
    }
}
