//! Reads one answer into a request's record: stamps what arrives, and says how the answer ended.

use std::time::Duration;

use super::body::Framing;
use super::chunk;
use super::connection::{AnswerHead, Connection, ConnectionError};
use super::progress::Progress;
use super::record::{Arrival, Outcome, RequestRecord};
use super::sse::SseParser;
use super::worker::LoadLimits;
use crate::clock::Clock;

/// For the end of a body whose end mark has come: it decides only whether the connection is used again.
const TRAILING: Duration = Duration::from_millis(500);
/// For the words of an error answer.
const ERROR_BODY: Duration = Duration::from_secs(2);
const ERROR_BODY_BYTES: usize = 4 << 10;
const ERROR_WORDS: usize = 200;

/// How one request went.
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

pub(super) struct Reader<'a> {
    pub(super) clock: Clock,
    pub(super) limits: LoadLimits,
    pub(super) progress: &'a Progress,
    pub(super) request_index: u32,
    pub(super) entry: &'a mut RequestRecord,
    pub(super) arrivals: &'a mut Vec<Arrival>,
    pub(super) last_byte_us: u64,
    /// Tokens told to `progress` so far.
    pub(super) counted: u32,
    /// Words of an error inside the stream.
    pub(super) error: Option<String>,
}

impl Reader<'_> {
    pub(super) async fn read(&mut self, connection: &mut Connection) -> End {
        let limit = self.limits.first_token;
        let mut head = match tokio::time::timeout(limit, self.head(connection)).await {
            Err(_) => return self.silent(),
            Ok(Err(e)) => return End::failed(Outcome::Connect, e.to_string()),
            Ok(Ok(head)) => head,
        };
        self.entry.http_status = Some(head.status);
        if head.status != 200 {
            let words = error_words(connection, &mut head.framing).await;
            let text = format!("HTTP {}: {words}", head.status);
            return End::failed(Outcome::Http, text);
        }
        match self.body(connection, &mut head.framing).await {
            Ok(complete) => self.judge(complete, &head),
            Err(end) => end,
        }
    }

    async fn head(&mut self, connection: &mut Connection) -> Result<AnswerHead, ConnectionError> {
        loop {
            if !connection.pending().is_empty() {
                let now_us = self.clock.now_us();
                self.entry.first_byte_us.get_or_insert(now_us);
                self.last_byte_us = now_us;
                if let Some(head) = connection.take_head()? {
                    return Ok(head);
                }
            }
            if connection.fill().await? == 0 {
                return Err(ConnectionError::ClosedEarly);
            }
        }
    }

    /// Reads until the body is over, however that comes about; whether it is complete by its framing.
    async fn body(&mut self, connection: &mut Connection, framing: &mut Framing) -> Result<bool, End> {
        let mut sse = SseParser::new();
        // One timer for the whole answer, moved only when it fires: setting it for every read
        // would cost more than the read.
        let timer = tokio::time::sleep(self.patience());
        tokio::pin!(timer);
        loop {
            self.payload(connection, framing, &mut sse)?;
            if self.error.is_some() {
                return Ok(false);
            }
            if framing.is_done() {
                sse.finish(|data| self.event(data));
                return Ok(true);
            }
            let read = tokio::select! {
                biased;
                read = connection.fill() => read,
                () = &mut timer => {
                    let left = self.patience();
                    if left.is_zero() {
                        return Err(self.silent());
                    }
                    timer.set(tokio::time::sleep(left));
                    continue;
                }
                () = tokio::time::sleep(TRAILING), if self.entry.done => return Ok(false),
            };
            self.last_byte_us = self.clock.now_us();
            match read {
                Ok(0) => {
                    sse.finish(|data| self.event(data));
                    return Ok(*framing == Framing::UntilClose);
                }
                Ok(_) => {}
                // After the end mark the tokens are all there; how the connection went does not matter.
                Err(_) if self.entry.done => return Ok(false),
                Err(e) => {
                    sse.finish(|data| self.event(data));
                    let broken = ConnectionError::Broken(e);
                    return Err(End::failed(Outcome::Truncated, broken.to_string()));
                }
            }
        }
    }

    /// Takes all of the body that is pending.
    fn payload(&mut self, connection: &mut Connection, framing: &mut Framing, sse: &mut SseParser) -> Result<(), End> {
        while !connection.pending().is_empty() && !framing.is_done() {
            let taken = framing.take(connection.pending());
            let (used, payload) = taken.map_err(|e| End::failed(Outcome::Truncated, e.to_string()))?;
            self.entry.body_bytes += payload.len() as u64;
            let fed = sse.feed(payload, |data| self.event(data));
            fed.map_err(|e| End::failed(Outcome::Truncated, e.to_string()))?;
            connection.consume(used);
        }
        Ok(())
    }

    /// One event, at the time of the read that completed it.
    fn event(&mut self, data: &[u8]) {
        let t_us = self.last_byte_us;
        if self.entry.done {
            return;
        }
        if chunk::is_done(data) {
            self.entry.done = true;
            self.entry.ended_us = t_us;
            return;
        }
        let Ok(chunk) = chunk::parse(data) else {
            self.entry.bad_events += 1;
            return;
        };
        let entry = &mut *self.entry;
        entry.first_event_us.get_or_insert(t_us);
        if chunk.is_error {
            self.error = Some(chunk::error_text(data));
            return;
        }
        let usage = chunk.usage.unwrap_or_default();
        entry.prompt_tokens = usage.prompt_tokens.or(entry.prompt_tokens);
        entry.cached_tokens = usage.cached_tokens.or(entry.cached_tokens);
        let known = entry.usage_tokens.unwrap_or(0);
        let grown = usage.completion_tokens.filter(|n| *n > known);
        if usage.completion_tokens.is_some() {
            entry.usage_tokens = Some(grown.unwrap_or(known));
        }
        if let Some(reason) = chunk.finish_reason {
            entry.finish_reason = Some(reason.into_owned());
            entry.first_sign_us.get_or_insert(t_us);
        }
        let output = chunk.kinds.is_output();
        if !output && grown.is_none() {
            return;
        }
        entry.first_sign_us.get_or_insert(t_us);
        let mut gap_us = None;
        if output {
            entry.chunks += 1;
            gap_us = entry.last_us.map(|last| t_us - last);
            match entry.chunks {
                1 => entry.first_token_us = Some(t_us),
                2 => entry.second_us = Some(t_us),
                _ => {}
            }
            entry.last_us = Some(t_us);
        }
        let total = entry.usage_tokens.filter(|n| *n > 0).unwrap_or(entry.chunks);
        let more = total.saturating_sub(self.counted);
        self.counted += more;
        self.progress.output(t_us, u64::from(more), gap_us);
        let arrival = Arrival::new(t_us, self.request_index, chunk.kinds, usage.completion_tokens);
        self.arrivals.push(arrival);
    }

    /// How long we still wait.
    fn patience(&self) -> Duration {
        let until_us = if self.entry.first_token_us.is_some() {
            self.last_byte_us + micros(self.limits.stall)
        } else {
            self.entry.sent_us.unwrap_or(0) + micros(self.limits.first_token)
        };
        Duration::from_micros(until_us.saturating_sub(self.clock.now_us()))
    }

    /// Why nothing came: no answer yet, or an answer that stopped.
    fn silent(&self) -> End {
        if self.entry.first_token_us.is_some() {
            let seconds = self.limits.stall.as_secs_f64();
            let text = format!("the stream fell silent for {seconds} s");
            End::failed(Outcome::Stalled, text)
        } else {
            let seconds = self.limits.first_token.as_secs_f64();
            let text = format!("no token within {seconds} s");
            End::failed(Outcome::Timeout, text)
        }
    }

    /// What an answer with status 200 was worth.
    fn judge(&mut self, complete: bool, head: &AnswerHead) -> End {
        if let Some(error) = self.error.take() {
            return End::failed(Outcome::InStreamError, error);
        }
        let entry = &*self.entry;
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

/// The beginning of an error answer.
async fn error_words(connection: &mut Connection, framing: &mut Framing) -> String {
    let mut body = Vec::new();
    let read = async {
        loop {
            while !connection.pending().is_empty() && !framing.is_done() {
                let Ok((used, payload)) = framing.take(connection.pending()) else {
                    return;
                };
                body.extend_from_slice(payload);
                connection.consume(used);
            }
            let enough = framing.is_done() || body.len() > ERROR_BODY_BYTES;
            if enough || connection.fill().await.unwrap_or(0) == 0 {
                return;
            }
        }
    };
    // What came within the limit is all we say.
    let _ = tokio::time::timeout(ERROR_BODY, read).await;
    let text = String::from_utf8_lossy(&body);
    let words: Vec<&str> = text.split_whitespace().collect();
    crate::secrets::beginning(&words.join(" "), ERROR_WORDS)
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX / 4)
}
