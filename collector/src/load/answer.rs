//! One answer, from its bytes: stamps what each event brings into the request's record, and says how the answer
//! ended. It reads no socket and asks for no time.

use super::body::Framing;
use super::chunk::{self, ChunkReader};
use super::head::AnswerHead;
use super::progress::Progress;
use super::record::{Arrival, Kinds, Outcome, RequestRecord};
use super::sse::SseParser;
use super::text::{TextWriter, Whose};

/// Of an error answer.
const ERROR_BODY_BYTES: usize = 4 << 10;
const ERROR_WORDS: usize = 200;
/// Usage may run ahead of the limit that was sent by this much before it is no count of tokens.
const USAGE_SLACK: u32 = 16;

/// How one request went.
#[derive(Debug)]
pub(super) struct End {
    pub(super) outcome: Outcome,
    pub(super) error: Option<String>,
    /// Whether the connection can carry another one.
    pub(super) reusable: bool,
}

impl End {
    pub(super) fn failed(outcome: Outcome, error: impl Into<String>) -> Self {
        Self { outcome, error: Some(error.into()), reusable: false }
    }

    pub(super) fn cut() -> Self {
        Self { outcome: Outcome::CutByUs, error: None, reusable: false }
    }
}

/// When something arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    /// Microseconds on the run's clock: the kernel's time, else that of the read.
    pub(super) t_us: u64,
    /// How long it lay in the kernel by then; absent without the kernel's time.
    pub(super) queued_us: Option<u32>,
}

impl Stamp {
    /// When it was read.
    pub(super) fn read_us(&self) -> u64 {
        self.t_us + u64::from(self.queued_us.unwrap_or(0))
    }
}

/// Where an answer leaves what it finds.
pub(super) struct Sink<'a> {
    pub(super) entry: &'a mut RequestRecord,
    pub(super) arrivals: &'a mut Vec<Arrival>,
    pub(super) progress: &'a Progress,
    /// The request's index in its stream.
    pub(super) request: u32,
    /// Output limit that was sent.
    pub(super) max_tokens: u32,
    /// Who keeps the texts, if anybody does.
    pub(super) text: Option<&'a mut TextWriter>,
}

/// An answer as far as it came. Kept for the stream's next one: its buffers are used again.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The head's bytes as long as it isn't whole.
    unread: Vec<u8>,
    head: Option<AnswerHead>,
    /// Of an answer that is none: what it says.
    refusal: Vec<u8>,
    sse: SseParser,
    chunks: ChunkReader,
    /// Tokens told to `progress` so far.
    counted: u32,
    /// Words of an error inside the stream.
    error: Option<String>,
}

impl Answer {
    /// Makes it ready for the next answer.
    pub(super) fn reset(&mut self) {
        self.unread.clear();
        self.head = None;
        self.refusal.clear();
        self.sse.reset();
        self.counted = 0;
        self.error = None;
    }

    /// Takes what a read brought; the end, where it brought that. What comes behind the end makes the connection
    /// useless for another request.
    pub(super) fn feed(&mut self, bytes: &[u8], stamp: Stamp, into: &mut Sink<'_>) -> Option<End> {
        into.entry.first_byte_us.get_or_insert(stamp.t_us);
        if self.head.is_some() {
            return self.body(bytes, stamp, into);
        }
        self.unread.extend_from_slice(bytes);
        match AnswerHead::parse(&self.unread) {
            Err(e) => Some(End::failed(Outcome::Connect, e.to_string())),
            Ok(None) => None,
            Ok(Some((head, length))) => {
                into.entry.http_status = Some(head.status);
                if head.status == 200 && !head.encoding.is_empty() {
                    let encoding = head.encoding.chars().take(40).collect::<String>();
                    let text =
                        format!("the answer is compressed ({encoding}), which was not asked for: switch that off at the server or proxy");
                    return Some(End::failed(Outcome::Truncated, text));
                }
                self.head = Some(head);
                let unread = std::mem::take(&mut self.unread);
                let end = self.body(&unread[length..], stamp, into);
                self.unread = unread;
                end
            }
        }
    }

    fn body(&mut self, mut bytes: &[u8], stamp: Stamp, into: &mut Sink<'_>) -> Option<End> {
        let Self { head: Some(head), refusal, sse, chunks, counted, error, .. } = self else { return None };
        let refused = head.status != 200;
        while !head.framing.is_done() {
            let (used, payload) = match head.framing.take(bytes) {
                Ok(taken) => taken,
                Err(e) => return Some(End::failed(Outcome::Truncated, e.to_string())),
            };
            bytes = &bytes[used..];
            if refused {
                refusal.extend_from_slice(payload);
            } else {
                into.entry.body_bytes += payload.len() as u64;
                let fed = sse.feed(payload, |data| event(data, stamp, chunks, counted, error, into));
                if let Err(e) = fed {
                    return Some(End::failed(Outcome::Truncated, e.to_string()));
                }
            }
            if used == 0 {
                break;
            }
        }
        let done = head.framing.is_done();
        if refused {
            return (done || refusal.len() > ERROR_BODY_BYTES).then(|| self.refused());
        }
        if error.is_some() {
            return Some(self.judge(false, into.entry));
        }
        if into.entry.done && head.framing == Framing::UntilClose {
            // Its connection carries no other request: when it closes, if ever, is nothing to wait for.
            return Some(self.judge(false, into.entry));
        }
        if !done {
            return None;
        }
        sse.finish(|data| event(data, stamp, chunks, counted, error, into));
        let mut end = self.judge(true, into.entry);
        end.reusable &= bytes.is_empty();
        Some(end)
    }

    /// The connection is over: closed by the server, or broken for a reason.
    pub(super) fn closed(&mut self, broken: Option<std::io::Error>, stamp: Stamp, into: &mut Sink<'_>) -> End {
        let Some(head) = &self.head else {
            let reason = broken.map_or(super::endpoint::ConnectionError::ClosedEarly, super::endpoint::ConnectionError::Broken);
            return End::failed(Outcome::Connect, reason.to_string());
        };
        if head.status != 200 {
            return self.refused();
        }
        let complete = head.framing == Framing::UntilClose;
        let Self { sse, chunks, counted, error, .. } = self;
        sse.finish(|data| event(data, stamp, chunks, counted, error, into));
        match broken {
            // After the end mark the tokens are all there; how the connection went does not matter.
            Some(_) if into.entry.done => self.judge(false, into.entry),
            Some(e) => End::failed(Outcome::Truncated, super::endpoint::ConnectionError::Broken(e).to_string()),
            None => self.judge(complete, into.entry),
        }
    }

    /// Nobody waits any longer for the rest of an answer whose end mark, or whose refusal, was seen.
    pub(super) fn given_up(&mut self, entry: &RequestRecord) -> End {
        if self.is_refusal() { self.refused() } else { self.judge(false, entry) }
    }

    /// Whether the server's status says no.
    pub(super) fn is_refusal(&self) -> bool {
        self.head.as_ref().is_some_and(|head| head.status != 200)
    }

    fn refused(&self) -> End {
        let status = self.head.as_ref().map_or(0, |head| head.status);
        let text = String::from_utf8_lossy(&self.refusal);
        let words: Vec<&str> = text.split_whitespace().collect();
        let words = crate::secrets::beginning(&words.join(" "), ERROR_WORDS);
        End::failed(Outcome::Http, format!("HTTP {status}: {words}"))
    }

    /// What an answer with status 200 was worth.
    fn judge(&mut self, complete: bool, entry: &RequestRecord) -> End {
        if let Some(error) = self.error.take() {
            return End::failed(Outcome::InStreamError, error);
        }
        let Some(head) = &self.head else { return End::failed(Outcome::Truncated, "there is no answer") };
        let reason = entry.finish_reason.as_deref();
        if let Some(reason @ ("abort" | "error")) = reason {
            let text = format!("the server ended the request with '{reason}'");
            return End::failed(Outcome::InStreamError, text);
        }
        // Some servers never send the end mark; a whole body with a finish reason is as good.
        let ended_well = entry.done || (complete && reason.is_some());
        let has_token = entry.chunks > 0 || entry.usage_tokens.is_some_and(|n| n > 0);
        let text = match (ended_well, has_token) {
            (true, true) => {
                return End { outcome: Outcome::Finished, error: None, reusable: complete && head.keep_alive };
            }
            (_, false) if entry.bad_events > 0 => {
                format!("nothing in the stream was a chat completion chunk; {} events were no JSON or of another shape", entry.bad_events)
            }
            (true, false) => "the stream ended without a single token".to_owned(),
            (false, _) if complete && !head.content_type.contains("event-stream") => {
                format!("the answer is '{}', not a stream", head.content_type)
            }
            (false, _) if complete => "the stream ended without a finish reason or end mark".into(),
            (false, _) => "the connection closed before the stream ended".into(),
        };
        End::failed(Outcome::Truncated, text)
    }
}

/// One event.
fn event(data: &[u8], stamp: Stamp, chunks: &mut ChunkReader, counted: &mut u32, error: &mut Option<String>, into: &mut Sink<'_>) {
    let Stamp { t_us, queued_us } = stamp;
    let entry = &mut *into.entry;
    if entry.done || error.is_some() {
        return;
    }
    if chunk::is_done(data) {
        entry.done = true;
        entry.ended_us = stamp.read_us();
        return;
    }
    let Ok(chunk) = chunks.read(data) else {
        entry.bad_events += 1;
        return;
    };
    if chunk.is_error {
        entry.first_event_us.get_or_insert(t_us);
        *error = Some(chunk::error_text(data));
        return;
    }
    let output = chunk.kinds.is_output();
    entry.chunks += u32::from(output);
    // Usage may come by itself behind its text, but not ahead of all text.
    let silent = chunk.kinds == Kinds::default() && (chunk.usage.is_none() || entry.first_token_us.is_none());
    entry.silent_events += u32::from(silent);
    let usage = chunk.usage.unwrap_or_default();
    // No server gives more tokens than it was asked for, nor more chunks than tokens by much.
    let most = into.max_tokens.max(entry.chunks).saturating_add(USAGE_SLACK);
    let completion = usage.completion_tokens.filter(|n| *n <= most);
    entry.bad_events += u32::from(completion != usage.completion_tokens);
    entry.prompt_tokens = usage.prompt_tokens.or(entry.prompt_tokens);
    entry.cached_tokens = usage.cached_tokens.or(entry.cached_tokens);
    let known = entry.usage_tokens.unwrap_or(0);
    let grown = completion.is_some_and(|n| n > known);
    if let Some(n) = completion {
        entry.usage_tokens = Some(n.max(known));
        entry.usage_reports += 1;
    }
    let finishes = chunk.kinds.has(Kinds::FINISH);
    if let Some(reason) = chunk.finish_reason {
        entry.finish_reason = Some(reason.into_owned());
    }
    if let Some(text) = into.text.as_deref_mut().filter(|_| output) {
        let whose = Whose { t_us, stream: entry.stream, request: entry.ordinal, tokens: entry.usage_tokens };
        text.keep(whose, chunk.content, chunk.reasoning);
    }
    let first = entry.first_event_us.is_none();
    if first {
        entry.server_id = chunk::id(data);
    }
    if !(output || grown || finishes || first) {
        return;
    }
    let arrival = Arrival::new(t_us, into.request, chunk.kinds, completion, queued_us);
    let gap_us = entry.last_us.filter(|_| output).map(|last| t_us.saturating_sub(last));
    entry.note(&arrival, grown);
    into.arrivals.push(arrival);
    if output || grown {
        let total = entry.usage_tokens.filter(|n| *n > 0).unwrap_or(entry.chunks);
        let more = total.saturating_sub(*counted);
        *counted += more;
        into.progress.output(t_us, u64::from(more), gap_us);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Events without known text after these events.
    fn silent(events: &[&str]) -> u32 {
        let mut entry = RequestRecord::due("x".into(), 0, 0, 0);
        let mut into =
            Sink { entry: &mut entry, arrivals: &mut Vec::new(), progress: &Progress::default(), request: 0, max_tokens: 9, text: None };
        let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let text = format!("HTTP/1.1 200 OK\r\n\r\n{body}");
        assert!(Answer::default().feed(text.as_bytes(), Stamp { t_us: 1, queued_us: None }, &mut into).is_none());
        entry.silent_events
    }

    #[test]
    fn events_that_hold_nothing_known_are_counted() {
        let usage = r#"{"choices":[],"usage":{"completion_tokens":1}}"#;
        let (role, text) = (r#"{"choices":[{"delta":{"role":"a","content":""}}]}"#, r#"{"choices":[{"delta":{"content":"a"}}]}"#);
        let end = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
        assert_eq!(silent(&[role, text, usage, text, end, usage]), 0);
        let thinking = r#"{"choices":[{"delta":{"thinking":"a"}}]}"#;
        assert_eq!(silent(&[role, thinking, thinking, text, thinking, end]), 3);
        let counted = r#"{"choices":[{"delta":{"thinking":"a"}}],"usage":{"completion_tokens":1}}"#;
        assert_eq!(silent(&[role, counted, counted, text]), 2);
    }

    /// What becomes of an answer whose end mark came, and nothing after it.
    fn after_the_mark(headers: &str) -> Option<End> {
        let mut entry = RequestRecord::due("x".into(), 0, 0, 0);
        let mut into =
            Sink { entry: &mut entry, arrivals: &mut Vec::new(), progress: &Progress::default(), request: 0, max_tokens: 9, text: None };
        let text = r#"data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#;
        let body = format!("HTTP/1.1 200 OK\r\n{headers}\r\n{text}\n\ndata: [DONE]\n\n");
        Answer::default().feed(body.as_bytes(), Stamp { t_us: 1, queued_us: None }, &mut into)
    }

    #[test]
    fn a_body_that_ends_with_its_connection_is_over_at_the_end_mark() {
        let end = after_the_mark("").unwrap();
        assert_eq!((end.outcome, end.reusable), (Outcome::Finished, false));
        assert!(after_the_mark("Content-Length: 1000\r\n").is_none(), "the rest of a kept connection is waited for");
    }
}
