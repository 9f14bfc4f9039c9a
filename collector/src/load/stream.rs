//! One stream: sends a request, records what arrives, and sends the next one as soon as it is over, until it is told
//! to stop or something fails. It never waits: the load thread tells it when its socket is ready.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll;

use super::answer::{Answer, End, Sink, Stamp};
use super::endpoint::{ConnectionError, Endpoint};
use super::pace::Work;
use super::progress::Progress;
use super::record::{Outcome, RequestRecord, StreamRecord};
use super::request::{PreparedRequest, RequestSource};
use super::socket::Socket;
use super::text::TextWriter;
use crate::clock::Clock;
use crate::kernel_time::{RealClock, Received};

/// For the end of a body whose end mark has come: it decides only whether the connection is used again.
const TRAILING_US: u64 = 500_000;
/// For the words of an error answer.
const REFUSAL_US: u64 = 2_000_000;
/// One read takes at most this much.
const READ_BUFFER: usize = 128 << 10;
/// Full reads of one stream before it is another one's turn.
const READS_A_TURN: usize = 8;
/// A stamp this far ahead of its read is none.
const STAMP_NOISE_US: u64 = 1_000;

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

/// What the streams of a load thread share.
pub(super) struct Context<'a> {
    pub(super) clock: Clock,
    pub(super) endpoint: &'a Endpoint,
    pub(super) source: &'a dyn RequestSource,
    pub(super) limits: LoadLimits,
    /// Of all streams, by their number.
    pub(super) progress: &'a [Progress],
    /// What makes the next request due.
    pub(super) work: &'a Work,
    /// Output limit of a request.
    pub(super) max_tokens: u32,
    pub(super) epoll: OwnedFd,
    pub(super) real: RealClock,
    pub(super) buffer: Box<[u8]>,
    /// Who keeps the texts, if anybody does.
    pub(super) text: Option<TextWriter>,
    /// Reads that brought bytes, and those of them that the kernel had stamped.
    pub(super) reads: u64,
    pub(super) stamped: u64,
    /// Why not all of them.
    pub(super) unstamped: Option<String>,
    /// Streams that are over.
    pub(super) ended: usize,
    /// Places of streams whose next request is due, whose next request can be prepared, that have more to read.
    pub(super) to_send: Vec<usize>,
    pub(super) to_prepare: Vec<usize>,
    pub(super) to_read: Vec<usize>,
    /// Places of streams that wait for a request of the schedule; the last one was busy most lately.
    pub(super) free: Vec<usize>,
    /// Whether one was added.
    pub(super) freed: bool,
}

impl Context<'_> {
    pub(super) fn read_buffer() -> Box<[u8]> {
        vec![0; READ_BUFFER].into_boxed_slice()
    }

    /// When a read's bytes arrived; not before `floor_us`, which is known to be earlier.
    fn stamp(&mut self, received: Received, floor_us: u64) -> Stamp {
        let read_us = self.clock.now_us();
        self.reads += 1;
        let ns = received.real_ns.and_then(|ns| self.real.monotonic_ns(ns));
        let t_us = ns.and_then(|ns| u64::try_from(self.clock.us_of_monotonic_ns(ns)).ok());
        let Some(t_us) = t_us.filter(|t| *t <= read_us + STAMP_NOISE_US) else {
            return Stamp { t_us: read_us, queued_us: None };
        };
        self.stamped += 1;
        // The pairing of the clocks is exact to a microsecond or so.
        let t_us = t_us.max(floor_us).min(read_us);
        Stamp { t_us, queued_us: Some(u32::try_from(read_us - t_us).unwrap_or(u32::MAX - 1)) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was begun.
    New,
    /// On the way to a connection.
    Connecting,
    /// Between two requests.
    Open,
    /// A part of the request is still to be written.
    Sending,
    /// The answer is to come.
    Reading,
    /// For good.
    Over,
}

/// A stream.
pub(super) struct Stream {
    /// Place among the thread's streams.
    place: usize,
    phase: Phase,
    socket: Option<Socket>,
    /// Why there is no connection.
    unopened: Option<String>,
    /// A request is due that waits for the connection.
    waiting: bool,
    request: Option<PreparedRequest>,
    next: Option<PreparedRequest>,
    /// Bytes of the request that were written.
    written: usize,
    reused: bool,
    retried: bool,
    answer: Answer,
    pub(super) record: StreamRecord,
    /// When the connection was begun, or the last byte came.
    since_us: u64,
}

impl Stream {
    /// A stream at `place` of its thread, with its first request prepared and room for its arrivals.
    pub(super) fn new(place: usize, stream: u32, expected_arrivals: usize, context: &Context<'_>) -> Self {
        Self {
            place,
            phase: Phase::New,
            socket: None,
            unopened: None,
            waiting: false,
            request: None,
            next: context.work.cursor().is_none().then(|| context.source.prepare(stream, 0)),
            written: 0,
            reused: false,
            retried: false,
            answer: Answer::default(),
            record: StreamRecord { stream, arrivals: Vec::with_capacity(expected_arrivals), ..StreamRecord::default() },
            since_us: 0,
        }
    }

    pub(super) fn is_new(&self) -> bool {
        self.phase == Phase::New
    }

    pub(super) fn is_connecting(&self) -> bool {
        self.phase == Phase::Connecting
    }

    /// Begins to connect.
    pub(super) fn open(&mut self, context: &mut Context<'_>) {
        self.since_us = context.clock.now_us();
        self.phase = Phase::Connecting;
        let opened = Socket::open(context.endpoint).and_then(|socket| {
            let interest = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
            epoll::add(&context.epoll, &socket, epoll::EventData::new_u64(self.place as u64), interest).map_err(io::Error::from)?;
            Ok(socket)
        });
        match opened {
            Ok(socket) => self.socket = Some(socket),
            Err(e) => self.not_opened(&e, context),
        }
    }

    fn not_opened(&mut self, error: &ConnectionError, context: &mut Context<'_>) {
        self.socket = None;
        self.phase = Phase::Open;
        if self.waiting {
            self.waiting = false;
            self.finish(End::failed(Outcome::Connect, error.to_string()), context);
        } else {
            self.unopened = Some(error.to_string());
        }
    }

    /// The socket can be read or written. `hangup`: or is over.
    pub(super) fn ready(&mut self, hangup: bool, context: &mut Context<'_>) {
        match self.phase {
            Phase::Connecting => self.advance(context),
            Phase::Sending => {
                self.read(hangup, context);
                if self.phase == Phase::Sending {
                    self.write(context);
                }
            }
            Phase::Reading => self.read(hangup, context),
            // What comes between two requests is seen when the next one is sent.
            Phase::New | Phase::Open | Phase::Over => {}
        }
    }

    fn advance(&mut self, context: &mut Context<'_>) {
        let Some(socket) = &mut self.socket else { return };
        match socket.advance() {
            Ok(false) => {}
            Err(e) => self.not_opened(&e, context),
            Ok(true) => {
                self.record.connections_opened += 1;
                self.record.address = Some(socket.address());
                if context.unstamped.is_none() {
                    context.unstamped.clone_from(&socket.unstamped);
                }
                self.phase = Phase::Open;
                if std::mem::take(&mut self.waiting) {
                    if let Some(request) = self.record.requests.last_mut() {
                        request.connected_us = Some(context.clock.now_us());
                    }
                    self.start(context);
                }
            }
        }
    }

    /// Sends the next request, which was due at `due_us`.
    pub(super) fn begin(&mut self, due_us: u64, context: &mut Context<'_>) {
        let ordinal = u32::try_from(self.record.requests.len()).unwrap_or(u32::MAX);
        let request = self.next.take().unwrap_or_else(|| context.source.prepare(self.record.stream, ordinal));
        self.send(request, due_us, context);
    }

    /// Sends this request, which was due at `due_us`.
    pub(super) fn send(&mut self, mut request: PreparedRequest, due_us: u64, context: &mut Context<'_>) {
        let stream = self.record.stream;
        let ordinal = u32::try_from(self.record.requests.len()).unwrap_or(u32::MAX);
        let id = std::mem::take(&mut request.id);
        if let Some(taken) = &mut request.taken {
            taken.is_sent();
        }
        self.record.requests.push(RequestRecord::due(id, stream, ordinal, due_us));
        self.request = Some(request);
        self.retried = false;
        if let Some(words) = self.unopened.take() {
            return self.finish(End::failed(Outcome::Connect, words), context);
        }
        if self.phase == Phase::Open && self.socket.as_mut().is_some_and(Socket::is_quiet) {
            self.start(context);
        } else {
            self.reopen(context);
        }
    }

    fn reopen(&mut self, context: &mut Context<'_>) {
        self.socket = None;
        self.waiting = true;
        self.open(context);
    }

    /// Starts the request on the open connection.
    fn start(&mut self, context: &mut Context<'_>) {
        let (Some(socket), Some(request)) = (&self.socket, self.record.requests.last_mut()) else { return };
        self.reused = socket.used;
        self.record.connections_reused += u32::from(self.reused);
        self.answer.reset();
        self.written = 0;
        self.phase = Phase::Sending;
        self.since_us = context.clock.now_us();
        request.sent_us = Some(self.since_us);
        self.write(context);
    }

    fn write(&mut self, context: &mut Context<'_>) {
        let (Some(socket), Some(request)) = (&mut self.socket, &self.request) else { return };
        match socket.write(request, &mut self.written) {
            Ok(false) => {}
            Ok(true) => {
                self.phase = Phase::Reading;
                if let Some(request) = self.record.requests.last_mut() {
                    request.written_us = Some(context.clock.now_us());
                    if context.work.may_go_on(request.ordinal) {
                        context.to_prepare.push(self.place);
                    }
                }
            }
            Err(e) => {
                // It may have answered before it read all: that answer says more than a broken pipe.
                self.read(true, context);
                if self.phase == Phase::Sending {
                    self.closed(Some(e), context);
                }
            }
        }
    }

    /// Prepares the next request while the answer is on its way.
    pub(super) fn prepare(&mut self, context: &Context<'_>) {
        if self.next.is_none() && self.phase != Phase::Over {
            let ordinal = u32::try_from(self.record.requests.len()).unwrap_or(u32::MAX);
            self.next = Some(context.source.prepare(self.record.stream, ordinal));
        }
    }

    /// Reads what is there.
    pub(super) fn read(&mut self, hangup: bool, context: &mut Context<'_>) {
        for _ in 0..READS_A_TURN {
            let (Some(socket), Some(request)) = (&mut self.socket, self.record.requests.last_mut()) else { return };
            let received = match socket.read(&mut context.buffer) {
                Ok(received) if received.bytes == 0 => return self.closed(None, context),
                Ok(received) => received,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return self.closed(Some(e), context),
            };
            let all = received.bytes < context.buffer.len() && socket.short_read_is_all() && !hangup;
            let floor_us = self.record.arrivals.last().map_or(0, |a| a.t_us).max(request.sent_us.unwrap_or(0));
            let stamp = context.stamp(received, floor_us);
            self.since_us = stamp.read_us();
            let mut into = Sink {
                request: request.ordinal,
                entry: request,
                arrivals: &mut self.record.arrivals,
                progress: &context.progress[self.record.stream as usize],
                max_tokens: context.max_tokens,
                text: context.text.as_mut(),
            };
            let end = self.answer.feed(&context.buffer[..received.bytes], stamp, &mut into);
            let chunks = request.chunks;
            if let Some(end) = end.or_else(|| context.work.too_long(chunks, context.max_tokens)) {
                return self.finish(end, context);
            }
            if all {
                return;
            }
        }
        context.to_read.push(self.place);
    }

    /// The connection is over.
    fn closed(&mut self, broken: Option<io::Error>, context: &mut Context<'_>) {
        let Some(request) = self.record.requests.last_mut() else { return };
        if self.reused && !self.retried && request.first_byte_us.is_none() {
            // The server had closed the kept connection as we sent: nothing was answered, and nothing measured.
            // Counted, so that it isn't hidden.
            self.retried = true;
            self.record.connections_stale += 1;
            return self.reopen(context);
        }
        let stamp = Stamp { t_us: context.clock.now_us(), queued_us: None };
        let mut into = Sink {
            request: request.ordinal,
            entry: request,
            arrivals: &mut self.record.arrivals,
            progress: &context.progress[self.record.stream as usize],
            max_tokens: context.max_tokens,
            text: context.text.as_mut(),
        };
        let mut end = self.answer.closed(broken, stamp, &mut into);
        end.reusable = false;
        self.finish(end, context);
    }

    /// The request is over.
    fn finish(&mut self, end: End, context: &mut Context<'_>) {
        let Some(request) = self.record.requests.last_mut() else { return };
        // A request that ended by its mark was over then, not when the body was.
        if !request.done {
            request.ended_us = context.clock.now_us();
        }
        request.outcome = end.outcome;
        request.error = end.error;
        let more = context.work.may_go_on(request.ordinal);
        let progress = &context.progress[self.record.stream as usize];
        match end.outcome {
            Outcome::Finished => progress.request_finished(),
            Outcome::CutByUs => {}
            _ => progress.stream_failed(),
        }
        if !end.reusable {
            self.socket = None;
        }
        let survives = context.work.survives(end.outcome);
        if survives && context.work.cursor().is_some() {
            self.phase = Phase::Open;
            context.free.push(self.place);
            context.freed = true;
        } else if survives && more {
            self.phase = Phase::Open;
            context.to_send.push(self.place);
        } else {
            self.end(context);
        }
    }

    /// It sends nothing more.
    pub(super) fn end(&mut self, context: &mut Context<'_>) {
        context.ended += usize::from(self.phase != Phase::Over);
        self.phase = Phase::Over;
        self.socket = None;
    }

    /// When the last request was over, which is when the next one is due.
    pub(super) fn ended_us(&self) -> u64 {
        self.record.requests.last().map_or(0, |request| request.ended_us)
    }

    /// Ends it, whatever it does.
    pub(super) fn cut(&mut self, context: &mut Context<'_>) {
        let in_flight = self.waiting || matches!(self.phase, Phase::Sending | Phase::Reading);
        if in_flight {
            self.finish(End::cut(), context);
        }
        self.end(context);
    }

    /// Looks whether it has waited too long for something.
    pub(super) fn check(&mut self, now_us: u64, context: &mut Context<'_>) {
        let limits = context.limits;
        let waited =
            |limit: Duration, since_us: u64| now_us.saturating_sub(since_us) > u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        if self.phase == Phase::Connecting {
            if waited(limits.connect, self.since_us) {
                let address = context.endpoint.address().to_string();
                let reason = format!("no answer within {} s", limits.connect.as_secs_f64());
                self.not_opened(&ConnectionError::Connect { address, reason }, context);
            }
            return;
        }
        if !matches!(self.phase, Phase::Sending | Phase::Reading) {
            return;
        }
        let Some(request) = self.record.requests.last() else { return };
        let sent_us = request.sent_us.unwrap_or(now_us);
        let trailing = if self.answer.is_refusal() { REFUSAL_US } else { TRAILING_US };
        let end = if self.phase == Phase::Sending {
            let text = "the server did not take the request in time";
            waited(limits.first_token, sent_us).then(|| End::failed(Outcome::Timeout, text))
        } else if request.done || self.answer.is_refusal() {
            waited(Duration::from_micros(trailing), self.since_us).then(|| self.answer.given_up(request))
        } else if let Some(last_us) = request.last_us {
            let text = |what: &str, limit: Duration| format!("the stream {what} for {} s", limit.as_secs_f64());
            let silent = waited(limits.stall, self.since_us).then(|| text("fell silent", limits.stall));
            // It may say that it is alive for ever.
            let alive = limits.first_token + limits.stall;
            let idle = || waited(alive, last_us).then(|| text("brought no token", alive));
            silent.or_else(idle).map(|text| End::failed(Outcome::Stalled, text))
        } else {
            let text = || format!("no token within {} s", limits.first_token.as_secs_f64());
            waited(limits.first_token, sent_us).then(|| End::failed(Outcome::Timeout, text()))
        };
        if let Some(mut end) = end {
            end.reusable = false;
            self.finish(end, context);
        }
    }
}
