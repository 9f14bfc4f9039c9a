//! The load threads and the streams that run on them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::connection::Endpoint;
use super::health::{ClientHealth, TickLateness};
use super::progress::Progress;
use super::record::StreamRecord;
use super::request::RequestSource;
use super::stop::{Stopper, stop_pair};
use super::ticker::{Ticks, tick};
use super::worker::{LoadLimits, Worker};
use crate::clock::Clock;

/// Room made ahead of time for a stream's arrivals: at most this many, 24 bytes each.
const MOST_EXPECTED_ARRIVALS: usize = 1 << 15;

/// Threads that do nothing but carry streams. Each stream stays on one of them.
#[derive(Debug)]
pub struct Load {
    clock: Clock,
    threads: Vec<LoadThread>,
}

#[derive(Debug)]
struct LoadThread {
    handle: Handle,
    /// Dropped to end the thread.
    end: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What streams shall do.
#[derive(Clone, Debug)]
pub struct StreamsOptions {
    /// How many.
    pub count: u32,
    /// Requests each sends at most; `None`: until stopped.
    pub max_requests: Option<u32>,
    /// How long they wait for what.
    pub limits: LoadLimits,
    /// Output limit of a request, tokens: room is made for as many arrivals.
    pub max_tokens: u32,
}

impl Load {
    /// Starts `threads` load threads (at least one).
    ///
    /// # Errors
    /// The system gives no thread or no event queue.
    pub fn start(clock: Clock, threads: usize) -> io::Result<Self> {
        let threads = (0..threads.max(1)).map(LoadThread::start);
        Ok(Self { clock, threads: threads.collect::<io::Result<_>>()? })
    }

    /// The clock it stamps with.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Opens one connection a stream and prepares the first requests; returns when all are open or
    /// have failed. Nothing is sent before [`Streams::start`].
    pub async fn open(&self, endpoint: &Arc<Endpoint>, source: &Arc<dyn RequestSource>, options: &StreamsOptions) -> Streams {
        let progress: Arc<[Progress]> = (0..options.count).map(|_| Progress::default()).collect();
        let (starter, start) = stop_pair();
        let (stopper, stop) = stop_pair();
        let (opened, mut all_opened) = mpsc::channel(1);
        let expected = (options.max_tokens as usize).saturating_mul(2);
        let mut workers = Vec::with_capacity(options.count as usize);
        for (stream, thread) in (0..options.count).zip(self.threads.iter().cycle()) {
            let worker = Worker {
                stream,
                clock: self.clock,
                endpoint: Arc::clone(endpoint),
                source: Arc::clone(source),
                limits: options.limits,
                progress: Arc::clone(&progress),
                stop: stop.clone(),
                max_requests: options.max_requests,
                expected_arrivals: expected.min(MOST_EXPECTED_ARRIVALS),
            };
            let run = worker.run(opened.clone(), start.clone());
            workers.push(thread.handle.spawn(run));
        }
        drop(opened);
        // Each worker drops its sender when its connection is open: then nothing is left to receive.
        let _ = all_opened.recv().await;
        let (tick_stopper, tick_stop) = stop_pair();
        let tickers = self.threads.iter();
        let tickers = tickers.map(|t| t.handle.spawn(tick(self.clock, tick_stop.clone())));
        Streams {
            clock: self.clock,
            progress,
            starter,
            stopper,
            workers,
            tickers: tickers.collect(),
            tick_stopper,
            opened_us: self.clock.now_us(),
        }
    }
}

impl LoadThread {
    fn start(index: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let name = format!("load-{index}");
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            // Either way the thread is to end.
            let _ = runtime.block_on(ended);
        })?;
        Ok(Self { handle, end: Some(end), thread: Some(thread) })
    }
}

impl Drop for LoadThread {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A load thread that panicked has been noticed by its streams' join already.
            let _ = thread.join();
        }
    }
}

/// Streams that are open.
#[derive(Debug)]
pub struct Streams {
    clock: Clock,
    progress: Arc<[Progress]>,
    starter: Stopper,
    stopper: Stopper,
    workers: Vec<JoinHandle<StreamRecord>>,
    tickers: Vec<JoinHandle<Ticks>>,
    tick_stopper: Stopper,
    opened_us: u64,
}

impl Streams {
    /// Lets all streams send.
    pub fn start(&self) {
        self.starter.stop();
    }

    /// Cuts all streams.
    pub fn stop(&self) {
        self.stopper.stop();
    }

    /// How far each stream is.
    #[must_use]
    pub fn progress(&self) -> &[Progress] {
        &self.progress
    }

    /// Whether every stream has ended by itself.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Waits until every stream has ended by itself.
    pub async fn ended(&self) {
        while !self.all_ended() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Cuts what still runs and collects the records, stream 0 first. A stream that does not end
    /// within `limit` is given up: its record is empty.
    pub async fn join(self, limit: Duration) -> (Vec<StreamRecord>, ClientHealth) {
        self.stopper.stop();
        let until_us = self.clock.now_us() + u64::try_from(limit.as_micros()).unwrap_or(u64::MAX / 2);
        let mut records = Vec::with_capacity(self.workers.len());
        for (stream, mut worker) in (0..).zip(self.workers) {
            let left = until_us.saturating_sub(self.clock.now_us());
            let joined = tokio::time::timeout(Duration::from_micros(left), &mut worker).await;
            if joined.is_err() {
                worker.abort();
            }
            let record = joined.ok().and_then(Result::ok);
            records.push(record.unwrap_or_else(|| StreamRecord { stream, ..StreamRecord::default() }));
        }
        self.tick_stopper.stop();
        let mut health = ClientHealth {
            threads: u32::try_from(self.tickers.len()).unwrap_or(u32::MAX),
            span_us: self.clock.now_us().saturating_sub(self.opened_us),
            ..ClientHealth::default()
        };
        let mut raw = Vec::new();
        for ticker in self.tickers {
            let Ok(ticks) = ticker.await else { continue };
            // Each thread's timer has a phase of its own.
            let best = ticks.raw_us.iter().min().copied().unwrap_or(0);
            raw.extend(ticks.raw_us.iter().map(|t| t - best));
            *health.load_cpu_us.get_or_insert(0) += ticks.cpu_us;
        }
        health.tick = TickLateness::from_raw(raw);
        count(&records, &mut health);
        (records, health)
    }
}

fn count(records: &[StreamRecord], health: &mut ClientHealth) {
    let first_sends = || {
        let firsts = records.iter().filter_map(|r| r.requests.first());
        firsts.filter_map(|r| r.sent_us)
    };
    if records.len() > 1
        && let (Some(first), Some(last)) = (first_sends().min(), first_sends().max())
    {
        health.start_spread_us = Some(last - first);
    }
    for r in records {
        health.connections_opened += r.connections_opened;
        health.connections_reused += r.connections_reused;
        health.events += r.arrivals.len() as u64;
        health.body_bytes += r.requests.iter().map(|r| r.body_bytes).sum::<u64>();
    }
}
