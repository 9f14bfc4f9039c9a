//! What is sent before anything is measured, so that no cell pays for what is done only once.
//!
//! The load has the shape of the measured one: model and endpoint, how prompts relate, temperature, `ignore_eos`, which
//! usage is asked for, and the name of the output limit, all as they were agreed on with the server. On purpose other:
//! - The run id in each prompt, and made prompts in place of the user's own: nothing of what is measured later is in a
//!   prefix cache.
//! - The hidden cell has one stream, on the longest context that fits, with that context's output limit.
//! - A wave has the shortest context and answers of [`WAVE_TOKENS`] tokens, one for each stream of a planned concurrency,
//!   and so never more at once than some cell of the plan.
//! - What goes ahead of prefill (`prefill::decode_warmup`, `prefill::prefill_warmup`) only wakes the server up: a short
//!   answer that may end by itself, and a prompt with one token, both without usage at each token and at the server's
//!   own temperature.

use super::Session;
use crate::cell::{Bench, CellOptions};
use crate::event::{Event, Events, context_label};
use crate::load::record::Outcome;
use crate::load::request::RequestSource;
use crate::load::{LoadLimits, StreamsOptions};
use crate::plan::PlannedCell;
use crate::prefill::{decode_warmup, prefill_warmup};
use crate::prompt::{Prompts, Shape, new_run_id};
use crate::report::loop_findings;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Tokens of an answer of a wave.
const WAVE_TOKENS: u32 = 16;
/// Waves at one concurrency, at most: a server that is still getting faster then may do so for ever.
const WAVES: u32 = 16;
/// A wave that takes no less than this share of the one before shows that the server is warm.
const SETTLED: f64 = 0.95;
/// For a wave to end: what is compiled at a first batch takes its time.
const WAVE_LIMIT: Duration = Duration::from_secs(300);
/// The longest prompt that goes ahead of prefill.
const LONGEST_PREFILL_WARMUP: u32 = 8 << 10;

impl Session<'_> {
    /// A short answer, and a prompt. `integrated`: as where prefill comes with the matrix.
    pub(super) async fn warm_up_prefill(&self, integrated: bool) {
        if self.stop.is_stopped() {
            return;
        }
        decode_warmup(&self.bench(), &self.stop).await;
        let recorded = &self.prepared.prefill.recorded;
        let least = || recorded.iter().min().map(|least| (*least).min(LONGEST_PREFILL_WARMUP));
        let context = if integrated { least() } else { recorded.first().copied() };
        if let Some(context) = context.filter(|_| !self.stop.is_stopped()) {
            prefill_warmup(&self.bench(), context, integrated, &self.stop).await;
        }
    }

    /// A hidden cell on the longest context, then a wave of short answers at each concurrency, until the server
    /// answers as fast as before.
    pub(super) async fn warm_up_decode(&self) {
        let seconds = self.options.decode_warmup_s;
        if seconds <= 0.0 || self.stop.is_stopped() {
            return;
        }
        // Another run id, and none of the user's own prompts, so that nothing of what is measured later is in the prefix cache.
        let mut prompts = self.prepared.prompts.clone();
        (prompts.run_id, prompts.dataset) = (new_run_id(), None);
        self.hidden_cell(&prompts, seconds).await;
        let most = u32::try_from(self.prepared.target.max_running().unwrap_or(u64::MAX)).unwrap_or(u32::MAX);
        // The open loop's concurrency is a limit, which its schedule may never come near.
        let at_once = |cell: &PlannedCell| cell.connections(self.options.duration_s).min(most);
        let levels: BTreeSet<u32> = self.prepared.plan.cells.iter().map(at_once).collect();
        for concurrency in levels {
            if self.stop.is_stopped() {
                return;
            }
            self.waves(&prompts, concurrency).await;
        }
    }

    async fn hidden_cell(&self, prompts: &Prompts, seconds: f64) {
        let cells = &self.prepared.plan.cells;
        let whole = cells.iter().filter(|cell| cell.clamped_from.is_none());
        let context = whole.map(|cell| cell.context_tokens).max().unwrap_or(0);
        let longest = cells.iter().filter(|cell| cell.context_tokens == context).map(|cell| cell.max_tokens).max();
        self.kept.with(|record| record.decode_warmup_context = Some(context));
        let label = context_label(context);
        self.events.emit(Event::Line(format!("decode warmup start C=1 ctx={label} {seconds:.0}s")));
        // Its events are nobody's business: a cell that isn't measured is no cell.
        let silent = Events::silent(self.prepared.load.clock());
        let bench = Bench { prompts, events: &silent, ..self.bench() };
        let settings = CellOptions { duration_us: (seconds * 1e6) as u64, ..self.cell_options() };
        let cell = PlannedCell::sustained(context, 1, longest.unwrap_or(1));
        let measured = bench.measure(usize::MAX, cell, &settings, &self.stop).await;
        self.kept.with(|record| record.decode_warmup_loops = loop_findings(&measured));
        match measured.failure {
            Some(failure) => {
                self.events.emit(Event::LateWarning(format!("the decode warm-up failed ({failure}): the first cell may be slow")));
            }
            None => self.events.emit(Event::Line(format!("decode warmup done C=1 ctx={label}"))),
        }
    }

    async fn waves(&self, prompts: &Prompts, concurrency: u32) {
        let mut before: Option<f64> = None;
        let mut waves = 0;
        while waves < WAVES && !self.stop.is_stopped() {
            let Some(seconds) = self.wave(prompts, concurrency, waves).await else { break };
            waves += 1;
            if before.is_some_and(|before| seconds >= SETTLED * before) {
                break;
            }
            before = Some(seconds);
        }
        if waves > 0 {
            self.events.emit(Event::Line(format!("decode warmup done C={concurrency} after {waves} waves")));
        }
    }

    /// One wave; its seconds, or nothing where an answer failed.
    async fn wave(&self, prompts: &Prompts, concurrency: u32, number: u32) -> Option<f64> {
        let prepared = self.prepared;
        let context = prepared.plan.cells.iter().map(|cell| cell.context_tokens).min().unwrap_or(0);
        let shape = Shape {
            accepted: prepared.target.accepted.clone(),
            max_tokens: WAVE_TOKENS,
            ignore_eos: !self.options.respect_eos,
            temperature: self.options.temperature,
        };
        let place = usize::MAX - 1 - number as usize;
        let source: Arc<dyn RequestSource> = Arc::new(prompts.cell(&prepared.target, place, context, &shape)?);
        let limits = LoadLimits { first_token: WAVE_LIMIT, ..LoadLimits::default() };
        let options = StreamsOptions { count: concurrency, max_requests: Some(1), limits, max_tokens: WAVE_TOKENS, text: None };
        let streams = prepared.load.open(&prepared.endpoint, &source, &options).await;
        let begun_us = prepared.load.clock().now_us();
        streams.start();
        let mut stop = self.stop.clone();
        tokio::select! {
            () = streams.ended() => {}
            () = stop.stopped() => {}
        }
        let seconds = (prepared.load.clock().now_us() - begun_us) as f64 / 1e6;
        let (records, _) = streams.join(Duration::from_secs(5)).await;
        let mut requests = records.iter().flat_map(|record| &record.requests);
        // An answer beyond its limit is cut, and was an answer.
        let answered = |outcome| matches!(outcome, Outcome::Finished | Outcome::CutByUs) && !self.stop.is_stopped();
        requests.all(|request| answered(request.outcome)).then_some(seconds)
    }
}
