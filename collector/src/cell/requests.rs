//! A cell of a finite number of requests: some before that are thrown away, then exactly as many as asked for, by so
//! many workers, from the first one sent to the last token of the last one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::measurement::{CellMeasurement, FailurePhase, Window};
use super::run::{CellRun, JOIN_LIMIT};
use crate::event::Event;
use crate::load::progress::Progress;
use crate::load::record::{Outcome, RequestRecord, StreamRecord};
use crate::load::request::{PreparedRequest, RequestSource};
use crate::load::tokens::{TokenSource, TokenTimeline, WindowTokens};
use crate::load::{Pace, Streams};

/// Between two signs of progress, each with a look at the server's metrics.
const LOOK_US: u64 = 250_000;
/// For a scrape before the first request is sent and after the last one is over.
const EDGE_LIMIT: Duration = Duration::from_secs(1);

/// Requests while they are waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    /// Whether they are those before the measured ones.
    pub(super) before: bool,
    pub(super) total: u32,
    pub(super) until_us: Option<u64>,
}

/// Requests that come after the first `from` of each stream.
struct Later {
    source: Arc<dyn RequestSource>,
    from: u32,
}

impl RequestSource for Later {
    fn prepare(&self, stream: u32, ordinal: u32) -> PreparedRequest {
        self.source.prepare(stream, ordinal + self.from)
    }
}

impl CellRun<'_> {
    /// The whole cell, but for its scout.
    pub(super) async fn requests(&mut self, count: u32, warmup: u32, source: &Arc<dyn RequestSource>, result: &mut CellMeasurement) {
        result.warmup.ready_reason = format!("request_count={count}, warmup_request_count={warmup}");
        result.warmup.duration_us = Some(0);
        if let Some(text) = self.warm_up_requests(warmup, source).await {
            result.failure = Some(text);
            result.failure_phase = Some(FailurePhase::Warmup);
        }
        if result.failure.is_some() || self.stop.is_stopped() {
            return;
        }
        // No request is like one of those before.
        let source: Arc<dyn RequestSource> = Arc::new(Later { source: Arc::clone(source), from: warmup });
        let streams = self.open_paced(&source, &Pace::Counted(count)).await;
        self.edge_scrape().await;
        self.emit(Event::MeasureStart { cell: self.id, what: format!("request-count={count}") });
        streams.start();
        let ended = self.watch(&streams, Watched { before: false, total: count, until_us: None }).await;
        let ended_us = self.now_us();
        self.edge_scrape().await;
        (result.streams, result.client) = streams.join(JOIN_LIMIT).await;
        result.window = window(&result.streams, (!ended).then_some(ended_us));
        self.evaluate_requests(ended, result);
    }

    /// The requests before; what failed, if anything did.
    async fn warm_up_requests(&mut self, warmup: u32, source: &Arc<dyn RequestSource>) -> Option<String> {
        if warmup == 0 {
            return None;
        }
        let streams = self.open_paced(source, &Pace::Counted(warmup)).await;
        streams.start();
        self.watch(&streams, Watched { before: true, total: warmup, until_us: None }).await;
        let (records, _) = streams.join(JOIN_LIMIT).await;
        errors(&records).map(|text| format!("a request before the measured ones failed: {text}"))
    }

    /// As many streams as the concurrency says, or as there are requests.
    pub(super) async fn open_paced(&mut self, source: &Arc<dyn RequestSource>, pace: &Pace) -> Streams {
        let options = self.streams_options(self.cell.concurrency, None);
        self.bench.load.open_paced(self.bench.endpoint, source, &options, pace).await
    }

    /// A scrape of which the counters are known not to lie inside.
    pub(super) async fn edge_scrape(&mut self) {
        let Some(scraper) = self.bench.scraper else { return };
        let asked_us = self.now_us();
        scraper.scrape_now();
        tokio::select! {
            _ = scraper.wait_since(asked_us, EDGE_LIMIT) => {}
            () = self.stop.stopped() => {}
        }
    }

    /// Waits until all streams have ended, their time is up, the user's stop or a loop, and says how far they are. Whether
    /// they have ended.
    pub(super) async fn watch(&mut self, streams: &Streams, watched: Watched) -> bool {
        let Watched { before, total, until_us } = watched;
        let begun_us = self.now_us();
        let mut next_us = begun_us + LOOK_US;
        loop {
            let clock = self.bench.load.clock();
            let mut stop = self.stop.clone();
            tokio::select! {
                () = streams.ended() => return true,
                () = clock.sleep_until_us(next_us.min(until_us.unwrap_or(u64::MAX))) => {}
                () = stop.stopped() => return false,
            }
            let now_us = clock.now_us();
            if self.loops() || until_us.is_some_and(|until_us| now_us >= until_us) {
                return false;
            }
            next_us = now_us + LOOK_US;
            if let Some(scraper) = self.bench.scraper {
                scraper.scrape_if_idle();
            }
            let tokens = streams.progress().iter().map(Progress::tokens).sum();
            let done = streams.progress().iter().map(Progress::ended).sum();
            self.emit(Event::Requests { cell: self.id, before, done, total, elapsed_us: now_us - begun_us, tokens });
        }
    }

    fn evaluate_requests(&self, ended: bool, result: &mut CellMeasurement) {
        if let Some(text) = errors(&result.streams) {
            result.failure = Some(text);
            result.failure_phase = Some(FailurePhase::Measurement);
        }
        let timeline = TokenTimeline::new(&result.streams);
        let Some(window) = result.window else { return };
        let tokens = if ended { completed(&result.streams) } else { timeline.window(window.start_us, window.end_us) };
        self.note_tokens(tokens, result);
        result.server = self.server(window, &timeline);
    }

    /// Takes the tokens; a cell without any has failed, unless it was stopped.
    pub(super) fn note_tokens(&self, tokens: WindowTokens, result: &mut CellMeasurement) {
        if tokens.tokens == 0 && result.failure.is_none() && !self.stop.is_stopped() {
            result.failure = Some("no token arrived in the window".to_owned());
            result.failure_phase = Some(FailurePhase::Measurement);
        }
        result.tokens = Some(tokens);
    }
}

fn all(streams: &[StreamRecord]) -> impl Iterator<Item = &RequestRecord> {
    streams.iter().flat_map(|stream| &stream.requests)
}

/// First request sent to the last token of the last one, whatever came or was looked at after it. A cell that was
/// stopped goes on until then.
fn window(streams: &[StreamRecord], stopped_us: Option<u64>) -> Option<Window> {
    let start_us = all(streams).filter_map(|r| r.sent_us).min()?;
    let last_us = all(streams).map(|r| r.last_us.unwrap_or(r.ended_us)).max()?;
    // The last token belongs to it.
    Some(Window { start_us, end_us: stopped_us.unwrap_or(last_us + 1) })
}

/// Output tokens of the requests that finished.
fn completed(streams: &[StreamRecord]) -> WindowTokens {
    let mut sum = WindowTokens { tokens: 0, chunks: 0, source: None, by_source: BTreeMap::new(), per_stream: Vec::new() };
    for stream in streams {
        let mut tokens = 0;
        for request in stream.requests.iter().filter(|r| r.outcome == Outcome::Finished) {
            let source = if request.counted_by_usage() { TokenSource::CompletedUsage } else { TokenSource::ChunksFallback };
            let n = u64::from(request.output_tokens());
            *sum.by_source.entry(source).or_default() += n;
            sum.chunks += u64::from(request.chunks);
            tokens += n;
        }
        sum.tokens += tokens;
        sum.per_stream.push(tokens);
    }
    sum.source = sum.by_source.keys().next_back().copied();
    sum
}

/// The distinct errors of all requests that failed.
pub(super) fn errors(streams: &[StreamRecord]) -> Option<String> {
    let mut texts: Vec<String> = Vec::new();
    for request in all(streams).filter(|r| r.outcome.is_failure()) {
        let text = request.failure_text();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    (!texts.is_empty()).then(|| texts.join("; "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn request(sent_us: u64, last_us: Option<u64>, ended_us: u64, tokens: u32, outcome: Outcome) -> RequestRecord {
        RequestRecord {
            sent_us: Some(sent_us),
            last_us,
            ended_us,
            chunks: tokens,
            usage_tokens: Some(tokens),
            usage_reports: 1,
            outcome,
            ..RequestRecord::due("x".into(), 0, 0, 0)
        }
    }

    fn streams(requests: Vec<RequestRecord>) -> Vec<StreamRecord> {
        vec![StreamRecord { requests, ..StreamRecord::default() }]
    }

    #[test]
    fn the_window_ends_with_the_last_token_and_not_with_what_comes_after_it() {
        let of =
            streams(vec![request(100, Some(900), 1_400_000, 5, Outcome::Finished), request(200, Some(800), 800, 5, Outcome::Finished)]);
        assert_eq!(window(&of, None).unwrap(), Window { start_us: 100, end_us: 901 });
        assert_eq!(window(&streams(vec![]), None), None, "nothing was sent");
    }

    #[test]
    fn only_requests_that_finished_count_and_chunks_stand_in_for_usage_with_that_name() {
        let mut chunks = request(0, Some(9), 9, 7, Outcome::Finished);
        chunks.usage_tokens = None;
        let failed = request(0, Some(9), 9, 100, Outcome::Truncated);
        let sum = completed(&streams(vec![request(0, Some(9), 9, 5, Outcome::Finished), failed]));
        assert_eq!((sum.tokens, sum.source), (5, Some(TokenSource::CompletedUsage)));
        let sum = completed(&streams(vec![request(0, Some(9), 9, 5, Outcome::Finished), chunks]));
        assert_eq!((sum.tokens, sum.source), (12, Some(TokenSource::ChunksFallback)));
    }
}
