//! One stream: sends a request, records what arrives, and sends the next one as soon as it is over,
//! until it is told to stop or something fails. Owns its record until the end; takes no lock.

use std::sync::Arc;
use std::time::Duration;

use super::connection::{Connection, ConnectionError, Endpoint};
use super::progress::Progress;
use super::reader::{End, Reader};
use super::record::{Outcome, RequestRecord, StreamRecord};
use super::request::{PreparedRequest, RequestSource};
use super::stop::Stop;
use crate::clock::Clock;

/// How long a stream waits for what.
#[derive(Clone, Copy, Debug)]
pub struct LoadLimits {
    /// For a connection.
    pub connect: Duration,
    /// From sending to the first output: queueing and prefill may take long.
    pub first_token: Duration,
    /// For anything at all, once output has begun.
    pub stall: Duration,
}

impl Default for LoadLimits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(30), first_token: Duration::from_secs(600), stall: Duration::from_secs(120) }
    }
}

/// All a stream needs.
pub(super) struct Worker {
    pub(super) stream: u32,
    pub(super) clock: Clock,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) source: Arc<dyn RequestSource>,
    pub(super) limits: LoadLimits,
    pub(super) progress: Arc<[Progress]>,
    pub(super) stop: Stop,
    /// Requests to send at most; `None`: until stopped.
    pub(super) max_requests: Option<u32>,
    /// Arrivals to make room for ahead of time.
    pub(super) expected_arrivals: usize,
}

impl Worker {
    /// Opens the connection, reports through `opened` (by dropping it), waits for `start`, runs.
    pub(super) async fn run(mut self, opened: tokio::sync::mpsc::Sender<()>, mut start: Stop) -> StreamRecord {
        let mut record =
            StreamRecord { stream: self.stream, arrivals: Vec::with_capacity(self.expected_arrivals), ..StreamRecord::default() };
        let mut next = self.source.prepare(self.stream, 0);
        let mut connection = self.open(&mut record).await;
        drop(opened);
        let mut stop = self.stop.clone();
        tokio::select! {
            () = start.stopped() => {}
            () = stop.stopped() => return record,
        }
        let mut due_us = self.clock.now_us();
        for ordinal in 0.. {
            if self.stop.is_stopped() {
                break;
            }
            let id = std::mem::take(&mut next.id);
            let request = RequestRecord::due(id, self.stream, ordinal, due_us);
            record.requests.push(request);
            let more = self.max_requests.is_none_or(|max| ordinal + 1 < max);
            let (end, prepared, used) = match connection {
                Err(e) => (End::failed(Outcome::Connect, e), None, None),
                Ok(mut c) => {
                    record.connections_reused += u32::from(c.was_used());
                    let (end, prepared) = self.exchange(&mut c, &next, more, &mut record).await;
                    (end, prepared, Some(c))
                }
            };
            due_us = self.clock.now_us();
            let reusable = end.reusable;
            let outcome = end.outcome;
            if let Some(r) = record.requests.last_mut() {
                // A request that ended by its mark was over then, not when the body was.
                r.ended_us = if r.done { r.ended_us } else { due_us };
                r.outcome = outcome;
                r.error = end.error;
            }
            let progress = self.progress();
            match outcome {
                Outcome::Finished => progress.request_finished(),
                Outcome::CutByUs => break,
                _ => {
                    progress.stream_failed();
                    break;
                }
            }
            let Some(prepared) = prepared else { break };
            next = prepared;
            connection = match used.filter(|_| reusable) {
                Some(c) => match c.if_fresh().await {
                    Some(c) => Ok(c),
                    None => self.open(&mut record).await,
                },
                None => self.open(&mut record).await,
            };
        }
        record
    }

    fn progress(&self) -> &Progress {
        // One is made for every stream.
        &self.progress[self.stream as usize]
    }

    async fn open(&mut self, record: &mut StreamRecord) -> Result<Connection, ConnectionError> {
        let mut stop = self.stop.clone();
        let opened = tokio::select! {
            opened = self.endpoint.connect(self.limits.connect) => opened,
            () = stop.stopped() => Err(ConnectionError::ClosedEarly),
        };
        if let Ok(c) = &opened {
            record.connections_opened += 1;
            record.address = Some(c.address());
        }
        opened
    }

    /// Sends `request` and reads its answer; prepares the next one while waiting for it.
    async fn exchange(
        &mut self,
        connection: &mut Connection,
        request: &PreparedRequest,
        more: bool,
        record: &mut StreamRecord,
    ) -> (End, Option<PreparedRequest>) {
        let index = record.requests.len().saturating_sub(1);
        let StreamRecord { requests, arrivals, .. } = record;
        let Some(entry) = requests.get_mut(index) else {
            return (End::cut(), None);
        };
        let ordinal = entry.ordinal + 1;
        let mut stop = self.stop.clone();
        entry.sent_us = Some(self.clock.now_us());
        let sent = tokio::select! {
            biased;
            () = stop.stopped() => return (End::cut(), None),
            sent = tokio::time::timeout(self.limits.first_token, connection.send(request)) => sent,
        };
        match sent {
            Err(_) => {
                let text = "the server did not take the request in time";
                return (End::failed(Outcome::Timeout, text), None);
            }
            // It may have answered before it read all: that answer says more than a broken pipe.
            Ok(Err(e)) if connection.fill().await.unwrap_or(0) == 0 => {
                return (End::failed(Outcome::Connect, ConnectionError::Broken(e)), None);
            }
            Ok(_) => entry.written_us = Some(self.clock.now_us()),
        }
        let prepared = more.then(|| self.source.prepare(self.stream, ordinal));
        let mut reader = Reader {
            clock: self.clock,
            limits: self.limits,
            progress: self.progress(),
            request_index: u32::try_from(index).unwrap_or(u32::MAX),
            entry,
            arrivals,
            last_byte_us: 0,
            counted: 0,
            error: None,
        };
        let end = tokio::select! {
            biased;
            () = stop.stopped() => End::cut(),
            end = reader.read(connection) => end,
        };
        (end, prepared)
    }
}
