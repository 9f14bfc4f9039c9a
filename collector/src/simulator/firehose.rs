//! The firehose: answers that are due at once, built ahead, and written as fast as the sockets take them. It is
//! for measuring clients, and stands in the place of the engine and its clock. It keeps no timing.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::chunks::Answer;
use super::clock;
use super::counters::{Counters, Gauges};
use super::driver::{Command, Start};
use super::engine::{Emission, Finish};
use super::metrics::Snapshot;
use super::truth::{Archive, End, RequestTruth};

/// How the firehose writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Firehose {
    /// Up to 64 kB a write, so many events at once.
    Blocks,
    /// One event a write.
    Events,
}

/// Most bytes of a write.
const BLOCK_BYTES: usize = 64 << 10;
/// Prebuilt answers that are kept; each takes about 350 bytes a token.
const KEPT_BODIES: usize = 4;
/// With all sockets full, commands are looked for this often.
const FULL_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// An answer without its headers.
#[derive(Debug)]
struct Body {
    /// What it is for: most tokens, tokens of the prompt, and how it was asked for.
    key: (u32, u32, [bool; 3]),
    bytes: Vec<u8>,
    /// For each token, the end of its event.
    ends: Vec<usize>,
}

impl Body {
    fn build(key: (u32, u32, [bool; 3]), answer: &mut Answer, stream: bool) -> Self {
        let (planned, mut bytes, mut ends) = (key.0, Vec::new(), Vec::new());
        let each = if stream { 1 } else { planned };
        for last in (each..=planned).step_by(each as usize) {
            let emission = Emission {
                tokens: each,
                planned_tokens: planned,
                finish: (last == planned).then_some(Finish::Length),
                ..Emission::default()
            };
            answer.emit(&emission, &mut bytes);
            ends.extend((0..each).map(|_| bytes.len()));
        }
        Self { key, bytes, ends }
    }
}

/// A request that is being answered.
#[derive(Debug)]
struct Flow {
    key: u64,
    body: Arc<Body>,
    socket: Arc<TcpStream>,
    done: oneshot::Sender<()>,
    record: RequestTruth,
    /// What is not sent of the headers.
    head: Vec<u8>,
    /// Bytes of the body that the kernel has.
    sent: usize,
    /// Tokens whose events it has whole.
    tokens: usize,
}

impl Flow {
    /// One write. Says whether the socket took something.
    fn write(&mut self, mode: Firehose) -> Result<bool, End> {
        let body = &self.body;
        let piece = if !self.head.is_empty() {
            &self.head[..]
        } else {
            let end = match mode {
                Firehose::Blocks => (self.sent + BLOCK_BYTES).min(body.bytes.len()),
                Firehose::Events => body.ends[self.tokens.min(body.ends.len() - 1)],
            };
            &body.bytes[self.sent..end]
        };
        let count = match send(&self.socket, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(0) => return Err(End::Disconnect),
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(_) => return Err(End::Disconnect),
        };
        if !self.head.is_empty() {
            self.head.drain(..count);
            return Ok(true);
        }
        self.sent += count;
        while body.ends.get(self.tokens).is_some_and(|end| *end <= self.sent) {
            self.tokens += 1;
        }
        if self.sent == body.bytes.len() { Err(End::Length) } else { Ok(true) }
    }

    /// The record as it stands: totals only.
    fn record(&self, now_ns: u64) -> RequestTruth {
        let tokens = u32::try_from(self.tokens).unwrap_or(u32::MAX);
        let handed = if tokens > 0 { (vec![now_ns], vec![tokens]) } else { (Vec::new(), Vec::new()) };
        RequestTruth { handed_ns: handed.0, tokens: handed.1, ..self.record.clone() }
    }
}

/// The writing thread's state.
#[derive(Debug)]
pub(crate) struct Writer {
    mode: Firehose,
    flows: Vec<Flow>,
    bodies: Vec<Arc<Body>>,
    archive: Archive,
    counters: Counters,
}

impl Writer {
    pub(crate) fn new(mode: Firehose) -> Self {
        Self { mode, flows: Vec::new(), bodies: Vec::new(), archive: Archive::default(), counters: Counters::new(0) }
    }

    /// Works until told to stop, or until nobody is left who could.
    pub(crate) fn run(mut self, commands: &Receiver<Command>) {
        loop {
            let command = if self.flows.is_empty() { commands.recv().map_err(|_| TryRecvError::Disconnected) } else { commands.try_recv() };
            match command {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return,
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => {
                    if !self.round() {
                        self.wait();
                    }
                }
            }
        }
    }

    /// Each flow writes once. Says whether any socket took something.
    fn round(&mut self) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some(flow) = self.flows.get_mut(at) {
            match flow.write(self.mode) {
                Ok(took) => {
                    moved |= took;
                    at += 1;
                }
                Err(end) => {
                    moved = true;
                    self.end(at, end);
                }
            }
        }
        moved
    }

    /// Until a socket has room, or for a moment.
    fn wait(&self) {
        let mut sockets: Vec<_> = self.flows.iter().map(|flow| PollFd::new(&flow.socket, PollFlags::OUT)).collect();
        // Interrupted, it is only a shorter moment.
        let _ = poll(&mut sockets, Some(&FULL_WAIT));
    }

    fn end(&mut self, at: usize, end: End) {
        let flow = self.flows.swap_remove(at);
        let record = RequestTruth { end, ..flow.record(clock::now_ns()) };
        self.counters.generation_tokens += flow.tokens as u64;
        self.counters.prompt_tokens += u64::from(record.prompt_tokens);
        self.archive.add(record);
        if end == End::Length {
            self.counters.ended_length += 1;
            // The connection may have ended at the same time.
            let _ = flow.done.send(());
        } else {
            self.counters.aborted += 1;
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Start(start) => self.start(*start),
            Command::Cancel(key) => {
                if let Some(at) = self.flows.iter().position(|flow| flow.key == key) {
                    self.end(at, End::Disconnect);
                }
            }
            // Who asked may be gone; then nobody misses the answer.
            Command::Snapshot(reply) => {
                let gauges = Gauges { running: self.flows.len(), ..Gauges::default() };
                let _ = reply.send(Snapshot { engines: vec![(self.counters.clone(), gauges)], occupied: Vec::new() });
            }
            Command::Records(since_ns, reply) => {
                let now_ns = clock::now_ns();
                let running: Vec<_> = self.flows.iter().map(|flow| flow.record(now_ns)).collect();
                let _ = reply.send(self.archive.records(now_ns, since_ns, running.iter()));
            }
            Command::Reset(reply) => {
                self.archive.clear();
                let _ = reply.send(());
            }
            Command::Abort(_, reply) => {
                let _ = reply.send(());
            }
            Command::Stop => {}
        }
    }

    fn start(&mut self, start: Start) {
        let Start { id, stream, received_by_kernel, unsent, arrival, mut answer, socket, done } = start;
        let key = (arrival.max_output.max(1), arrival.prompt.tokens, answer.kind());
        let body = match self.bodies.iter().find(|body| body.key == key) {
            Some(body) => Arc::clone(body),
            None => {
                let body = Arc::new(Body::build(key, &mut answer, stream));
                self.bodies.truncate(KEPT_BODIES - 1);
                self.bodies.insert(0, Arc::clone(&body));
                body
            }
        };
        let record = RequestTruth {
            id,
            received_ns: arrival.received_ns,
            received_by_kernel,
            prompt_tokens: arrival.prompt.tokens,
            stream,
            ..RequestTruth::default()
        };
        self.flows.push(Flow { key: arrival.key, body, socket, done, record, head: unsent, sent: 0, tokens: 0 });
    }
}
