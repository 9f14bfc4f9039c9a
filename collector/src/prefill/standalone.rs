//! Prefill in a phase of its own: cold requests, one after the other, each with a tag of its own.

use std::sync::Arc;
use std::time::Duration;

use super::{Idle, IdleOptions, Method, PrefillMetric, PrefillRow, SentBefore, ServerValidation, idle, once, row, validate};
use crate::cell::Bench;
use crate::event::{Event, context_label};
use crate::load::LoadLimits;
use crate::load::request::RequestSource;
use crate::load::stop::Stop;
use crate::prompt::{Shape, Tag};
use crate::target::thousands;

/// How the phase goes.
#[derive(Clone, Copy, Debug)]
pub struct StandaloneOptions {
    /// For each context; at least one request is sent, and the last one ends.
    pub duration_us: u64,
    /// Which number is the headline.
    pub metric: PrefillMetric,
    /// After each context, microseconds.
    pub pause_us: u64,
    /// How long a request waits for what.
    pub limits: LoadLimits,
    /// How an idle server is waited for, where its counters are read.
    pub idle: IdleOptions,
}

impl Default for StandaloneOptions {
    fn default() -> Self {
        Self {
            duration_us: 10_000_000,
            metric: PrefillMetric::Client,
            pause_us: 1_000_000,
            limits: LoadLimits::default(),
            idle: IdleOptions::default(),
        }
    }
}

/// All contexts, one after the other; each row is handed over when it is there. Ends early when `stop` is given.
pub async fn standalone(bench: &Bench<'_>, contexts: &[u32], options: &StandaloneOptions, stop: &Stop, mut each: impl FnMut(PrefillRow)) {
    for &context in contexts {
        if stop.is_stopped() {
            return;
        }
        each(standalone_context(bench, context, options, stop).await);
        pause(options.pause_us, stop).await;
    }
}

/// One context. With `stop` what was measured by then is the row; without a sample it is skipped.
pub async fn standalone_context(bench: &Bench<'_>, context: u32, options: &StandaloneOptions, stop: &Stop) -> PrefillRow {
    let label = context_label(context);
    let line = |text: String| bench.events.emit(Event::Line(text));
    line(format!("prefill start ctx={label}"));
    let (samples, failure) = samples(bench, context, options, stop).await;
    let row = median(context, &samples, options.metric, failure);
    match (&row.reason, row.tok_per_sec) {
        (_, Some(rate)) => line(format!("prefill done ctx={label} {} tok/s", thousands(rate.round() as u64))),
        _ if row.skipped => line(format!("prefill skipped ctx={label}")),
        (reason, None) => line(format!("prefill failed ctx={label}: {}", reason.as_deref().unwrap_or("no reason known"))),
    }
    row
}

/// The requests of one context, each as a row, and why there are no more.
async fn samples(bench: &Bench<'_>, context: u32, options: &StandaloneOptions, stop: &Stop) -> (Vec<PrefillRow>, Option<String>) {
    let clock = bench.load.clock();
    let counters = options.metric != PrefillMetric::Client && bench.scraper.is_some();
    let mut before = if counters { idle(bench, &options.idle, stop).await } else { None };
    let begun_us = clock.now_us();
    let mut rows = Vec::new();
    for repetition in 1.. {
        if stop.is_stopped() {
            break;
        }
        let (row, after) = cold(bench, context, repetition, options, before.as_ref().filter(|_| counters), stop).await;
        if row.ttft_s.is_none() {
            return (rows, row.reason.filter(|_| !stop.is_stopped()));
        }
        rows.push(row);
        before = after;
        if clock.now_us() - begun_us >= options.duration_us {
            break;
        }
    }
    (rows, None)
}

/// One cold request, and the counters after it.
async fn cold(
    bench: &Bench<'_>,
    context: u32,
    repetition: u32,
    options: &StandaloneOptions,
    before: Option<&Idle>,
    stop: &Stop,
) -> (PrefillRow, Option<Idle>) {
    let shape = Shape::one_token(bench.target);
    let source: Arc<dyn RequestSource> = Arc::new(bench.prompts.single(bench.target, Tag::Repeat(repetition), context, &shape));
    let scout = once(bench, &source, 1, options.limits, stop).await;
    let mut after = None;
    let mut server = None;
    if options.metric != PrefillMetric::Client {
        after = if bench.scraper.is_some() { idle(bench, &options.idle, stop).await } else { None };
        server = Some(validate(before, after.as_ref(), scout.prompt_tokens.map(Into::into), false));
    }
    (row(context, &scout, SentBefore::No, Method::Client, server), after)
}

/// The row of a context: its median sample.
fn median(context: u32, samples: &[PrefillRow], metric: PrefillMetric, failure: Option<String>) -> PrefillRow {
    let server = servers(samples);
    let count = u32::try_from(samples.len()).unwrap_or(u32::MAX);
    let all_cold = samples.iter().all(|sample| sample.cold);
    let by_server = metric == PrefillMetric::Prometheus;
    let rate = |sample: &PrefillRow| {
        if by_server { sample.server.as_ref().filter(|s| s.is_valid()).and_then(|s| s.tok_per_sec) } else { sample.tok_per_sec }
    };
    let reason = samples.last().and_then(|sample| sample.reason.clone());
    let mut rated: Vec<PrefillRow> = samples.iter().filter(|sample| rate(sample).is_some()).cloned().collect();
    rated.sort_by(|a, b| rate(a).unwrap_or(0.0).total_cmp(&rate(b).unwrap_or(0.0)));
    let with_rate = u32::try_from(rated.len()).unwrap_or(u32::MAX);
    let method = if by_server { Method::Prometheus } else { Method::Client };
    let middle = rated.len().saturating_sub(1) / 2;
    if rated.is_empty() {
        let nothing = samples.is_empty() && failure.is_none();
        let invalid = server.as_ref().map(|server| server.invalid_reason.clone()).filter(|reason| by_server && !reason.is_empty());
        return PrefillRow {
            context_tokens: context,
            ttft_s: samples.first().and_then(|sample| sample.ttft_s),
            prefill_s: None,
            prompt_tokens: samples.first().and_then(|sample| sample.prompt_tokens),
            cached_tokens: samples.first().and_then(|sample| sample.cached_tokens),
            samples: if by_server { 0 } else { count },
            method,
            cold: count > 0 && all_cold,
            tok_per_sec: None,
            server,
            skipped: nothing,
            reason: failure.or(invalid).or(reason).or_else(|| nothing.then(|| "skipped before a request came back".to_owned())),
        };
    }
    let chosen = rated.swap_remove(middle);
    let (tok_per_sec, prefill_s) = match chosen.server.as_ref().filter(|_| by_server) {
        Some(server) => (server.tok_per_sec, server.prefill_seconds),
        None => (chosen.tok_per_sec, chosen.ttft_s),
    };
    PrefillRow { samples: with_rate, method, cold: all_cold, tok_per_sec, prefill_s, server, reason: failure, ..chosen }
}

/// What the counters say about all samples: the median of those that are valid, else the last one with its reason.
fn servers(samples: &[PrefillRow]) -> Option<ServerValidation> {
    let mut told = samples.iter().filter_map(|sample| sample.server.as_ref());
    let mut valid: Vec<&ServerValidation> = told.clone().filter(|server| server.is_valid()).collect();
    valid.sort_by(|a, b| a.tok_per_sec.unwrap_or(0.0).total_cmp(&b.tok_per_sec.unwrap_or(0.0)));
    match valid.get(valid.len().saturating_sub(1) / 2) {
        Some(median) => Some(ServerValidation { samples: u32::try_from(valid.len()).unwrap_or(u32::MAX), ..(*median).clone() }),
        None => told.next_back().cloned(),
    }
}

/// A request for one token that stands for a context outside of a phase of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// Of a context of the matrix: it leaves the context in the server's prefix cache, as its streams want it.
    OfCells,
    /// Of a context that the matrix doesn't have.
    Alone,
}

/// A context by one request, with the server's counters around it where it has any.
pub async fn ahead(bench: &Bench<'_>, context: u32, kind: Ahead, options: &StandaloneOptions, stop: &Stop) -> PrefillRow {
    let label = context_label(context);
    let (what, method, tag) = match kind {
        Ahead::OfCells => ("integrated prefill", Method::IntegratedScout, Tag::Shared),
        Ahead::Alone => ("prefill scout-only", Method::ScoutOnly, Tag::Repeat(0)),
    };
    let line = |text: String| bench.events.emit(Event::Line(text));
    line(format!("{what} start ctx={label}"));
    let counters = bench.scraper.is_some();
    let before = if counters { idle(bench, &options.idle, stop).await } else { None };
    let shape = Shape::one_token(bench.target);
    let source: Arc<dyn RequestSource> = Arc::new(bench.prompts.single(bench.target, tag, context, &shape));
    let scout = once(bench, &source, 1, options.limits, stop).await;
    let after = if counters && !stop.is_stopped() { idle(bench, &options.idle, stop).await } else { None };
    let server = counters.then(|| validate(before.as_ref(), after.as_ref(), scout.prompt_tokens.map(Into::into), true));
    let mut found = row(context, &scout, SentBefore::No, method, server);
    found.skipped = stop.is_stopped() && found.ttft_s.is_none();
    match (found.tok_per_sec, &found.reason) {
        (Some(rate), _) => line(format!("{what} done ctx={label} {} tok/s", thousands(rate.round() as u64))),
        (None, _) if found.skipped => line(format!("prefill skipped ctx={label}")),
        (None, reason) => line(format!("{what} failed ctx={label}: {}", reason.as_deref().unwrap_or("no reason known"))),
    }
    found
}

async fn pause(us: u64, stop: &Stop) {
    let mut stop = stop.clone();
    tokio::select! {
        () = tokio::time::sleep(Duration::from_micros(us)) => {}
        () = stop.stopped() => {}
    }
}

#[cfg(test)]
mod tests;
