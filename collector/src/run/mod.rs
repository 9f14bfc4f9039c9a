//! The whole of a run: detect the server, make prompts, plan, measure cell after cell, leave a record.
//! It prints nothing and writes no file.

mod kept;
mod options;
mod warmup;

pub use kept::{Earlier, Kept, MeasuredCell, Stretch};
pub use options::{Arrivals, BurstOptions, PrefillMetric, PrefillOptions, PromptMode, RunOptions};

use crate::calibrate::{CalibrateError, CalibrateOptions, Calibration, calibrate};
use crate::cell::{Bench, CellMeasurement, CellOptions, Isolation};
use crate::clock::{Clock, slept_us};
use crate::event::{Event, Events};
use crate::load::endpoint::{ConnectionError, Endpoint};
use crate::load::files::{TooFewFiles, raise_open_files};
use crate::load::health::Lateness;
use crate::load::record::Outcome;
use crate::load::stop::Stop;
use crate::load::{Load, LoadLimits};
use crate::plan::{Layer, LeftOut, MIN_OUTPUT_TOKENS, Plan, PlanInput, PlannedCell, plan};
use crate::prefill::{self, Ahead, Finding, PrefillContexts, PrefixCache, StandaloneOptions, prefix_cache};
use crate::prompt::{self, Dataset, PromptOptions, Prompts};
use crate::report::{self, ArrivalsLimit, CellContext, DatasetUse, Options, RunRecord, Server, Status};
use crate::scrape::Scraper;
use crate::target::{MetricsAccess, Target, TargetError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokscope_shared::report::cell::Cell;

/// For the server's name to be looked up.
const RESOLVE_LIMIT: Duration = Duration::from_secs(10);

/// A sleep of the machine is longer than this; less is how far two clocks are read apart.
const SLEPT_US: u64 = 100_000;

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
    /// Another run than the one to be gone on with.
    #[error("--resume: not the same run: {}", .0.join("; "))]
    Differs(Vec<String>),
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
    /// Which contexts have a row of prefill.
    pub prefill: PrefillContexts,
    /// Whether the server keeps the beginnings of prompts; none where no context asks for it.
    pub prefix_cache: Option<PrefixCache>,
    endpoint: Arc<Endpoint>,
    load: Load,
    scraper: Option<Scraper>,
    isolation: Isolation,
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
    // The predecessor says the word twice, and those who wait for the line know it so.
    events.emit(Event::Startup("startup preparation done".to_owned()));
    let cells = prepared.plan.cells.iter().filter(|cell| !kept.is_done(cell)).copied().collect();
    events.emit(Event::Planned { cells, window_us: (options.duration_s * 1e6) as u64 });
    Session { options, prepared: &prepared, events, stop, kept }.measure().await;
    Ok(())
}

/// All that comes before the first measurement: nothing is sent but questions and probes. `None` where it was stopped
/// when the server was known already.
///
/// # Errors
/// The server can't be measured, with the reason.
pub async fn prepare(options: &RunOptions, clock: Clock, events: &Events, stop: Stop, kept: &Kept) -> Result<Option<Prepared>, RunError> {
    let target = known_server(options, clock, events, stop.clone(), kept).await?;
    let prefill = match (options.prefill.skip, options.prefill.standalone) {
        (true, _) => PrefillContexts::default(),
        (false, alone) => prefill::contexts(&options.contexts, &options.prefill.contexts, target.max_model_len(), alone),
    };
    events.emit(Event::Startup(prefill_line(options, &prefill)));
    let Some(prompts) = prompts(options, &prefill, &target, stop.clone()).await else { return Ok(None) };
    prompts.startup_lines.iter().for_each(|line| events.emit(Event::Startup(line.clone())));
    prompts.warnings.iter().for_each(|line| events.emit(Event::Warning(line.clone())));
    let load = Load::start(clock, 1).map_err(RunError::Threads)?;
    let endpoint = Arc::new(Endpoint::resolve(&target.address, &target.roots, RESOLVE_LIMIT).await?);
    let scraper = matches!(target.metrics, MetricsAccess::Available).then(|| Scraper::start(clock, &target));
    let mut prepared = Prepared {
        target,
        prompts,
        plan: Plan::default(),
        prefill,
        prefix_cache: None,
        endpoint,
        load,
        scraper,
        isolation: Isolation::new(),
    };
    if options.contexts.iter().any(|context| *context > 0) {
        let found = prefix_cache::find(&prepared.bench(events), LoadLimits::default(), &stop).await;
        if stop.is_stopped() {
            return Ok(None);
        }
        events.emit(Event::Startup(format!("prefix cache: {} ({})", found.finding.as_str(), found.evidence)));
        kept.with(|record| record.server.prefix_cache = Some(found.clone()));
        prepared.prefix_cache = Some(found);
    }
    prepared.plan = plan(&plan_input(options, &prepared));
    kept.prompts_made(&prepared.prompts.run_id);
    kept.with(|record| {
        record.left_out.clone_from(&prepared.plan.left_out);
        record.planned = prepared.plan.cells.iter().map(PlannedCell::place).collect();
    });
    Ok(Some(prepared))
}

/// What is asked: the user's own prompts, or some that are made to length. `None` where it was stopped meanwhile.
async fn prompts(options: &RunOptions, prefill: &PrefillContexts, target: &Target, mut stop: Stop) -> Option<Prompts> {
    if let Some(dataset) = &options.dataset {
        return Some(prompt::own(dataset, options.seed));
    }
    let wanted = PromptOptions { contexts: wanted(options, prefill, target), seed: options.seed, mode: options.prompts };
    tokio::select! {
        made = prompt::make(target, &wanted) => Some(made),
        () = stop.stopped() => None,
    }
}

/// The server, and what it takes; the record begins with it.
async fn known_server(options: &RunOptions, clock: Clock, events: &Events, mut stop: Stop, kept: &Kept) -> Result<Target, RunError> {
    let mut waiting = |text: &str| events.emit(Event::Startup(text.to_owned()));
    let mut target = tokio::select! {
        found = Target::detect(&options.target, &mut waiting) => found?,
        () = stop.stopped() => return Err(RunError::Stopped),
    };
    announce(options, &target, events);
    tokio::select! {
        agreed = target.negotiate(options.max_tokens, !options.respect_eos, options.temperature) => match agreed {
            // A server that fails by itself fails in each cell, and the report says so.
            Err(error @ TargetError::ChatFailed { .. }) => events.emit(Event::Warning(error.to_string())),
            agreed => agreed?,
        },
        () = stop.stopped() => return Err(RunError::Stopped),
    }
    target.accepted.notes.iter().for_each(|line| events.emit(Event::Warning(line.clone())));
    kept.begin(record(options, clock, &target))?;
    if let (Some(dataset), Some(used)) = (&options.dataset, kept.with(|record| record.dataset.as_ref().map(|of_record| of_record.used))) {
        dataset.go_on_after(used);
    }
    Ok(target)
}

/// Where prefill is measured, in the predecessor's words.
fn prefill_line(options: &RunOptions, prefill: &PrefillContexts) -> String {
    let labels = |contexts: &mut dyn Iterator<Item = u32>| {
        let labels: Vec<String> = contexts.map(|context| format!("'{}'", crate::event::context_label(context))).collect();
        format!("[{}]", labels.join(", "))
    };
    let recorded = || prefill.recorded.iter().copied();
    if options.prefill.skip {
        return "prefill tests: skipped".to_owned();
    }
    if options.prefill.standalone {
        return format!("prefill tests: standalone cold profile {}", labels(&mut recorded()));
    }
    let scouts = labels(&mut recorded().filter(|context| !prefill.extras.contains(context)));
    let extras = labels(&mut prefill.extras.iter().copied());
    let besides = if prefill.extras.is_empty() { String::new() } else { format!("; scout-only extras {extras}") };
    format!("prefill tests: integrated from decode scout requests {scouts}{besides}")
}

/// All contexts for which prompts are needed; one that can't fit the model has none.
fn wanted(options: &RunOptions, prefill: &PrefillContexts, target: &Target) -> Vec<u32> {
    let limit = target.max_model_len().unwrap_or(u64::MAX);
    let all = options.contexts.iter().chain(&prefill.recorded).copied();
    let fitting = all.filter(|context| u64::from(*context) + MIN_OUTPUT_TOKENS <= limit);
    fitting.collect::<BTreeSet<_>>().into_iter().collect()
}

fn plan_input(options: &RunOptions, prepared: &Prepared) -> PlanInput {
    let Prepared { target, prompts, .. } = prepared;
    let found = prepared.prefix_cache.as_ref();
    let shared = found.is_some_and(|found| found.not_shared().is_none());
    let alike = options.prompts != PromptMode::Distinct;
    PlanInput {
        contexts: options.contexts.clone(),
        concurrency: options.concurrency.clone(),
        layers: options.layers(),
        repeats: options.repeat,
        max_tokens: options.max_tokens,
        kv_budget_tokens: target.kv_budget_tokens(),
        kv_block_tokens: target.kv_block_tokens(),
        engines: target.data_parallel_engines().unwrap_or(1),
        kv_budget_per_engine: target.kv_budget_per_engine(),
        max_running: target.max_running(),
        max_model_len: target.max_model_len(),
        max_tokens_limit: target.accepted.max_tokens_limit,
        prompt_tokens: if options.dataset.is_some() { BTreeMap::new() } else { prompts.prompt_tokens() },
        shared_tokens: if shared { prompts.shared_tokens() } else { BTreeMap::new() },
        not_shared: found.filter(|_| alike).and_then(PrefixCache::not_shared),
        own_prompts: options.dataset.is_some(),
    }
}

impl Prepared {
    fn bench<'a>(&'a self, events: &'a Events) -> Bench<'a> {
        Bench {
            target: &self.target,
            endpoint: &self.endpoint,
            load: &self.load,
            prompts: &self.prompts,
            scraper: self.scraper.as_ref(),
            events,
            isolation: &self.isolation,
        }
    }
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
        let to_come: Vec<PlannedCell> = self.prepared.plan.cells.iter().filter(|cell| !self.kept.is_done(cell)).copied().collect();
        if self.options.calibrate {
            self.calibrations(&to_come).await;
        }
        self.prefill(!to_come.is_empty()).await;
        let mut all = true;
        if !self.options.prefill.only {
            if !to_come.is_empty() {
                self.warm_up_decode().await;
            }
            all = self.cells().await;
        }
        self.keep_scrapes();
        if let Some(text) = self.options.dataset.as_ref().and_then(Dataset::wrapped) {
            self.events.emit(Event::Warning(text));
        }
        if all && !self.stop.is_stopped() {
            self.kept.with(|record| record.status = Status::Complete);
        }
    }

    /// What comes before the matrix, as far as an earlier stretch hasn't measured it. `cells`: whether there are any
    /// to come.
    async fn prefill(&self, cells: bool) {
        let done = self.kept.prefilled();
        let options = self.prefill_options();
        if self.options.prefill.standalone {
            let missing: Vec<u32> = self.prepared.prefill.recorded.iter().copied().filter(|context| !done.contains(context)).collect();
            if !missing.is_empty() || cells {
                self.warm_up_prefill(false).await;
            }
            prefill::standalone(&self.bench(), &missing, &options, &self.stop, |row| self.kept.add_prefill(row)).await;
            return;
        }
        let missing: Vec<u32> = self.prepared.prefill.extras.iter().copied().filter(|context| !done.contains(context)).collect();
        if !missing.is_empty() || cells {
            self.warm_up_prefill(true).await;
        }
        for context in missing {
            if self.stop.is_stopped() {
                return;
            }
            self.kept.add_prefill(prefill::ahead(&self.bench(), context, Ahead::Alone, &options, &self.stop).await);
        }
    }

    async fn calibrations(&self, cells: &[PlannedCell]) {
        let known = self.kept.with(|record| record.calibration.clone());
        let found = calibrations(cells, &known, self.events, &self.stop).await;
        self.kept.with(|record| {
            record.calibration.extend(found);
            record.calibration.sort_by_key(|calibration| calibration.concurrency);
        });
    }

    fn keep_scrapes(&self) {
        if let Some(scraper) = &self.prepared.scraper {
            let scrapes = scraper.since(0).into_iter().filter_map(Result::ok).collect();
            self.kept.with(|record| record.scrapes = scrapes);
        }
    }

    /// All cells of the plan that were not measured in an earlier stretch; whether all were tried.
    async fn cells(&self) -> bool {
        let settings = self.cell_options();
        let (mut prefilled, mut dead, mut warned) = (self.kept.prefilled(), 0, BTreeSet::new());
        // Whose texts reached the server in this stretch: an earlier one's had another beginning.
        let mut sent = BTreeSet::new();
        let plan = &self.prepared.plan;
        for (index, planned) in plan.cells.iter().enumerate() {
            if self.stop.is_stopped() {
                return false;
            }
            if self.kept.is_done(planned) {
                continue;
            }
            let (stop, slept_before_us) = (self.stop.for_cell(), slept_us());
            let filled = self.integrated_prefill(planned.context_tokens, &mut prefilled).await;
            let first = sent.insert(planned.context_tokens) && !filled;
            // A server that keeps no prefixes reads the context for each stream anyway.
            let scout = !filled && !self.keeps_no_prefixes();
            let settings = CellOptions { scout, ..settings };
            let measured = self.bench().measure(index, *planned, &settings, &stop).await;
            let slept_us = slept_us().saturating_sub(slept_before_us);
            self.keep_scrapes();
            let slept = slept_us >= SLEPT_US;
            if slept {
                let s = slept_us as f64 / 1e6;
                self.events.emit(Event::Warning(format!("the machine slept for {s:.1} s: {} is no measurement", planned.place())));
            }
            dead = if measured.window.is_none() && never_connected(&measured) { dead + 1 } else { 0 };
            if stop.is_skipped() {
                self.events.emit(Event::CellSkipped { cell: measured.id });
                self.kept.with(|record| record.skipped.push(planned.place()));
                continue;
            }
            self.note_prompts(&measured, &mut warned);
            // A cell that was stopped before its window opened says nothing.
            if measured.window.is_some() || !measured.interrupted {
                let mut cell = self.assembled(&measured, first);
                if slept {
                    report::slept(&mut cell, slept_us);
                }
                let (layer, per_s) = (planned.layer, planned.place().per_s);
                let measured = MeasuredCell { layer, per_s, repeat: planned.repeat, order: index, cell };
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
        self.prepared.bench(self.events)
    }

    /// How far the user's own prompts are; and once for each context, that made ones are not as long as they were made.
    fn note_prompts(&self, measured: &CellMeasurement, warned: &mut BTreeSet<u32>) {
        if let Some(dataset) = &self.options.dataset {
            self.kept.with(|record| record.dataset.iter_mut().for_each(|of_record| of_record.used = dataset.used()));
            return;
        }
        let context = measured.id.context_tokens;
        let off = self.expected(context).and_then(|expected| measured.prompt_lengths(Some(expected))?.warning(context, expected));
        if let Some(text) = off.filter(|_| warned.insert(context)) {
            self.events.emit(Event::Warning(text));
        }
    }

    /// What the prompts of a context have in tokens, where that was counted.
    fn expected(&self, context: u32) -> Option<u64> {
        let text = self.prepared.prompts.context(context)?;
        text.counted_by.is_count().then_some(text.prompt_tokens)
    }

    fn prefill_options(&self) -> StandaloneOptions {
        let prefill = &self.options.prefill;
        StandaloneOptions { duration_us: (prefill.duration_s * 1e6) as u64, metric: prefill.metric, ..StandaloneOptions::default() }
    }

    /// The row of a context, before its first cell.
    async fn integrated_prefill(&self, context: u32, done: &mut BTreeSet<u32>) -> bool {
        let wanted = !self.options.prefill.standalone && self.prepared.prefill.recorded.contains(&context);
        if !wanted || !done.insert(context) {
            return false;
        }
        let row = prefill::ahead(&self.bench(), context, Ahead::OfCells, &self.prefill_options(), &self.stop).await;
        self.kept.add_prefill(row);
        true
    }

    fn keeps_no_prefixes(&self) -> bool {
        self.prepared.prefix_cache.as_ref().is_some_and(|found| found.finding == Finding::DoesNot)
    }

    fn cell_options(&self) -> CellOptions {
        let options = self.options;
        CellOptions {
            duration_us: (options.duration_s * 1e6) as u64,
            warmup_timeout_us: Some((options.cell_warmup_timeout_s * 1e6) as u64).filter(|us| *us > 0),
            ignore_eos: !options.respect_eos,
            temperature: options.temperature,
            seed: options.seed,
            loop_guard: options.loop_guard,
            ..CellOptions::default()
        }
    }

    /// `first`: whether the context had not been sent before.
    fn assembled(&self, measured: &CellMeasurement, first: bool) -> Cell {
        let text = self.prepared.prompts.context(measured.id.context_tokens).filter(|_| self.options.dataset.is_none());
        let calibrations = self.kept.with(|record| record.calibration.clone());
        report::cell(
            measured,
            &CellContext {
                mode: mode(measured.id.layer, self.options.burst.request_count > 0),
                prompts: self.options.prompts(),
                prompt_tokens: text.map(|text| (text.prompt_tokens, text.counted_by)),
                accept_len_ref: self.options.accept_len_ref,
                scout_was_first: first,
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

/// The client's own error at each concurrency of these cells, where it isn't known yet. The open loop's is no more than
/// a limit.
async fn calibrations(cells: &[PlannedCell], known: &[Calibration], events: &Events, stop: &Stop) -> Vec<Calibration> {
    let levels = cells.iter().filter(|cell| cell.layer != Layer::OpenLoop).map(|cell| cell.concurrency);
    let levels: BTreeSet<u32> = levels.filter(|level| known.iter().all(|known| known.concurrency != *level)).collect();
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
            refused: target.accepted.notes.clone(),
            prefix_cache: None,
            limits: target.limits.iter().map(|limit| (limit.name.to_owned(), limit.value, limit.source.clone())).collect(),
            metrics_warning: target.metrics_warning().map(str::to_owned),
        },
        cpus: std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
        left_out: Vec::new(),
        events: Vec::new(),
        scrapes: Vec::new(),
        earlier_series: tokscope_shared::report::own::RunSeries::default(),
        stretches: Vec::new(),
        planned: Vec::new(),
        skipped: Vec::new(),
        decode_warmup_context: None,
        decode_warmup_loops: Vec::new(),
        dataset: options.dataset.as_ref().map(DatasetUse::of),
        prefill: Vec::new(),
        cells: Vec::new(),
    }
}
