//! What streams look like on the wire: however they are written and split, the same is read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokscope_collector::load::chunk;
use tokscope_collector::load::record::{Kinds, Outcome, RequestRecord};
use tokscope_collector::load::sse::SseParser;
use tokscope_collector::load::tokens::{TokenSource, TokenTimeline};

use crate::cells::{measure_each, short, stream};
use crate::server::{DONE, Do, STREAM_HEAD, Server, chunk as http_chunk, event, finish, send, whole};
use crate::streams::{only_request, run_streams};

/// The data of the events in `pieces`.
fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let (mut parser, mut found) = (SseParser::new(), Vec::new());
    let mut on_event = |data: &[u8]| found.push(String::from_utf8(data.to_vec()).unwrap());
    for piece in pieces {
        parser.feed(piece, &mut on_event).unwrap();
    }
    parser.finish(&mut on_event);
    found
}

/// The same, and that it makes no difference whether the body comes whole, byte by byte or in two parts.
fn events_of(body: &str) -> Vec<String> {
    let body = body.as_bytes();
    let whole = events([body]);
    assert_eq!(events(body.chunks(1)), whole, "byte by byte");
    for at in 0..=body.len() {
        let (a, b) = body.split_at(at);
        assert_eq!(events([a, b]), whole, "split at {at}");
    }
    whole
}

fn token(delta: &str) -> String {
    format!("{{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}")
}

/// The only request to a server that answers with this text behind a stream's head, and then closes.
async fn answered_with(text: &str) -> RequestRecord {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    only_once(vec![send(format!("{head}{text}"))]).await
}

/// The same by steps.
async fn only_once(steps: Vec<Do>) -> RequestRecord {
    let server = Server::start(false, move |_, _| steps.clone()).await;
    let (mut records, _) = run_streams(server.addr, 1, Some(1)).await;
    records.remove(0).requests.remove(0)
}

#[test]
fn no_blank_of_an_event_is_lost_wherever_a_read_ends() {
    let text = token("{\"content\":\"  a  b \"}");
    let body = format!("data: {text} \n\ndata:   {text}\n\n: data\n\ndata: [DONE]\n\n");
    assert_eq!(events_of(&body), [format!("{text} "), format!("  {text}"), "[DONE]".to_owned()]);
}

#[tokio::test]
async fn the_space_behind_the_colon_may_be_missing() {
    let text = token("{\"content\":\"a\"}");
    assert_eq!(events_of(&format!("data:{text}\n\ndata: {text}\n\n")), [text.clone(), text.clone()]);
    let r = answered_with(&format!("data:{text}\n\ndata:{text}\n\ndata:[DONE]\n\n")).await;
    assert_eq!((r.outcome, r.chunks, r.done), (Outcome::Finished, 2, true));
}

#[tokio::test]
async fn lf_cr_and_crlf_all_end_a_line() {
    let text = token("{\"content\":\"a\"}");
    for end in ["\n", "\r", "\r\n"] {
        let body = format!("data: {text}{end}{end}event: x{end}data: {text}{end}{end}data: [DONE]{end}{end}");
        assert_eq!(events_of(&body), [text.as_str(), &text, "[DONE]"], "{end:?}");
        let r = answered_with(&body).await;
        assert_eq!((r.outcome, r.chunks, r.bad_events), (Outcome::Finished, 2, 0), "{end:?}");
    }
    let mixed = format!("data: {text}\r\n\ndata: {text}\r\rdata: {text}\n\r\n");
    assert_eq!(events_of(&mixed), [text.as_str(), &text, &text]);
    // Two line ends, of which a read may separate the bytes: no empty line in between.
    assert_eq!(events_of("data: a\r\ndata: b\r\n\r\n"), ["a\nb"]);
}

#[test]
fn a_lone_cr_ends_a_line_without_waiting_for_more() {
    let (mut parser, mut found) = (SseParser::new(), 0);
    parser.feed(b"data: a\r\r", |_| found += 1).unwrap();
    assert_eq!(found, 1, "the event is whole");
    parser.feed(b"data: b\r\r", |_| found += 1).unwrap();
    assert_eq!(found, 2);
}

#[tokio::test]
async fn half_an_event_is_waited_for_and_never_read() {
    let text = format!("data: {}\n\n", token("{\"content\":\"a\"}"));
    for at in 0..text.len() - 1 {
        let mut parser = SseParser::new();
        parser.feed(&text.as_bytes()[..at], |data| panic!("{:?} is only half of it", String::from_utf8_lossy(data))).unwrap();
    }
    let (a, b) = text.split_at(30);
    let steps = [STREAM_HEAD, &http_chunk(&text), &http_chunk(a), &http_chunk(b), &finish(), DONE].map(send);
    let r = only_once(steps.into_iter().flat_map(|step| [step, Do::Sleep(20)]).collect()).await;
    assert_eq!((r.outcome, r.chunks, r.bad_events), (Outcome::Finished, 2, 0));
    let apart = r.last_us.unwrap() - r.first_token_us.unwrap();
    assert!(apart >= 40_000, "the second came with its second half, {apart} µs later");
}

#[tokio::test]
async fn a_burst_and_the_end_of_the_connection_in_one_leave_nothing_out() {
    let text = token("{\"content\":\"a\"}");
    let burst = format!("data: {text}\n\n").repeat(100);
    let r = answered_with(&format!("{burst}data: [DONE]\n\n")).await;
    assert_eq!((r.outcome, r.chunks), (Outcome::Finished, 100));
    // The last event without its blank line.
    let r = answered_with(&format!("{burst}data: {text}")).await;
    assert_eq!((r.outcome, r.chunks), (Outcome::Truncated, 101));
}

#[tokio::test]
async fn an_event_without_choices_is_read_for_its_usage() {
    let usage = "{\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}";
    let read = chunk::parse(usage.as_bytes()).unwrap();
    assert_eq!((read.kinds, read.usage.unwrap().completion_tokens), (Kinds::default(), Some(3)));
    let text = token("{\"content\":\"a\"}");
    let r = answered_with(&format!("data: {text}\n\ndata: {usage}\n\ndata: [DONE]\n\n")).await;
    assert_eq!((r.outcome, r.bad_events), (Outcome::Finished, 0));
    assert_eq!((r.chunks, r.usage_tokens, r.prompt_tokens), (1, Some(3), Some(7)));
}

#[tokio::test]
async fn a_delta_without_text_is_no_first_token() {
    let nothing = ["{}", "{\"content\":null}", "{\"content\":\"\"}", "{\"role\":\"assistant\",\"content\":\"\"}", "{\"tool_calls\":[]}"];
    let mut steps = vec![send(STREAM_HEAD)];
    for delta in nothing {
        assert!(!chunk::parse(token(delta).as_bytes()).unwrap().kinds.is_output(), "{delta}");
        steps.push(send(http_chunk(&format!("data: {}\n\n", token(delta)))));
    }
    steps.extend([Do::Sleep(60), send(event("a", None)), send(finish()), send(DONE)]);
    let r = only_once(steps).await;
    assert_eq!((r.outcome, r.chunks, r.bad_events), (Outcome::Finished, 1, 0));
    let (first_event, first_token) = (r.first_event_us.unwrap(), r.first_token_us.unwrap());
    assert!(first_token >= first_event + 60_000, "{r:?}");
}

#[tokio::test]
async fn an_error_inside_a_stream_is_a_failure_with_its_words() {
    let error = "data: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\n";
    let r = only_request(vec![send(STREAM_HEAD), send(event("a", Some(1))), send(http_chunk(error)), send(finish()), send(DONE)]).await;
    assert_eq!((r.outcome, r.error.as_deref()), (Outcome::InStreamError, Some("out of memory")));
    assert!(r.outcome.is_failure() && r.latency_us().is_none());
    assert_eq!(r.output_tokens(), 1, "what came, not what was asked for");
}

#[tokio::test]
async fn a_token_is_a_token_however_few_events_there_are() {
    let text = "{\"choices\":[{\"delta\":{\"content\":\"twelve tokens of text\"}}],\"usage\":{\"completion_tokens\":12}}";
    let server = Server::start(false, move |_, _| {
        vec![send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"), send(format!("data: {text}\n\ndata: [DONE]\n\n"))]
    })
    .await;
    let (records, _) = run_streams(server.addr, 1, Some(1)).await;
    let r = &records[0].requests[0];
    assert_eq!((r.outcome, r.chunks, r.output_tokens()), (Outcome::Finished, 1, 12));
    let window = TokenTimeline::new(&records).window(0, u64::MAX);
    assert_eq!((window.tokens, window.source), (12, Some(TokenSource::ContinuousUsage)));
    // An answer that is no stream is no token either, but an error that says what came.
    let whole_reply = "{\"choices\":[{\"message\":{\"content\":\"x\"}}],\"usage\":{\"completion_tokens\":12}}";
    let r = only_request(vec![send(whole("200 OK", "application/json", whole_reply))]).await;
    assert_eq!((r.outcome, r.chunks), (Outcome::Truncated, 0));
    assert!(r.error.unwrap().contains("'application/json', not a stream"));
}

#[tokio::test]
async fn text_reasoning_and_tool_calls_all_count() {
    let deltas = [
        ("{\"content\":\"a\"}", Kinds::CONTENT),
        ("{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}", Kinds::TOOL),
        ("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{}\"}}]}", Kinds::TOOL),
        ("{\"function_call\":{\"name\":\"f\"}}", Kinds::TOOL),
        ("{\"reasoning_content\":\"a\",\"content\":null}", Kinds::REASONING),
    ];
    let mut body = String::new();
    for (delta, kind) in deltas {
        assert!(chunk::parse(token(delta).as_bytes()).unwrap().kinds.has(kind), "{delta}");
        body.push_str(&format!("data: {}\n\n", token(delta)));
    }
    let r = answered_with(&format!("{body}data: [DONE]\n\n")).await;
    assert_eq!((r.outcome, r.chunks, r.output_tokens()), (Outcome::Finished, 5, 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_is_sent_as_a_bare_string() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (noted, chats) = (Arc::clone(&seen), AtomicUsize::new(0));
    let server = Server::start_reading(false, move |line, body, _| match line.split(' ').nth(1).unwrap() {
        "/v1/models" => vec![send(whole("200 OK", "application/json", "{\"data\":[{\"id\":\"m\"}]}"))],
        "/v1/chat/completions" => {
            let body: serde_json::Value = serde_json::from_slice(body).unwrap();
            let content = body["messages"][0]["content"].clone();
            let refused = !content.is_string() || body.get("prompt").is_some();
            noted.lock().unwrap().push(content);
            match chats.fetch_add(1, Ordering::SeqCst) {
                _ if refused => vec![send(whole("400 Bad Request", "text/plain", "Input should be a valid string"))],
                0..2 => vec![send(whole("200 OK", "application/json", "{\"usage\":{\"prompt_tokens\":40}}"))],
                _ => stream(1000),
            }
        }
        _ => vec![send(whole("404 Not Found", "text/plain", ""))],
    })
    .await;
    let (cells, _) = measure_each(&server, &[1], &short()).await;
    assert_eq!(cells[0].failure, None);
    assert!(seen.lock().unwrap().len() >= 3);
}

#[tokio::test]
async fn a_stream_may_begin_with_empty_lines_and_a_text_with_one() {
    let text = token("{\"content\":\"\\n\"}");
    assert_eq!(events_of(&format!("\n\n\r\ndata: {text}\n\n\n\n\ndata: {text}\n\n")), [text.clone(), text.clone()]);
    let r = answered_with(&format!("\ndata: {text}\n\n\ndata: {text}\n\ndata: [DONE]\n\n")).await;
    assert_eq!((r.outcome, r.chunks, r.bad_events), (Outcome::Finished, 2, 0));
}

#[tokio::test]
async fn comments_say_nothing_but_that_the_stream_is_alive() {
    // Silence is allowed for 200 ms; the pause between the tokens is longer, and filled with comments.
    let ping = || send(http_chunk(": ping\n\n"));
    let pause = || (0..5).flat_map(|_| [Do::Sleep(90), ping()]).collect::<Vec<_>>();
    let steps =
        [vec![send(STREAM_HEAD), ping(), send(event("a", None))], pause(), vec![send(event("b", None)), send(finish()), send(DONE)]];
    let r = only_once(steps.concat()).await;
    assert_eq!((r.outcome, r.error.as_deref()), (Outcome::Finished, None));
    assert_eq!((r.chunks, r.bad_events), (2, 0));
    // They are no tokens: with nothing else the first one is waited for in vain.
    let r = only_request([vec![send(STREAM_HEAD)], pause(), vec![Do::Hang]].concat()).await;
    assert_eq!((r.outcome, r.first_token_us, r.chunks), (Outcome::Timeout, None, 0));
}

#[tokio::test]
async fn an_answer_without_a_token_is_an_error_and_divides_nothing() {
    let empty = token("{\"role\":\"assistant\"}");
    let r = answered_with(&format!("data: {empty}\n\ndata: [DONE]\n\n")).await;
    assert_eq!(r.outcome, Outcome::Truncated);
    assert_eq!(r.error.as_deref(), Some("the stream ended without a single token"));
    assert_eq!((r.ttft_us(), r.latency_us(), r.output_tokens()), (None, None, 0));
}
