//! The `tokscope` section of a cell: what its client, window, prompts and requests were.

use super::arrivals::arrivals;
use super::cell::{CellContext, seconds};
use super::distributions::distributions;
use crate::calibrate::Calibration;
use crate::cell::measurement::CellMeasurement;
use crate::load::health::{Lateness, StampSource, TickLateness};
use crate::load::record::RequestRecord;
use crate::load::tokens::TokenTimeline;
use tokscope_shared::field::{Field, List, Num};
use tokscope_shared::report::own::{self, CellClient, CellOwn, CellSeries, Prompt, Reconciled, RequestColumns};
use tokscope_shared::verdict::Reason;

/// A share of less time than this is that of starting threads.
const LEAST_SPAN_US: u64 = 100_000;

pub(super) fn cell(measured: &CellMeasurement, context: &CellContext<'_>, timeline: &TokenTimeline, reasons: &[Reason]) -> CellOwn {
    CellOwn {
        reasons: Field::Is(reasons.iter().map(reason).collect()),
        verdict: Field::text("valid"),
        window: measured.window.as_ref().map_or(Field::Null, |window| {
            Field::Is(own::Window {
                start_us: Field::count(window.start_us),
                end_us: Field::count(window.end_us),
                start_spread_us: Field::or_null(measured.client.start_spread_us.map(Into::into)),
                server_seconds: Field::opt(measured.server.generation_tokens.map(|d| d.to_us.saturating_sub(d.from_us) as f64 / 1e6)),
                ..own::Window::default()
            })
        }),
        idle_before_us: Field::or_null(measured.idle.rested_us.map(Into::into)),
        whole: whole(measured, timeline).map_or(Field::Null, Field::Is),
        client: Field::Is(client(measured, context)),
        reconciled: Field::Is(reconciled(measured)),
        prompt: Field::Is(prompt(measured, context)),
        distributions: measured.window.as_ref().map_or(Field::Null, |window| Field::Is(distributions(&measured.streams, timeline, window))),
        open_loop: measured.open_loop.as_ref().map_or(Field::Null, |asked| Field::Is(super::open_loop::open_loop(measured, asked))),
        machine: Field::Null,
        series: Field::Is(CellSeries {
            tokens_per_s: Field::Is(measured.window.as_ref().map_or_else(List::default, |window| {
                timeline.per_second(window.start_us, window.end_us).into_iter().map(Into::into).collect()
            })),
            requests: Field::Is(columns(measured, timeline)),
            arrivals: Field::Is(arrivals(&measured.streams, timeline, context.arrivals)),
            ..CellSeries::default()
        }),
        ..CellOwn::default()
    }
}

/// From the first request to the last token, whatever the window was.
fn whole(measured: &CellMeasurement, timeline: &TokenTimeline) -> Option<own::Whole> {
    let start_us = measured.requests().filter_map(|request| request.sent_us).min()?;
    let end_us = measured.requests().filter_map(|request| request.last_us).max()?;
    // The last token belongs to it.
    let tokens = timeline.window(start_us, end_us + 1).tokens;
    let seconds = end_us.saturating_sub(start_us) as f64 / 1e6;
    Some(own::Whole {
        start_us: Field::count(start_us),
        end_us: Field::count(end_us),
        tokens: Field::count(tokens),
        tps: Field::opt((measured.failure.is_none() && seconds > 0.0).then(|| tokens as f64 / seconds)),
        ..own::Whole::default()
    })
}

fn reason(reason: &Reason) -> own::ReasonOwn {
    own::ReasonOwn { code: Field::text(&reason.code), text: Field::text(&reason.text), ..own::ReasonOwn::default() }
}

fn count_or_null<T: std::convert::Into<u64>>(value: Option<T>) -> Field<Num> {
    Field::or_null(value).map(|n: T| Num(n.into().into()))
}

fn client(measured: &CellMeasurement, context: &CellContext<'_>) -> CellClient {
    let client = &measured.client;
    let late = measured.tick();
    let tick = |of: fn(&TickLateness) -> u64| count_or_null(late.as_ref().map(of));
    let delay = |of: fn(&Lateness) -> u64| count_or_null(client.queue_delay.as_ref().map(of));
    let requests: usize = measured.streams.iter().map(|stream| stream.requests.len()).sum();
    let span_s = client.span_us as f64 / 1e6;
    let a_second = |n: u64| Field::opt((span_s > 0.0).then(|| n as f64 / span_s));
    let (stamp, stamp_reason) = match &client.stamp {
        StampSource::Kernel => (Field::text("kernel"), Field::Null),
        StampSource::Read(why) => (Field::text("read"), Field::text(why)),
        StampSource::Nothing => (Field::Null, Field::text("nothing was received")),
    };
    CellClient {
        tick_late_p50_us: tick(|t| t.p50_us),
        tick_late_p99_us: tick(|t| t.p99_us),
        tick_late_max_us: tick(|t| t.max_us),
        ticks: Field::or_null(late.map(|t| t.ticks.into())),
        load_cpu_us: Field::count(client.load_cpu_us),
        tick_cpu_us: Field::or_null(client.tick_cpu_us.map(Into::into)),
        busy_share: Field::opt((client.span_us >= LEAST_SPAN_US).then_some(client.busy_share)),
        span_us: Field::count(client.span_us),
        load_threads: Field::int(client.threads),
        connections_opened: Field::int(client.connections_opened),
        connections_reused: Field::int(client.connections_reused),
        connections_stale: Field::int(client.connections_stale),
        requests_sent: Field::count(requests as u64),
        bytes_received: Field::count(client.body_bytes),
        bytes_per_s: a_second(client.body_bytes),
        events_received: Field::count(client.events),
        events_per_s: a_second(client.events),
        bad_events: Field::count(client.bad_events),
        reads: Field::count(client.reads),
        stamp,
        stamp_reason,
        queue_delay_p50_us: delay(|d| d.p50_us),
        queue_delay_p99_us: delay(|d| d.p99_us),
        queue_delay_max_us: delay(|d| d.max_us),
        calibration: Field::or_null(context.calibration.map(calibration)),
        ..CellClient::default()
    }
}

/// A calibration as the report has it.
pub(super) fn calibration(c: &Calibration) -> own::Calibration {
    let late = |of: fn(&Lateness) -> u64, lateness: &Option<Lateness>| count_or_null(lateness.as_ref().map(of));
    own::Calibration {
        concurrency: Field::int(c.concurrency),
        tokens_per_chunk: Field::int(c.tokens_per_chunk),
        requests: Field::count(c.ttft_off.map_or(0, |off| off.n)),
        gaps: Field::count(c.itl_off.map_or(0, |off| off.n)),
        tokens: Field::count(c.tokens),
        tokens_off: Field::int(c.tokens_off),
        ttft_off_p50_us: late(|l| l.p50_us, &c.ttft_off),
        ttft_off_p99_us: late(|l| l.p99_us, &c.ttft_off),
        itl_off_p50_us: late(|l| l.p50_us, &c.itl_off),
        itl_off_p99_us: late(|l| l.p99_us, &c.itl_off),
        server_late_p99_us: count_or_null(c.server_late_p99_us),
        tick_late_p99_us: count_or_null(c.tick_late_p99_us),
        ..own::Calibration::default()
    }
}

fn reconciled(measured: &CellMeasurement) -> Reconciled {
    let server = &measured.server;
    let counted = server.generation_tokens;
    Reconciled {
        seconds: Field::opt(counted.map(|delta| delta.to_us.saturating_sub(delta.from_us) as f64 / 1e6)),
        server_tokens: Field::or_null(counted.map(|delta| (delta.delta.round().max(0.0) as u64).into())),
        client_tokens: Field::or_null(server.client_tokens_between_scrapes.map(Into::into)),
        asked: Field::int(measured.id.concurrency),
        running_mean: Field::opt(server.running.map(|running| running.mean)),
        server_prompt_tokens: Field::or_null(server.prompt_tokens.map(|delta| (delta.delta.round().max(0.0) as u64).into())),
        client_prompt_tokens: Field::or_null(measured.prompt_tokens_meanwhile().map(|tokens| (tokens as u64).into())),
        ..Reconciled::default()
    }
}

fn prompt(measured: &CellMeasurement, context: &CellContext<'_>) -> Prompt {
    let scout = measured.scout.as_ref();
    let seen = measured.prompt_lengths(None);
    let own = context.prompts == "dataset";
    let unknown = match (&seen, own) {
        (Some(_), true) => Some("usage"),
        (None, true) => None,
        (_, false) => Some("estimate"),
    };
    let counted_by = context.prompt_tokens.map(|(_, by)| by.as_str()).or(unknown);
    Prompt {
        mode: Field::text(context.prompts),
        target_tokens: if own { Field::Null } else { Field::int(measured.id.context_tokens) },
        tokens: Field::or_null(context.prompt_tokens.map(|(tokens, _)| tokens.into())),
        counted_by: Field::or_null(counted_by.map(str::to_owned)),
        counted: Field::count(seen.map_or(0, |seen| seen.count)),
        tokens_min: count_or_null(seen.map(|seen| seen.min)),
        tokens_mean: Field::opt(seen.map(|seen| seen.mean)),
        tokens_max: count_or_null(seen.map(|seen| seen.max)),
        max_tokens: Field::int(measured.cell.max_tokens),
        max_tokens_asked: measured.cell.clamped_from.map_or(Field::Absent, Field::int),
        // One that found its context in the cache is no measure of reading it.
        scout_ttft_s: Field::opt(scout.filter(|_| context.scout_was_first).and_then(|scout| seconds(scout.ttft_us))),
        scout_cached_tokens: Field::or_null(scout.and_then(|scout| scout.cached_tokens).map(Into::into)),
        cached_share: Field::opt(cached_share(measured)),
        ..Prompt::default()
    }
}

/// Of the requests of which the server says both counts.
fn cached_share(measured: &CellMeasurement) -> Option<f64> {
    let requests = measured.streams.iter().flat_map(|stream| &stream.requests);
    let told: Vec<(u32, u32)> = requests.filter_map(|r| r.cached_tokens.zip(r.prompt_tokens)).collect();
    let sum = |of: fn(&(u32, u32)) -> u32| told.iter().map(|pair| u64::from(of(pair))).sum::<u64>();
    let (cached, all) = (sum(|pair| pair.0), sum(|pair| pair.1));
    (all > 0).then(|| cached as f64 / all as f64)
}

fn columns(measured: &CellMeasurement, timeline: &TokenTimeline) -> RequestColumns {
    let requests: Vec<&RequestRecord> = measured.streams.iter().flat_map(|record| &record.requests).collect();
    let counts = |of: &dyn Fn(&RequestRecord) -> Option<u64>| {
        Field::Is(List(requests.iter().map(|r| Field::or_null(of(r).map(Into::into))).collect()))
    };
    // One walk over the points: a stream may have sent many thousand requests.
    let in_window: Vec<Field<Num>> = match &measured.window {
        None => requests.iter().map(|_| Field::Null).collect(),
        Some(window) => {
            let counted = measured.streams.iter().enumerate().flat_map(|(stream, record)| {
                let mut tokens = vec![0u64; record.requests.len()];
                for point in timeline.streams.get(stream).into_iter().flatten().filter(|point| window.contains(point.t_us)) {
                    if let Some(sum) = tokens.get_mut(point.request as usize) {
                        *sum += u64::from(point.tokens);
                    }
                }
                tokens
            });
            counted.map(|tokens| Field::Is(Num(tokens.into()))).collect()
        }
    };
    RequestColumns {
        id: Field::Is(requests.iter().map(|r| r.id.clone()).collect()),
        stream: counts(&|r| Some(r.stream.into())),
        due_us: counts(&|r| Some(r.due_us)),
        sent_us: counts(&|r| r.sent_us),
        written_us: counts(&|r| r.written_us),
        first_byte_us: counts(&|r| r.first_byte_us),
        first_token_us: counts(&|r| r.first_token_us),
        last_token_us: counts(&|r| r.last_us),
        ended_us: counts(&|r| Some(r.ended_us)),
        chunks: counts(&|r| Some(r.chunks.into())),
        finish_reason: Field::Is(List(requests.iter().map(|r| Field::or_null(r.finish_reason.clone())).collect())),
        tokens: counts(&|r| Some(r.output_tokens().into())),
        window_tokens: Field::Is(List(in_window)),
        prompt_tokens: counts(&|r| r.prompt_tokens.map(Into::into)),
        cached_tokens: counts(&|r| r.cached_tokens.map(Into::into)),
        class: Field::Is(requests.iter().map(|r| r.outcome.as_str().to_owned()).collect()),
        error: Field::Is(List(requests.iter().map(|r| Field::or_null(r.error.clone())).collect())),
        ..RequestColumns::default()
    }
}
