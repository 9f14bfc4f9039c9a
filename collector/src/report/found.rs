//! Reasons that are found from the arrivals themselves, which a reader of the file doesn't have.

use crate::cell::measurement::{CellMeasurement, Window};
use crate::load::record::{Outcome, RequestRecord};
use crate::load::tokens::TokenTimeline;
use crate::scrape::snapshot::Snapshot;
use tokscope_shared::stats::{mean, percentile, sorted};
use tokscope_shared::verdict::Reason;

/// A gap is a stall from here on, and from so many times the usual gap.
const STALL_US: u64 = 1_000_000;
const STALL_GAPS: u64 = 10;
/// Requests of others, on average, from which on they are named.
const OTHERS: f64 = 0.25;
/// Chunks of a stream that are closer than this came together.
const TOGETHER_US: u64 = 2_000;
/// Share of the window for which most streams may stand between two answers.
const TOGETHER: f64 = 0.02;
/// Share of the window's tokens that one piece may hold.
const COARSE: f64 = 0.03;
/// Share of the streams' time that may pass between two requests.
const BETWEEN: f64 = 0.03;
/// An answer of fewer tokens may well come at once.
const PIECE_TOKENS: u32 = 16;
/// A token of one answer in less than this is no decoding, but a buffer that is emptied.
const BUFFERED_US: u64 = 50;
/// So many pieces of text a token are too many.
const CHUNKS_A_TOKEN: f64 = 1.1;
/// Fewer events without anything are no pattern.
const SILENT: u64 = 16;

/// Reasons that a reader of the file could not find again. `prompt_tokens`: what the prompts were counted to have before.
pub(super) fn found_while_measuring(measured: &CellMeasurement, timeline: &TokenTimeline, prompt_tokens: Option<u64>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if measured.interrupted {
        let seconds = measured.window.as_ref().map_or(0.0, Window::seconds);
        reasons.push(Reason::new("interrupted", format!("the run was interrupted after {seconds:.1} s of the window")));
    }
    if measured.idle.idle == Some(false) {
        let count = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
        let (running, waiting) = (count(measured.idle.running), count(measured.idle.waiting));
        reasons.push(if measured.idle.left_over {
            let text = format!("requests of the cell before were still on the server: {running} ran, {waiting} waited");
            Reason::new("leftovers", text)
        } else {
            let text = format!("the server was busy before the cell: {running} requests ran, {waiting} waited");
            Reason::new("foreign-traffic", text)
        });
    }
    reasons.extend(others_running(measured).or_else(|| others_prompts(measured)));
    if let Some(lost) = measured.loops.as_ref().map(|loops| loops.lost_bytes).filter(|lost| *lost > 0) {
        let text = format!("{:.1} MB of text came too fast to be looked at for repetitions", lost as f64 / 1e6);
        reasons.push(Reason::new("loop-unguarded", text));
    }
    if let Some(gap) = measured.server.gaps.first() {
        let n = measured.server.gaps.len();
        reasons.push(Reason::new("metrics-gap", format!("{n} of the window's scrapes told nothing: {}", gap.reason)));
    }
    if let Some(window) = &measured.window {
        reasons.extend(stalled(timeline, window, measured));
        // Neither a finite number of requests nor a schedule keeps all streams busy, nor do edges cut them.
        if measured.is_sustained() {
            reasons.extend(underfilled(measured, window));
            reasons.extend(coarse(timeline, window));
            reasons.extend(late_requests(measured, window));
            reasons.extend(restarts_together(measured, window));
        }
    }
    reasons.extend(one_piece(measured));
    reasons.extend(below_chunks(measured));
    reasons.extend(unknown_text(measured));
    reasons.extend(no_finish_reason(measured));
    reasons.extend(other_length(measured, prompt_tokens).or_else(|| prompt_length(measured)));
    reasons
}

/// Requests that ran on the server and aren't ours, at the scrapes of the window. Ours count from their sending: a
/// server that runs more than that works for somebody else.
fn others_running(measured: &CellMeasurement) -> Option<Reason> {
    let requests: Vec<&RequestRecord> = measured.streams.iter().flat_map(|stream| &stream.requests).collect();
    let ours_at = |t_us: u64| requests.iter().filter(|r| r.sent_us.is_some_and(|sent| sent <= t_us) && r.ended_us >= t_us).count();
    let told = |s: &Snapshot| Some((s.values.running?, ours_at(s.t_us).max(ours_at(s.sent_us)) as f64));
    let pairs: Vec<(f64, f64)> = measured.server.snapshots.iter().filter_map(told).collect();
    let of = |get: fn(&(f64, f64)) -> f64| mean(&pairs.iter().map(get).collect::<Vec<f64>>());
    let (running, ours) = (of(|pair| pair.0)?, of(|pair| pair.1)?);
    let more = running - ours;
    (more > OTHERS && more > 0.05 * ours).then(|| {
        Reason::new(
            "foreign-traffic",
            format!("{more:.1} requests on average were not ours: {running:.1} ran, {ours:.1} were sent from here"),
        )
    })
}

/// Prompt tokens that the server read and aren't ours.
fn others_prompts(measured: &CellMeasurement) -> Option<Reason> {
    let counted = measured.server.prompt_tokens?;
    let ours = measured.prompt_tokens_meanwhile()?;
    let more = counted.delta - ours;
    (more > 0.03 * ours && more > 64.0).then(|| {
        let text = format!(
            "the server read {:.0} prompt tokens, at most {ours:.0} of them are ours: {more:.0} are somebody else's",
            counted.delta
        );
        Reason::new("foreign-traffic", text)
    })
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
            "streams restarted together {times} time{}: for {:.0} % of the window less than half of them were decoding",
            if times == 1 { "" } else { "s" },
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

fn requests(measured: &CellMeasurement) -> impl Iterator<Item = &RequestRecord> {
    measured.streams.iter().flat_map(|stream| &stream.requests)
}

/// The time for which a request was due and not sent: the one before held its connection, or a new one took long. The
/// server may take these for running, so its gauges don't tell.
fn late_requests(measured: &CellMeasurement, window: &Window) -> Option<Reason> {
    let late = |r: &RequestRecord| {
        let sent_us = r.sent_us.unwrap_or(r.ended_us);
        sent_us.min(window.end_us).saturating_sub(r.due_us.max(window.start_us))
    };
    let late: u64 = requests(measured).map(late).sum();
    let share = late as f64 / 1e6 / (window.seconds() * f64::from(measured.id.concurrency));
    (share > BETWEEN).then(|| {
        let text = format!("streams spent {:.0} % of the window between the end of an answer and the next request", share * 100.0);
        Reason::new("late-requests", text)
    })
}

/// Answers whose tokens all came together.
fn one_piece(measured: &CellMeasurement) -> Option<Reason> {
    let together = |r: &RequestRecord| {
        let most_us = TOGETHER_US.max(BUFFERED_US * u64::from(r.output_tokens()));
        Some(r.last_us?.saturating_sub(r.first_token_us?) <= most_us)
    };
    let long = requests(measured).filter(|r| r.outcome == Outcome::Finished && r.output_tokens() >= PIECE_TOKENS);
    let found: Vec<bool> = long.filter_map(together).collect();
    let together = found.iter().filter(|together| **together).count();
    (together * 2 > found.len())
        .then(|| Reason::new("one-piece", format!("{together} of {} answers came in one piece at their end", found.len())))
}

/// Tokens as counted by the server against the pieces of text they came in.
fn below_chunks(measured: &CellMeasurement) -> Option<Reason> {
    // Where usage comes now and then, a cut answer's last one is behind.
    let told = |r: &&RequestRecord| r.outcome == Outcome::Finished || r.usage_reports.saturating_mul(2) > r.chunks;
    let counted = requests(measured).filter(told).filter_map(|r| {
        let tokens = r.usage_tokens.filter(|usage| *usage == r.output_tokens())?;
        Some((u64::from(tokens), u64::from(r.chunks)))
    });
    let (tokens, chunks) = counted.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (chunks as f64 > CHUNKS_A_TOKEN * tokens as f64)
        .then(|| Reason::new("tokens-below-chunks", format!("the server counted {tokens} tokens for {chunks} pieces of text")))
}

/// Events that held nothing known, against those with text. A token that is half of a character is one as well, hence
/// the half.
fn unknown_text(measured: &CellMeasurement) -> Option<Reason> {
    let sum = |of: fn(&RequestRecord) -> u32| requests(measured).map(|r| u64::from(of(r))).sum::<u64>();
    let (silent, chunks) = (sum(|r| r.silent_events), sum(|r| r.chunks));
    (silent >= SILENT && silent * 2 > chunks)
        .then(|| Reason::new("unknown-text", format!("{silent} events held no text in a known place, {chunks} did")))
}

/// Answers of which nothing says that they are whole but the end mark, which follows an error as well.
fn no_finish_reason(measured: &CellMeasurement) -> Option<Reason> {
    let finished = requests(measured).filter(|r| r.outcome == Outcome::Finished);
    let (unsaid, all) = finished.fold((0, 0), |(unsaid, all), r| (unsaid + u32::from(r.finish_reason.is_none()), all + 1));
    (unsaid > 0).then(|| Reason::new("no-finish-reason", format!("{unsaid} of {all} answers ended without a finish reason")))
}

/// Prompts that are not as long as they were made, by the server's count.
fn other_length(measured: &CellMeasurement, expected: Option<u64>) -> Option<Reason> {
    let text = measured.prompt_lengths(expected)?.warning(measured.id.context_tokens, expected?)?;
    Some(Reason::new("prompt-length", text))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cell::measurement::{IdleWait, Warmup};
    use crate::event::CellId;
    use crate::load::health::ClientHealth;
    use crate::load::record::StreamRecord;
    use crate::plan::PlannedCell;
    use crate::scrape::snapshot::ServerWindow;

    /// A request as usual: 100 tokens in 100 pieces over the second after it was sent, which was when it was due.
    fn usual(due_us: u64) -> RequestRecord {
        RequestRecord {
            sent_us: Some(due_us),
            first_token_us: Some(due_us + 10_000),
            last_us: Some(due_us + 1_000_000),
            ended_us: due_us + 1_000_000,
            chunks: 100,
            usage_tokens: Some(100),
            usage_reports: 1,
            finish_reason: Some("length".into()),
            outcome: Outcome::Finished,
            ..RequestRecord::due("x".into(), 0, 0, due_us)
        }
    }

    /// The codes found of one stream's requests, in a window of 4 s.
    fn codes(requests: Vec<RequestRecord>) -> Vec<String> {
        codes_of(vec![requests])
    }

    /// The codes found of several streams.
    fn codes_of(streams: Vec<Vec<RequestRecord>>) -> Vec<String> {
        reasons_of(streams, None).into_iter().map(|reason| reason.code).collect()
    }

    fn reasons_of(streams: Vec<Vec<RequestRecord>>, prompt_tokens: Option<u64>) -> Vec<Reason> {
        let measured = CellMeasurement {
            id: CellId { index: 0, layer: crate::plan::Layer::Sustained, repeat: 1, context_tokens: 0, concurrency: 1, per_s: None },
            cell: PlannedCell::sustained(0, 1, 100),
            started_us: 0,
            ended_us: 5_000_000,
            idle: IdleWait::default(),
            scout: None,
            warmup: Warmup::default(),
            window: Some(Window { start_us: 0, end_us: 4_000_000 }),
            open_loop: None,
            tokens: None,
            streams: streams.into_iter().map(|requests| StreamRecord { requests, ..StreamRecord::default() }).collect(),
            server: ServerWindow::default(),
            client: ClientHealth::default(),
            interrupted: false,
            failure: None,
            failure_phase: None,
            loops: None,
            drain: crate::cell::measurement::Drain::default(),
        };
        let reasons = found_while_measuring(&measured, &TokenTimeline::new(&measured.streams), prompt_tokens);
        reasons.into_iter().filter(|reason| reason.code != "underfilled").collect()
    }

    fn all(change: impl Fn(&mut RequestRecord)) -> Vec<String> {
        let mut requests: Vec<_> = (0..4).map(|i| usual(i * 1_000_000)).collect();
        requests.iter_mut().for_each(change);
        codes(requests)
    }

    #[test]
    fn streams_that_restart_together_are_told_from_those_that_restart_in_turn() {
        // Each waits 200 ms for its first token, of every second.
        let stream = |offset_us: u64| -> Vec<RequestRecord> {
            let waits = |i: u64| RequestRecord {
                first_token_us: Some(i * 1_000_000 + offset_us + 200_000),
                last_us: Some(i * 1_000_000 + offset_us + 1_000_000),
                ..usual(i * 1_000_000 + offset_us)
            };
            (0..4).map(waits).collect()
        };
        let together = codes_of(vec![stream(0), stream(10_000), stream(5_000)]);
        assert!(together.contains(&"restarts-together".to_owned()), "{together:?}");
        let in_turn = codes_of(vec![stream(0), stream(300_000), stream(600_000)]);
        assert!(!in_turn.contains(&"restarts-together".to_owned()), "{in_turn:?}");
        let alone = codes_of(vec![stream(0)]);
        assert!(!alone.contains(&"restarts-together".to_owned()), "one stream is always together: {alone:?}");
    }

    #[test]
    fn nothing_is_found_of_usual_answers() {
        assert!(all(|_| {}).is_empty());
    }

    #[test]
    fn fewer_tokens_than_pieces_of_text_are_doubted_and_more_are_not() {
        for tokens in [20, 90] {
            assert_eq!(all(|r| r.usage_tokens = Some(tokens)), ["tokens-below-chunks"], "{tokens}");
        }
        for tokens in [91, 300] {
            assert!(all(|r| r.usage_tokens = Some(tokens)).is_empty(), "{tokens}");
        }
        let cut = |r: &mut RequestRecord| (r.usage_tokens, r.outcome) = (Some(50), Outcome::CutByUs);
        assert!(all(cut).is_empty(), "the last usage of a cut answer may be behind its text");
        assert!(all(|r| r.usage_tokens = Some(0)).is_empty(), "no token for text is no count: its chunks are counted");
        assert!(all(|r| r.usage_tokens = None).is_empty(), "without usage there is nothing to compare");
    }

    #[test]
    fn an_answer_without_a_finish_reason_is_doubted() {
        assert_eq!(all(|r| r.finish_reason = None), ["no-finish-reason"]);
        let cut = |r: &mut RequestRecord| (r.finish_reason, r.outcome) = (None, Outcome::CutByUs);
        assert!(all(cut).is_empty(), "we cut it");
    }

    #[test]
    fn many_events_without_known_text_are_doubted() {
        assert!(all(|r| r.silent_events = 50).is_empty());
        assert_eq!(all(|r| r.silent_events = 51), ["unknown-text"]);
        let few = |r: &mut RequestRecord| (r.silent_events, r.chunks, r.usage_tokens) = (3, 1, Some(1));
        assert!(all(few).is_empty(), "twelve events are no pattern");
    }

    #[test]
    fn answers_in_one_piece_have_no_times() {
        let together = |r: &mut RequestRecord| r.first_token_us = r.last_us.map(|us| us - 5_000);
        assert_eq!(all(together), ["one-piece"]);
        let fast = |r: &mut RequestRecord| r.first_token_us = r.last_us.map(|us| us - 5_001);
        assert!(all(fast).is_empty(), "a token in 50 us");
        let short = |r: &mut RequestRecord| {
            r.first_token_us = r.last_us;
            (r.usage_tokens, r.chunks) = (Some(15), 15);
        };
        assert!(all(short).is_empty(), "a short answer may come at once");
    }

    #[test]
    fn prompts_that_are_not_as_long_as_they_were_made_are_doubted_with_their_lengths() {
        let with = |lengths: [u32; 4]| -> Vec<RequestRecord> {
            let one = |(i, tokens)| RequestRecord { prompt_tokens: Some(tokens), ..usual(i as u64 * 1_000_000) };
            lengths.into_iter().enumerate().map(one).collect()
        };
        let of = |lengths, expected| reasons_of(vec![with(lengths)], expected);
        assert!(of([4_000, 4_008, 3_992, 4_000], Some(4_000)).is_empty(), "8 tokens are close enough");
        let found = of([4_000, 4_009, 4_000, 3_900], Some(4_000));
        assert_eq!((found.len(), found[0].code.as_str()), (1, "prompt-length"));
        assert!(found[0].text.starts_with("2 of 4 prompts ") && found[0].text.contains("3900 to 4009"), "{}", found[0].text);
        assert!(of([4_000, 4_009, 4_000, 3_900], None).is_empty(), "one's own have the length that they have");
        assert!(reasons_of(vec![vec![usual(0)]], Some(4_000)).is_empty(), "a server that doesn't tell is not doubted for it");
    }

    #[test]
    fn time_between_two_requests_is_less_load_than_asked_for() {
        let sent_after = |us: u64| move |r: &mut RequestRecord| r.sent_us = Some(r.due_us + us);
        assert!(all(sent_after(30_000)).is_empty());
        assert_eq!(all(sent_after(31_000)), ["late-requests"]);
        let outside = (4..9).map(|i| RequestRecord { sent_us: Some(i * 2_000_000), ..usual(i * 1_000_000) });
        assert!(codes(outside.collect()).is_empty(), "outside of the window nothing counts");
    }
}
