//! Runs the engine against the clock on a thread of its own, and hands the tokens to the sockets
//! itself, so that it knows when each one left. What a slow client doesn't take waits for that
//! client alone. No parsing and no other I/O happens here.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::chunks::Answer;
use super::clock;
use super::engine::{Arrival, Emission, Finish};
use super::fleet::Fleet;
use super::metrics::Snapshot;
use super::tokens::mix;
use super::truth::{Archive, End, Records, RequestTruth};

/// The thread sleeps until this long before something is due and spins for the rest.
const SPIN_NS: u64 = 200_000;
/// How often a socket that took too little is tried again.
const RETRY_NS: u64 = 1_000_000;
/// A record has room for this many chunks from the start, so that it rarely moves while tokens are due.
const RECORD_CHUNKS: usize = 4096;
/// A client that leaves this much unread is given up.
const BACKLOG_BYTES: usize = 64 << 20;

/// What the connections ask of the driver.
#[derive(Debug)]
pub(crate) enum Command {
    Start(Box<Start>),
    Cancel(u64),
    Snapshot(oneshot::Sender<Snapshot>),
    Records(u64, oneshot::Sender<Records>),
    Reset(oneshot::Sender<()>),
    /// End the request of this id, whether its client is there or not.
    Abort(String, oneshot::Sender<()>),
    Stop,
}

/// A request to be answered on a socket.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) id: String,
    pub(crate) stream: bool,
    pub(crate) received_by_kernel: bool,
    /// What the socket didn't take of the headers.
    pub(crate) unsent: Vec<u8>,
    pub(crate) arrival: Arrival,
    pub(crate) answer: Answer,
    pub(crate) socket: Arc<TcpStream>,
    /// Told when the last byte is with the kernel. Dropped when the request fails.
    pub(crate) done: oneshot::Sender<()>,
}

/// Tokens whose bytes end at an offset of the answer.
#[derive(Debug)]
struct Mark {
    end: u64,
    due_ns: u64,
    tokens: u32,
}

#[derive(Debug)]
struct Live {
    answer: Answer,
    socket: Arc<TcpStream>,
    done: oneshot::Sender<()>,
    record: RequestTruth,
    /// Bytes not yet taken by the kernel, from `sent` on.
    out: Vec<u8>,
    sent: usize,
    /// Offset of `out`'s first byte in the answer.
    base: u64,
    marks: VecDeque<Mark>,
    finish: Option<Finish>,
    /// Tokens of an answer in one piece, which are all handed over at its end.
    held_tokens: u32,
    /// It is in the list of those whose socket took too little.
    blocked: bool,
}

/// Our own numbers need no protection against chosen ones.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mix(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = mix(key);
    }
}

impl Live {
    fn is_flushed(&self) -> bool {
        self.sent == self.out.len()
    }

    /// Gives the kernel what it takes now, and notes which tokens left.
    fn flush(&mut self) -> Result<(), End> {
        // Before the call, not after it: the call may wake the client on this very core, and return only when
        // that is done with the token.
        let mut given_ns = clock::now_ns();
        while self.sent < self.out.len() {
            // Not through the runtime, which would have to notice first that there is room again.
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, &self.out[self.sent..], flags) {
                Ok(0) => return Err(End::Disconnect),
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return Err(End::Disconnect),
            }
            if self.sent < self.out.len() {
                given_ns = clock::now_ns();
            }
        }
        let reached = self.base + self.sent as u64;
        while self.marks.front().is_some_and(|mark| mark.end <= reached)
            && let Some(mark) = self.marks.pop_front()
        {
            self.record.handed_ns.push(given_ns);
            self.record.tokens.push(mark.tokens);
            self.record.late_ns.push(given_ns.saturating_sub(mark.due_ns));
        }
        if self.is_flushed() {
            self.base = reached;
            self.out.clear();
            self.sent = 0;
        } else if self.out.len() - self.sent > BACKLOG_BYTES {
            return Err(End::TooSlow);
        }
        Ok(())
    }

    fn emit(&mut self, emission: &Emission) {
        let record = &mut self.record;
        record.cached_tokens = emission.cached_tokens;
        record.prefill_start_ns = Some(emission.prefill_start_ns);
        record.prefill_end_ns = Some(emission.first_ns);
        record.steps += u32::from(emission.due_ns > emission.first_ns);
        record.drafts += u32::from(emission.accepted.is_some());
        record.accepted += emission.accepted.unwrap_or(0);
        self.finish = emission.finish;
        self.answer.emit(emission, &mut self.out);
        self.held_tokens += emission.tokens;
        if self.record.stream || emission.finish.is_some() {
            self.marks.push_back(Mark {
                end: self.base + self.out.len() as u64,
                due_ns: emission.due_ns,
                tokens: std::mem::take(&mut self.held_tokens),
            });
        }
    }
}

/// A request whose client is gone, and which goes on.
#[derive(Debug)]
struct Lingering {
    key: u64,
    id: String,
    until_ns: u64,
}

/// The driver's state.
#[derive(Debug)]
pub(crate) struct Driver {
    engine: Fleet,
    /// How long a request goes on without its client; nothing: to its end.
    abort_lag_ns: Option<u64>,
    lingering: Vec<Lingering>,
    live: HashMap<u64, Live, BuildHasherDefault<KeyHasher>>,
    /// Requests with bytes that a socket didn't take.
    blocked: Vec<u64>,
    /// Whom to tell that their answers are with the kernel, once nothing more is due: it wakes other threads.
    done: Vec<oneshot::Sender<()>>,
    archive: Archive,
}

impl Driver {
    pub(crate) fn new(engine: Fleet, abort_lag_ns: Option<u64>) -> Self {
        Self {
            engine,
            abort_lag_ns,
            lingering: Vec::new(),
            live: HashMap::default(),
            blocked: Vec::new(),
            done: Vec::new(),
            archive: Archive::default(),
        }
    }

    /// Works until told to stop, or until nobody is left who could.
    pub(crate) fn run(mut self, commands: &Receiver<Command>) {
        let mut emissions = Vec::new();
        let mut retry_ns = 0;
        loop {
            let now_ns = clock::now_ns();
            if self.engine.advance(now_ns, &mut emissions) {
                for emission in emissions.drain(..) {
                    self.emit(&emission);
                }
            }
            self.expire(now_ns);
            if !self.blocked.is_empty() && now_ns >= retry_ns {
                self.retry();
                retry_ns = now_ns + RETRY_NS;
            }
            for done in self.done.drain(..) {
                // The connection may have ended at the same time.
                let _ = done.send(());
            }
            let wait = self.wait_ns(retry_ns);
            match commands.recv_timeout(Duration::from_nanos(wait)) {
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(command) => self.obey(command),
                Err(RecvTimeoutError::Timeout) => self.spin(),
            }
        }
    }

    /// How long to sleep at most.
    fn wait_ns(&self, retry_ns: u64) -> u64 {
        let now_ns = clock::now_ns();
        let due = self.engine.next_due().map(|due| due.saturating_sub(now_ns + SPIN_NS));
        let retry = (!self.blocked.is_empty()).then(|| retry_ns.saturating_sub(now_ns));
        // Idle, a command ends the sleep; the limit only keeps the duration sane.
        let lag = self.lingering.iter().map(|lingering| lingering.until_ns.saturating_sub(now_ns)).min();
        due.into_iter().chain(retry).chain(lag).min().unwrap_or(1_000_000_000).min(1_000_000_000)
    }

    /// Waits out the last moment before something is due.
    fn spin(&self) {
        if let Some(due) = self.engine.next_due()
            && due.saturating_sub(clock::now_ns()) <= SPIN_NS
        {
            while clock::now_ns() < due {
                std::hint::spin_loop();
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Start(start) => self.start(*start),
            Command::Cancel(key) => self.end(key, End::Disconnect),
            // Who asked may be gone; then nobody misses the answer.
            Command::Snapshot(reply) => {
                let _ = reply.send(Snapshot { engines: self.engine.told(), occupied: self.engine.occupied() });
            }
            Command::Records(since_ns, reply) => {
                let running = self.live.values().map(|live| &live.record);
                let mut records = self.archive.records(clock::now_ns(), since_ns, running);
                records.history = self.engine.history.truth(since_ns);
                let _ = reply.send(records);
            }
            Command::Reset(reply) => {
                self.archive.clear();
                self.engine.forget(clock::now_ns());
                let _ = reply.send(());
            }
            Command::Abort(id, reply) => {
                self.abort(&id);
                let _ = reply.send(());
            }
            Command::Stop => {}
        }
    }

    fn start(&mut self, start: Start) {
        let Start { id, stream, received_by_kernel, unsent, arrival, answer, socket, done } = start;
        let key = arrival.key;
        let chunks = if stream { (arrival.max_output as usize).min(RECORD_CHUNKS) } else { 1 };
        let mut live = Live {
            record: RequestTruth {
                id,
                received_ns: arrival.received_ns,
                received_by_kernel,
                taken_late_ns: clock::now_ns().saturating_sub(arrival.received_ns + self.engine.overhead_ns()),
                prompt_tokens: arrival.prompt.tokens,
                handed_ns: Vec::with_capacity(chunks),
                tokens: Vec::with_capacity(chunks),
                late_ns: Vec::with_capacity(chunks),
                stream,
                ..RequestTruth::default()
            },
            answer,
            socket,
            done,
            out: unsent,
            sent: 0,
            base: 0,
            marks: VecDeque::new(),
            finish: None,
            held_tokens: 0,
            blocked: false,
        };
        live.record.engine = self.engine.arrive(arrival, clock::now_ns());
        let unsent = !live.out.is_empty();
        self.live.insert(key, live);
        if unsent {
            self.flush(key);
        }
    }

    fn emit(&mut self, emission: &Emission) {
        if let Some(live) = self.live.get_mut(&emission.key) {
            live.emit(emission);
            self.flush(emission.key);
        } else if emission.finish.is_some() {
            self.lingering.retain(|lingering| lingering.key != emission.key);
        }
    }

    fn flush(&mut self, key: u64) {
        let Some(live) = self.live.get_mut(&key) else {
            return;
        };
        match (live.flush(), live.is_flushed(), live.finish) {
            (Err(end), ..) => self.end(key, end),
            (Ok(()), true, Some(Finish::Stop)) => self.end(key, End::Stop),
            (Ok(()), true, Some(Finish::Length)) => self.end(key, End::Length),
            (Ok(()), true, Some(Finish::Abort)) => self.end(key, End::Abort),
            (Ok(()), true, None) => {}
            (Ok(()), false, _) => {
                if !std::mem::replace(&mut live.blocked, true) {
                    self.blocked.push(key);
                }
            }
        }
    }

    fn retry(&mut self) {
        for key in std::mem::take(&mut self.blocked) {
            if let Some(live) = self.live.get_mut(&key) {
                live.blocked = false;
            }
            self.flush(key);
        }
    }

    fn end(&mut self, key: u64, end: End) {
        let Some(mut live) = self.live.remove(&key) else {
            return;
        };
        live.record.end = end;
        let now_ns = clock::now_ns();
        // What the engine is through with can't linger.
        let goes_on = live.finish.is_none();
        let until_ns = self.abort_lag_ns.map_or(u64::MAX, |lag| now_ns.saturating_add(lag));
        match end {
            End::Stop | End::Length | End::Abort => self.done.push(live.done),
            _ if goes_on && until_ns > now_ns => self.lingering.push(Lingering { key, id: live.record.id.clone(), until_ns }),
            _ => self.engine.cancel(key, now_ns),
        }
        self.archive.add(live.record);
    }

    /// Ends what has gone on long enough without its client.
    fn expire(&mut self, now_ns: u64) {
        let engine = &mut self.engine;
        self.lingering.retain(|lingering| {
            let stays = lingering.until_ns > now_ns;
            if !stays {
                engine.cancel(lingering.key, now_ns);
            }
            stays
        });
    }

    fn abort(&mut self, id: &str) {
        if let Some(lingering) = self.lingering.iter_mut().find(|lingering| lingering.id == id) {
            lingering.until_ns = 0;
            return;
        }
        let found = self.live.iter_mut().find(|(_, live)| live.record.id == id && live.finish.is_none());
        let Some((key, live)) = found.map(|(key, live)| (*key, live)) else {
            return;
        };
        live.finish = Some(Finish::Abort);
        live.answer.abort(live.record.cached_tokens, &mut live.out);
        self.engine.cancel(key, clock::now_ns());
        self.flush(key);
    }
}
