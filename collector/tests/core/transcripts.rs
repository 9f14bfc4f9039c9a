//! Recorded answers of real servers, read whatever the reads split them into.

use std::collections::BTreeMap;

use tokscope_collector::load::body::Framing;
use tokscope_collector::load::chunk::{self, Usage};
use tokscope_collector::load::record::{Arrival, Outcome, StreamRecord};
use tokscope_collector::load::sse::SseParser;
use tokscope_collector::load::tokens::{TokenSource, TokenTimeline};
use tokscope_collector::scrape::{engines, text};
use tokscope_collector::target::Engine;

use crate::server::{Server, send};
use crate::streams::run_streams;

fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/transcripts/{name}.response.http", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}

fn head_and_body(bytes: &[u8]) -> (String, &[u8]) {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    (head, &bytes[end + 4..])
}

/// What a recording says, read in pieces.
#[derive(Debug, Default, PartialEq)]
struct Read {
    events: usize,
    chunks: usize,
    usage: Usage,
    finish: Option<String>,
    done: bool,
    bad: usize,
    tokens: u64,
    source: Option<TokenSource>,
}

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Read {
    let mut framing = Framing::chunked();
    let mut sse = SseParser::new();
    let mut out = Read::default();
    let mut record = StreamRecord::default();
    let mut t_us = 0;
    let mut on_event = |data: &[u8]| {
        out.events += 1;
        t_us += 1;
        if chunk::is_done(data) {
            out.done = true;
            return;
        }
        let Ok(chunk) = chunk::parse(data) else {
            out.bad += 1;
            return;
        };
        out.chunks += usize::from(chunk.kinds.is_output());
        let usage = chunk.usage.unwrap_or_default();
        out.usage.completion_tokens = usage.completion_tokens.or(out.usage.completion_tokens);
        out.usage.prompt_tokens = usage.prompt_tokens.or(out.usage.prompt_tokens);
        out.usage.cached_tokens = usage.cached_tokens.or(out.usage.cached_tokens);
        out.finish = chunk.finish_reason.map(std::borrow::Cow::into_owned).or(out.finish.take());
        record.arrivals.push(Arrival::new(t_us, 0, chunk.kinds, usage.completion_tokens, None));
    };
    for piece in pieces {
        let mut rest = piece;
        while !rest.is_empty() && !framing.is_done() {
            let (used, payload) = framing.take(rest).unwrap();
            sse.feed(payload, &mut on_event).unwrap();
            rest = &rest[used..];
        }
    }
    assert!(framing.is_done(), "the whole body was read");
    sse.finish(&mut on_event);
    let window = TokenTimeline::new(&[record]).window(0, u64::MAX);
    out.tokens = window.tokens;
    out.source = window.source;
    out
}

/// name, events, chunks with text, completion tokens, cached tokens, finish reason
type Expected = (&'static str, usize, usize, Option<u32>, Option<u32>, &'static str);

const STREAMS: [Expected; 10] = [
    ("vllm/stream-continuous-usage", 15, 11, Some(12), None, "length"),
    ("vllm/stream-usage-at-end", 15, 11, Some(12), None, "length"),
    ("vllm/stream-no-usage", 14, 11, None, None, "length"),
    ("vllm/stream-usage-max-tokens-1", 4, 1, Some(1), None, "length"),
    ("vllm/stream-usage-long", 194, 184, Some(200), None, "length"),
    ("vllm-spec-ngram/stream-continuous-usage", 13, 10, Some(12), Some(0), "length"),
    ("litellm/stream-continuous-usage", 15, 11, Some(12), Some(0), "length"),
    ("litellm/stream-usage-long", 103, 99, Some(104), Some(0), "stop"),
    ("llama-server/stream-continuous-usage", 16, 12, Some(12), Some(0), "length"),
    ("llama-server/stream-no-usage", 15, 12, None, None, "length"),
];

fn source_of(name: &str) -> TokenSource {
    match name {
        "vllm/stream-no-usage" | "llama-server/stream-no-usage" => TokenSource::ChunksFallback,
        n if n.starts_with("litellm") || n.starts_with("llama") || n.ends_with("at-end") => TokenSource::FinalUsageSpread,
        _ => TokenSource::ContinuousUsage,
    }
}

#[test]
fn recordings_say_the_same_split_after_every_byte() {
    for (name, events, chunks, tokens, cached, finish) in STREAMS {
        let bytes = fixture(name);
        let (_, body) = head_and_body(&bytes);
        let whole = read([body].into_iter());
        let want = Read {
            events,
            chunks,
            usage: Usage { completion_tokens: tokens, prompt_tokens: tokens.map(|_| 13), cached_tokens: cached },
            finish: Some(finish.to_owned()),
            done: true,
            bad: 0,
            tokens: tokens.map_or(chunks as u64, u64::from),
            source: Some(source_of(name)),
        };
        assert_eq!(whole, want, "{name}");
        assert_eq!(read(body.chunks(1)), want, "{name}, byte by byte");
        // Every place in the short ones; in the long ones one in 61, which is prime to their framing.
        let step = if body.len() > 6_000 { 61 } else { 1 };
        for at in (0..body.len()).step_by(step) {
            let (a, b) = body.split_at(at);
            assert_eq!(read([a, b].into_iter()), want, "{name}, split at {at}");
        }
    }
}

#[test]
fn recordings_say_the_same_with_every_line_end() {
    let bytes = fixture("vllm/stream-continuous-usage");
    let (_, body) = head_and_body(&bytes);
    let mut framing = Framing::chunked();
    let (mut payload, mut rest) = (Vec::new(), body);
    while !framing.is_done() {
        let (used, found) = framing.take(rest).unwrap();
        payload.extend_from_slice(found);
        rest = &rest[used..];
    }
    let text = String::from_utf8(payload).unwrap();
    for end in ["\n", "\r", "\r\n"] {
        let text = text.replace('\n', end);
        for at in 0..text.len() {
            let mut parser = SseParser::new();
            let mut events = 0;
            for piece in [&text.as_bytes()[..at], &text.as_bytes()[at..]] {
                parser.feed(piece, |_| events += 1).unwrap();
            }
            parser.finish(|_| events += 1);
            assert_eq!(events, 15, "{end:?} split at {at}");
        }
    }
}

#[tokio::test]
async fn recordings_replayed_over_a_socket_are_measured_right() {
    for (name, _, chunks, tokens, cached, finish) in STREAMS {
        let bytes = fixture(name);
        let server = Server::start(false, move |_, _| vec![send(&bytes)]).await;
        let (records, _) = run_streams(server.addr, 1, Some(1)).await;
        let request = &records[0].requests[0];
        assert_eq!(request.outcome, Outcome::Finished, "{name}: {:?}", request.error);
        assert_eq!(request.chunks as usize, chunks, "{name}");
        assert_eq!(request.usage_tokens, tokens, "{name}");
        assert_eq!(request.cached_tokens, cached, "{name}");
        assert_eq!(request.finish_reason.as_deref(), Some(finish), "{name}");
        assert!(request.done && request.bad_events == 0, "{name}");
    }
}

#[tokio::test]
async fn recorded_refusals_are_http_errors_with_the_servers_words() {
    let bytes = fixture("vllm/error-context-too-long-stream");
    let server = Server::start(false, move |_, _| vec![send(&bytes)]).await;
    let (records, _) = run_streams(server.addr, 1, None).await;
    let request = &records[0].requests[0];
    assert_eq!(request.outcome, Outcome::Http);
    assert_eq!(request.http_status, Some(400));
    let words = request.error.as_deref().unwrap();
    assert!(words.starts_with("HTTP 400: ") && words.contains("maximum context length"), "{words}");
}

#[test]
fn recorded_metrics_are_read_to_the_last_line() {
    for (name, engine) in [
        ("vllm/metrics-0-idle", Engine::Vllm),
        ("vllm/metrics-1-during-load", Engine::Vllm),
        ("vllm/metrics", Engine::Vllm),
        ("vllm-spec-ngram/metrics-0-idle", Engine::Vllm),
        ("vllm-spec-ngram/metrics", Engine::Vllm),
        ("llama-server/metrics-0-idle", Engine::LlamaCpp),
        ("llama-server/metrics-1-during-load", Engine::LlamaCpp),
        ("llama-server/metrics-2-after-load", Engine::LlamaCpp),
    ] {
        let bytes = fixture(name);
        let (_, body) = head_and_body(&bytes);
        let body = std::str::from_utf8(body).unwrap();
        let mut samples = BTreeMap::new();
        let skipped = text::parse(body, |s| *samples.entry(s.name).or_insert(0) += 1);
        assert_eq!((skipped.malformed, skipped.non_finite), (0, 0), "{name}");
        assert!(samples.len() > 10, "{name}");
        assert!(engines::has_metrics_of(engine, body));
        let (values, _) = engines::values(engine, body);
        assert!(values.running.is_some() && values.waiting.is_some(), "{name}");
        if engine == Engine::Vllm {
            assert!(values.kv_usage.is_some() && values.generation_tokens.is_some());
        }
    }
}

#[test]
fn recorded_counters_are_read_as_they_stand() {
    let read = |name: &str, engine| {
        let bytes = fixture(name);
        let text = std::str::from_utf8(head_and_body(&bytes).1).unwrap().to_owned();
        (engines::values(engine, &text).0, engines::missing(engine, &text))
    };
    let (v, missing) = read("vllm-spec-ngram/metrics", Engine::Vllm);
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!((v.running, v.waiting, v.request_success), (Some(0.0), Some(0.0), Some(12.0)));
    assert_eq!((v.prompt_tokens, v.cached_prompt_tokens, v.generation_tokens), (Some(3076.0), Some(1408.0), Some(2339.0)));
    assert_eq!((v.local_compute_tokens, v.kv_computed_tokens), (Some(1668.0), Some(1616.0)));
    assert_eq!((v.prefill_count, v.prefill_seconds_sum), (Some(12.0), Some(16.054_555_721_000_725)));
    assert_eq!((v.spec_drafts, v.spec_draft_tokens, v.spec_accepted_tokens), (Some(497.0), Some(1988.0), Some(1286.0)));
    assert_eq!(v.spec_accepted_per_pos, [401.0, 295.0, 295.0, 295.0]);
    let (v, _) = read("vllm/metrics-1-during-load", Engine::Vllm);
    assert_eq!((v.running, v.spec_drafts), (Some(4.0), None));
    let (v, missing) = read("llama-server/metrics-2-after-load", Engine::LlamaCpp);
    assert_eq!((v.prompt_tokens, v.cached_prompt_tokens, v.local_compute_tokens), (Some(3422.0), Some(1859.0), Some(1563.0)));
    assert_eq!((v.prefill_seconds_sum, v.prefill_count), (Some(0.180_449), None));
    // They move when a request ends, so that a window can't be told from them.
    assert_eq!((v.generation_tokens, v.spec_drafts), (None, None));
    assert_eq!(missing, ["the use of the KV cache", "generated tokens"]);
}

/// The shared recordings, all of them, where the variable names their folder's parent.
#[test]
#[ignore = "needs the real recordings: set TOKSCOPE_CORPUS"]
fn corpus_all_recordings_are_read() {
    let corpus = std::env::var_os("TOKSCOPE_CORPUS").expect("TOKSCOPE_CORPUS names the folder of the real reports");
    let root = std::path::Path::new(&corpus).join("transcripts");
    let root = if root.is_dir() { root } else { std::path::Path::new(&corpus).join("../transcripts") };
    let mut folders = vec![root];
    let (mut metrics, mut streams) = (0, 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if !name.ends_with(".response.http") {
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let (head, body) = head_and_body(&bytes);
            let head = head.to_ascii_lowercase();
            if head.contains("text/plain; version=") {
                let text = std::str::from_utf8(body).unwrap();
                let chunked = head.contains("chunked");
                let skipped = text::parse(text, |_| {});
                assert!(chunked || skipped.malformed == 0, "{name}");
                metrics += 1;
            } else if head.contains("text/event-stream") && head.contains("chunked") {
                let got = read([body].into_iter());
                assert!(got.events > 0 && got.bad == 0, "{name}: {got:?}");
                assert_eq!(got, read(body.chunks(7)), "{name}");
                streams += 1;
            }
        }
    }
    assert!(metrics > 5 && streams > 30, "{metrics} metrics, {streams} streams");
}
