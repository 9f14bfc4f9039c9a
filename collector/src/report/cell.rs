//! One measured cell as the report has it: the predecessor's keys by its formulas, and `tokscope` beside them.

use super::arrivals::ArrivalsLimit;
use super::found;
use crate::calibrate::Calibration;
use crate::cell::measurement::{CellMeasurement, FailurePhase, Window};
use crate::load::record::{Outcome, RequestRecord};
use crate::load::tokens::TokenTimeline;
use crate::plan::CellLoad;
use crate::prompt::CountedBy;
use crate::scrape::snapshot::GaugeStats;
use tokscope_shared::field::{Field, List, Num};
use tokscope_shared::report::cell::Cell;
use tokscope_shared::report::hardware::Hardware;
use tokscope_shared::report::own;
use tokscope_shared::report::request::RequestSample;
use tokscope_shared::stats::{mean, percentile, sorted};
use tokscope_shared::verdict;

/// What a cell's report needs besides its measurement.
#[derive(Clone, Debug)]
pub struct CellContext<'a> {
    /// `benchmark_mode`.
    pub mode: &'a str,
    /// How prompts relate.
    pub prompts: &'a str,
    /// Prompt tokens that were to be reached, and how they were counted; none of the user's own prompts.
    pub prompt_tokens: Option<(u64, CountedBy)>,
    /// Reference acceptance length; 0 is none.
    pub accept_len_ref: f64,
    /// Whether the request sent ahead was the first to bring its context: only then does its time say how long reading
    /// takes.
    pub scout_was_first: bool,
    /// The client's own error at this concurrency, where it was measured.
    pub calibration: Option<&'a Calibration>,
    /// What the sample of arrivals may take, and the seed by which it is drawn.
    pub arrivals: ArrivalsLimit,
}

/// The cell, judged.
pub fn cell(measured: &CellMeasurement, context: &CellContext<'_>) -> Cell {
    let requests: Vec<&RequestRecord> = measured.streams.iter().flat_map(|stream| &stream.requests).collect();
    let mut cell = Cell::default();
    rate(&mut cell, measured, context.mode);
    latencies(&mut cell, &requests, measured);
    server(&mut cell, measured, context);
    scheduler(&mut cell, measured);
    super::loops::loops(&mut cell, measured);
    cell.hardware_summary = Field::Is(Hardware::default());
    let timeline = TokenTimeline::new(&measured.streams);
    let expected = context.prompt_tokens.filter(|(_, by)| by.is_count()).map(|(tokens, _)| tokens);
    let reasons = found::found_while_measuring(measured, &timeline, expected);
    cell.tokscope = Field::Is(super::own_cell::cell(measured, context, &timeline, &reasons));
    let judgement = verdict::judge(&cell);
    if let Field::Is(own) = &mut cell.tokscope {
        own.verdict = Field::text(judgement.verdict.name());
        own.reasons = Field::Is(
            judgement
                .reasons
                .iter()
                .map(|reason| own::ReasonOwn {
                    code: Field::text(&reason.code),
                    text: Field::text(&reason.text),
                    ..own::ReasonOwn::default()
                })
                .collect(),
        );
    }
    cell
}

fn rate(cell: &mut Cell, measured: &CellMeasurement, mode: &str) {
    let tps = measured.aggregate_tps();
    let seconds = Field::opt(measured.window.as_ref().map(Window::seconds));
    let tokens = measured.tokens.as_ref();
    let source = tokens.and_then(|tokens| tokens.source).map(super::super::load::tokens::TokenSource::as_str);
    let (completed, failures) = measured.completed_and_failed();
    let failed = failures > 0 || (measured.failure.is_some() && measured.failure_phase == Some(FailurePhase::Warmup));
    let (count, warmup) = match measured.cell.load {
        CellLoad::Requests { count, warmup } => (count, warmup),
        CellLoad::Sustained | CellLoad::Rate { .. } => (0, 0),
    };
    cell.concurrency = Field::int(measured.id.concurrency);
    cell.context_tokens = Field::int(measured.id.context_tokens);
    cell.benchmark_mode = Field::text(mode);
    cell.request_count_target = Field::int(count);
    cell.warmup_request_count = Field::int(warmup);
    cell.measurement_seconds = seconds.clone();
    cell.measurement_wall_seconds = seconds;
    cell.client_output_tokens = Field::or_null(tokens.map(|tokens| tokens.tokens.into()));
    cell.aggregate_source = Field::text(if failed { "invalid_stream_failure" } else { source.unwrap_or_default() });
    cell.aggregate_tps = Field::opt(tps);
    cell.failure_reason = Field::text(match (&measured.failure, tps, measured.window) {
        (Some(failure), _, _) => failure,
        (None, Some(_), _) => "",
        (None, None, Some(_)) => "no token arrived inside the window",
        (None, None, None) => "the window never opened",
    });
    cell.per_request_avg_tps = Field::opt(tps.map(|tps| tps / f64::from(measured.id.concurrency)));
    cell.total_tokens = cell.client_output_tokens.clone();
    cell.wall_time = Field::num(measured.ended_us.saturating_sub(measured.started_us) as f64 / 1e6);
    if count > 0 {
        cell.wall_time = cell.measurement_seconds.clone();
    }
    cell.num_completed = Field::count(completed as u64);
    cell.num_errors = Field::count(failures as u64);
}

/// The predecessor's latency families: whole requests, also before the window.
fn latencies(cell: &mut Cell, requests: &[&RequestRecord], measured: &CellMeasurement) {
    let generated: Vec<&RequestRecord> = requests.iter().copied().filter(|r| r.output_tokens() > 0 && r.first_token_us.is_some()).collect();
    let completed: Vec<&RequestRecord> = generated.iter().copied().filter(|r| r.outcome == Outcome::Finished).collect();
    let family = |of: fn(&RequestRecord) -> Option<f64>| {
        let values = sorted(generated.iter().filter_map(|r| of(r)).filter(|value| *value > 0.0));
        let at = |p| Field::opt(percentile(&values, p));
        (Field::opt(mean(&values)), at(50.0), at(90.0), at(99.0))
    };
    macro_rules! fill {
        ($of:expr, $avg:ident, $p50:ident, $p90:ident, $p99:ident) => {
            (cell.$avg, cell.$p50, cell.$p90, cell.$p99) = family($of)
        };
    }
    fill!(ttft_s, ttft_avg, ttft_p50, ttft_p90, ttft_p99);
    fill!(ttst_s, time_to_second_token_avg, time_to_second_token_p50, time_to_second_token_p90, time_to_second_token_p99);
    fill!(latency_s, request_latency_avg, request_latency_p50, request_latency_p90, request_latency_p99);
    fill!(tpot_s, inter_token_latency_avg, inter_token_latency_p50, inter_token_latency_p90, inter_token_latency_p99);
    fill!(user_tps, output_tps_per_user_avg, output_tps_per_user_p50, output_tps_per_user_p90, output_tps_per_user_p99);
    fill!(e2e_tps, e2e_output_tps_per_user_avg, e2e_output_tps_per_user_p50, e2e_output_tps_per_user_p90, e2e_output_tps_per_user_p99);
    fill!(
        chunk_gap_s,
        chunk_inter_token_latency_avg,
        chunk_inter_token_latency_p50,
        chunk_inter_token_latency_p90,
        chunk_inter_token_latency_p99
    );
    let counted = if completed.is_empty() { &generated } else { &completed };
    let input: Vec<f64> = counted.iter().filter_map(|r| r.prompt_tokens).map(f64::from).collect();
    let output = sorted(counted.iter().map(|r| f64::from(r.output_tokens())));
    cell.input_seq_len_avg = Field::opt(mean(&input));
    cell.output_seq_len_avg = Field::opt(mean(&output));
    cell.output_seq_len_p50 = Field::opt(percentile(&output, 50.0));
    cell.output_seq_len_p90 = Field::opt(percentile(&output, 90.0));
    cell.output_seq_len_p99 = Field::opt(percentile(&output, 99.0));
    cell.request_count = Field::count(generated.len() as u64);
    cell.completed_request_count = Field::count(completed.len() as u64);
    cell.request_samples = Field::Is(generated.iter().map(|r| sample(r)).collect());
    cell.warmup_duration = Field::opt(measured.warmup.duration_us.map(|us| (us as f64 / 1e3).round() / 1e3));
}

pub(super) fn seconds(us: Option<u64>) -> Option<f64> {
    us.map(|us| us as f64 / 1e6)
}

pub(super) fn ttft_s(r: &RequestRecord) -> Option<f64> {
    seconds(r.ttft_us())
}

fn ttst_s(r: &RequestRecord) -> Option<f64> {
    seconds(r.second_us?.checked_sub(r.first_token_us?))
}

pub(super) fn latency_s(r: &RequestRecord) -> Option<f64> {
    seconds(r.latency_us())
}

/// Time per output token: (last − first) / (tokens − 1).
fn tpot_s(r: &RequestRecord) -> Option<f64> {
    let span = r.last_us?.checked_sub(r.first_token_us?).filter(|us| *us > 0)?;
    let after_first = r.output_tokens().checked_sub(1).filter(|n| *n > 0)?;
    Some(span as f64 / 1e6 / f64::from(after_first))
}

fn user_tps(r: &RequestRecord) -> Option<f64> {
    tpot_s(r).map(|tpot| 1.0 / tpot)
}

fn e2e_tps(r: &RequestRecord) -> Option<f64> {
    latency_s(r).filter(|latency| *latency > 0.0).map(|latency| f64::from(r.output_tokens()) / latency)
}

/// Mean gap between chunks: their span by their number after the first.
fn chunk_gap_s(r: &RequestRecord) -> Option<f64> {
    let span = r.last_us?.checked_sub(r.first_token_us?)?;
    let after_first = r.chunks.checked_sub(1).filter(|n| *n > 0)?;
    Some(span as f64 / 1e6 / f64::from(after_first))
}

fn sample(r: &RequestRecord) -> RequestSample {
    RequestSample {
        ttft: Field::opt(ttft_s(r)),
        time_to_second_token: Field::opt(ttst_s(r)),
        latency: Field::opt(latency_s(r)),
        inter_token_latency_avg: Field::opt(tpot_s(r)),
        chunk_inter_token_latency_avg: Field::opt(chunk_gap_s(r)),
        input_tokens: Field::or_null(r.prompt_tokens.map(Into::into)),
        output_tokens: Field::int(r.output_tokens()),
        output_tps_per_user: Field::opt(user_tps(r)),
        e2e_output_tps_per_user: Field::opt(e2e_tps(r)),
        completed: Field::Is(r.outcome == Outcome::Finished),
        ..RequestSample::default()
    }
}

/// What the server's counters and gauges say of the window.
fn server(cell: &mut Cell, measured: &CellMeasurement, context: &CellContext<'_>) {
    let server = &measured.server;
    let counted = server.generation_tokens;
    cell.server_output_tokens = Field::or_null(counted.map(|delta| (delta.delta.round().max(0.0) as u64).into()));
    cell.server_gen_throughput =
        Field::opt(counted.and_then(|delta| delta.per_second()).filter(|rate| *rate > 0.0).or(server.gen_throughput_median));
    cell.server_utilization = Field::opt(server.kv_usage.map(|usage| usage.mean));
    let spec = server.spec.as_ref();
    let whole = |value: f64| Field::count(value.round().max(0.0) as u64);
    let or_null = |value: Option<f64>| value.map_or(Field::Null, whole);
    cell.server_spec_drafts = or_null(spec.map(|spec| spec.drafts));
    cell.server_spec_draft_tokens = or_null(spec.map(|spec| spec.draft_tokens));
    cell.server_spec_accepted_tokens = or_null(spec.map(|spec| spec.accepted_tokens));
    let by_position = spec.filter(|spec| spec.drafts > 0.0).map(|spec| {
        let share = |accepted: &f64| Field::num(((accepted / spec.drafts).max(0.0) * 1e4).round() / 1e4);
        List::<Num>(spec.accepted_per_pos.iter().map(share).collect())
    });
    cell.server_spec_pos_accept = Field::Is(by_position.unwrap_or_default());
    let found = measured.speculation().unwrap_or_default();
    cell.server_spec_accept_rate = Field::opt(found.accept_rate);
    cell.server_spec_accept_length = Field::opt(found.accept_length);
    cell.server_engine_steps = Field::opt(found.engine_steps);
    cell.server_accept_len_effective = Field::opt(found.effective_length);
    let steps = found.steps_per_s;
    cell.server_steps_per_s = Field::opt(steps);
    let reference = Some(context.accept_len_ref).filter(|length| *length > 0.0);
    cell.accept_norm_ref_len = Field::opt(reference);
    cell.accept_norm_tps = Field::opt(reference.zip(steps).map(|(length, steps)| length * steps));
}

/// The predecessor's scheduler keys under its old rules; judgement is the verdict's.
fn scheduler(cell: &mut Cell, measured: &CellMeasurement) {
    let asked = f64::from(measured.id.concurrency);
    let (running, waiting) = (measured.server.running, measured.server.waiting);
    let mean_of = |gauge: Option<GaugeStats>| Field::opt(gauge.map(|gauge| (gauge.mean * 10.0).round() / 10.0));
    // Requests come whole, and the predecessor writes them so.
    let max_of = |gauge: Option<GaugeStats>| Field::or_null(gauge.map(|gauge| Num((gauge.max.round().max(0.0) as u64).into())));
    cell.avg_running_reqs = mean_of(running);
    cell.max_running_reqs = max_of(running);
    cell.effective_concurrency = mean_of(running);
    cell.avg_queue_reqs = mean_of(waiting);
    cell.max_queue_reqs = max_of(waiting);
    cell.queue_fraction = Field::opt(waiting.map(|gauge| (gauge.above_zero * 1e3).round() / 1e3));
    let busy = running.is_some_and(|gauge| gauge.max > 0.0) || waiting.is_some_and(|gauge| gauge.max > 0.0);
    let sustained = measured.is_sustained();
    cell.underfilled = Field::or_null(running.map(|gauge| sustained && asked > 1.0 && busy && gauge.mean < 0.98 * asked));
    let few = sustained && running.is_some_and(|gauge| asked > 1.0 && (gauge.max < asked || gauge.mean < 0.95 * asked));
    let queued = waiting.is_some_and(|gauge| gauge.max > 0.0);
    cell.capacity_limited = Field::Is(measured.warmup.timed_out || few || queued);
    cell.warmup_timed_out = Field::Is(measured.warmup.timed_out);
    let phase = measured.failure_phase.map(FailurePhase::as_str);
    cell.ready_reason = Field::text(phase.unwrap_or(&measured.warmup.ready_reason));
    cell.timeout_reason = Field::text(&measured.warmup.timeout_reason);
}
