//! The whole of a run: detect the server, make prompts, plan, measure cell after cell, leave a record.
//! It prints nothing and writes no file.

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
use crate::plan::{LeftOut, Plan, PlanInput, PlannedCell, plan};
use crate::prompt::{self, Prompts};
use crate::report::{self, ArrivalsLimit, CellContext, Options, Prefill, RunRecord, Server, Status};
use crate::scrape::Scraper;
use crate::target::{MetricsAccess, Target, TargetError, TargetOptions};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokscope_shared::report::cell::Cell;

/// For the server's name to be looked up.
const RESOLVE_LIMIT: Duration = Duration::from_secs(10);

/// So many cells in a row without a connection end the run.
const DEAD_CELLS: u32 = 2;

/// What to measure, as asked for.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The server.
    pub target: TargetOptions,
    /// Levels of concurrency, in the order asked for.
    pub concurrency: Vec<u32>,
    /// Context lengths in tokens, in the order asked for.
    pub contexts: Vec<u32>,
    /// Seconds of a window.
    pub duration_s: f64,
    /// Output limit a request.
    pub max_tokens: u32,
    /// Temperature to send.
    pub temperature: Option<f64>,
    /// Whether the end-of-sequence token may end a generation.
    pub respect_eos: bool,
    /// Whether prefill rows are left out.
    pub skip_prefill: bool,
    /// Limit of a cell's warm-up in seconds; 0 is automatic.
    pub cell_warmup_timeout_s: f64,
    /// Reference acceptance length; 0 is none.
    pub accept_len_ref: f64,
    /// Seed of the prompts' text.
    pub seed: u64,
    /// Whether the client itself is measured before the cells.
    pub calibrate: bool,
    /// What each cell's sample of arrivals may take in the report, kB.
    pub arrivals_kb: u32,
}

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

/// Runs it. Events go to `events`; `stop` ends it early, with what there is.
///
/// # Errors
/// Nothing could be measured, with the reason. A cell that fails is no error.
pub async fn run(options: &RunOptions, clock: Clock, events: &Events, mut stop: Stop) -> Result<RunRecord, RunError> {
    let mut waiting = |text: &str| events.emit(Event::Startup(text.to_owned()));
    let target = tokio::select! {
        found = Target::detect(&options.target, &mut waiting) => found?,
        () = stop.stopped() => return Err(RunError::Stopped),
    };
    announce(options, &target, events);
    let prompts = tokio::select! {
        made = prompt::calibrate(&target, &options.contexts, options.seed) => made,
        () = stop.stopped() => return Ok(record(options, clock, &target, None, Vec::new())),
    };
    prompts.startup_lines.iter().for_each(|line| events.emit(Event::Startup(line.clone())));
    prompts.warnings.iter().for_each(|line| events.emit(Event::Warning(line.clone())));
    let plan = plan(&PlanInput {
        contexts: options.contexts.clone(),
        concurrency: options.concurrency.clone(),
        max_tokens: options.max_tokens,
        kv_budget_tokens: target.kv_budget_tokens(),
        max_running: target.max_running(),
        max_model_len: target.max_model_len(),
        prompt_tokens: prompts.prompt_tokens(),
    });
    if plan.cells.is_empty() {
        return Err(RunError::NothingFits(plan.left_out));
    }
    raise_open_files(plan.cells.iter().map(|cell| cell.concurrency).max().unwrap_or(0))?;
    events.emit(Event::Planned { cells: plan.cells.len(), window_us: (options.duration_s * 1e6) as u64 });
    measure(options, clock, events, stop, &target, &prompts, plan).await
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

async fn measure(
    options: &RunOptions,
    clock: Clock,
    events: &Events,
    stop: Stop,
    target: &Target,
    prompts: &Prompts,
    plan: Plan,
) -> Result<RunRecord, RunError> {
    let load = Load::start(clock, 1).map_err(RunError::Threads)?;
    let endpoint = Arc::new(Endpoint::resolve(&target.address, &target.roots, RESOLVE_LIMIT).await?);
    let scraper = matches!(target.metrics, MetricsAccess::Available).then(|| Scraper::start(clock, target));
    let bench = Bench { target, endpoint: &endpoint, load: &load, prompts, scraper: scraper.as_ref(), events };
    let settings = CellOptions {
        duration_us: (options.duration_s * 1e6) as u64,
        warmup_timeout_us: Some((options.cell_warmup_timeout_s * 1e6) as u64).filter(|us| *us > 0),
        ignore_eos: !options.respect_eos,
        temperature: options.temperature,
        ..CellOptions::default()
    };
    let mut run = record(options, clock, target, Some(prompts), plan.left_out);
    if options.calibrate {
        run.calibration = calibrations(&plan.cells, events, &stop).await;
    }
    let (mut prefilled, mut dead) = (BTreeSet::new(), 0);
    for (index, planned) in plan.cells.iter().enumerate() {
        if stop.is_stopped() {
            break;
        }
        let measured = bench.measure(index, *planned, &settings, &stop).await;
        if let Some(row) = prefill_row(&measured).filter(|_| !options.skip_prefill && prefilled.insert(planned.context_tokens)) {
            run.prefill.push(row);
        }
        run.server.address = Some(endpoint.address().to_string());
        dead = if measured.window.is_none() && never_connected(&measured) { dead + 1 } else { 0 };
        // A cell that was stopped before its window opened says nothing.
        if measured.window.is_some() || !measured.interrupted {
            run.cells.push(assembled(&measured, options, prompts, &run.calibration));
        }
        if dead == DEAD_CELLS {
            run.status = Status::Failed;
            events.emit(Event::Warning(format!(
                "the server can't be reached any more: the run ends after {} of {} cells",
                index + 1,
                plan.cells.len()
            )));
            break;
        }
    }
    if let Some(scraper) = &scraper {
        run.scrapes = scraper.since(0).into_iter().filter_map(Result::ok).collect();
    }
    if run.cells.len() == plan.cells.len() && !stop.is_stopped() && run.status != Status::Failed {
        run.status = Status::Complete;
    }
    Ok(run)
}

/// Whether no stream of the cell reached the server.
fn never_connected(measured: &CellMeasurement) -> bool {
    let mut requests = measured.streams.iter().flat_map(|stream| &stream.requests).peekable();
    requests.peek().is_some() && requests.all(|request| request.outcome == Outcome::Connect)
}

/// The client's own error at each concurrency of the plan.
async fn calibrations(cells: &[PlannedCell], events: &Events, stop: &Stop) -> Vec<Calibration> {
    let levels: BTreeSet<u32> = cells.iter().map(|cell| cell.concurrency).collect();
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

fn assembled(measured: &CellMeasurement, options: &RunOptions, prompts: &Prompts, calibrations: &[Calibration]) -> Cell {
    let text = prompts.context(measured.id.context_tokens);
    report::cell(
        measured,
        &CellContext {
            prompts: "shared",
            prompt_tokens: text.map(|text| (text.prompt_tokens, text.counted_by.as_str())),
            accept_len_ref: options.accept_len_ref,
            calibration: calibrations.iter().find(|c| c.concurrency == measured.id.concurrency),
            arrivals: ArrivalsLimit {
                bytes: options.arrivals_kb as usize * 1_000,
                seed: options.seed.wrapping_add(measured.id.index as u64),
            },
        },
    )
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
fn record(options: &RunOptions, clock: Clock, target: &Target, prompts: Option<&Prompts>, left_out: Vec<LeftOut>) -> RunRecord {
    RunRecord {
        clock,
        status: Status::Interrupted,
        calibration: Vec::new(),
        run_id: prompts.map_or_else(String::new, |prompts| prompts.run_id.clone()),
        options: Options {
            host: target.display().to_owned(),
            port: options.target.port,
            model: target.model.clone(),
            concurrency: options.concurrency.clone(),
            contexts: options.contexts.clone(),
            duration: options.duration_s,
            max_tokens: options.max_tokens,
            temperature: options.temperature,
            respect_eos: options.respect_eos,
            skip_prefill: options.skip_prefill,
            kv_budget: options.target.kv_budget_tokens,
            dcp_size: options.target.dcp_size,
            cell_warmup_timeout_seconds: options.cell_warmup_timeout_s,
            accept_len_ref: options.accept_len_ref,
            prompts: "shared",
            seed: options.seed,
            calibrate: options.calibrate,
            arrivals_kb: options.arrivals_kb,
        },
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
        left_out,
        events: Vec::new(),
        scrapes: Vec::new(),
        prefill: Vec::new(),
        cells: Vec::new(),
    }
}
