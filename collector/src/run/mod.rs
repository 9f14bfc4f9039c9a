//! The whole of a run: detect the server, make prompts, plan, measure cell after cell, leave a record.
//! It prints nothing and writes no file.

mod kept;
mod options;
mod warmup;

pub use kept::{Kept, MeasuredCell};
pub use options::{Arrivals, BurstOptions, PrefillMetric, PrefillOptions, PromptMode, RunOptions};

use crate::calibrate::{CalibrateError, CalibrateOptions, Calibration, calibrate};
use crate::cell::{Bench, CellMeasurement, CellOptions};
use crate::clock::Clock;
use crate::event::{Event, Events};
use crate::load::Load;
use crate::load::endpoint::{ConnectionError, Endpoint};
use crate::load::files::{TooFewFiles, raise_open_files};
use crate::load::health::Lateness;
use crate::load::record::Outcome;
use crate::load::stop::Stop;
use crate::plan::{Layer, LeftOut, Plan, PlanInput, PlannedCell, plan};
use crate::prompt::{self, Prompts};
use crate::report::{self, ArrivalsLimit, CellContext, Options, Prefill, RunRecord, Server, Status};
use crate::scrape::Scraper;
use crate::target::{MetricsAccess, Target, TargetError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokscope_shared::report::cell::Cell;

/// For the server's name to be looked up.
const RESOLVE_LIMIT: Duration = Duration::from_secs(10);

/// So many cells in a row without a connection end the run.
const DEAD_CELLS: u32 = 2;

/// Why a run could not begin.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The server.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Its address.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// Too few open files.
    #[error(transparent)]
    Files(#[from] TooFewFiles),
    /// The system gave no threads.
    #[error("the load threads could not be started: {0}")]
    Threads(#[source] std::io::Error),
    /// The user stopped it.
    #[error("stopped before the server was known: there is nothing to report")]
    Stopped,
    /// Every cell was left out.
    #[error("nothing is left to measure: {}", .0.iter().map(|left| left.text.as_str()).collect::<Vec<_>>().join("; "))]
    NothingFits(Vec<LeftOut>),
}

/// A run that is ready to measure: the server is known, the prompts are made, and so is the plan.
#[derive(Debug)]
pub struct Prepared {
    /// The server.
    pub target: Target,
    /// What is asked.
    pub prompts: Prompts,
    /// What will be measured, and what won't.
    pub plan: Plan,
    endpoint: Arc<Endpoint>,
    load: Load,
    scraper: Option<Scraper>,
}

/// Runs it. Events go to `events`, what is measured to `kept`, as it comes; `stop` ends it early.
///
/// # Errors
/// Nothing could be measured, with the reason. A cell that fails is no error.
pub async fn run(options: &RunOptions, clock: Clock, events: &Events, stop: Stop, kept: &Kept) -> Result<(), RunError> {
    let Some(prepared) = prepare(options, clock, events, stop.clone(), kept).await? else { return Ok(()) };
    let first = prepared.plan.cells.is_empty() && !options.prefill.only;
    if first {
        return Err(RunError::NothingFits(prepared.plan.left_out));
    }
    let most = prepared.plan.cells.iter().map(|cell| cell.connections(options.duration_s)).max().unwrap_or(1);
    raise_open_files(most)?;
    events.emit(Event::Planned { cells: prepared.plan.cells.len(), window_us: (options.duration_s * 1e6) as u64 });
    Session { options, prepared: &prepared, events, stop, kept }.measure().await;
    Ok(())
}

/// All that comes before the first measurement: nothing is sent but questions and probes. `None` where it was stopped
/// when the server was known already.
///
/// # Errors
/// The server can't be measured, with the reason.
pub async fn prepare(
    options: &RunOptions,
    clock: Clock,
    events: &Events,
    mut stop: Stop,
    kept: &Kept,
) -> Result<Option<Prepared>, RunError> {
    let target = tokio::select! {
        found = Target::detect(&options.target) => found?,
        () = stop.stopped() => return Err(RunError::Stopped),
    };
    announce(options, &target, events);
    kept.begin(record(options, clock, &target));
    let contexts: Vec<u32> =
        options.contexts.iter().chain(&options.prefill.contexts).copied().collect::<BTreeSet<_>>().into_iter().collect();
    let prompts = tokio::select! {
        made = prompt::calibrate(&target, &contexts, options.seed) => made,
        () = stop.stopped() => return Ok(None),
    };
    prompts.startup_lines.iter().for_each(|line| events.emit(Event::Startup(line.clone())));
    prompts.warnings.iter().for_each(|line| events.emit(Event::Warning(line.clone())));
    let plan = plan(&PlanInput {
        contexts: options.contexts.clone(),
        concurrency: options.concurrency.clone(),
        layers: options.layers(),
        repeats: options.repeat,
        max_tokens: options.max_tokens,
        kv_budget_tokens: target.kv_budget_tokens(),
        kv_block_tokens: target.kv_block_tokens(),
        max_running: target.max_running(),
        max_model_len: target.max_model_len(),
        max_tokens_limit: target.accepted.max_tokens_limit,
        prompt_tokens: prompts.prompt_tokens(),
        shared_tokens: std::collections::BTreeMap::new(),
    });
    kept.with(|record| {
        record.run_id.clone_from(&prompts.run_id);
        record.left_out.clone_from(&plan.left_out);
    });
    let load = Load::start(clock, 1).map_err(RunError::Threads)?;
    let endpoint = Arc::new(Endpoint::resolve(&target.address, &target.roots, RESOLVE_LIMIT).await?);
    let scraper = matches!(target.metrics, MetricsAccess::Available).then(|| Scraper::start(clock, &target));
    Ok(Some(Prepared { target, prompts, plan, endpoint, load, scraper }))
}

/// A run while it measures.
struct Session<'a> {
    options: &'a RunOptions,
    prepared: &'a Prepared,
    events: &'a Events,
    stop: Stop,
    kept: &'a Kept,
}

impl Session<'_> {
    /// Everything, phase by phase.
    async fn measure(&self) {
        if self.options.calibrate {
            let found = calibrations(&self.prepared.plan.cells, self.events, &self.stop).await;
            self.kept.with(|record| record.calibration = found);
        }
        self.warm_up().await;
        let all = self.cells().await;
        if let Some(scraper) = &self.prepared.scraper {
            let scrapes = scraper.since(0).into_iter().filter_map(Result::ok).collect();
            self.kept.with(|record| record.scrapes = scrapes);
        }
        if all && !self.stop.is_stopped() {
            self.kept.with(|record| record.status = Status::Complete);
        }
    }

    /// All cells of the plan; whether all were tried.
    async fn cells(&self) -> bool {
        let settings = self.cell_options();
        let (mut prefilled, mut dead) = (BTreeSet::new(), 0);
        let plan = &self.prepared.plan;
        for (index, planned) in plan.cells.iter().enumerate() {
            if self.stop.is_stopped() {
                return false;
            }
            let measured = self.bench().measure(index, *planned, &settings, &self.stop).await;
            if let Some(row) = prefill_row(&measured).filter(|_| !self.options.prefill.skip && prefilled.insert(planned.context_tokens)) {
                self.kept.with(|record| record.prefill.push(row));
            }
            dead = if measured.window.is_none() && never_connected(&measured) { dead + 1 } else { 0 };
            // A cell that was stopped before its window opened says nothing.
            if measured.window.is_some() || !measured.interrupted {
                let cell = self.assembled(&measured);
                let measured = MeasuredCell { layer: planned.layer, repeat: planned.repeat, order: index, cell };
                self.kept.add_cell(measured, &self.prepared.endpoint.address().to_string());
            }
            if dead == DEAD_CELLS {
                self.kept.with(|record| record.status = Status::Failed);
                let (done, all) = (index + 1, plan.cells.len());
                self.events.emit(Event::Warning(format!("the server can't be reached any more: the run ends after {done} of {all} cells")));
                return false;
            }
        }
        true
    }

    fn bench(&self) -> Bench<'_> {
        let prepared = self.prepared;
        Bench {
            target: &prepared.target,
            endpoint: &prepared.endpoint,
            load: &prepared.load,
            prompts: &prepared.prompts,
            scraper: prepared.scraper.as_ref(),
            events: self.events,
        }
    }

    fn cell_options(&self) -> CellOptions {
        let options = self.options;
        CellOptions {
            duration_us: (options.duration_s * 1e6) as u64,
            warmup_timeout_us: Some((options.cell_warmup_timeout_s * 1e6) as u64).filter(|us| *us > 0),
            ignore_eos: !options.respect_eos,
            temperature: options.temperature,
            seed: options.seed,
            ..CellOptions::default()
        }
    }

    fn assembled(&self, measured: &CellMeasurement) -> Cell {
        let text = self.prepared.prompts.context(measured.id.context_tokens);
        let calibrations = self.kept.with(|record| record.calibration.clone());
        report::cell(
            measured,
            &CellContext {
                mode: mode(measured.id.layer, self.options.burst.request_count > 0),
                prompts: self.options.prompts.as_str(),
                prompt_tokens: text.map(|text| (text.prompt_tokens, text.counted_by.as_str())),
                accept_len_ref: self.options.accept_len_ref,
                calibration: calibrations.iter().find(|c| c.concurrency == measured.id.concurrency),
                arrivals: ArrivalsLimit {
                    bytes: self.options.arrivals_kb as usize * 1_000,
                    seed: self.options.seed.wrapping_add(measured.id.index as u64),
                },
            },
        )
    }
}

/// The start-up block of the log.
fn announce(options: &RunOptions, target: &Target, events: &Events) {
    let startup = |text: String| events.emit(Event::Startup(text));
    let list = |values: &mut dyn Iterator<Item = String>| values.collect::<Vec<_>>().join(",");
    events.emit(Event::BenchmarkStart { engine: target.engine.as_str().to_owned() });
    startup(format!("server={} model={}", target.address.url(""), target.model));
    startup(format!(
        "decode concurrency={} contexts={}",
        list(&mut options.concurrency.iter().map(ToString::to_string)),
        list(&mut options.contexts.iter().map(|tokens| crate::event::context_label(*tokens))),
    ));
    target.startup_lines.iter().for_each(|line| startup(line.clone()));
    target.warnings.iter().for_each(|line| events.emit(Event::Warning(line.clone())));
}

/// `benchmark_mode`. `finite`: the matrix itself is one of finite requests.
fn mode(layer: Layer, finite: bool) -> &'static str {
    match (layer, finite) {
        (Layer::Sustained, _) => "duration",
        (Layer::Burst, true) => "request-count",
        (Layer::Burst, false) => "burst-e2e",
        (Layer::OpenLoop, _) => "open-loop",
    }
}

/// Whether no stream of the cell reached the server.
fn never_connected(measured: &CellMeasurement) -> bool {
    let mut requests = measured.streams.iter().flat_map(|stream| &stream.requests).peekable();
    requests.peek().is_some() && requests.all(|request| request.outcome == Outcome::Connect)
}

/// The client's own error at each concurrency of the plan. The open loop's is no more than a limit.
async fn calibrations(cells: &[PlannedCell], events: &Events, stop: &Stop) -> Vec<Calibration> {
    let levels: BTreeSet<u32> = cells.iter().filter(|cell| cell.layer != Layer::OpenLoop).map(|cell| cell.concurrency).collect();
    let mut found = Vec::new();
    for concurrency in levels {
        match calibrate(&CalibrateOptions::before_a_run(concurrency), stop.clone()).await {
            Ok(calibration) => {
                let ms = |off: Option<Lateness>| off.map_or_else(|| "?".to_owned(), |off| format!("{:.2}", off.p99_us as f64 / 1e3));
                let (ttft, itl) = (ms(calibration.ttft_off), ms(calibration.itl_off));
                let tokens = calibration.tokens_off;
                events.emit(Event::Startup(format!(
                    "client C={concurrency}: off by {ttft} ms in TTFT and {itl} ms in ITL (p99), {tokens:+} of {} tokens",
                    calibration.tokens
                )));
                found.push(calibration);
            }
            Err(CalibrateError::Stopped) => break,
            Err(error) => events.emit(Event::Warning(error.to_string())),
        }
    }
    found
}

/// The request sent ahead is the context's prefill, where none of its prompt was in the cache before.
fn prefill_row(measured: &CellMeasurement) -> Option<Prefill> {
    let scout = measured.scout.as_ref()?;
    Some(Prefill {
        context_tokens: measured.id.context_tokens,
        ttft_s: scout.ttft_us.filter(|us| *us > 0)? as f64 / 1e6,
        prompt_tokens: scout.prompt_tokens.map_or_else(|| measured.id.context_tokens.into(), Into::into),
        cached_tokens: scout.cached_tokens.map(Into::into),
    })
}

/// A record without measurements; interrupted until it is known to be complete.
fn record(options: &RunOptions, clock: Clock, target: &Target) -> RunRecord {
    RunRecord {
        clock,
        status: Status::Interrupted,
        calibration: Vec::new(),
        run_id: String::new(),
        options: Options::of(options, target),
        server: Server {
            engine: target.engine.as_str().to_owned(),
            version: target.version.clone(),
            display: target.display().to_owned(),
            url: target.address.url(""),
            address: None,
            limits: target.limits.iter().map(|limit| (limit.name.to_owned(), limit.value, limit.source.clone())).collect(),
            metrics_warning: target.metrics_warning().map(str::to_owned),
        },
        cpus: std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
        left_out: Vec::new(),
        events: Vec::new(),
        scrapes: Vec::new(),
        decode_warmup_context: None,
        prefill: Vec::new(),
        cells: Vec::new(),
    }
}
