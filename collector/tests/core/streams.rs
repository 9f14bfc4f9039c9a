//! Streams against servers that end them in every way there is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokscope_collector::clock::Clock;
use tokscope_collector::load::endpoint::Endpoint;
use tokscope_collector::load::health::ClientHealth;
use tokscope_collector::load::record::{Outcome, RequestRecord, StreamRecord};
use tokscope_collector::load::request::{PreparedRequest, RequestSource};
use tokscope_collector::load::{Load, LoadLimits, Streams, StreamsOptions};
use tokscope_collector::target::{Address, TrustedRoots};

use crate::server::{DONE, Do, STREAM_HEAD, Server, event, finish, send, whole};

/// Requests of a fixed body.
pub(crate) struct Plain {
    shared: Bytes,
}

impl Plain {
    pub(crate) fn of(length: usize) -> Self {
        Self { shared: Bytes::from(vec![b'x'; length]) }
    }
}

impl RequestSource for Plain {
    fn prepare(&self, stream: u32, ordinal: u32) -> PreparedRequest {
        let length = self.shared.len();
        PreparedRequest {
            id: format!("{stream}-{ordinal}"),
            head: format!("POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n").into_bytes(),
            shared: self.shared.clone(),
            tail: Vec::new(),
            taken: None,
        }
    }
}

pub(crate) const FAST: LoadLimits =
    LoadLimits { connect: Duration::from_secs(5), first_token: Duration::from_millis(400), stall: Duration::from_millis(200) };

struct Running {
    streams: Streams,
    // Its threads end with it.
    _load: Load,
}

async fn open(addr: SocketAddr, count: u32, max: Option<u32>, limits: LoadLimits, body: usize) -> Running {
    let load = Load::start(Clock::start(), 1).unwrap();
    let address: Address = format!("http://{addr}").parse().unwrap();
    let endpoint = Arc::new(Endpoint::resolve(&address, &TrustedRoots::default(), limits.connect).await.unwrap());
    let source: Arc<dyn RequestSource> = Arc::new(Plain::of(body));
    let options = StreamsOptions { count, max_requests: max, limits, max_tokens: 64, text: None };
    let streams = load.open(&endpoint, &source, &options).await;
    Running { streams, _load: load }
}

/// Runs streams until all have ended by themselves.
pub(crate) async fn run_streams(addr: SocketAddr, count: u32, max: Option<u32>) -> (Vec<StreamRecord>, ClientHealth) {
    let running = open(addr, count, max, FAST, 10).await;
    running.streams.start();
    let ended = tokio::time::timeout(Duration::from_secs(20), running.streams.ended()).await;
    ended.expect("the streams end by themselves");
    running.streams.join(Duration::from_secs(5)).await
}

pub(crate) async fn only_request(steps: Vec<Do>) -> RequestRecord {
    let server = Server::start(false, move |_, _| steps.clone()).await;
    let (mut records, _) = run_streams(server.addr, 1, None).await;
    assert_eq!(server.requests.load(Ordering::SeqCst), 1, "no hidden retry");
    let mut record = records.pop().unwrap();
    assert_eq!(record.requests.len(), 1, "a stream that failed sends nothing more");
    record.requests.pop().unwrap()
}

#[tokio::test]
async fn every_way_to_end_has_its_class() {
    let start = || format!("{STREAM_HEAD}{}", event("a", None));
    let error = crate::server::chunk("data: {\"error\":{\"message\":\"out of memory\"}}\n\n");
    let table: Vec<(&str, Vec<Do>, Outcome, &str)> = vec![
        ("breaks off", vec![send(start())], Outcome::Truncated, "closed"),
        (
            "whole body without finish reason or end mark",
            vec![send(format!("{}0\r\n\r\n", start()))],
            Outcome::Truncated,
            "without a finish reason",
        ),
        ("error object inside a 200 stream", vec![send(start()), send(error), send(DONE)], Outcome::InStreamError, "out of memory"),
        ("HTTP 500", vec![send(whole("500 Oops", "text/plain", "it\nbroke"))], Outcome::Http, "HTTP 500: it broke"),
        ("closes at once", vec![], Outcome::Connect, "before it answered"),
        ("no HTTP", vec![send("SSH-2.0-x\r\n\r\n"), Do::Hang], Outcome::Connect, "not HTTP"),
        ("never answers", vec![Do::Hang], Outcome::Timeout, "no token within"),
        ("only comments", vec![send(STREAM_HEAD), send(crate::server::chunk(": ping\n\n")), Do::Hang], Outcome::Timeout, "no token within"),
        ("falls silent", vec![send(start()), Do::Hang], Outcome::Stalled, "silent"),
        ("malformed chunks", vec![send(start()), send("zz\r\n")], Outcome::Truncated, "malformed"),
        ("no stream but JSON", vec![send(whole("200 OK", "application/json", "{\"choices\":[]}"))], Outcome::Truncated, "application/json"),
        (
            "compressed",
            vec![send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n\r\n"), Do::Hang],
            Outcome::Truncated,
            "compressed (gzip)",
        ),
        (
            "events that are no JSON",
            vec![send(STREAM_HEAD), send(crate::server::chunk("data: hello\n\ndata: world\n\n")), send("0\r\n\r\n")],
            Outcome::Truncated,
            "2 events were no JSON",
        ),
        (
            "a length beyond all numbers",
            vec![send("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n")],
            Outcome::Connect,
            "too large",
        ),
        ("end mark without a token", vec![send(STREAM_HEAD), send(DONE)], Outcome::Truncated, "without a single token"),
    ];
    for (name, steps, outcome, words) in table {
        let r = only_request(steps).await;
        assert_eq!(r.outcome, outcome, "{name}: {r:?}");
        let text = r.error.unwrap();
        assert!(text.contains(words), "{name}: {text}");
    }
}

#[tokio::test]
async fn an_endless_header_is_refused() {
    let r = only_request(vec![send("HTTP/1.1 200 OK\r\n"), send(format!("X-A: {}\r\n", "a".repeat(70_000))), Do::Hang]).await;
    assert_eq!(r.outcome, Outcome::Connect);
    assert!(r.error.unwrap().contains("longer than"));
}

#[tokio::test]
async fn nobody_there_is_a_connect_failure_of_the_endpoint() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let address: Address = format!("http://{addr}").parse().unwrap();
    let e = Endpoint::resolve(&address, &TrustedRoots::default(), Duration::from_secs(2)).await.unwrap_err();
    assert!(e.to_string().contains(&addr.to_string()), "{e}");
}

#[tokio::test]
async fn a_whole_body_with_a_finish_reason_needs_no_end_mark() {
    let body = format!("{STREAM_HEAD}{}{}0\r\n\r\n", event("a", None), finish());
    let server = Server::start(true, move |_, _| vec![send(&body)]).await;
    let (records, _) = run_streams(server.addr, 1, Some(1)).await;
    let r = &records[0].requests[0];
    assert_eq!(r.outcome, Outcome::Finished);
    assert!(!r.done);
}

#[tokio::test]
async fn a_role_comes_before_the_first_token_and_usage_and_end_mark_after_the_last() {
    let steps = vec![
        send(format!(
            "{STREAM_HEAD}{}",
            crate::server::chunk("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n")
        )),
        Do::Sleep(60),
        send(event("a", None)),
        Do::Sleep(30),
        send(event("b", None)),
        send(finish()),
        Do::Sleep(80),
        send(crate::server::chunk("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":9}}\n\n")),
        Do::Sleep(80),
        send(DONE),
    ];
    let server = Server::start(true, move |_, _| steps.clone()).await;
    let (records, _) = run_streams(server.addr, 1, Some(1)).await;
    let r = &records[0].requests[0];
    let role = r.first_event_us.unwrap();
    assert!(r.first_token_us.unwrap() >= role + 50_000, "{r:?}");
    assert_eq!(r.second_us, r.last_us);
    assert!(r.ended_us >= r.last_us.unwrap() + 150_000, "{r:?}");
    assert_eq!(r.latency_us().unwrap(), r.last_us.unwrap() - r.sent_us.unwrap());
    assert_eq!((r.chunks, r.usage_tokens), (2, Some(9)));
}

#[tokio::test]
async fn one_connection_carries_one_request_after_the_other() {
    let body = format!("{STREAM_HEAD}{}{}{DONE}", event("a", Some(1)), finish());
    let server = Server::start(true, move |_, _| vec![send(&body)]).await;
    let (records, health) = run_streams(server.addr, 3, Some(4)).await;
    assert_eq!(server.requests.load(Ordering::SeqCst), 12);
    // One more was opened to find the address that answers.
    assert_eq!(server.connections.load(Ordering::SeqCst), 3 + 1);
    assert_eq!((health.connections_opened, health.connections_reused), (3, 9));
    assert!(records.iter().all(|r| r.requests.iter().all(|q| q.outcome == Outcome::Finished)));
    assert!(health.start_spread_us.is_some());
}

#[tokio::test]
async fn a_server_that_closes_each_time_gets_a_new_connection_each_time() {
    let body = format!("{STREAM_HEAD}{}{}{DONE}", event("a", Some(1)), finish());
    let body = body.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    // Only the head may get the header.
    let body = body.replacen("0\r\nConnection: close", "0", 1);
    let server = Server::start(false, move |_, _| vec![send(&body)]).await;
    let (records, health) = run_streams(server.addr, 1, Some(3)).await;
    assert_eq!(records[0].requests.len(), 3);
    assert_eq!((health.connections_opened, health.connections_reused), (3, 0));
}

#[tokio::test]
async fn exactly_as_many_streams_run_as_were_asked_for() {
    for count in [1, 2, 7, 300] {
        let server = Server::start(true, |_, _| vec![send(format!("{STREAM_HEAD}{}", event("a", Some(1)))), Do::Hang]).await;
        let running = open(server.addr, count, None, LoadLimits::default(), 10).await;
        running.streams.start();
        for _ in 0..1000 {
            if running.streams.progress().iter().all(|p| p.tokens() == 1) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(server.requests.load(Ordering::SeqCst), count as usize);
        let (records, _) = running.streams.join(Duration::from_secs(5)).await;
        assert_eq!(records.len(), count as usize);
        for (i, r) in records.iter().enumerate() {
            assert_eq!(r.stream as usize, i);
            assert_eq!(r.requests[0].outcome, Outcome::CutByUs);
            assert_eq!(r.requests[0].error, None);
        }
    }
}

#[tokio::test]
async fn nothing_is_sent_after_the_stop() {
    let body = format!("{STREAM_HEAD}{}{}{DONE}", event("a", Some(1)), finish());
    let server = Server::start(true, move |_, _| vec![Do::Sleep(5), send(&body)]).await;
    let running = open(server.addr, 4, None, LoadLimits::default(), 10).await;
    running.streams.start();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (records, _) = running.streams.join(Duration::from_secs(5)).await;
    let sent = records.iter().flat_map(|r| &r.requests).filter(|r| r.sent_us.is_some()).count();
    assert!(sent > 4);
    // The server may not have read the last one yet.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let seen = server.requests.load(Ordering::SeqCst);
    assert!(seen <= sent && seen + 4 >= sent, "{seen} of {sent}: what was cut while it was sent may never be read");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(server.requests.load(Ordering::SeqCst), seen);
}

#[tokio::test]
async fn big_prompts_go_out_whole() {
    let body = format!("{STREAM_HEAD}{}{}{DONE}", event("a", Some(1)), finish());
    let server = Server::start(true, move |_, _| vec![send(&body)]).await;
    let running = open(server.addr, 8, Some(1), LoadLimits::default(), 3 << 20).await;
    running.streams.start();
    running.streams.ended().await;
    let (records, _) = running.streams.join(Duration::from_secs(5)).await;
    assert!(records.iter().all(|r| r.requests[0].outcome == Outcome::Finished));
}

#[tokio::test]
async fn each_name_of_reasoning_starts_the_first_token() {
    for field in ["content", "reasoning", "reasoning_content", "reasoning_text"] {
        let text = format!("data: {{\"choices\":[{{\"delta\":{{\"{field}\":\"x\"}}}}]}}\n\n");
        let body = format!("{STREAM_HEAD}{}{}{DONE}", crate::server::chunk(&text), finish());
        let server = Server::start(true, move |_, _| vec![send(&body)]).await;
        let (records, _) = run_streams(server.addr, 1, Some(1)).await;
        let r = &records[0].requests[0];
        assert_eq!(r.outcome, Outcome::Finished, "{field}");
        assert_eq!(r.chunks, 1, "{field}");
        assert!(r.ttft_us().is_some(), "{field}");
    }
}

#[tokio::test]
async fn a_hundred_events_in_one_write_then_a_close_all_count() {
    let events: String = (1..=100).map(|i| event("a", Some(i))).collect();
    let body = format!("{STREAM_HEAD}{events}");
    let r = only_request(vec![send(body)]).await;
    assert_eq!(r.chunks, 100);
    assert_eq!(r.usage_tokens, Some(100));
    assert_eq!(r.outcome, Outcome::Truncated);
}

#[tokio::test]
async fn a_localhost_that_is_ipv4_only_is_found() {
    let body = format!("{STREAM_HEAD}{}{}{DONE}", event("a", Some(1)), finish());
    let server = Server::start(true, move |_, _| vec![send(&body)]).await;
    let address: Address = format!("http://localhost:{}", server.addr.port()).parse().unwrap();
    let endpoint = Endpoint::resolve(&address, &TrustedRoots::default(), Duration::from_secs(5)).await.unwrap();
    assert_eq!(endpoint.address(), server.addr);
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_unsaid_costs_a_new_one_and_is_counted() {
    let body = format!("{STREAM_HEAD}{}{}{DONE}", event("a", Some(1)), finish());
    // Closes after each answer without a word of it; late enough to be found out by sending only.
    let server = Server::start(true, move |_, n| {
        let mut steps = vec![send(&body)];
        if n == 0 {
            steps.push(Do::Sleep(30));
            steps.push(Do::CloseUnread);
        }
        steps
    })
    .await;
    let (records, health) = run_streams(server.addr, 1, Some(3)).await;
    assert!(records[0].requests.iter().all(|r| r.outcome == Outcome::Finished));
    assert_eq!(records[0].requests.len(), 3);
    assert_eq!((health.connections_stale, health.connections_opened), (1, 2));
}
