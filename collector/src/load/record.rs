//! What one stream leaves behind: its requests, each arrival and how each request ended.
//! Plain data; everything that is computed from it lives in `tokens` and in the report.

use std::net::SocketAddr;

/// What an arriving event carried. A set, because one event may carry several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// A role and nothing else that counts.
    pub const ROLE: Self = Self(1);
    /// Non-empty `content`.
    pub const CONTENT: Self = Self(2);
    /// Non-empty `reasoning`, `reasoning_content` or `reasoning_text`.
    pub const REASONING: Self = Self(4);
    /// A tool or function call.
    pub const TOOL: Self = Self(8);
    /// A finish reason.
    pub const FINISH: Self = Self(16);

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is in here.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the event carried text, reasoning or a tool call: what the model produced.
    #[must_use]
    pub const fn is_output(self) -> bool {
        self.0 & (Self::CONTENT.0 | Self::REASONING.0 | Self::TOOL.0) != 0
    }
}

/// One event of a stream that carried output or usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the read that completed the event returned; microseconds on the run's clock.
    pub t_us: u64,
    /// Index into [`StreamRecord::requests`].
    pub request: u32,
    /// `u32::MAX`: no usage in this event. Read it through [`Arrival::usage`].
    usage: u32,
    /// What it carried.
    pub kinds: Kinds,
}

impl Arrival {
    /// An arrival; `usage` is the request's completion tokens so far, where the event said so.
    #[must_use]
    pub fn new(t_us: u64, request: u32, kinds: Kinds, usage: Option<u32>) -> Self {
        let usage = usage.unwrap_or(u32::MAX);
        Self { t_us, request, usage, kinds }
    }

    /// The request's completion tokens so far, where the event said so.
    #[must_use]
    pub fn usage(&self) -> Option<u32> {
        (self.usage != u32::MAX).then_some(self.usage)
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// `[DONE]`, or a whole body with a finish reason, after at least one token.
    Finished,
    /// We closed it: the cell was over.
    CutByUs,
    /// The stream ended before its time.
    Truncated,
    /// An error object inside a 200 stream.
    InStreamError,
    /// The server answered with another status than 200.
    Http,
    /// No connection, or it broke before the answer began.
    Connect,
    /// No answer within the limit.
    Timeout,
    /// The answer began, then nothing came for too long.
    Stalled,
}

impl Outcome {
    /// The class as the report writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::CutByUs => "cut-by-us",
            Self::Truncated => "truncated",
            Self::InStreamError => "in-stream-error",
            Self::Http => "http",
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Stalled => "stalled",
        }
    }

    /// Whether the server or the way to it failed.
    #[must_use]
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Finished | Self::CutByUs)
    }
}

/// One request of a stream. All times are microseconds on the run's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRecord {
    /// The `x-request-id` sent: `<run>-<cell>-<stream>-<n>`.
    pub id: String,
    /// The stream, from 0.
    pub stream: u32,
    /// The request's number in its stream, from 0.
    pub ordinal: u32,
    /// When it should have been sent: the start of the cell's streams, or the end of the request before.
    pub due_us: u64,
    /// Just before its first byte was written, on an open connection.
    pub sent_us: Option<u64>,
    /// When its last byte had been handed to the kernel.
    pub written_us: Option<u64>,
    /// The first byte of the answer.
    pub first_byte_us: Option<u64>,
    /// The first event of any kind, role-only ones included.
    pub first_event_us: Option<u64>,
    /// The first event that says a token exists, if only by usage or a finish reason.
    pub first_sign_us: Option<u64>,
    /// The first text, reasoning or tool-call delta.
    pub first_token_us: Option<u64>,
    /// The second such delta: a chunk, not a token.
    pub second_us: Option<u64>,
    /// The last such delta.
    pub last_us: Option<u64>,
    /// When it was over, however it ended.
    pub ended_us: u64,
    /// Events with text, reasoning or a tool call.
    pub chunks: u32,
    /// The last `completion_tokens` seen; absent if the server never said.
    pub usage_tokens: Option<u32>,
    /// `prompt_tokens` as the server counted them.
    pub prompt_tokens: Option<u32>,
    /// Those of them from the prefix cache, if it says so.
    pub cached_tokens: Option<u32>,
    /// The finish reason, e.g. `length`.
    pub finish_reason: Option<String>,
    /// Whether `[DONE]` was seen.
    pub done: bool,
    /// Status of the answer.
    pub http_status: Option<u16>,
    /// Events that could not be read and were passed over.
    pub bad_events: u32,
    /// Bytes of the answer's body.
    pub body_bytes: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// What went wrong, in a sentence.
    pub error: Option<String>,
}

impl RequestRecord {
    /// A request that is due and of which nothing else is known yet.
    #[must_use]
    pub fn due(id: String, stream: u32, ordinal: u32, due_us: u64) -> Self {
        Self {
            id,
            stream,
            ordinal,
            due_us,
            sent_us: None,
            written_us: None,
            first_byte_us: None,
            first_event_us: None,
            first_sign_us: None,
            first_token_us: None,
            second_us: None,
            last_us: None,
            ended_us: due_us,
            chunks: 0,
            usage_tokens: None,
            prompt_tokens: None,
            cached_tokens: None,
            finish_reason: None,
            done: false,
            http_status: None,
            bad_events: 0,
            body_bytes: 0,
            outcome: Outcome::CutByUs,
            error: None,
        }
    }

    /// Time to first token, microseconds: first text, reasoning or tool delta after sending.
    #[must_use]
    pub fn ttft_us(&self) -> Option<u64> {
        self.first_token_us?.checked_sub(self.sent_us?)
    }

    /// Time from sending to the last delta, microseconds; only of finished requests.
    #[must_use]
    pub fn latency_us(&self) -> Option<u64> {
        if self.outcome != Outcome::Finished {
            return None;
        }
        self.last_us?.checked_sub(self.sent_us?)
    }

    /// Whole-request output tokens: the usage, else the chunks.
    #[must_use]
    pub fn output_tokens(&self) -> u32 {
        self.usage_tokens.unwrap_or(self.chunks)
    }
}

/// All that one stream left behind.
#[derive(Clone, Debug, Default)]
pub struct StreamRecord {
    /// The stream, from 0.
    pub stream: u32,
    /// Its requests in order.
    pub requests: Vec<RequestRecord>,
    /// Its arrivals in order of time, over all requests.
    pub arrivals: Vec<Arrival>,
    /// Connections it opened; 1 if the server kept the first one open.
    pub connections_opened: u32,
    /// Requests sent on a connection that had carried one before.
    pub connections_reused: u32,
    /// Where the connection went.
    pub address: Option<SocketAddr>,
}

impl StreamRecord {
    /// Why the stream failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<&RequestRecord> {
        self.requests.iter().rfind(|r| r.outcome.is_failure())
    }

    /// The arrivals of one request, in order.
    pub fn arrivals_of(&self, request: usize) -> impl Iterator<Item = &Arrival> {
        self.arrivals.iter().filter(move |a| a.request as usize == request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_or_a_finish_reason_is_no_output() {
        assert!(!Kinds::ROLE.with(Kinds::FINISH).is_output());
        assert!(Kinds::TOOL.with(Kinds::FINISH).is_output());
        assert!(Kinds::REASONING.is_output());
    }

    #[test]
    fn absent_usage_is_not_zero_usage() {
        let arrival = |u| Arrival::new(1, 0, Kinds::CONTENT, u).usage();
        assert_eq!(arrival(None), None);
        assert_eq!(arrival(Some(0)), Some(0));
    }

    #[test]
    fn a_request_without_first_token_has_no_ttft_and_an_unfinished_one_no_latency() {
        let mut r = RequestRecord::due("x".into(), 0, 0, 5);
        r.sent_us = Some(10);
        assert_eq!(r.ttft_us(), None);
        r.first_token_us = Some(25);
        r.last_us = Some(40);
        assert_eq!(r.ttft_us(), Some(15));
        assert_eq!(r.latency_us(), None);
        r.outcome = Outcome::Finished;
        assert_eq!(r.latency_us(), Some(30));
    }
}
