//! Runs one cell, phase by phase. It never fails: what goes wrong is part of the measurement.

use std::sync::Arc;
use std::time::Duration;

use super::isolation::Isolation;
use super::loops::LoopGuard;
use super::measurement::{CellMeasurement, Drain, FailurePhase, Warmup, Window};
use super::ready::automatic_timeout_us;
use crate::event::{CellId, Event, Events};
use crate::load::endpoint::Endpoint;
use crate::load::health::ClientHealth;
use crate::load::record::StreamRecord;
use crate::load::request::RequestSource;
use crate::load::stop::Stop;
use crate::load::tokens::TokenTimeline;
use crate::load::{Load, LoadLimits};
use crate::plan::{CellLoad, PlannedCell};
use crate::prompt::{Prompts, Requests, Shape};
use crate::scrape::Scraper;
use crate::scrape::snapshot::ServerWindow;
use crate::scrape::window::server_window;
use crate::target::Target;

/// For streams to notice that they are cut.
pub(super) const JOIN_LIMIT: Duration = Duration::from_secs(5);

/// How cells are measured.
#[derive(Clone, Copy, Debug)]
pub struct CellOptions {
    /// Length of the window, microseconds.
    pub duration_us: u64,
    /// `--cell-warmup-timeout-seconds`; `None`: by context (60, 120 or 180 s).
    pub warmup_timeout_us: Option<u64>,
    /// How long the streams must have been up, microseconds.
    pub stable_us: u64,
    /// How long a server that is busier than usual is waited for before a cell, microseconds.
    pub idle_limit_us: u64,
    /// How long after a cell, microseconds.
    pub drain_limit_us: u64,
    /// Whether answers that repeat themselves are looked for.
    pub loop_guard: bool,
    /// Whether a scout goes ahead where there is a context.
    pub scout: bool,
    /// Whether the model's own end is passed over (not `--respect-eos`).
    pub ignore_eos: bool,
    /// `--temperature`.
    pub temperature: Option<f64>,
    /// Seed of schedules.
    pub seed: u64,
    /// How long after a schedule's end answers are waited for, microseconds; `None`: as long again, a minute at least.
    pub answer_limit_us: Option<u64>,
    /// How long streams wait for what.
    pub limits: LoadLimits,
}

impl Default for CellOptions {
    fn default() -> Self {
        Self {
            duration_us: 30_000_000,
            warmup_timeout_us: None,
            stable_us: 3_000_000,
            idle_limit_us: 10_000_000,
            drain_limit_us: 30_000_000,
            loop_guard: true,
            scout: true,
            ignore_eos: true,
            temperature: None,
            seed: 1,
            answer_limit_us: None,
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
    /// What is known of the requests that aren't ours.
    pub isolation: &'a Isolation,
}

impl Bench<'_> {
    /// Measures one cell. When `stop` is given, it ends soon and returns what there is, marked as
    /// interrupted.
    pub async fn measure(&self, index: usize, cell: PlannedCell, options: &CellOptions, stop: &Stop) -> CellMeasurement {
        let PlannedCell { layer, repeat, context_tokens, concurrency, .. } = cell;
        let per_s = if let CellLoad::Rate { per_s, .. } = cell.load { Some(per_s) } else { None };
        let id = CellId { index, layer, repeat, context_tokens, concurrency, per_s };
        let guard = if options.loop_guard { LoopGuard::start(id, self.events) } else { None };
        let mut run = CellRun { bench: self, id, cell, options, stop: stop.clone(), guard };
        let mut measured = run.run().await;
        let looped = measured.failure_phase.is_some_and(FailurePhase::is_loop);
        match &measured.failure {
            // Told when it was found.
            Some(_) if looped => {}
            Some(text) => self.events.emit(Event::CellError { cell: id, text: text.clone() }),
            None if measured.interrupted => {}
            None => self.events.emit(Event::CellDone {
                cell: id,
                tps: measured.aggregate_tps(),
                norm: measured.speculation().and_then(|s| s.norm()),
            }),
        }
        measured.drain = run.drain(&measured).await;
        measured
    }
}

/// One cell while it is measured. Its phases are in `phases`.
pub(super) struct CellRun<'a> {
    pub(super) bench: &'a Bench<'a>,
    pub(super) id: CellId,
    pub(super) cell: PlannedCell,
    pub(super) options: &'a CellOptions,
    pub(super) stop: Stop,
    /// Who looks for repetitions; taken when the streams are over.
    pub(super) guard: Option<LoopGuard>,
}

impl CellRun<'_> {
    async fn run(&mut self) -> CellMeasurement {
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
            open_loop: None,
            tokens: None,
            streams: Vec::new(),
            server: ServerWindow::default(),
            client: ClientHealth::default(),
            interrupted: false,
            failure: None,
            failure_phase: None,
            loops: None,
            drain: Drain::default(),
        };
        self.emit(Event::CellStart { cell: self.id });
        // As the predecessor has it, waiting for an idle server is not part of the cell.
        result.started_us = self.now_us();
        result.idle.rested_us = self.bench.load.rested_us();
        let shape = Shape {
            accepted: self.bench.target.accepted.clone(),
            max_tokens: self.cell.max_tokens,
            ignore_eos: self.options.ignore_eos,
            temperature: self.options.temperature,
        };
        let bench = self.bench;
        let context = self.cell.context_tokens;
        match bench.prompts.requests(bench.target, self.id.index, context, &shape) {
            Some(requests) => self.load(&requests, &mut result).await,
            None => result.failure = Some(format!("no prompt was made for context {context}")),
        }
        result.interrupted = self.stop.is_stopped();
        result.ended_us = self.now_us();
        result
    }

    async fn load(&mut self, requests: &Requests, result: &mut CellMeasurement) {
        if let Some(ahead) = requests.ahead.as_ref().filter(|_| self.options.scout && self.cell.context_tokens > 0) {
            result.scout = self.scout(ahead).await;
        }
        if self.stop.is_stopped() {
            return;
        }
        let source = &requests.streams;
        match self.cell.load {
            CellLoad::Sustained => self.sustained(source, result).await,
            CellLoad::Requests { count, warmup } => self.requests(count, warmup, source, result).await,
            CellLoad::Rate { per_s, poisson } => self.open_loop(per_s, poisson, source, result).await,
        }
        self.judge_loops(result).await;
    }

    async fn sustained(&mut self, source: &Arc<dyn RequestSource>, result: &mut CellMeasurement) {
        result.warmup.timeout_us = self.options.warmup_timeout_us.unwrap_or(automatic_timeout_us(self.cell.context_tokens));
        let streams = self.open(source, self.cell.concurrency, None).await;
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

    /// What the texts said, once all of them are there.
    async fn judge_loops(&mut self, result: &mut CellMeasurement) {
        let Some(guard) = self.guard.take() else { return };
        result.loops = guard.found().await;
        let Some(loops) = &result.loops else { return };
        if let (Some(text), Some(found)) = (super::loops::failure(loops), loops.confirmed()) {
            let in_warmup = result.window.is_none_or(|window| found.t_us < window.start_us);
            result.failure = Some(text);
            result.failure_phase = Some(if in_warmup { FailurePhase::LoopInWarmup } else { FailurePhase::LoopInMeasurement });
        }
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
        self.note_tokens(tokens, result);
        result.server = self.server(window, &timeline);
    }

    pub(super) fn server(&self, window: Window, timeline: &TokenTimeline) -> ServerWindow {
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

    pub(super) fn scrape_now(&self) {
        if let Some(scraper) = self.bench.scraper {
            scraper.scrape_now();
        }
    }

    pub(super) fn emit(&self, event: Event) {
        self.bench.events.emit(event);
    }

    pub(super) fn now_us(&self) -> u64 {
        self.bench.load.clock().now_us()
    }
}

/// The distinct errors of the streams that failed before the window was over, and when the first did.
fn failure(streams: &[StreamRecord], window: Option<Window>) -> Option<(String, FailurePhase)> {
    let end_us = window.map_or(u64::MAX, |w| w.end_us);
    let failed = streams.iter().filter_map(StreamRecord::failure);
    let failed: Vec<_> = failed.filter(|r| r.ended_us < end_us).collect();
    let first_us = failed.iter().map(|r| r.ended_us).min()?;
    let mut texts: Vec<String> = Vec::new();
    for request in failed {
        let text = request.failure_text();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let in_warmup = window.is_none_or(|w| first_us < w.start_us);
    let phase = if in_warmup { FailurePhase::Warmup } else { FailurePhase::Measurement };
    Some((texts.join("; "), phase))
}
