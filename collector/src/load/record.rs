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

/// One event of a stream that said something: the first of a request, and all with output, more usage or a finish
/// reason. 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the last byte of the read that completed the event arrived, by the kernel's stamp; where there is
    /// none, when that read returned. Microseconds on the run's clock.
    pub t_us: u64,
    /// Index into [`StreamRecord::requests`].
    pub request: u32,
    /// `u32::MAX`: no usage in this event. Read it through [`Arrival::usage`].
    usage: u32,
    /// `u32::MAX`: no stamp of the kernel's. Read it through [`Arrival::queued_us`].
    queued_us: u32,
    /// What it carried.
    pub kinds: Kinds,
}

impl Arrival {
    /// An arrival; `usage` is the request's completion tokens so far, where the event said so.
    #[must_use]
    pub fn new(t_us: u64, request: u32, kinds: Kinds, usage: Option<u32>, queued_us: Option<u32>) -> Self {
        let (usage, queued_us) = (usage.unwrap_or(u32::MAX), queued_us.unwrap_or(u32::MAX));
        Self { t_us, request, usage, queued_us, kinds }
    }

    /// How long the bytes lay in the kernel before they were read, microseconds; absent without its stamp.
    #[must_use]
    pub fn queued_us(&self) -> Option<u32> {
        (self.queued_us != u32::MAX).then_some(self.queued_us)
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
    /// The server's own id of the answer, as its first event has it.
    pub server_id: Option<String>,
    /// The stream, from 0.
    pub stream: u32,
    /// The request's number in its stream, from 0.
    pub ordinal: u32,
    /// When it should have been sent: the start of the cell's streams, or the end of the request before.
    pub due_us: u64,
    /// When a connection was open for it; absent where that was so before it was due.
    pub connected_us: Option<u64>,
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
    /// How often the server said.
    pub usage_reports: u32,
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
    /// Events without role, text, end or usage that is of any use: what they carry has a name we don't know, or is nothing.
    pub silent_events: u32,
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
            server_id: None,
            stream,
            ordinal,
            due_us,
            connected_us: None,
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
            usage_reports: 0,
            prompt_tokens: None,
            cached_tokens: None,
            finish_reason: None,
            done: false,
            http_status: None,
            bad_events: 0,
            silent_events: 0,
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
        self.usage_tokens.filter(|_| self.counted_by_usage()).unwrap_or(self.chunks)
    }

    /// Whether the output tokens are the server's usage, and not the chunks.
    #[must_use]
    pub fn counted_by_usage(&self) -> bool {
        self.usage_tokens.is_some_and(|usage| is_a_count(usage, self.usage_reports, self.chunks))
    }

    /// How it failed, in the predecessor's way: the class and the words.
    #[must_use]
    pub fn failure_text(&self) -> String {
        format!("{}: {}", self.outcome.as_str(), self.error.as_deref().unwrap_or("no reason known"))
    }

    /// Takes an arrival of this request into its times. `grown`: its usage is more than any before.
    pub(super) fn note(&mut self, arrival: &Arrival, grown: bool) {
        let (t_us, kinds) = (arrival.t_us, arrival.kinds);
        self.first_event_us.get_or_insert(t_us);
        if kinds.is_output() || kinds.has(Kinds::FINISH) || grown {
            self.first_sign_us.get_or_insert(t_us);
        }
        if kinds.is_output() {
            match self.first_token_us {
                None => self.first_token_us = Some(t_us),
                Some(_) => {
                    self.second_us.get_or_insert(t_us);
                }
            }
            self.last_us = Some(t_us);
        }
    }
}

/// Whether a usage can be the number of a request's tokens so far, told `reports` times. Some servers tell in each
/// chunk what is in it: then it falls ever further behind the chunks. A chunk holds a token at least, but for halves
/// of characters. None at all for text that came is no count either.
pub(super) fn is_a_count(usage: u32, reports: u32, chunks: u32) -> bool {
    let none_for_text = usage == 0 && chunks > 0;
    !none_for_text && (reports.saturating_mul(2) <= chunks || usage.saturating_mul(8) >= chunks)
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
    /// Kept connections that the server had closed as the next request was sent, which then went
    /// out on a new one.
    pub connections_stale: u32,
    /// Where the connection went.
    pub address: Option<SocketAddr>,
}

impl StreamRecord {
    /// Why the stream failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<&RequestRecord> {
        self.requests.iter().rfind(|r| r.outcome.is_failure())
    }

    /// Takes the kernel's stamps back: all times become those of the reads.
    pub(super) fn use_read_times(&mut self) {
        for arrival in &mut self.arrivals {
            arrival.t_us += u64::from(arrival.queued_us().unwrap_or(0));
            arrival.queued_us = u32::MAX;
        }
        for request in &mut self.requests {
            request.first_event_us = None;
            request.first_sign_us = None;
            request.first_token_us = None;
            request.second_us = None;
            request.last_us = None;
        }
        let mut known = (u32::MAX, 0);
        for arrival in &self.arrivals {
            let Some(request) = self.requests.get_mut(arrival.request as usize) else { continue };
            if known.0 != arrival.request {
                known = (arrival.request, 0);
                // Of the head alone no time of reading was kept; it came with the first event, or before.
                request.first_byte_us = Some(arrival.t_us);
            }
            let grown = arrival.usage().is_some_and(|usage| usage > known.1);
            known.1 = known.1.max(arrival.usage().unwrap_or(0));
            request.note(arrival, grown);
        }
    }

    /// The arrivals of one request, in order.
    #[must_use]
    pub fn arrivals_of(&self, request: u32) -> &[Arrival] {
        let from = self.arrivals.partition_point(|a| a.request < request);
        let to = self.arrivals.partition_point(|a| a.request <= request);
        self.arrivals.get(from..to).unwrap_or_default()
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
        let arrival = |u| Arrival::new(1, 0, Kinds::CONTENT, u, None).usage();
        assert_eq!(arrival(None), None);
        assert_eq!(arrival(Some(0)), Some(0));
    }

    #[test]
    fn stamps_that_are_taken_back_leave_the_times_of_the_reads() {
        let arrival = |t, kinds, usage, queued| Arrival::new(t, 0, kinds, usage, Some(queued));
        let arrivals = [
            arrival(10, Kinds::ROLE, Some(0), 5),
            arrival(20, Kinds::CONTENT, Some(1), 7),
            arrival(30, Kinds::CONTENT, Some(2), 1),
            arrival(40, Kinds::FINISH, Some(2), 2),
        ];
        let mut request = RequestRecord::due("x".into(), 0, 0, 5);
        arrivals.iter().for_each(|a| request.note(a, false));
        let mut stream = StreamRecord { requests: vec![request], arrivals: arrivals.to_vec(), ..StreamRecord::default() };
        stream.use_read_times();
        let r = &stream.requests[0];
        assert_eq!((r.first_event_us, r.first_sign_us, r.first_token_us), (Some(15), Some(27), Some(27)));
        assert_eq!((r.second_us, r.last_us), (Some(31), Some(31)));
        assert!(stream.arrivals.iter().all(|a| a.queued_us().is_none()));
        assert_eq!(size_of::<Arrival>(), 24);
    }

    #[test]
    fn a_usage_far_behind_the_chunks_is_no_count() {
        let mut r = RequestRecord::due("x".into(), 0, 0, 5);
        for (chunks, usage, reports, tokens) in [(100, 1, 100, 100), (100, 98, 100, 98), (100, 1, 1, 1), (0, 7, 3, 7)] {
            (r.chunks, r.usage_tokens, r.usage_reports) = (chunks, Some(usage), reports);
            assert_eq!(r.output_tokens(), tokens);
        }
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
