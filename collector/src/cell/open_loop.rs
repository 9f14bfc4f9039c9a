//! A cell of requests that are due by a schedule, whatever the server does. It ends when all are answered, or a while
//! after the last one was due.

use std::sync::Arc;

use super::measurement::{CellMeasurement, FailurePhase, OpenLoop, Window};
use super::requests::{Watched, errors};
use super::run::{CellRun, JOIN_LIMIT};
use crate::event::Event;
use crate::load::Pace;
use crate::load::request::RequestSource;
use crate::load::schedule::{MOST_REQUESTS, Schedule};
use crate::load::tokens::TokenTimeline;

/// Answers are waited for as long again as requests were due, and so long at least.
const LEAST_ANSWER_LIMIT_US: u64 = 60_000_000;

impl CellRun<'_> {
    /// The whole cell, but for its scout.
    pub(super) async fn open_loop(&mut self, per_s: f64, poisson: bool, source: &Arc<dyn RequestSource>, result: &mut CellMeasurement) {
        let length_us = self.options.duration_us;
        // Each repeat draws its own.
        let seed = self.options.seed.wrapping_add(u64::from(self.cell.repeat) - 1);
        let Some(schedule) = Schedule::new(per_s, length_us, poisson.then_some(seed)) else {
            let seconds = length_us as f64 / 1e6;
            result.failure = Some(format!("{per_s} requests a second for {seconds} s are more than {MOST_REQUESTS}"));
            return;
        };
        let schedule = Arc::new(schedule);
        result.warmup.ready_reason = format!("request_rate={per_s}, requests={}", schedule.len());
        result.warmup.duration_us = Some(0);
        let streams = self.open_paced(source, &Pace::Scheduled(Arc::clone(&schedule))).await;
        self.edge_scrape().await;
        self.emit(Event::MeasureStart { cell: self.id, what: format!("request-rate={per_s}") });
        let begin_us = streams.start();
        let connections = streams.count();
        let answer_limit_us = self.options.answer_limit_us.unwrap_or(length_us.max(LEAST_ANSWER_LIMIT_US));
        let window = Window { start_us: begin_us, end_us: begin_us + length_us };
        let watched = Watched { before: false, total: schedule.len(), until_us: Some(window.end_us + answer_limit_us) };
        let ended = self.watch(&streams, watched).await;
        let ended_us = self.now_us();
        self.edge_scrape().await;
        (result.streams, result.client) = streams.join(JOIN_LIMIT).await;
        // Connections are used when they are needed.
        result.client.start_spread_us = None;
        let stopped = self.stop.is_stopped();
        let limit_reached = !ended && !stopped && !self.loops();
        result.open_loop = Some(OpenLoop { per_s, poisson, schedule, begin_us, connections, answer_limit_us, limit_reached });
        let end_us = if stopped { ended_us.clamp(window.start_us, window.end_us) } else { window.end_us };
        result.window = Some(Window { end_us, ..window });
        self.evaluate_open_loop(result);
    }

    fn evaluate_open_loop(&self, result: &mut CellMeasurement) {
        if let Some(text) = errors(&result.streams) {
            result.failure = Some(text);
            result.failure_phase = Some(FailurePhase::Measurement);
        }
        let timeline = TokenTimeline::new(&result.streams);
        let Some(window) = result.window else { return };
        self.note_tokens(timeline.window(window.start_us, window.end_us), result);
        result.server = self.server(window, &timeline);
    }
}
