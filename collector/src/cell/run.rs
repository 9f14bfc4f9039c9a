//! Runs one cell, phase by phase. It never fails: what goes wrong is part of the measurement.

use std::sync::Arc;
use std::time::Duration;

use super::measurement::{CellMeasurement, FailurePhase, IdleWait, Scout, Warmup, Window};
use super::ready::{Look, Metrics, Readiness, automatic_timeout_us};
use crate::event::{CellId, Event, Events};
use crate::load::connection::Endpoint;
use crate::load::health::ClientHealth;
use crate::load::record::StreamRecord;
use crate::load::request::RequestSource;
use crate::load::stop::Stop;
use crate::load::tokens::TokenTimeline;
use crate::load::{Load, LoadLimits, Streams, StreamsOptions};
use crate::plan::PlannedCell;
use crate::prompt::{CellPrompts, Prompts, Shape};
use crate::scrape::snapshot::ServerWindow;
use crate::scrape::window::server_window;
use crate::scrape::{Scrape, Scraper};
use crate::target::Target;

/// Between two looks while streams warm up, and between two ticks.
const LOOK: Duration = Duration::from_millis(100);
const TICK_US: u64 = 500_000;
/// Between two scrapes while something is waited for.
const SCRAPE_EVERY_US: u64 = 250_000;
/// A scrape older than this says nothing about now.
const FRESH_US: u64 = 2_500_000;
/// For the scrape at the window's end, before the streams are cut.
const EDGE_LIMIT: Duration = Duration::from_secs(1);
/// For streams to notice that they are cut.
const JOIN_LIMIT: Duration = Duration::from_secs(5);

/// How cells are measured.
#[derive(Clone, Copy, Debug)]
pub struct CellOptions {
    /// Length of the window, microseconds.
    pub duration_us: u64,
    /// `--cell-warmup-timeout-seconds`; `None`: by context (60, 120 or 180 s).
    pub warmup_timeout_us: Option<u64>,
    /// How long the streams must have been up, microseconds.
    pub stable_us: u64,
    /// How long an idle server is waited for, microseconds.
    pub idle_limit_us: u64,
    /// Whether a scout goes ahead where there is a context.
    pub scout: bool,
    /// Whether the model's own end is passed over (not `--respect-eos`).
    pub ignore_eos: bool,
    /// `--temperature`.
    pub temperature: Option<f64>,
    /// How long streams wait for what.
    pub limits: LoadLimits,
}

impl Default for CellOptions {
    fn default() -> Self {
        Self {
            duration_us: 30_000_000,
            warmup_timeout_us: None,
            stable_us: 3_000_000,
            idle_limit_us: 60_000_000,
            scout: true,
            ignore_eos: true,
            temperature: None,
            limits: LoadLimits::default(),
        }
    }
}

/// What all cells of a run share.
#[derive(Clone, Copy, Debug)]
pub struct Bench<'a> {
    /// The server.
    pub target: &'a Target,
    /// Where its connections go.
    pub endpoint: &'a Arc<Endpoint>,
    /// The load threads; theirs is the run's clock.
    pub load: &'a Load,
    /// What is asked.
    pub prompts: &'a Prompts,
    /// The server's metrics; `None` if it has none.
    pub scraper: Option<&'a Scraper>,
    /// Who listens.
    pub events: &'a Events,
}

impl Bench<'_> {
    /// Measures one cell. When `stop` is given, it ends soon and returns what there is, marked as
    /// interrupted.
    pub async fn measure(&self, index: usize, cell: PlannedCell, options: &CellOptions, stop: &Stop) -> CellMeasurement {
        let id = CellId { index, context_tokens: cell.context_tokens, concurrency: cell.concurrency };
        let run = CellRun { bench: self, id, cell, options, stop: stop.clone() };
        let measured = run.run().await;
        match &measured.failure {
            Some(text) => self.events.emit(Event::CellError { cell: id, text: text.clone() }),
            None if measured.interrupted => {}
            None => self.events.emit(Event::CellDone { cell: id, tps: measured.aggregate_tps() }),
        }
        measured
    }
}

struct CellRun<'a> {
    bench: &'a Bench<'a>,
    id: CellId,
    cell: PlannedCell,
    options: &'a CellOptions,
    stop: Stop,
}

/// A window that closed.
struct Measured {
    window: Window,
    /// All streams had ended by themselves before it was due.
    died: bool,
}

impl CellRun<'_> {
    async fn run(mut self) -> CellMeasurement {
        let started_us = self.now_us();
        let mut result = CellMeasurement {
            id: self.id,
            cell: self.cell,
            started_us,
            ended_us: started_us,
            idle: self.wait_for_idle().await,
            scout: None,
            warmup: Warmup::default(),
            window: None,
            tokens: None,
            streams: Vec::new(),
            server: ServerWindow::default(),
            client: ClientHealth::default(),
            interrupted: false,
            failure: None,
            failure_phase: None,
        };
        self.emit(Event::CellStart { cell: self.id });
        // As the predecessor has it, waiting for an idle server is not part of the cell.
        result.started_us = self.now_us();
        let shape = Shape { max_tokens: self.cell.max_tokens, ignore_eos: self.options.ignore_eos, temperature: self.options.temperature };
        let bench = self.bench;
        let context = self.cell.context_tokens;
        let prompts = bench.prompts.cell(bench.target, self.id.index, context, shape);
        match prompts {
            Some(prompts) => self.load(&prompts, shape, &mut result).await,
            None => result.failure = Some(format!("no prompt was made for context {context}")),
        }
        result.interrupted = self.stop.is_stopped();
        result.ended_us = self.now_us();
        result
    }

    async fn load(&mut self, prompts: &CellPrompts, shape: Shape, result: &mut CellMeasurement) {
        if self.options.scout && self.cell.context_tokens > 0 {
            let scout: Arc<dyn RequestSource> = Arc::new(prompts.scout(shape));
            result.scout = self.scout(&scout).await;
        }
        result.warmup.timeout_us = self.options.warmup_timeout_us.unwrap_or(automatic_timeout_us(self.cell.context_tokens));
        if self.stop.is_stopped() {
            return;
        }
        let source: Arc<dyn RequestSource> = Arc::new(prompts.clone());
        let streams = self.open(&source, self.cell.concurrency, None).await;
        streams.start();
        let streams_us = self.now_us();
        let opens = self.warm_up(&streams, streams_us, result.started_us, &mut result.warmup).await;
        let mut died = !opens && !self.stop.is_stopped();
        if opens {
            let measured = self.window(&streams).await;
            result.warmup.duration_us = Some(measured.window.start_us - result.started_us);
            died = measured.died;
            result.window = Some(measured.window);
        }
        let (records, health) = streams.join(JOIN_LIMIT).await;
        result.streams = records;
        result.client = health;
        self.evaluate(died, result);
    }

    fn evaluate(&self, died: bool, result: &mut CellMeasurement) {
        if let Some((text, phase)) = failure(&result.streams, result.window) {
            result.failure = Some(text);
            result.failure_phase = Some(phase);
        } else if died && result.window.is_none() {
            result.failure = Some("streams ended before measurement".to_owned());
            result.failure_phase = Some(FailurePhase::Warmup);
        }
        let Some(window) = result.window else { return };
        let timeline = TokenTimeline::new(&result.streams);
        let tokens = timeline.window(window.start_us, window.end_us);
        if tokens.tokens == 0 && result.failure.is_none() && !self.stop.is_stopped() {
            result.failure = Some("no token arrived in the window".to_owned());
            result.failure_phase = Some(FailurePhase::Measurement);
        }
        result.tokens = Some(tokens);
        result.server = self.server(window, &timeline);
    }

    fn server(&self, window: Window, timeline: &TokenTimeline) -> ServerWindow {
        let Some(scraper) = self.bench.scraper else {
            let reason = self.bench.target.metrics_warning();
            return ServerWindow { unavailable: Some(reason.unwrap_or("metrics are not scraped").to_owned()), ..ServerWindow::default() };
        };
        let scrapes = scraper.since(window.start_us.saturating_sub(5_000_000));
        let mut server = server_window(&scrapes, window.start_us, window.end_us);
        if server.samples == 0 {
            let last = scrapes.iter().rev().find_map(|s| s.as_ref().err());
            let why = last.map_or_else(String::new, |gap| format!(": {}", gap.reason));
            server.unavailable = Some(format!("no scrape came back inside the window{why}"));
        }
        server.client_tokens_between_scrapes = server.generation_tokens.map(|d| timeline.window(d.from_us, d.to_us).tokens);
        server
    }

    /// Waits until nothing runs or waits on the server. Without metrics there is nothing to wait for.
    async fn wait_for_idle(&mut self) -> IdleWait {
        let mut idle = IdleWait::default();
        let Some(scraper) = self.bench.scraper else {
            return idle;
        };
        let begun_us = self.now_us();
        let mut told = false;
        loop {
            let asked_us = self.now_us();
            scraper.scrape_now();
            let seen = scraper.wait_since(asked_us, Duration::from_secs(5)).await;
            let values = seen.map(|s| s.values);
            let counts = values.and_then(|v| Some((v.running? as u64, v.waiting? as u64)));
            if let Some((running, waiting)) = counts {
                idle.running = Some(running);
                idle.waiting = Some(waiting);
                idle.idle = Some(running == 0 && waiting == 0);
                if idle.idle == Some(true) {
                    break;
                }
                if !told {
                    told = true;
                    self.emit(Event::DrainWait { cell: self.id, running, queue: waiting });
                }
            }
            let waited = self.now_us() - begun_us;
            if waited >= self.options.idle_limit_us || self.stop.is_stopped() {
                break;
            }
            tokio::time::sleep(Duration::from_micros(SCRAPE_EVERY_US)).await;
        }
        idle.waited_us = self.now_us() - begun_us;
        if told && idle.idle == Some(true) {
            self.emit(Event::Drained { cell: self.id });
        }
        idle
    }

    async fn open(&self, source: &Arc<dyn RequestSource>, count: u32, max_requests: Option<u32>) -> Streams {
        let options = StreamsOptions { count, max_requests, limits: self.options.limits, max_tokens: self.cell.max_tokens };
        self.bench.load.open(self.bench.endpoint, source, &options).await
    }

    async fn scout(&mut self, source: &Arc<dyn RequestSource>) -> Option<Scout> {
        let streams = self.open(source, 1, Some(1)).await;
        streams.start();
        tokio::select! {
            () = streams.ended() => {}
            () = self.stop.stopped() => {}
        }
        let (mut records, _) = streams.join(JOIN_LIMIT).await;
        let request = records.pop()?.requests.pop()?;
        let first = request.first_token_us.or(request.first_sign_us);
        let scout = Scout {
            sent_us: request.sent_us,
            ttft_us: first.zip(request.sent_us).map(|(t, sent)| t - sent),
            prompt_tokens: request.prompt_tokens,
            cached_tokens: request.cached_tokens,
            error: request.error,
            id: request.id,
        };
        self.emit(Event::ScoutDone {
            cell: self.id,
            ttft_us: scout.ttft_us,
            prompt_tokens: scout.prompt_tokens.map(u64::from),
            cached_tokens: scout.cached_tokens.map(u64::from),
            error: scout.error.clone(),
        });
        Some(scout)
    }

    /// Waits until the streams are up or the limit is reached; whether the window shall open.
    async fn warm_up(&mut self, streams: &Streams, streams_us: u64, cell_us: u64, warmup: &mut Warmup) -> bool {
        let metrics = match self.bench.scraper {
            Some(_) => Metrics::Used,
            None => Metrics::Unavailable,
        };
        let concurrency = self.cell.concurrency;
        let mut readiness = Readiness::new(concurrency, self.options.stable_us, metrics);
        let deadline_us = cell_us + warmup.timeout_us;
        let mut next_scrape_us = 0;
        let mut next_tick_us = 0;
        loop {
            if self.stop.is_stopped() || streams.all_ended() {
                return false;
            }
            let now_us = self.now_us();
            if now_us >= next_scrape_us {
                next_scrape_us = now_us + SCRAPE_EVERY_US;
                self.scrape_now();
            }
            let look = self.look(streams, now_us, streams_us);
            if now_us >= next_tick_us {
                next_tick_us = now_us + TICK_US;
                self.tick(false, now_us - cell_us, tokens_so_far(streams), look.active);
            }
            // A stream that failed will not come back: the cell is lost, there is no use in waiting.
            if streams.progress().iter().any(crate::load::progress::Progress::has_failed) {
                return false;
            }
            if let Some(reason) = readiness.look(look) {
                warmup.ready_reason.clone_from(&reason);
                self.emit(Event::Ready { cell: self.id, reason, duration_us: self.options.duration_us });
                return true;
            }
            if now_us >= deadline_us {
                let reason = readiness.missing();
                warmup.timed_out = true;
                warmup.ready_reason = "warmup_timeout".to_owned();
                warmup.timeout_reason.clone_from(&reason);
                self.emit(Event::WarmupTimeout { cell: self.id, reason, duration_us: self.options.duration_us });
                return true;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.stop.stopped() => {}
            }
        }
    }

    fn look(&self, streams: &Streams, now_us: u64, streams_us: u64) -> Look {
        let progress = streams.progress();
        let active = progress.iter().filter(|p| p.is_active(now_us)).count();
        let latest = self.bench.scraper.and_then(Scraper::latest);
        let server = latest.and_then(|scrape: Arc<Scrape>| {
            let s = scrape.as_ref().as_ref().ok()?;
            let current = s.sent_us >= streams_us && now_us.saturating_sub(s.t_us) < FRESH_US;
            let counts = s.values.running.zip(s.values.waiting);
            counts.filter(|_| current)
        });
        Look {
            t_us: now_us,
            active: u32::try_from(active).unwrap_or(u32::MAX),
            all_finished_one: progress.iter().all(|p| p.finished() > 0),
            server,
        }
    }

    /// The window: its edges are set when it opens, and nothing is awaited inside but time.
    async fn window(&mut self, streams: &Streams) -> Measured {
        let clock = self.bench.load.clock();
        let start_us = clock.now_us();
        let end_us = start_us + self.options.duration_us;
        self.scrape_now();
        let tokens_before = tokens_so_far(streams);
        let mut next_us = start_us + TICK_US;
        let mut died = false;
        loop {
            let mut stop = self.stop.clone();
            tokio::select! {
                () = clock.sleep_until_us(next_us.min(end_us)) => {}
                () = stop.stopped() => {
                    let end_us = clock.now_us().min(end_us);
                    return Measured { window: Window { start_us, end_us }, died };
                }
            }
            let now_us = clock.now_us();
            if now_us >= end_us {
                break;
            }
            if streams.all_ended() {
                died = true;
                break;
            }
            let active = streams.progress().iter().filter(|p| p.is_active(now_us));
            let active = u32::try_from(active.count()).unwrap_or(u32::MAX);
            let tokens = tokens_so_far(streams) - tokens_before;
            self.tick(true, now_us - start_us, tokens, active);
            next_us += TICK_US;
        }
        let closed_us = clock.now_us();
        // The streams go on until the server's counters have been read at this edge.
        if let Some(scraper) = self.bench.scraper {
            scraper.scrape_now();
            tokio::select! {
                _ = scraper.wait_since(closed_us, EDGE_LIMIT) => {}
                () = self.stop.stopped() => {}
            }
        }
        streams.stop();
        let end_us = if died { closed_us } else { end_us };
        Measured { window: Window { start_us, end_us }, died }
    }

    fn tick(&self, in_window: bool, elapsed_us: u64, tokens: u64, active_streams: u32) {
        self.emit(Event::Tick { cell: self.id, in_window, elapsed_us, tokens, active_streams });
    }

    fn scrape_now(&self) {
        if let Some(scraper) = self.bench.scraper {
            scraper.scrape_now();
        }
    }

    fn emit(&self, event: Event) {
        self.bench.events.emit(event);
    }

    fn now_us(&self) -> u64 {
        self.bench.load.clock().now_us()
    }
}

fn tokens_so_far(streams: &Streams) -> u64 {
    let progress = streams.progress().iter();
    progress.map(crate::load::progress::Progress::tokens).sum()
}

/// The distinct errors of the streams that failed before the window was over, and when the first did.
fn failure(streams: &[StreamRecord], window: Option<Window>) -> Option<(String, FailurePhase)> {
    let end_us = window.map_or(u64::MAX, |w| w.end_us);
    let failed = streams.iter().filter_map(StreamRecord::failure);
    let failed: Vec<_> = failed.filter(|r| r.ended_us < end_us).collect();
    let first_us = failed.iter().map(|r| r.ended_us).min()?;
    let mut texts: Vec<String> = Vec::new();
    for request in failed {
        let words = request.error.as_deref().unwrap_or("no reason known");
        let text = format!("{}: {words}", request.outcome.as_str());
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let in_warmup = window.is_none_or(|w| first_us < w.start_us);
    let phase = if in_warmup { FailurePhase::Warmup } else { FailurePhase::Measurement };
    Some((texts.join("; "), phase))
}
