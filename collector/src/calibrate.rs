//! The client against a built-in server on this machine whose true times are known: what it gets wrong by itself,
//! at each concurrency. It judges nothing.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Clock;
use crate::load::endpoint::{ConnectionError, Endpoint};
use crate::load::health::{Lateness, TickLateness};
use crate::load::record::{RequestRecord, StreamRecord};
use crate::load::request::{PreparedRequest, RequestHead, RequestSource};
use crate::load::stop::Stop;
use crate::load::tokens::TokenTimeline;
use crate::load::{Load, LoadLimits, StreamsOptions};
use crate::simulator::{self, RequestTruth, Settings, SimulatorError, Truth};
use crate::target::{Address, Credentials, TargetError, TrustedRoots};

/// For the streams to come up, to be joined, for the server to be reached.
const LIMIT: Duration = Duration::from_secs(10);
/// Requests of this many steps: several a stream, so that restarts are part of it.
const STEPS_A_REQUEST: u32 = 40;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct CalibrateOptions {
    /// Streams at once.
    pub concurrency: u32,
    /// Tokens the server puts into a chunk.
    pub tokens_per_chunk: u32,
    /// Time of a step, microseconds.
    pub step_us: u64,
    /// Length of the window, microseconds.
    pub window_us: u64,
}

impl CalibrateOptions {
    /// As a run does it before its cells: one token a chunk, for a second; steps of 20 ms, of 40 ms from 512 streams on.
    #[must_use]
    pub fn before_a_run(concurrency: u32) -> Self {
        Self { concurrency, tokens_per_chunk: 1, step_us: step_us(concurrency), window_us: 1_000_000 }
    }
}

/// The time of a step at which this machine's server keeps up with so many streams, microseconds.
#[must_use]
pub fn step_us(concurrency: u32) -> u64 {
    if concurrency < 512 { 20_000 } else { 40_000 }
}

/// What the client got wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Calibration {
    /// Streams at once.
    pub concurrency: u32,
    /// Tokens in a chunk.
    pub tokens_per_chunk: u32,
    /// Tokens that the server handed over inside the window.
    pub tokens: u64,
    /// Tokens counted less tokens handed over.
    pub tokens_off: i64,
    /// Absolute errors of the time to first token, a value a request, microseconds.
    pub ttft_off: Option<Lateness>,
    /// Absolute errors of the time by token, a value a gap, microseconds.
    pub itl_off: Option<Lateness>,
    /// How much later the server itself wrote than it meant to, 99th percentile, microseconds.
    pub server_late_p99_us: Option<u64>,
    /// How late the client's tick was inside the window, 99th percentile, microseconds.
    pub tick_late_p99_us: Option<u64>,
}

/// Why the client could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// The built-in server.
    #[error("the client can't be measured: {0}")]
    Server(#[from] SimulatorError),
    /// Its address.
    #[error("the client can't be measured: {0}")]
    Address(#[from] TargetError),
    /// The way to it.
    #[error("the client can't be measured: {0}")]
    Connection(#[from] ConnectionError),
    /// The system gave no threads.
    #[error("the client can't be measured: the load threads could not be started ({0})")]
    Threads(#[from] io::Error),
    /// A stream failed, or none came up.
    #[error("the client can't be measured at {concurrency} streams: {reason}")]
    Streams {
        /// Streams at once.
        concurrency: u32,
        /// What went wrong.
        reason: String,
    },
    /// The user stopped it.
    #[error("stopped while the client was measured")]
    Stopped,
}

/// Requests of one fixed body.
struct Fixed {
    head: RequestHead,
    body: Bytes,
}

impl RequestSource for Fixed {
    fn prepare(&self, stream: u32, ordinal: u32) -> PreparedRequest {
        self.head.with_body(format!("calibrate-{stream}-{ordinal}"), self.body.clone(), Vec::new())
    }
}

fn settings(options: &CalibrateOptions) -> Settings {
    Settings {
        step_base_us: options.step_us as f64,
        step_per_sequence_us: 0.0,
        step_per_context_token_ns: 0.0,
        prefill_tok_s: 1e9,
        slots: options.concurrency.max(1),
        kv_tokens: u32::MAX,
        max_context: 65_536,
        // Every draft is accepted: each chunk but the first has as many tokens.
        spec_accept: vec![1.0; options.tokens_per_chunk.saturating_sub(1) as usize],
        empty_share: 0.0,
        ..Settings::default()
    }
}

/// Measures the client at one concurrency, on load threads of its own.
///
/// # Errors
/// The machine has no port, thread or file to spare, or the user stopped it.
pub async fn calibrate(options: &CalibrateOptions, mut stop: Stop) -> Result<Calibration, CalibrateError> {
    let simulator = simulator::start(settings(options), ([127, 0, 0, 1], 0).into())?;
    let measured = tokio::select! {
        measured = measure(options, &simulator) => measured,
        () = stop.stopped() => Err(CalibrateError::Stopped),
    };
    simulator.stop().await;
    measured
}

async fn measure(options: &CalibrateOptions, simulator: &simulator::Running) -> Result<Calibration, CalibrateError> {
    let clock = Clock::start();
    let address: Address = simulator.url().parse()?;
    let endpoint = Arc::new(Endpoint::resolve(&address, &TrustedRoots::default(), LIMIT).await?);
    let max_tokens = STEPS_A_REQUEST * options.tokens_per_chunk.max(1);
    let body = serde_json::json!({
        "model": simulator.settings().model,
        "messages": [{"role": "user", "content": "Count as far as you can."}],
        "max_tokens": max_tokens,
        "ignore_eos": true,
        "stream": true,
        "stream_options": {"include_usage": true, "continuous_usage_stats": true},
    });
    let head = RequestHead::post(&address, &Credentials::default(), "/v1/chat/completions");
    let source: Arc<dyn RequestSource> = Arc::new(Fixed { head, body: body.to_string().into() });
    let load = Load::start(clock, 1)?;
    let count = options.concurrency;
    let streams = load
        .open(&endpoint, &source, &StreamsOptions { count, max_requests: None, limits: LoadLimits::default(), max_tokens, text: None })
        .await;
    streams.start();
    let until_us = clock.now_us() + u64::try_from(LIMIT.as_micros()).unwrap_or(u64::MAX / 2);
    while !streams.progress().iter().all(|p| p.tokens() > 0) && !streams.all_ended() && clock.now_us() < until_us {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let start_us = clock.now_us();
    clock.sleep_until_us(start_us + options.window_us).await;
    let window = (start_us, start_us + options.window_us);
    let (records, health) = streams.join(LIMIT).await;
    let truth = simulator.truth(0).await?;
    if let Some(reason) = trouble(&records) {
        return Err(CalibrateError::Streams { concurrency: count, reason });
    }
    let mut result = compare(clock, &records, &truth, window);
    result.concurrency = count;
    result.tokens_per_chunk = options.tokens_per_chunk;
    result.tick_late_p99_us = TickLateness::of(&health.ticks, Some(window)).map(|tick| tick.p99_us);
    Ok(result)
}

/// Why the streams say nothing.
fn trouble(records: &[StreamRecord]) -> Option<String> {
    let failed = records.iter().find_map(StreamRecord::failure);
    let failed = failed.map(|request| request.error.clone().unwrap_or_else(|| "a stream failed".to_owned()));
    let silent = records.iter().filter(|record| record.arrivals.is_empty()).count();
    failed.or_else(|| (silent > 0).then(|| format!("{silent} of them received nothing within {} s", LIMIT.as_secs())))
}

fn compare(clock: Clock, records: &[StreamRecord], truth: &Truth, (start_us, end_us): (u64, u64)) -> Calibration {
    let by_id: HashMap<&str, &RequestTruth> = truth.requests.iter().map(|r| (r.id.trim_start_matches("chatcmpl-"), r)).collect();
    let mine = |ns: u64| clock.us_of_monotonic_ns(ns);
    let (mut ttft, mut itl) = (Vec::new(), Vec::new());
    for (record, request) in records.iter().flat_map(|record| record.requests.iter().map(move |request| (record, request))) {
        let Some(truth) = by_id.get(request.id.as_str()) else { continue };
        ttft.extend(ttft_off(request, truth, mine));
        let times: Vec<u64> = record.arrivals_of(request.ordinal).iter().filter(|a| a.kinds.is_output()).map(|a| a.t_us).collect();
        // A chunk that was cut off on its way has no partner.
        for ((ours, theirs), tokens) in times.windows(2).zip(truth.handed_ns.windows(2)).zip(truth.tokens.iter().skip(1)) {
            let (gap_us, true_us) = ((ours[1] - ours[0]) as f64, (theirs[1] - theirs[0]) as f64 / 1e3);
            itl.push(whole((gap_us - true_us) / f64::from((*tokens).max(1))));
        }
    }
    let handed = truth.requests.iter().flat_map(|r| r.handed_ns.iter().zip(&r.tokens));
    let inside = |ns: u64| u64::try_from(mine(ns)).is_ok_and(|t| (start_us..end_us).contains(&t));
    let tokens: u64 = handed.filter(|(ns, _)| inside(**ns)).map(|(_, tokens)| u64::from(*tokens)).sum();
    let counted = TokenTimeline::new(records).window(start_us, end_us).tokens;
    Calibration {
        tokens,
        tokens_off: i64::try_from(counted).unwrap_or(i64::MAX) - i64::try_from(tokens).unwrap_or(i64::MAX),
        ttft_off: Lateness::of(ttft),
        itl_off: Lateness::of(itl),
        server_late_p99_us: truth.late_ns.p99.map(|ns| ns / 1_000),
        ..Calibration::default()
    }
}

fn ttft_off(request: &RequestRecord, truth: &RequestTruth, mine: impl Fn(u64) -> i64) -> Option<u32> {
    let ours = request.ttft_us()? as f64;
    let theirs = (mine(*truth.handed_ns.first()?) - mine(truth.received_ns)) as f64;
    Some(whole(ours - theirs))
}

fn whole(off_us: f64) -> u32 {
    off_us.abs().round() as u32
}
