//! An inference server whose true timing is known: the default target of `tokscope demo`, the
//! program `tokscope simulate`, and the ground truth of the tests. It measures nothing.
//!
//! # What it imitates
//! HTTP, chat streams, errors and metrics of vLLM 0.32, as recorded; of a bare OpenAI proxy, as
//! LiteLLM 1.108 was recorded (`/metrics` sends on to `/metrics/`, which tells nothing of an engine); and of SGLang. Of SGLang there was no
//! recording: it follows the public documentation and what the collector reads, and may differ
//! from the real one in details. SGLang doesn't look at the model's name here. llama.cpp's server b11434 as recorded:
//! its slots and their contexts, counters that move when a request ends, two events in the first and last chunk,
//! `timings` on the last event, continuous usage ignored, nearly every request accepted; but its cache keeps blocks,
//! and what a slot computed serves them all.
//!
//! # Timing
//! [`engine`] says how the simulated engine schedules, [`Settings`] has all the numbers. The same
//! settings and the same arrivals give the same tokens at the same times, to the nanosecond; only
//! the handing over is subject to the machine, and how late it was is recorded for each chunk.
//!
//! # The truth
//! `GET /simulator/truth` gives a [`Truth`]: for each request when its last byte reached the machine (by
//! the kernel's stamp) and how late it was taken up, and for all its tokens when they were handed to the
//! kernel and how late that was, on `CLOCK_MONOTONIC`, which any process of the machine can read. `?since_ns=N` leaves out requests without anything at or
//! after N. `POST /simulator/reset` forgets ended requests. At most [`truth::MAX_REQUESTS`] ended
//! requests with [`truth::MAX_CHUNKS`] chunks are kept, about 120 MB; older ones are dropped and
//! counted. A running request takes 20 bytes a chunk besides.
//!
//! For each request it also has the prompt's and the cached tokens, when its prompt was begun and computed, which
//! engine's it was, and its steps, drafts and accepted tokens; [`history`] has how many requests ran and waited at
//! any time, and every decode step. `rejected` counts the chat requests that got no tokens, by status.
//!
//! # Several engines, other names
//! [`Settings::data_parallel`] puts engines beside each other: a request goes to the one with the fewest, and each
//! has its own slots, KV cache and series in `/metrics` (`engine="i"`; SGLang: `dp_rank="i"`).
//! [`Settings::metrics_version`] gives vLLM's metrics their older names, [`Settings::kv_size_label`] leaves out a
//! label that only newer versions have.
//!
//! # Quirks
//! [`Quirks`] makes it less obliging: fields refused by name, a key demanded, 503 while a model loads, a `/metrics`
//! that is missing, broken, a web page or slow, failures and rate limits, one request at a time, a slow start, one
//! sentence over and over, and requests that go on without their client. SGLang is like that by itself: a request
//! goes on to its end unless `POST /abort_request {"rid": ID}` ends it.
//!
//! # Firehose
//! With [`Settings::firehose`] nothing is due at any time: each chat answer has all the tokens it may have,
//! is built once for all requests that ask alike (its events carry the id of the first of them), and is
//! written as fast as the sockets take it. The truth then holds, for each request, one entry with all its
//! tokens and the time of the last write, and no lateness.
//!
//! # Not simulated
//! Several answers to a request, stop strings, log probabilities, tools, sampling: these options
//! are accepted and ignored. Preemption: room for the whole answer is taken at the start.
//!
//! # Threads
//! One thread runs the engine against the clock and writes all tokens (`driver`); a small
//! runtime of its own reads and parses requests, so that the program around it can't delay it by
//! being busy in its own runtime. Unix only: the sockets are shared between the two.

mod cache;
mod chunks;
mod clock;
mod counters;
mod driver;
pub mod engine;
mod firehose;
mod fleet;
mod gate;
pub mod history;
mod http;
mod llama_cpp;
mod metrics;
mod model;
mod openai;
mod pin;
mod quirks;
mod routes;
mod sequence;
mod tokens;
pub mod truth;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::kernel_time;
pub use counters::{Counters, Gauges, Histogram};
pub use firehose::Firehose;
pub use model::{Flavour, Settings};
pub use pin::{PinError, allowed_cpus, pin_thread};
pub use quirks::{LARGE_MAX_TOKENS, MetricsAnswer, MetricsVersion, Quirks, Refuse, SpeedUp};
pub use tokens::Prompt;
pub use truth::{End, Lateness, RequestTruth, Truth};

/// What the kernel is asked to hold of a request that wasn't read yet; it may give less.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Of the threads that read requests, 0 being usual and 19 the most patient.
const READING_NICENESS: i32 = 10;

/// Why there is no simulator.
#[derive(Debug, thiserror::Error)]
pub enum SimulatorError {
    /// A setting describes no server.
    #[error("--{name} {value} makes no server: give {wanted}")]
    Setting {
        /// The option's name.
        name: &'static str,
        /// What was given.
        value: String,
        /// What would do.
        wanted: &'static str,
    },
    /// The address is taken.
    #[error("port {port} is taken by another program: give another one with --port, or --port 0 for a free one")]
    Taken {
        /// The port.
        port: u16,
    },
    /// The address can't be listened on for another reason.
    #[error("cannot listen on {addr}: {cause}; give an address of this machine and a port it allows")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// No thread or runtime could be had.
    #[error("cannot start the simulator's threads: {0}; free some memory or raise the limit on processes")]
    Threads(std::io::Error),
    /// It was stopped.
    #[error("the simulator has stopped: start it again")]
    Stopped,
}

/// A simulator at work. Dropped, it stops without waiting.
#[derive(Debug)]
pub struct Running {
    addr: SocketAddr,
    server: Arc<routes::Server>,
    threads: Vec<JoinHandle<()>>,
    stop: Option<oneshot::Sender<()>>,
}

/// Starts a simulator on `addr`; port 0 takes a free one. Works in and outside of a runtime.
///
/// # Errors
/// Bad settings, an address that can't be listened on, no threads.
pub fn start(settings: Settings, addr: SocketAddr) -> Result<Running, SimulatorError> {
    settings.check()?;
    let listen = |cause: std::io::Error| match cause.kind() {
        std::io::ErrorKind::AddrInUse => SimulatorError::Taken { port: addr.port() },
        _ => SimulatorError::Listen { addr, cause },
    };
    let listener = TcpListener::bind(addr).map_err(listen)?;
    listener.set_nonblocking(true).map_err(listen)?;
    // Accepted sockets inherit it. With the usual window a long prompt comes in two or more parts, each asked
    // for in turn, and would seem to have come later than it did.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, RECEIVE_BUFFER_BYTES).map_err(|error| listen(error.into()))?;
    // So that the first request's bytes are stamped already. Where the system can't, the time of the read counts.
    let _ = kernel_time::enable(&listener);
    let addr = listener.local_addr().map_err(listen)?;

    let (commands, inbox) = mpsc::channel();
    let for_driver = settings.clone();
    let server = Arc::new(routes::Server {
        settings,
        commands,
        started_s: metrics::started_s(),
        started_ns: clock::now_ns(),
        rejected: Mutex::default(),
        scraped: Mutex::default(),
        asked: AtomicU64::new(0),
        in_flight: AtomicUsize::new(0),
        next_key: AtomicU64::new(0),
        reading: tokio::sync::Mutex::default(),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("simulator-http")
        .on_thread_start(|| {
            // Tokens are due while requests are read. Where it isn't allowed it is the same as before.
            let _ = rustix::process::setpriority_process(None, READING_NICENESS);
        })
        .enable_all()
        .build()
        .map_err(SimulatorError::Threads)?;
    let (stop, stopped) = oneshot::channel();
    let shared = Arc::clone(&server);
    let driving = std::thread::Builder::new()
        .name("simulator-clock".to_owned())
        .spawn(move || match for_driver.firehose {
            None => driver::Driver::new(fleet::Fleet::new(&for_driver), for_driver.abort_lag_ns()).run(&inbox),
            Some(mode) => firehose::Writer::new(mode).run(&inbox),
        })
        .map_err(SimulatorError::Threads)?;
    let accepting = std::thread::Builder::new()
        .name("simulator-accept".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, &shared) => {}
                    // Also when the sender is dropped.
                    _ = stopped => {}
                }
            });
            // Connections end here, wherever they are.
            runtime.shutdown_timeout(Duration::from_secs(1));
        })
        .map_err(SimulatorError::Threads)?;
    Ok(Running { addr, server, threads: vec![driving, accepting], stop: Some(stop) })
}

async fn accept(listener: TcpListener, server: &Arc<routes::Server>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    loop {
        // A failure concerns one connection, or the limit on open files, which passes when others
        // close: it must not end the server.
        let accepted = listener.accept().await;
        match accepted.and_then(|(stream, _)| http::Connection::new(stream)) {
            Ok(connection) => {
                tokio::spawn(Arc::clone(server).serve(connection));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

impl Running {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its base address, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What it pretends to be.
    pub fn settings(&self) -> &Settings {
        &self.server.settings
    }

    /// The truth about requests with anything at or after `since_ns`, as `GET /simulator/truth`
    /// tells it.
    ///
    /// # Errors
    /// [`SimulatorError::Stopped`].
    pub async fn truth(&self, since_ns: u64) -> Result<Truth, SimulatorError> {
        self.server.truth(since_ns).await.map_err(|_| SimulatorError::Stopped)
    }

    /// Stops it: all connections are closed, the port is free afterwards.
    pub async fn stop(mut self) {
        self.signal();
        let threads = std::mem::take(&mut self.threads);
        // Both end within milliseconds. A thread that panicked has nothing left to stop.
        let _ = tokio::task::spawn_blocking(move || {
            for thread in threads {
                let _ = thread.join();
            }
        })
        .await;
    }

    fn signal(&mut self) {
        // Either may have ended already.
        let _ = self.server.commands.send(driver::Command::Stop);
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal();
    }
}
