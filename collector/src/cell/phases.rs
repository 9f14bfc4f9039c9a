//! The phases of a cell in which time passes: the scout, the warm-up, the window. What comes before and after is in
//! `isolation`.

use std::sync::Arc;
use std::time::Duration;

use super::measurement::{Scout, Warmup, Window};
use super::ready::{Look, Metrics, Readiness};
use super::run::{CellRun, JOIN_LIMIT};
use crate::event::Event;
use crate::load::progress::Progress;
use crate::load::request::RequestSource;
use crate::load::{Streams, StreamsOptions};
use crate::scrape::{Scrape, Scraper};

/// Between two looks while streams warm up, and between two ticks.
const LOOK: Duration = Duration::from_millis(100);
const TICK_US: u64 = 500_000;
/// Between two scrapes while something is waited for.
const SCRAPE_EVERY_US: u64 = 250_000;
/// A scrape older than this says nothing about now.
const FRESH_US: u64 = 2_500_000;
/// For the scrape at the window's end, before the streams are cut.
const EDGE_LIMIT: Duration = Duration::from_secs(1);

/// A window that closed.
pub(super) struct Measured {
    pub(super) window: Window,
    /// All streams had ended by themselves before it was due.
    pub(super) died: bool,
}

impl CellRun<'_> {
    pub(super) async fn open(&mut self, source: &Arc<dyn RequestSource>, count: u32, max_requests: Option<u32>) -> Streams {
        let options = self.streams_options(count, max_requests);
        self.bench.load.open(self.bench.endpoint, source, &options).await
    }

    pub(super) fn streams_options(&mut self, count: u32, max_requests: Option<u32>) -> StreamsOptions {
        let text = self.guard.as_mut().map(super::loops::LoopGuard::tap);
        StreamsOptions { count, max_requests, limits: self.options.limits, max_tokens: self.cell.max_tokens, text }
    }

    pub(super) async fn scout(&mut self, source: &Arc<dyn RequestSource>) -> Option<Scout> {
        let options = StreamsOptions { max_tokens: 1, ..self.streams_options(1, Some(1)) };
        let streams = self.bench.load.open(self.bench.endpoint, source, &options).await;
        streams.start();
        tokio::select! {
            () = streams.ended() => {}
            () = self.stop.stopped() => {}
        }
        let (mut records, _) = streams.join(JOIN_LIMIT).await;
        let request = records.pop()?.requests.pop()?;
        let first = request.first_token_us.or(request.first_sign_us);
        let scout = Scout {
            sent_us: request.sent_us,
            ttft_us: first.zip(request.sent_us).map(|(t, sent)| t - sent),
            prompt_tokens: request.prompt_tokens,
            cached_tokens: request.cached_tokens,
            error: request.error,
            id: request.id,
        };
        self.emit(Event::ScoutDone {
            cell: self.id,
            ttft_us: scout.ttft_us,
            prompt_tokens: scout.prompt_tokens.map(u64::from),
            cached_tokens: scout.cached_tokens.map(u64::from),
            error: scout.error.clone(),
        });
        Some(scout)
    }

    /// Waits until the streams are up or the limit is reached; whether the window shall open.
    pub(super) async fn warm_up(&mut self, streams: &Streams, streams_us: u64, cell_us: u64, warmup: &mut Warmup) -> bool {
        let gauges = |scrape: &Scrape| scrape.as_ref().is_ok_and(|s| s.values.running.is_some() && s.values.waiting.is_some());
        let metrics = match self.bench.scraper.and_then(Scraper::latest) {
            Some(scrape) if gauges(&scrape) => Metrics::Used,
            _ => Metrics::Unavailable,
        };
        let concurrency = self.cell.concurrency;
        let mut readiness = Readiness::new(concurrency, self.options.stable_us, metrics);
        let deadline_us = cell_us + warmup.timeout_us;
        let mut next_scrape_us = 0;
        let mut next_tick_us = 0;
        loop {
            if self.stop.is_stopped() || streams.all_ended() || self.loops() {
                return false;
            }
            let now_us = self.now_us();
            if now_us >= next_scrape_us {
                next_scrape_us = now_us + SCRAPE_EVERY_US;
                if let Some(scraper) = self.bench.scraper {
                    scraper.scrape_if_idle();
                }
            }
            let look = self.look(streams, now_us, streams_us);
            if now_us >= next_tick_us {
                next_tick_us = now_us + TICK_US;
                self.tick(false, now_us - cell_us, tokens_so_far(streams), look.active);
            }
            // A stream that failed will not come back: the cell is lost, there is no use in waiting.
            if streams.progress().iter().any(Progress::has_failed) {
                return false;
            }
            if let Some(reason) = readiness.look(look) {
                warmup.ready_reason.clone_from(&reason);
                self.emit(Event::Ready { cell: self.id, reason, duration_us: self.options.duration_us });
                return true;
            }
            if now_us >= deadline_us {
                let reason = readiness.missing();
                warmup.timed_out = true;
                warmup.ready_reason = "warmup_timeout".to_owned();
                warmup.timeout_reason.clone_from(&reason);
                self.emit(Event::WarmupTimeout { cell: self.id, reason, duration_us: self.options.duration_us });
                return true;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.stop.stopped() => {}
            }
        }
    }

    fn look(&self, streams: &Streams, now_us: u64, streams_us: u64) -> Look {
        let progress = streams.progress();
        let active = progress.iter().filter(|p| p.is_active(now_us)).count();
        let latest = self.bench.scraper.and_then(Scraper::latest);
        let server = latest.and_then(|scrape: Arc<Scrape>| {
            let s = scrape.as_ref().as_ref().ok()?;
            let current = s.sent_us >= streams_us && now_us.saturating_sub(s.t_us) < FRESH_US;
            let counts = s.values.running.zip(s.values.waiting);
            counts.filter(|_| current)
        });
        Look {
            t_us: now_us,
            active: u32::try_from(active).unwrap_or(u32::MAX),
            answering: u32::try_from(progress.iter().filter(|p| p.is_answering()).count()).unwrap_or(u32::MAX),
            all_finished_one: progress.iter().all(|p| p.finished() > 0),
            server,
        }
    }

    /// The window: its edges are set when it opens, and nothing is awaited inside but time.
    pub(super) async fn window(&mut self, streams: &Streams) -> Measured {
        let clock = self.bench.load.clock();
        let start_us = clock.now_us();
        let end_us = start_us + self.options.duration_us;
        self.scrape_now();
        let tokens_before = tokens_so_far(streams);
        let mut next_us = start_us + TICK_US;
        let mut died = false;
        loop {
            let mut stop = self.stop.clone();
            tokio::select! {
                () = clock.sleep_until_us(next_us.min(end_us)) => {}
                () = stop.stopped() => {
                    let end_us = clock.now_us().min(end_us);
                    return Measured { window: Window { start_us, end_us }, died };
                }
            }
            let now_us = clock.now_us();
            if now_us >= end_us {
                break;
            }
            if streams.all_ended() || self.loops() {
                died = true;
                break;
            }
            let active = streams.progress().iter().filter(|p| p.is_active(now_us));
            let active = u32::try_from(active.count()).unwrap_or(u32::MAX);
            let tokens = tokens_so_far(streams) - tokens_before;
            self.tick(true, now_us - start_us, tokens, active);
            next_us += TICK_US;
        }
        let closed_us = clock.now_us();
        // The streams go on until the server's counters have been read at this edge.
        if let Some(scraper) = self.bench.scraper {
            scraper.scrape_now();
            tokio::select! {
                _ = scraper.wait_since(closed_us, EDGE_LIMIT) => {}
                () = self.stop.stopped() => {}
            }
        }
        streams.stop();
        let end_us = if died { closed_us } else { end_us };
        Measured { window: Window { start_us, end_us }, died }
    }

    /// Whether the text is known to repeat itself: the cell is lost.
    pub(super) fn loops(&self) -> bool {
        self.guard.as_ref().is_some_and(super::loops::LoopGuard::is_confirmed)
    }

    fn tick(&self, in_window: bool, elapsed_us: u64, tokens: u64, active_streams: u32) {
        self.emit(Event::Tick { cell: self.id, in_window, elapsed_us, tokens, active_streams });
    }
}

fn tokens_so_far(streams: &Streams) -> u64 {
    let progress = streams.progress().iter();
    progress.map(Progress::tokens).sum()
}
