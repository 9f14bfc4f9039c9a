//! What the guard against repetitions found, as the predecessor's keys have it.

use crate::cell::measurement::{CellMeasurement, LoopFinding, Loops};
use crate::repetition::{CONFIRMED_CHARS, CONFIRMED_CYCLES, MAX_PERIOD, Repetition};
use tokscope_shared::field::Field;
use tokscope_shared::report::cell::{self, Cell};
use tokscope_shared::report::metadata::LoopDetection;

/// The loop fields of a cell, and what a confirmed loop makes of the others.
pub(super) fn loops(cell: &mut Cell, measured: &CellMeasurement) {
    let found = measured.loops.as_ref();
    cell.loop_detection_enabled = Field::Is(found.is_some());
    cell.loop_detected = Field::Is(found.is_some_and(|loops| loops.confirmed().is_some()));
    cell.loop_diagnostics = Field::Is(findings(measured).into_iter().collect());
    cell.loop_diagnostics_omitted = Field::count(found.map_or(0, |loops| loops.omitted));
    if measured.failure_phase.is_some_and(crate::cell::FailurePhase::is_loop) {
        cell.aggregate_source = Field::text("invalid_exact_repetition");
        cell.num_errors = Field::count(measured.failed_streams().max(1) as u64);
    }
}

/// What repeated itself in a cell.
pub(crate) fn findings(measured: &CellMeasurement) -> Vec<cell::LoopFinding> {
    let found = measured.loops.as_ref();
    found.map(|loops| loops.findings.iter().map(|one| finding(one, loops, measured)).collect()).unwrap_or_default()
}

fn finding(found: &LoopFinding, loops: &Loops, measured: &CellMeasurement) -> cell::LoopFinding {
    let is_measured = found.group == loops.last_group;
    let stream = measured.streams.get(found.stream as usize).filter(|_| is_measured);
    let request = stream.and_then(|stream| stream.requests.get(found.request as usize));
    let in_window = measured.window.is_some_and(|window| found.t_us >= window.start_us);
    let Repetition { start, period, repeated, confirmed, detected_at, period_sha256, cycle_excerpt, context_excerpt, tail_excerpt } =
        &found.repetition;
    cell::LoopFinding {
        observed_start_char: Field::count(*start),
        period_chars: Field::count(*period),
        repeated_chars: Field::count(*repeated),
        complete_cycles: Field::count(found.repetition.cycles()),
        status: Field::text(if *confirmed { "confirmed" } else { "suspected" }),
        detected_at_char: Field::count(*detected_at),
        coordinate_unit: Field::text("unicode_code_points_in_channel"),
        period_sha256: Field::text(period_sha256),
        cycle_excerpt: Field::text(cycle_excerpt),
        context_excerpt: Field::text(context_excerpt),
        tail_excerpt: Field::text(tail_excerpt),
        channel: Field::text(found.channel.as_str()),
        stream_index: Field::int(found.stream),
        request_ordinal: Field::int(found.request),
        request_id: Field::or_null(request.and_then(|request| request.server_id.clone())),
        observed_completion_tokens: Field::or_null(found.tokens.map(Into::into)),
        phase: Field::text(if is_measured && in_window { "measurement" } else { "warmup" }),
        ..cell::LoopFinding::default()
    }
}

/// `metadata.loop_detection`.
pub(super) fn settings(enabled: bool) -> LoopDetection {
    LoopDetection {
        enabled: Field::Is(enabled),
        scope: Field::text("decode_cells_and_their_warmups"),
        confirmed_min_chars: Field::count(CONFIRMED_CHARS),
        confirmed_min_cycles: Field::count(CONFIRMED_CYCLES),
        max_period_chars: Field::count(MAX_PERIOD),
        history_chars_per_request_channel: Field::count(crate::repetition::KEPT),
        check_interval_chars: Field::count(crate::repetition::BLOCK),
        // No sentinel is ever written: the rate of such a cell is null.
        invalid_cell_aggregate_tps_sentinel: Field::Null,
        limitation: Field::text("finds exact repetition only: text that says the same in other words, or counts on, is not found"),
        ..LoopDetection::default()
    }
}
