//! Reasons that are found from the arrivals themselves, which a reader of the file doesn't have.

use crate::cell::measurement::{CellMeasurement, Window};
use crate::load::record::{Outcome, RequestRecord};
use crate::load::tokens::TokenTimeline;
use tokscope_shared::stats::{mean, percentile, sorted};
use tokscope_shared::verdict::Reason;

/// A gap is a stall from here on, and from so many times the usual gap.
const STALL_US: u64 = 1_000_000;
const STALL_GAPS: u64 = 10;
/// Chunks of a stream that are closer than this came together.
const TOGETHER_US: u64 = 2_000;
/// Share of the window for which most streams may stand between two answers.
const TOGETHER: f64 = 0.02;
/// Share of the window's tokens that one piece may hold.
const COARSE: f64 = 0.03;

/// Reasons that a reader of the file could not find again.
pub(super) fn found_while_measuring(measured: &CellMeasurement, timeline: &TokenTimeline) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if measured.interrupted {
        let seconds = measured.window.as_ref().map_or(0.0, Window::seconds);
        reasons.push(Reason::new("interrupted", format!("the run was interrupted after {seconds:.1} s of the window")));
    }
    if measured.idle.idle == Some(false) {
        let count = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
        let (running, waiting) = (count(measured.idle.running), count(measured.idle.waiting));
        reasons
            .push(Reason::new("foreign-traffic", format!("the server was busy before the cell: {running} requests ran, {waiting} waited")));
    }
    if let Some(gap) = measured.server.gaps.first() {
        let n = measured.server.gaps.len();
        reasons.push(Reason::new("metrics-gap", format!("{n} of the window's scrapes failed: {}", gap.reason)));
    }
    if let Some(window) = &measured.window {
        reasons.extend(stalled(timeline, window, measured));
        // Neither a finite number of requests nor a schedule keeps all streams busy, nor do edges cut them.
        if measured.is_sustained() {
            reasons.extend(underfilled(measured, window));
            reasons.extend(coarse(timeline, window));
            reasons.extend(restarts_together(measured, window));
        }
    }
    reasons.extend(prompt_length(measured));
    reasons
}

/// The longest time for which a stream stood still in the middle of an answer.
fn stalled(timeline: &TokenTimeline, window: &Window, measured: &CellMeasurement) -> Option<Reason> {
    let (mut gaps, mut longest) = (Vec::new(), 0);
    // A gap counts as far as it lies inside the window.
    let inside = |from: u64, to: u64| to.min(window.end_us).saturating_sub(from.max(window.start_us));
    for (points, record) in timeline.streams.iter().zip(&measured.streams) {
        let chunks: Vec<_> = points.iter().filter(|point| point.chunk).collect();
        for pair in chunks.windows(2) {
            let [before, after] = pair else { continue };
            if before.request == after.request {
                longest = longest.max(inside(before.t_us, after.t_us));
                if window.contains(after.t_us) {
                    gaps.push((after.t_us - before.t_us) as f64);
                }
            }
        }
        // An answer that was still going on when it was cut has a gap at its end as well.
        if let Some(last) = chunks.last()
            && let Some(request) = record.requests.get(last.request as usize)
            && request.outcome == Outcome::CutByUs
        {
            longest = longest.max(inside(last.t_us, request.ended_us));
        }
    }
    let usual = percentile(&sorted(gaps), 50.0).unwrap_or(0.0) as u64;
    (longest > STALL_US.max(STALL_GAPS * usual))
        .then(|| Reason::new("stalled", format!("a stream stood still for {:.1} s in the middle of an answer", longest as f64 / 1e6)))
}

/// Without the server's metrics: how many streams were decoding, by their own arrivals.
fn underfilled(measured: &CellMeasurement, window: &Window) -> Option<Reason> {
    if measured.server.running.is_some() {
        return None;
    }
    let asked = f64::from(measured.id.concurrency);
    let decoding = |r: &RequestRecord| {
        let (first, last) = (r.first_token_us?, r.last_us?);
        Some(last.min(window.end_us).saturating_sub(first.max(window.start_us)))
    };
    let busy: u64 = measured.streams.iter().flat_map(|stream| &stream.requests).filter_map(decoding).sum();
    let mean = busy as f64 / 1e6 / window.seconds();
    (mean < 0.9 * asked).then(|| Reason::new("underfilled", format!("{mean:.1} of {asked:.0} streams were decoding on average")))
}

/// The share of the window in which most streams were between two answers, where that came about because they ended
/// together: it hangs on where the window's edges happen to lie.
fn restarts_together(measured: &CellMeasurement, window: &Window) -> Option<Reason> {
    let streams = measured.streams.len();
    let mut steps: Vec<(u64, i32)> = Vec::new();
    for stream in &measured.streams {
        for pair in stream.requests.windows(2) {
            let [before, after] = pair else { continue };
            let (Some(from), Some(to)) = (before.last_us, after.first_token_us) else { continue };
            let (from, to) = (from.max(window.start_us), to.min(window.end_us));
            if from < to {
                steps.extend([(from, 1), (to, -1)]);
            }
        }
    }
    // At the same instant those that go on come first: it is no overlap.
    steps.sort_unstable();
    let (mut between, mut since, mut times, mut together_us) = (0, None, 0, 0);
    for (t_us, step) in steps {
        between += step;
        let most = usize::try_from(between).is_ok_and(|between| 2 * between > streams);
        match (most, since) {
            (true, None) => (since, times) = (Some(t_us), times + 1),
            (false, Some(from)) => (since, together_us) = (None, together_us + t_us - from),
            _ => {}
        }
    }
    let share = together_us as f64 / 1e6 / window.seconds();
    (streams > 1 && share >= TOGETHER).then(|| {
        let text = format!(
            "streams restarted together {times} times: for {:.0} % of the window less than half of them were decoding",
            share * 100.0
        );
        Reason::new("restarts-together", text)
    })
}

/// The share of the window's tokens that came in one piece.
fn coarse(timeline: &TokenTimeline, window: &Window) -> Option<Reason> {
    let (mut largest, mut total) = (0u64, 0u64);
    for points in &timeline.streams {
        let (mut piece, mut at) = (0u64, None::<u64>);
        for point in points.iter().filter(|point| window.contains(point.t_us)) {
            let together = at.is_some_and(|at| point.t_us - at <= TOGETHER_US);
            piece = if together { piece } else { 0 } + u64::from(point.tokens);
            at = Some(point.t_us);
            largest = largest.max(piece);
            total += u64::from(point.tokens);
        }
    }
    let share = largest as f64 / total as f64;
    (total > 0 && share > COARSE).then(|| {
        Reason::new("coarse-chunks", format!("{largest} of the window's {total} tokens came in one piece, {:.0} %", share * 100.0))
    })
}

/// The prompts' length by the server's count against the context asked for.
fn prompt_length(measured: &CellMeasurement) -> Option<Reason> {
    let asked = f64::from(measured.id.context_tokens);
    let counted: Vec<f64> = measured.streams.iter().flat_map(|s| &s.requests).filter_map(|r| r.prompt_tokens).map(f64::from).collect();
    let mean = mean(&counted)?;
    let off = (mean - asked).abs();
    (asked > 0.0 && off > 64.0 && off > 0.05 * asked)
        .then(|| Reason::new("prompt-length", format!("the server counts {mean:.0} prompt tokens, {asked:.0} were asked for")))
}
