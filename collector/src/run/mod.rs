//! The whole of a run: detect the server, make prompts, plan, measure cell after cell, leave a record.
//! It prints nothing and writes no file.

mod kept;
mod options;
mod prepare;
mod warmup;

pub use kept::{Earlier, Kept, MeasuredCell, Stretch};
pub use options::{Arrivals, BurstOptions, PrefillMetric, PrefillOptions, PromptMode, RunOptions};
pub use prepare::{Prepared, prepare};

use crate::calibrate::{CalibrateError, CalibrateOptions, Calibration, calibrate};
use crate::cell::{Bench, CellMeasurement, CellOptions};
use crate::clock::{Clock, slept_us};
use crate::event::{Event, Events};
use crate::load::endpoint::ConnectionError;
use crate::load::files::{TooFewFiles, raise_open_files};
use crate::load::health::Lateness;
use crate::load::record::Outcome;
use crate::load::stop::Stop;
use crate::plan::{Layer, LeftOut, PlannedCell};
use crate::prefill::{self, Ahead, Finding, StandaloneOptions};
use crate::prompt::Dataset;
use crate::report::{self, ArrivalsLimit, CellContext, Status};
use crate::scrape::restarts;
use crate::target::TargetError;
use std::collections::BTreeSet;
use std::time::Duration;
use tokscope_shared::report::cell::Cell;

/// A sleep of the machine is longer than this; less is how far two clocks are read apart.
const SLEPT_US: u64 = 100_000;

/// A server that takes no connection, so often asked and so long after each other, is gone.
const DEAD_TRIES: u32 = 3;
const BETWEEN_TRIES: Duration = Duration::from_secs(1);
/// For one of these.
const TRY_LIMIT: Duration = Duration::from_secs(3);

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

/// Runs it. Events go to `events`, what is measured to `kept`, as it comes; `stop` ends it early.
///
/// # Errors
/// Nothing could be measured, with the reason. A cell that fails is no error.
pub async fn run(options: &RunOptions, clock: Clock, events: &Events, stop: Stop, kept: &Kept) -> Result<(), RunError> {
    let Some(prepared) = prepare(options, clock, events, stop.clone(), kept).await? else { return Ok(()) };
    if prepared.plan.cells.is_empty() && !options.prefill.only {
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
            self.events.emit(Event::LateWarning(text));
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
        let (mut prefilled, mut warned, mut restarts) = (self.kept.prefilled(), BTreeSet::new(), 0);
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
                self.events.emit(Event::LateWarning(format!("the machine slept for {s:.1} s: {} is no measurement", planned.place())));
            }
            self.note_restart(&mut restarts);
            let dead = lost_connections(&measured) && !self.stop.is_stopped() && self.is_server_gone().await;
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
            if dead {
                self.kept.with(|record| record.status = Status::Failed);
                let (done, all) = (index + 1, plan.cells.len());
                self.events.emit(Event::LateWarning(format!(
                    "the server can't be reached any more: the run ends after {done} of {all} cells; --resume goes on when it is back"
                )));
                return false;
            }
        }
        true
    }

    fn bench(&self) -> Bench<'_> {
        self.prepared.bench(self.events)
    }

    /// Whether nobody takes a connection at the server's address any more.
    async fn is_server_gone(&self) -> bool {
        let address = self.prepared.endpoint.address();
        for attempt in 0..DEAD_TRIES {
            if attempt > 0 {
                tokio::time::sleep(BETWEEN_TRIES).await;
            }
            let connected = tokio::time::timeout(TRY_LIMIT, tokio::net::TcpStream::connect(address)).await;
            if connected.is_ok_and(|connected| connected.is_ok()) {
                return false;
            }
        }
        true
    }

    /// Says that the server's counters began anew, once for each time.
    fn note_restart(&self, known: &mut usize) {
        let Some(scraper) = &self.prepared.scraper else { return };
        let scrapes: Vec<_> = scraper.since(0).into_iter().filter_map(Result::ok).collect();
        let times = restarts(&scrapes);
        if times > *known {
            let text = "the server's count of tokens went back: it was started anew, or another one answers; cells before and after may \
                        be of unlike servers";
            self.events.emit(Event::LateWarning(text.to_owned()));
        }
        *known = times;
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
            self.events.emit(Event::LateWarning(text));
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

/// `benchmark_mode`. `finite`: the matrix itself is one of finite requests.
fn mode(layer: Layer, finite: bool) -> &'static str {
    match (layer, finite) {
        (Layer::Sustained, _) => "duration",
        (Layer::Burst, true) => "request-count",
        (Layer::Burst, false) => "burst-e2e",
        (Layer::OpenLoop, _) => "open-loop",
    }
}

/// Whether requests of a cell failed as they do where the server is gone.
fn lost_connections(measured: &CellMeasurement) -> bool {
    let lost = |outcome: &Outcome| matches!(outcome, Outcome::Connect | Outcome::Truncated);
    measured.streams.iter().flat_map(|stream| &stream.requests).any(|request| lost(&request.outcome))
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
            Err(error) => events.emit(Event::LateWarning(error.to_string())),
        }
    }
    found
}
