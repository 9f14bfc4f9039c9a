//! From what was measured to the report. Old keys follow the predecessor's formulas; what is new goes into the
//! two `tokscope` sections. It measures nothing and writes no file.

mod arrivals;
mod cell;
mod distributions;
mod found;
mod loops;
mod methodology;
mod missing;
mod open_loop;
mod options;
mod own_cell;
mod prefill;
mod slept;
mod startup;

pub use arrivals::ArrivalsLimit;
pub use cell::{CellContext, cell};
pub(crate) use loops::findings as loop_findings;
pub use options::Options;
pub(crate) use slept::slept;

use crate::calibrate::Calibration;
use crate::clock::{Clock, rfc3339};
use crate::event::Logged;
use crate::plan::{Layer, LeftOut, Place as CellPlace};
use crate::prefill::{PrefillRow, PrefixCache};
use crate::prompt::Dataset;
use crate::run::{MeasuredCell, Stretch};
use crate::scrape::snapshot::Snapshot;
use serde_json::Value;
use tokscope_shared::field::{Field, Int, List, Num, Table};
use tokscope_shared::report::cell::{Cell, LoopFinding};
use tokscope_shared::report::diagnostics::{AmdFabric, P2pMark, P2pOverride};
use tokscope_shared::report::hardware::Hardware;
use tokscope_shared::report::metadata::Metadata;
use tokscope_shared::report::own::{self, RunOwn, RunSeries, ServerOwn};
use tokscope_shared::report::{Report, SCHEMA};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Every planned cell was tried.
    Complete,
    /// The user stopped it.
    Interrupted,
    /// It could not go on.
    Failed,
}

impl Status {
    /// Its name in the report.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Complete => "complete",
            Status::Interrupted => "interrupted",
            Status::Failed => "failed",
        }
    }
}

/// Everything a run leaves behind.
#[derive(Debug)]
pub struct RunRecord {
    /// The run's clock.
    pub clock: Clock,
    /// How it ended.
    pub status: Status,
    /// The client's own error, measured before.
    pub calibration: Vec<Calibration>,
    /// Twelve letters.
    pub run_id: String,
    /// Options.
    pub options: Options,
    /// The server.
    pub server: Server,
    /// The client's CPUs.
    pub cpus: usize,
    /// What was left out.
    pub left_out: Vec<LeftOut>,
    /// What happened.
    pub events: Vec<Logged>,
    /// Scrapes over this stretch of the run.
    pub scrapes: Vec<Snapshot>,
    /// Those of earlier stretches, as columns.
    pub earlier_series: RunSeries,
    /// The stretches of the run; without a resume one.
    pub stretches: Vec<Stretch>,
    /// What was to be measured.
    pub planned: Vec<CellPlace>,
    /// What the user skipped of it.
    pub skipped: Vec<CellPlace>,
    /// The context of the hidden decode before the matrix, if there was one.
    pub decode_warmup_context: Option<u32>,
    /// What repeated itself in it, in this stretch of the run.
    pub decode_warmup_loops: Vec<LoopFinding>,
    /// The user's own prompts, where those are sent.
    pub dataset: Option<DatasetUse>,
    /// Prefill rows.
    pub prefill: Vec<PrefillRow>,
    /// The cells, in order of execution.
    pub cells: Vec<MeasuredCell>,
}

/// The user's own prompts, as the report names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetUse {
    /// The file, as it was named.
    pub file: String,
    /// SHA-256 of its bytes.
    pub sha256: String,
    /// Prompts in it.
    pub prompts: usize,
    /// Prompts that were sent from it, again from its beginning where they were used up.
    pub used: usize,
}

impl DatasetUse {
    /// Of a file of which nothing was sent in this stretch yet.
    #[must_use]
    pub fn of(dataset: &Dataset) -> Self {
        let (file, sha256) = (dataset.file().display().to_string(), dataset.sha256().to_owned());
        Self { file, sha256, prompts: dataset.len(), used: 0 }
    }

    fn own(&self) -> own::Dataset {
        own::Dataset {
            file: Field::text(&self.file),
            sha256: Field::text(&self.sha256),
            prompts: Field::count(self.prompts as u64),
            used: Field::count(self.used as u64),
            ..own::Dataset::default()
        }
    }
}

/// The server as the report names it.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// `vllm`, `sglang`, `llama_cpp`, `openai_proxy`.
    pub engine: String,
    /// Version.
    pub version: Option<String>,
    /// `host:port` or the URL given, without credentials.
    pub display: String,
    /// The full base URL, without credentials.
    pub url: String,
    /// Its address as resolved.
    pub address: Option<String>,
    /// Name, value and source of each limit.
    pub limits: Vec<(String, u64, String)>,
    /// What it refused of what was to be sent, each in a sentence.
    pub refused: Vec<String>,
    /// Whether it keeps the beginnings of prompts; none where that was not tried.
    pub prefix_cache: Option<PrefixCache>,
    /// Why its metrics can't be read; none where they can.
    pub metrics_warning: Option<String>,
}

impl Server {
    fn limit(&self, name: &str) -> Option<u64> {
        self.limits.iter().find(|limit| limit.0 == name).map(|limit| limit.1)
    }
}

/// The report of a run.
pub fn assemble(run: &RunRecord) -> Report {
    let ended_us = run.clock.now_us();
    let finite = run.options.request_count > 0;
    let primary = medians(&run.cells, if finite { Layer::Burst } else { Layer::Sustained });
    let burst = if finite { Vec::new() } else { medians(&run.cells, Layer::Burst) };
    Report {
        tokscope: Field::Is(own(run, ended_us)),
        metadata: Field::Is(metadata(run)),
        startup_diagnostics: Field::Is(startup::diagnostics(run)),
        nvidia_p2p_override: Field::Is(P2pOverride { status: Field::text("not_run"), ..P2pOverride::default() }),
        p2pmark: Field::Is(P2pMark { status: Field::text("not_run"), ..P2pMark::default() }),
        amd_fabric: Field::Is(AmdFabric { status: Field::text("not_run"), ..AmdFabric::default() }),
        hardware_run_summary: Field::Is(Hardware::default()),
        event_log: Field::Is(run.events.iter().map(|event| event.line.clone()).collect()),
        prefill: Field::Is(prefill::rows(&run.prefill)),
        results: Field::Is(primary.iter().copied().cloned().collect()),
        summary_table: Field::Is(summary(&primary)),
        burst_results: Field::Is(burst.iter().copied().cloned().collect()),
        burst_summary_table: Field::Is(summary(&burst)),
        methodology: Field::Is(methodology::methodology(run)),
        ..Report::default()
    }
}

fn of_layer(cells: &[MeasuredCell], layer: Layer) -> impl Iterator<Item = &MeasuredCell> {
    cells.iter().filter(move |measured| measured.layer == layer)
}

/// One cell for each place, in the order in which the places were first measured: of several repeats the one with the
/// median rate, of an even number the lower of the two in the middle. Repeats without a rate stand below all others, so
/// that a cell that fails most of the time is a failed cell.
fn medians(cells: &[MeasuredCell], layer: Layer) -> Vec<&Cell> {
    let mut places: Vec<(Place, Vec<&Cell>)> = Vec::new();
    for measured in of_layer(cells, layer) {
        let place = (measured.cell.context_tokens.i64(), measured.cell.concurrency.i64());
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, of)) => of.push(&measured.cell),
            None => places.push((place, vec![&measured.cell])),
        }
    }
    let rate = |cell: &&Cell| cell.aggregate_tps.f64().unwrap_or(f64::NEG_INFINITY);
    places
        .into_iter()
        .filter_map(|(_, mut of)| {
            of.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
            of.get((of.len() - 1) / 2).copied()
        })
        .collect()
}

/// Context and concurrency.
type Place = (Option<i64>, Option<i64>);

/// All repeats of all cells, where there is more than one.
fn repeats(run: &RunRecord) -> List<own::Repeat> {
    let several = run.options.repeat > 1;
    run.cells
        .iter()
        .filter(|_| several)
        .map(|measured| own::Repeat {
            repeat: Field::int(measured.repeat),
            order: Field::count(measured.order as u64),
            layer: Field::text(measured.layer.as_str()),
            cell: Field::Is(measured.cell.clone()),
            ..own::Repeat::default()
        })
        .collect()
}

fn own(run: &RunRecord, ended_us: u64) -> RunOwn {
    let time = |t_us| Field::text(rfc3339(&run.clock.wall_at(t_us)));
    let limits = run.server.limits.iter().map(|(name, value, source)| own::Limit {
        name: Field::text(name),
        value: Field::count(*value),
        source: Field::text(source),
        ..own::Limit::default()
    });
    let missing = missing::missing(run);
    let left_out = run.left_out.iter().chain(&missing).map(|left| own::LeftOut {
        layer: Field::text(left.layer),
        context_tokens: Field::int(left.context_tokens),
        concurrency: Field::int(left.concurrency),
        code: Field::text(left.code.as_str()),
        missing_tokens: Field::or_null(left.missing_tokens).map(|n: u64| n.into()),
        text: Field::text(&left.text),
        ..own::LeftOut::default()
    });
    let events = run.events.iter().map(|logged| own::RunEvent {
        t_us: Field::count(logged.t_us),
        kind: Field::text(&logged.kind),
        text: Field::text(&logged.text),
        ..own::RunEvent::default()
    });
    RunOwn {
        schema: Field::int(SCHEMA),
        status: Field::text(run.status.as_str()),
        run_id: Field::text(&run.run_id),
        started: time(0),
        ended: time(ended_us),
        options: Field::Is(serde_json::to_value(&run.options).unwrap_or(Value::Null)),
        server: Field::Is(ServerOwn {
            engine: Field::text(&run.server.engine),
            version: Field::or_null(run.server.version.clone()),
            limits: Field::Is(limits.collect()),
            refused: Field::Is(run.server.refused.iter().cloned().collect()),
            prefix_cache: prefill::prefix_cache(run.server.prefix_cache.as_ref()),
            ..ServerOwn::default()
        }),
        client: Field::Is(own::ClientOwn {
            origin_ns: Field::int(run.clock.origin_ns()),
            address: Field::or_null(run.server.address.clone()),
            stamp: stamp(&run.cells),
            cpus: Field::count(run.cpus as u64),
            calibration: Field::Is(run.calibration.iter().map(own_cell::calibration).collect()),
            ..own::ClientOwn::default()
        }),
        dataset: run.dataset.as_ref().map_or(Field::Absent, |dataset| Field::Is(dataset.own())),
        left_out: Field::Is(left_out.collect()),
        events: Field::Is(events.collect()),
        series: Field::Is(series(run)),
        repeats: Field::Is(repeats(run)),
        prefill: Field::Is(prefill::own(&run.prefill)),
        open_loop: Field::Is(of_layer(&run.cells, Layer::OpenLoop).filter(|m| m.repeat == 1).map(|m| m.cell.clone()).collect()),
        segments: Field::Is(segments(&run.stretches)),
        ..RunOwn::default()
    }
}

/// Whose time the arrivals have, over all cells.
fn stamp(cells: &[MeasuredCell]) -> Field<String> {
    let mut stamps = cells.iter().filter_map(|measured| measured.cell.tokscope.get()?.client.get()?.stamp.str());
    let first = stamps.next();
    let same = stamps.all(|stamp| Some(stamp) == first);
    Field::or_null(first.map(|first| if same { first } else { "mixed" }.to_owned()))
}

/// The stretches of a resumed run; a run in one go has none.
fn segments(stretches: &[Stretch]) -> List<own::Segment> {
    let several = stretches.len() > 1;
    stretches
        .iter()
        .filter(|_| several)
        .map(|stretch| own::Segment {
            started: Field::text(&stretch.started),
            ended: Field::text(&stretch.ended),
            run_id: Field::text(&stretch.run_id),
            origin_ns: Field::int(stretch.origin_ns),
            cells: Field::Is(stretch.cells.iter().map(|order| (*order as u64).into()).collect()),
            ..own::Segment::default()
        })
        .collect()
}

/// The server's metrics over all stretches.
pub(crate) fn series(run: &RunRecord) -> RunSeries {
    let (scrapes, earlier) = (&run.scrapes, &run.earlier_series);
    let numbers = |earlier: &Field<List<Num>>, of: fn(&Snapshot) -> Option<f64>| {
        let before = earlier.get().map_or_else(Vec::new, |list| list.0.clone());
        Field::Is(List(before.into_iter().chain(scrapes.iter().map(|scrape| Field::opt(of(scrape)))).collect()))
    };
    let counts = |earlier: &Field<List<Int>>, of: fn(&Snapshot) -> u64| {
        let before = earlier.get().map_or_else(Vec::new, |list| list.0.clone());
        Field::Is(List(before.into_iter().chain(scrapes.iter().map(|scrape| Field::count(of(scrape)))).collect()))
    };
    RunSeries {
        scrape_t_us: counts(&earlier.scrape_t_us, |s| s.t_us),
        scrape_took_us: counts(&earlier.scrape_took_us, |s| s.t_us.saturating_sub(s.sent_us)),
        running: numbers(&earlier.running, |s| s.values.running),
        waiting: numbers(&earlier.waiting, |s| s.values.waiting),
        kv_usage: numbers(&earlier.kv_usage, |s| s.values.kv_usage),
        generation_tokens: numbers(&earlier.generation_tokens, |s| s.values.generation_tokens),
        ..RunSeries::default()
    }
}

fn metadata(run: &RunRecord) -> Metadata {
    let options = &run.options;
    let warning = run.server.metrics_warning.clone();
    Metadata {
        version: Field::text(env!("CARGO_PKG_VERSION")),
        engine: Field::text(&run.server.engine),
        model: Field::text(&options.model),
        server: Field::text(&run.server.display),
        timestamp: Field::text(rfc3339(&run.clock.wall_now())),
        decode_mode: Field::text(if options.request_count > 0 { "request-count" } else { "duration" }),
        primary_decode_layer: Field::text(if options.request_count > 0 { "burst_e2e_decode" } else { "sustained_decode" }),
        duration_per_test: Field::num(options.duration),
        request_count: Field::int(options.request_count),
        warmup_request_count: Field::int(options.warmup_request_count),
        run_burst: Field::Is(options.run_burst),
        prefill_mode: Field::text(options.prefill_mode),
        standalone_prefill: Field::Is(options.standalone_prefill),
        prefill_only: Field::Is(options.prefill_only),
        skip_prefill: Field::Is(options.skip_prefill),
        burst_e2e_status: Field::text(if options.run_burst || options.request_count > 0 { "enabled" } else { "not_run_use_--run-burst" }),
        burst_request_count: Field::int(options.burst_request_count),
        burst_warmup_request_count: Field::int(options.burst_warmup_request_count),
        burst_requests_per_concurrency: Field::int(options.burst_requests_per_concurrency),
        decode_warmup_seconds: Field::num(options.decode_warmup_seconds),
        decode_warmup_context: Field::int(run.decode_warmup_context.unwrap_or(0)),
        decode_warmup_loop_diagnostics: Field::Is(run.decode_warmup_loops.iter().cloned().collect()),
        loop_detection: Field::Is(loops::settings(options.loop_detection)),
        decode_warmup_concurrency: Field::int(u32::from(run.decode_warmup_context.is_some())),
        cell_warmup_timeout_seconds: Field::num(options.cell_warmup_timeout_seconds),
        cell_warmup_timeout_policy: Field::text("<64k:60s,<128k:120s,>=128k:180s when override is 0"),
        show_capacity_limited_values: Field::Is(options.show_capacity_limited_values),
        max_tokens: Field::int(options.max_tokens),
        temperature: Field::opt(options.temperature),
        ignore_eos: Field::Is(!options.respect_eos),
        max_total_tokens: Field::count(run.server.limit("kv_budget_tokens").unwrap_or(0)),
        dcp_size: Field::int(options.dcp_size.unwrap_or(0)),
        metrics_available: Field::Is(warning.is_none()),
        metrics_warning: Field::text(warning.unwrap_or_default()),
        concurrency_levels: Field::Is(options.concurrency.iter().map(|n| n.to_owned().into()).collect()),
        context_lengths: Field::Is(options.contexts.iter().map(|n| n.to_owned().into()).collect()),
        startup_diagnostics_available: Field::Is(true),
        nvidia_p2p_override_effective: Field::Null,
        p2pmark_status: Field::text("not_run"),
        amd_fabric_status: Field::text("not_run"),
        ..Metadata::default()
    }
}

/// Rates by context and concurrency, in order of execution; null where a cell has none.
fn summary(cells: &[&Cell]) -> Table<Table<tokscope_shared::field::Num>> {
    let mut table: Vec<(String, Field<Table<tokscope_shared::field::Num>>)> = Vec::new();
    for cell in cells {
        let (Some(context), Some(level)) = (cell.context_tokens.i64(), cell.concurrency.i64()) else { continue };
        let entry = (level.to_string(), cell.aggregate_tps.clone());
        match table.iter_mut().find(|(key, _)| *key == context.to_string()) {
            Some((_, Field::Is(row))) => row.0.push(entry),
            _ => table.push((context.to_string(), Field::Is(Table(vec![entry])))),
        }
    }
    Table(table)
}
