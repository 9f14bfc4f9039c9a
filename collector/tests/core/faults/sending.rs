//! What the client does by itself between the moment a request is due and the first byte of its answer.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokscope_collector::clock::Clock;
use tokscope_collector::load::files::raise_open_files;
use tokscope_collector::load::health::StampSource;
use tokscope_collector::load::record::{Outcome, StreamRecord};
use tokscope_collector::load::request::{PreparedRequest, RequestSource};
use tokscope_collector::prompt::{Shape, calibrate};
use tokscope_collector::simulator::{self, Settings};
use tokscope_collector::target::{Target, TargetOptions};

use super::{Count, all, median, one_token, open};
use crate::server::{Do, Server, whole};
use crate::streams::Plain;

/// How long 64 requests of so many bytes, all due at once, wait for their first token beyond the 50 ms of the server:
/// median, µs.
async fn overhead_us(server: &Server, body: usize) -> u64 {
    let opened = open(Clock::start(), server.addr, 1, 64, Some(1), Arc::new(Plain::of(body))).await;
    let (records, _) = opened.run().await;
    assert!(all(&records).all(|r| r.outcome == Outcome::Finished), "all 64 are answered");
    median(all(&records).map(|r| r.first_token_us.unwrap() - r.due_us).collect()).saturating_sub(50_000)
}

/// The same of a client that does nothing but write and read, one socket after the other.
fn bare_overhead_us(server: &Server, body: usize) -> u64 {
    let clock = Clock::start();
    let request = format!("POST / HTTP/1.1\r\nContent-Length: {body}\r\n\r\n{}", "x".repeat(body));
    let mut sockets: Vec<_> = (0..64).map(|_| std::net::TcpStream::connect(server.addr).unwrap()).collect();
    let due_us = clock.now_us();
    sockets.iter_mut().for_each(|socket| socket.write_all(request.as_bytes()).unwrap());
    let took = sockets.iter_mut().map(|socket| {
        assert!(socket.read(&mut [0; 4096]).unwrap() > 0);
        clock.now_us() - due_us
    });
    median(took.collect()).saturating_sub(50_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_big_prompt_costs_no_more_than_writing_its_bytes() {
    let server = Arc::new(Server::start(true, |_, _| vec![Do::Sleep(50), one_token()]).await);
    // The machine may be busy in any of them; a client that is slow is slow in all.
    let mut tried = Vec::new();
    for _ in 0..3 {
        let small = overhead_us(&server, 10).await;
        let big = overhead_us(&server, 300_000).await;
        let on = Arc::clone(&server);
        let bare = tokio::task::spawn_blocking(move || bare_overhead_us(&on, 300_000)).await.unwrap();
        tried.push((small, big, bare));
        if big <= small + 2 * bare {
            return;
        }
    }
    panic!("µs beyond the server's own time, of small prompts, of big ones, and of a bare client's big ones: {tried:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_step_of_a_request_has_its_own_stamp_and_no_start_waits_for_another() {
    let arrived = Count::default();
    let counted = arrived.clone();
    let server = Server::start(true, move |_, _| {
        counted.add();
        vec![Do::Sleep(200), one_token()]
    })
    .await;
    let (records, health) = open(Clock::start(), server.addr, 1, 32, Some(2), Arc::new(Plain::of(2_000))).await.run().await;
    for r in all(&records) {
        let times = [Some(r.due_us), r.sent_us, r.written_us, r.first_byte_us, r.first_token_us, Some(r.ended_us)];
        let times: Vec<u64> = times.into_iter().map(Option::unwrap).collect();
        assert!(times.is_sorted(), "{r:?}");
        assert_eq!(r.connected_us, None, "its connection was open before it was due");
        assert!(r.first_byte_us.unwrap() >= r.written_us.unwrap() + 200_000, "the server's time lies between the two: {r:?}");
    }
    assert_eq!(arrived.get(), 64);
    let due: Vec<u64> = records.iter().map(|stream| stream.requests[0].due_us).collect();
    assert!(due.iter().all(|t| *t == due[0]), "all are due at once");
    let spread_us = health.start_spread_us.unwrap();
    assert!(spread_us < 100_000, "the first wave was sent over {spread_us} µs, half as long as an answer takes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_wave_is_there_before_any_of_it_is_answered() {
    for threads in [1, 3] {
        let arrived = Count::default();
        let counted = arrived.clone();
        let server = Server::start(true, move |_, _| {
            counted.add();
            vec![counted.reached(32), one_token()]
        })
        .await;
        let (records, _) = open(Clock::start(), server.addr, threads, 32, Some(1), Arc::new(Plain::of(10))).await.run().await;
        assert_eq!(arrived.get(), 32, "{threads} threads");
        assert!(all(&records).all(|r| r.outcome == Outcome::Finished), "{threads} threads: {records:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_streams_as_asked_for_are_open_at_once_however_many() {
    const STREAMS: u32 = 512;
    // The server's ends are in this process as well.
    if let Err(refused) = raise_open_files(2 * STREAMS) {
        assert!(refused.to_string().contains(&refused.need.to_string()), "{refused}");
        return;
    }
    let arrived = Count::default();
    let counted = arrived.clone();
    let server = Server::start(true, move |_, _| {
        counted.add();
        vec![counted.reached(STREAMS as usize), one_token()]
    })
    .await;
    let (records, health) = open(Clock::start(), server.addr, 1, STREAMS, Some(1), Arc::new(Plain::of(10))).await.run().await;
    assert_eq!(arrived.get(), STREAMS as usize);
    assert_eq!(health.connections_opened, STREAMS);
    assert!(all(&records).all(|r| r.outcome == Outcome::Finished));
}

/// Notes when each request was prepared.
struct Noting {
    clock: Clock,
    prepared: Arc<Mutex<Vec<(u32, u32, u64)>>>,
    plain: Plain,
}

impl RequestSource for Noting {
    fn prepare(&self, stream: u32, ordinal: u32) -> PreparedRequest {
        self.prepared.lock().unwrap().push((stream, ordinal, self.clock.now_us()));
        self.plain.prepare(stream, ordinal)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_built_before_they_are_due() {
    let server = Server::start(true, |_, _| vec![Do::Sleep(100), one_token()]).await;
    let clock = Clock::start();
    let prepared = Arc::new(Mutex::new(Vec::new()));
    let source = Noting { clock, prepared: Arc::clone(&prepared), plain: Plain::of(900_000) };
    let (records, _) = open(clock, server.addr, 1, 16, Some(3), Arc::new(source)).await.run().await;
    let prepared = prepared.lock().unwrap();
    assert_eq!(prepared.len(), 16 * 3, "each once");
    for (stream, ordinal, at_us) in prepared.iter() {
        let request = &records[*stream as usize].requests[*ordinal as usize];
        assert!(*at_us <= request.due_us, "{stream}-{ordinal} was due at {} and built at {at_us}", request.due_us);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_history_is_made_once_and_never_copied() {
    let settings = Settings { max_context: 400_000, ..Settings::default() };
    let simulator = simulator::start(settings, "127.0.0.1:0".parse().unwrap()).unwrap();
    let target = Target::detect(&TargetOptions { host: simulator.url(), ..TargetOptions::default() }, &mut |_| {}).await.unwrap();
    let prompts = calibrate(&target, &[200_000], 1).await;
    let cell = prompts
        .cell(
            &target,
            0,
            200_000,
            &Shape { accepted: tokscope_collector::target::Accepted::default(), max_tokens: 8, ignore_eos: true, temperature: None },
        )
        .unwrap();
    let first = cell.prepare(0, 0);
    assert!(first.shared.len() > 400_000, "{}", first.shared.len());
    for stream in 1..64 {
        let request = cell.prepare(stream, 1);
        assert_eq!(request.shared.as_ptr(), first.shared.as_ptr(), "the same bytes, not a copy of them");
        assert!(request.head.len() + request.tail.len() < 2_000, "what is a request's own is short");
    }
    simulator.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_asked_for_ends_at_the_stop_and_nothing_is_sent_after_it() {
    let arrived = Count::default();
    let counted = arrived.clone();
    let server = Server::start(true, move |_, _| {
        counted.add();
        vec![Do::Sleep(300), one_token()]
    })
    .await;
    let opened = open(Clock::start(), server.addr, 1, 8, None, Arc::new(Plain::of(10))).await;
    opened.streams.start();
    tokio::time::sleep(Duration::from_millis(150)).await;
    opened.streams.stop();
    // The answers come, and ask for nothing more.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(arrived.get(), 8);
    let (records, _) = opened.streams.join(Duration::from_secs(5)).await;
    assert!(all(&records).all(|r| r.outcome == Outcome::CutByUs && r.error.is_none()), "those in flight are cut, not failed");
    assert_eq!(all(&records).count(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_recorded_and_never_tried_again_in_silence() {
    let server = Server::start(true, |_, n| match n % 3 {
        2 => vec![Do::Send(whole("503 Service Unavailable", "text/plain", "busy"))],
        _ => vec![one_token()],
    })
    .await;
    let (records, health) = open(Clock::start(), server.addr, 1, 6, None, Arc::new(Plain::of(10))).await.run().await;
    let asked = server.requests.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(all(&records).count(), asked, "each request that the server saw has its record");
    assert_eq!(health.connections_stale, 0);
    let refused: Vec<_> = all(&records).filter(|r| r.http_status == Some(503)).collect();
    assert_eq!(refused.len(), asked / 3);
    assert!(refused.iter().all(|r| r.outcome == Outcome::Http && r.output_tokens() == 0), "{refused:?}");
    assert_eq!(records.iter().filter_map(StreamRecord::failure).count(), 6, "every stream ended by one");
}

/// Takes its time over every request but the first ones.
struct Slow(Plain);

impl RequestSource for Slow {
    fn prepare(&self, stream: u32, ordinal: u32) -> PreparedRequest {
        if ordinal > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.0.prepare(stream, ordinal)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_lost_in_the_client_before_sending_is_no_time_to_first_token() {
    // All 64 are over at the same moment, and the client needs 2 ms for each before it can send.
    let arrived = Count::default();
    let server = Server::start(true, move |_, n| {
        arrived.add();
        let wave = if n < 64 { arrived.reached(64) } else { Do::Sleep(0) };
        vec![wave, one_token()]
    })
    .await;
    let (records, health) = open(Clock::start(), server.addr, 1, 64, Some(2), Arc::new(Slow(Plain::of(10)))).await.run().await;
    let second = || records.iter().map(|stream| &stream.requests[1]);
    let waited: Vec<u64> = second().map(|r| r.sent_us.unwrap() - r.due_us).collect();
    let longest = waited.iter().max().copied().unwrap();
    assert!(longest > 40_000, "the client was to be slow: {waited:?}");
    if health.stamp == StampSource::Kernel {
        let ttft = median(second().map(|r| r.ttft_us().unwrap()).collect());
        assert!(ttft * 3 < median(waited.clone()), "a TTFT of {ttft} µs after waiting for {waited:?} µs");
    }
}
