//! `tokscope bench-client`: what our own client costs, beside a bare socket reader and a Python client, in one
//! run against a simulator in a process of its own. It measures clients and judges nothing.
//!
//! # Who is measured
//! - **ours**: the load threads of [`crate::load`] as a run uses them, one of them here. It stamps, parses and
//!   records every event.
//! - **bare**: [`bare`], a thread that sends the same requests on as many connections and then does nothing but
//!   `epoll_wait`, one `read` into 64 kB for each readable socket, and a sum of bytes. No client can cost less
//!   without asking the kernel less often.
//! - **python**: `tests/bench/asyncio_client.py`, a process of `python3` as found in PATH: asyncio, reads with a
//!   timeout, a line reader, `json.loads` and a few notes for each event, as most measuring programs in that
//!   language work. Over httpx where that is installed, else over asyncio's streams, at about half the cost of
//!   httpx; the report says which.
//!
//! Clients run on one CPU and the simulator on another where there are two; else all share one, `pinned` is
//! false, and the figures of the firehose mean little. The clients take turns within a round, and the rounds
//! follow each other, so that a change of the machine's speed meets all of them. A figure is the median of its
//! rounds, with the lowest and the highest; a ratio is that of two medians.
//!
//! # Paced
//! The simulator makes steps of a fixed length with one event for each stream. `cpu_s_per_mtok` is the CPU time
//! of the client's thread, user and system, from before the first request to the end of the last answer, divided
//! by the million tokens that the simulator handed over. For ours the 2 ms tick is taken off where the load tells
//! it apart (`tick_apart`). What the kernel does for a packet on loopback is done by the sender, the simulator,
//! and is in nobody's figure. Nor are connecting, making the first requests, and for ours what other threads do
//! (scrapes, the report, the page).
//!
//! # Firehose
//! The simulator sends answers that it built ahead as fast as they are taken, in blocks of 64 kB or one event a
//! write. `tokens_s` is tokens over the time from first request to last byte; `busy_share` is the client's CPU
//! time over that time. At 0.95 and more the client is the limit and `tokens_s` its highest rate; below that the
//! simulator is, and only the figures per busy second and per event mean something. `tokens_busy_s` is tokens
//! over CPU time. `of_bare` is our `tokens_s` over the bare reader's `tokens_busy_s`: what we reach of what a
//! reader that is never idle could. `mb_s` is without HTTP framing for ours and with it for the bare reader.
//!
//! # Nothing lost
//! All requests run to their end, and the simulator must have handed over all their tokens; ours and Python must
//! have counted just as many, ours request by request, and the bare reader must have seen each answer end. Else
//! there are no figures but an error.
//!
//! # How far to trust it
//! The simulator's own lateness stands beside each paced figure: when it is late, events bunch, and all clients
//! look cheaper. With kernel accounting by ticks instead of by time, CPU times are coarse and short runs useless.

mod bare;
mod ours;
mod python;
mod report;
mod server;

use std::path::PathBuf;

use serde::Serialize;

use crate::simulator::{Firehose, PinError, allowed_cpus};
pub use report::{BenchReport, FirehoseFigures, FirehoseResult, PacedResult, Spread};
use report::{Rounds, paced_result};
use server::{Server, Shape};

/// Tokens of an answer in the firehose, prebuilt: 17 MB.
const FIREHOSE_TOKENS: u32 = 50_000;

/// What is measured, and for how long.
#[derive(Clone, Debug, Serialize)]
pub struct BenchOptions {
    /// The program whose `simulate` answers.
    #[serde(skip)]
    pub program: PathBuf,
    /// Seconds for each client in each setting, over all rounds.
    pub seconds: f64,
    /// Rounds these are split into.
    pub rounds: u32,
    /// Streams at once, for the paced part; each a setting.
    pub concurrency: Vec<u32>,
    /// Streams at once of the firehose; 0 leaves it out.
    pub firehose_streams: u32,
    /// Length of a step, ms.
    pub step_ms: f64,
    /// Tokens of an event in the paced part.
    pub chunk_tokens: u32,
    /// Tokens of each answer in the paced part; 0: as many as fill a round.
    pub answer_tokens: u32,
    /// Keep client and simulator on a CPU each, where there are two.
    pub pin: bool,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The simulator doesn't start.
    #[error("the simulator ({program} simulate) does not start: {reason}; see what that command says")]
    Simulator {
        /// The program.
        program: String,
        /// Why.
        reason: String,
    },
    /// The simulator doesn't say what it sent.
    #[error("the simulator at {url} gave no account of what it sent ({reason}); run it again")]
    Truth {
        /// Where it is.
        url: String,
        /// Why.
        reason: String,
    },
    /// A client failed.
    #[error("{client} with {streams} streams failed: {reason}")]
    Client {
        /// Which.
        client: &'static str,
        /// Its streams.
        streams: u32,
        /// What went wrong, and what to do where that is known.
        reason: String,
    },
    /// Tokens are missing or too many.
    #[error("{client} with {streams} streams counted {counted} tokens, the simulator sent {sent}: a fault of the client, please report it")]
    Lost {
        /// Which.
        client: &'static str,
        /// Its streams.
        streams: u32,
        /// Tokens counted.
        counted: u64,
        /// Tokens handed over.
        sent: u64,
    },
    /// A thread can't be kept on its CPU.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// Too few open files.
    #[error(transparent)]
    Files(#[from] crate::load::files::TooFewFiles),
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    Ours,
    Bare,
    Python,
}

impl Client {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "our client",
            Self::Bare => "the bare reader",
            Self::Python => "the Python client",
        }
    }
}

/// Requests that a client sends, and reads the answers of to their end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) streams: u32,
    /// On each stream, one after the other.
    pub(crate) requests: u32,
    pub(crate) max_tokens: u32,
    /// For the ids.
    pub(crate) number: u32,
    /// Where the client runs.
    pub(crate) cpu: Option<usize>,
}

/// What a client used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Used {
    pub(crate) cpu_us: u64,
    /// Of that, the tick's; absent where it isn't told apart.
    pub(crate) tick_us: Option<u64>,
    pub(crate) span_us: u64,
    /// Bytes read, as the client counts them.
    pub(crate) bytes: u64,
    /// Tokens that the client counted, where it does.
    pub(crate) counted: Option<u64>,
    /// What reads HTTP in the Python client.
    pub(crate) library: Option<String>,
    /// The same by request.
    pub(crate) by_id: Vec<(String, u32)>,
}

/// Says what is done and how many seconds are left.
pub type Tell<'a> = &'a mut (dyn FnMut(&str, f64) + Send);

/// Measures it all.
///
/// # Errors
/// No simulator, a client that fails, tokens that got lost.
pub async fn run(options: &BenchOptions, tell: Tell<'_>) -> Result<BenchReport, BenchError> {
    let most = options.concurrency.iter().copied().max().unwrap_or(0).max(options.firehose_streams);
    crate::load::files::raise_open_files(most)?;
    let cpus = allowed_cpus();
    let (client_cpu, server_cpu) = if options.pin && cpus.len() > 1 { (cpus.first().copied(), cpus.get(1).copied()) } else { (None, None) };
    let python = python::version().await;
    let mut bench = Bench { options, client_cpu, server_cpu, left_s: 0.0, tell, jobs: 0 };
    let clients: &[Client] = match &python {
        Ok(_) => &[Client::Ours, Client::Bare, Client::Python],
        Err(_) => &[Client::Ours, Client::Bare],
    };
    let settings = clients.len() * options.concurrency.len() + if options.firehose_streams > 0 { 4 } else { 0 };
    bench.left_s = settings as f64 * options.seconds;
    let mut paced = Vec::new();
    for &streams in &options.concurrency {
        paced.push(bench.paced(streams, clients).await?);
    }
    let mut firehose = Vec::new();
    if options.firehose_streams > 0 {
        for mode in [Firehose::Blocks, Firehose::Events] {
            firehose.push(bench.firehose(mode).await?);
        }
    }
    Ok(BenchReport {
        version: env!("CARGO_PKG_VERSION"),
        optimized: !cfg!(debug_assertions),
        cpus: cpus.len(),
        pinned: server_cpu.is_some(),
        python: python.as_ref().ok().cloned(),
        python_missing: python.err(),
        options: options.clone(),
        nothing_lost: true,
        paced,
        firehose,
    })
}

struct Bench<'a> {
    options: &'a BenchOptions,
    client_cpu: Option<usize>,
    server_cpu: Option<usize>,
    left_s: f64,
    tell: Tell<'a>,
    jobs: u32,
}

impl Bench<'_> {
    fn round_s(&self) -> f64 {
        self.options.seconds / f64::from(self.options.rounds.max(1))
    }

    fn say(&mut self, what: &str, takes_s: f64) {
        (self.tell)(what, self.left_s.max(0.0));
        self.left_s -= takes_s;
    }

    async fn paced(&mut self, streams: u32, clients: &[Client]) -> Result<PacedResult, BenchError> {
        let shape = Shape::Paced { streams, step_ms: self.options.step_ms, chunk_tokens: self.options.chunk_tokens };
        let server = Server::start(&self.options.program, &shape, self.server_cpu).await?;
        let chunks = (self.round_s() * 1e3 / self.options.step_ms).ceil().clamp(1.0, 1e6) as u32;
        let tokens = chunks.saturating_mul(self.options.chunk_tokens);
        let (requests, tokens) = match self.options.answer_tokens {
            0 => (1, tokens),
            each => (tokens.div_ceil(each), each),
        };
        let mut rounds = Rounds::default();
        for round in 1..=self.options.rounds {
            for &client in clients {
                let what = format!("paced, {streams} streams, round {round} of {}: {}", self.options.rounds, client.name());
                self.say(&what, self.round_s());
                rounds.add(client, self.job(&server, client, streams, requests, tokens).await?);
            }
        }
        Ok(paced_result(streams, &rounds))
    }

    async fn firehose(&mut self, mode: Firehose) -> Result<FirehoseResult, BenchError> {
        let streams = self.options.firehose_streams;
        let server = Server::start(&self.options.program, &Shape::Firehose(mode), self.server_cpu).await?;
        let mut rounds = Rounds::default();
        let mut requests = [1, 1];
        for round in 0..=self.options.rounds {
            for (client, requests) in [Client::Ours, Client::Bare].into_iter().zip(&mut requests) {
                if round > 0 {
                    let what =
                        format!("firehose, {}, round {round} of {}: {}", report::mode_name(mode), self.options.rounds, client.name());
                    self.say(&what, self.round_s());
                }
                let measured = self.job(&server, client, streams, *requests, FIREHOSE_TOKENS).await?;
                if round > 0 {
                    rounds.add(client, measured);
                } else {
                    // The first one is to learn how many requests fill the time.
                    let each_s = measured.0.span_us.max(1) as f64 / 1e6;
                    *requests = (self.round_s() / each_s).ceil().clamp(1.0, 1e6) as u32;
                }
            }
        }
        Ok(report::firehose_result(mode, streams, &rounds))
    }

    /// Runs a client and checks that nothing was lost.
    async fn job(
        &mut self,
        server: &Server,
        client: Client,
        streams: u32,
        requests: u32,
        max_tokens: u32,
    ) -> Result<(Used, server::Sent), BenchError> {
        self.jobs += 1;
        let job = Job { streams, requests, max_tokens, number: self.jobs, cpu: self.client_cpu };
        let failed = |reason: String| BenchError::Client { client: client.name(), streams, reason };
        server.forget().await?;
        let used = match client {
            Client::Ours => ours::run(server, job).await,
            Client::Bare => bare::run(server, job).await,
            Client::Python => python::run(server, job).await,
        };
        let used = used.map_err(failed)?;
        let sent = server.sent().await?;
        let planned = u64::from(streams) * u64::from(requests) * u64::from(max_tokens);
        if sent.tokens != planned {
            return Err(failed(format!("the simulator sent {} tokens of {planned}; run it again", sent.tokens)));
        }
        let lost = |counted, sent| BenchError::Lost { client: client.name(), streams, counted, sent };
        if let Some(counted) = used.counted.filter(|counted| *counted != sent.tokens) {
            return Err(lost(counted, sent.tokens));
        }
        for (id, counted) in &used.by_id {
            let handed = sent.by_id.get(id).copied().unwrap_or(0);
            if handed != *counted {
                return Err(lost(u64::from(*counted), u64::from(handed)));
            }
        }
        Ok((used, sent))
    }
}

/// Does blocking work on a thread of its own, kept on `cpu`; what it starts stays there too.
pub(crate) async fn on_cpu<T: Send + 'static>(
    cpu: Option<usize>,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (to, done) = tokio::sync::oneshot::channel();
    let spawned = std::thread::Builder::new().name("bench-client".to_owned()).spawn(move || {
        let pinned = cpu.map_or(Ok(()), crate::simulator::pin_thread).map_err(|error| error.to_string());
        // Whoever waited may be gone.
        let _ = to.send(pinned.and_then(|()| work()));
    });
    spawned.map_err(|error| format!("no thread could be had ({error}); free some memory"))?;
    done.await.unwrap_or_else(|_| Err("its thread ended early".to_owned()))
}
