//! Tokens from arrivals, by one rule for all servers: usage reports are known points of a request's
//! token count, and between two of them its tokens are spread over the chunks that came in between.
//! Usage on every chunk makes that exact; usage at the end only makes it a share a chunk. It judges
//! no cell.

use std::collections::BTreeMap;

use super::record::{Arrival, StreamRecord, is_a_count};

/// Where a token count comes from, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TokenSource {
    /// Usage came along with the chunks.
    ContinuousUsage,
    /// Usage of requests that finished, each taken as a whole.
    CompletedUsage,
    /// Usage came at the end; its tokens were spread over the request's chunks.
    FinalUsageSpread,
    /// Nothing but chunks is known: each counted as one token.
    ChunksFallback,
}

impl TokenSource {
    /// `aggregate_source` as the report writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ContinuousUsage => "openai_continuous_usage",
            Self::CompletedUsage => "openai_completed_usage",
            Self::FinalUsageSpread => "openai_final_usage_spread",
            Self::ChunksFallback => "openai_stream_chunks_fallback",
        }
    }
}

/// Tokens inside a half-open window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowTokens {
    /// Tokens.
    pub tokens: u64,
    /// Chunks with text, reasoning or a tool call.
    pub chunks: u64,
    /// The worst source any of the tokens came from; `None` if there were none.
    pub source: Option<TokenSource>,
    /// Tokens by source.
    pub by_source: BTreeMap<TokenSource, u64>,
    /// Tokens by stream, stream 0 first.
    pub per_stream: Vec<u64>,
}

/// Some tokens at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenPoint {
    /// When they arrived, microseconds.
    pub t_us: u64,
    /// How many.
    pub tokens: u32,
    /// Index into the stream's requests.
    pub request: u32,
    /// Whether text came with them.
    pub chunk: bool,
    /// How that number is known.
    pub source: TokenSource,
}

/// The points of every stream, in order of time, from which windows are counted.
#[derive(Clone, Debug, Default)]
pub struct TokenTimeline {
    /// One list a stream.
    pub streams: Vec<Vec<TokenPoint>>,
}

impl TokenTimeline {
    /// From what the streams left behind. Where a request was cut before its usage came, the ratio
    /// of tokens to chunks is borrowed: from its own earlier usage, else from its stream's other
    /// requests, else from the other streams'; else a chunk counts as a token.
    #[must_use]
    pub fn new(streams: &[StreamRecord]) -> Self {
        let mut all = Ratio::default();
        let own: Vec<Ratio> = streams.iter().map(Ratio::of_stream).collect();
        own.iter().for_each(|r| all.add(*r));
        let points = |(stream, own): (&StreamRecord, &Ratio)| {
            let borrowed = if own.is_known() { *own } else { all };
            stream_points(stream, borrowed)
        };
        Self { streams: streams.iter().zip(&own).map(points).collect() }
    }

    /// The tokens of `[start_us, end_us)`.
    #[must_use]
    pub fn window(&self, start_us: u64, end_us: u64) -> WindowTokens {
        let mut sum = WindowTokens {
            tokens: 0,
            chunks: 0,
            source: None,
            by_source: BTreeMap::new(),
            per_stream: Vec::with_capacity(self.streams.len()),
        };
        for points in &self.streams {
            let from = points.partition_point(|p| p.t_us < start_us);
            let to = points.partition_point(|p| p.t_us < end_us);
            let mut tokens = 0;
            for p in points.get(from..to).unwrap_or_default() {
                tokens += u64::from(p.tokens);
                sum.chunks += u64::from(p.chunk);
                if p.tokens > 0 {
                    *sum.by_source.entry(p.source).or_default() += u64::from(p.tokens);
                }
            }
            sum.tokens += tokens;
            sum.per_stream.push(tokens);
        }
        sum.source = sum.by_source.keys().next_back().copied();
        sum
    }

    /// Tokens of each whole second from `start_us` on; a last part of a second is left out.
    #[must_use]
    pub fn per_second(&self, start_us: u64, end_us: u64) -> Vec<u64> {
        let seconds = end_us.saturating_sub(start_us) / 1_000_000;
        (0..seconds).map(|s| start_us + s * 1_000_000).map(|from| self.window(from, from + 1_000_000).tokens).collect()
    }
}

/// Tokens to chunks, as far as usage told.
#[derive(Clone, Copy, Debug, Default)]
struct Ratio {
    tokens: u64,
    chunks: u64,
}

impl Ratio {
    fn is_known(self) -> bool {
        self.tokens > 0 && self.chunks > 0
    }

    fn add(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.chunks += other.chunks;
    }

    /// Over all requests of a stream, each up to its last usage.
    fn of_stream(stream: &StreamRecord) -> Self {
        let mut sum = Self::default();
        for request in by_request(&stream.arrivals) {
            sum.add(Self::of_request(request));
        }
        sum
    }

    fn of_request(arrivals: &[Arrival]) -> Self {
        let (mut known, mut chunks) = (Self::default(), 0);
        for a in arrivals {
            chunks += u64::from(a.kinds.is_output());
            if let Some(usage) = a.usage() {
                known.tokens = known.tokens.max(u64::from(usage));
                known.chunks = chunks;
            }
        }
        if usage_counts(arrivals) { known } else { Self::default() }
    }

    /// Tokens of the first `chunks` chunks at this ratio, rounded to the nearest.
    fn of(self, chunks: u64) -> u64 {
        (2 * self.tokens * chunks + self.chunks) / (2 * self.chunks)
    }
}

/// Arrivals of a stream, a slice a request: a stream's requests follow each other.
fn by_request(arrivals: &[Arrival]) -> impl Iterator<Item = &[Arrival]> {
    arrivals.chunk_by(|a, b| a.request == b.request)
}

fn stream_points(stream: &StreamRecord, borrowed: Ratio) -> Vec<TokenPoint> {
    let mut points = Vec::with_capacity(stream.arrivals.len());
    for arrivals in by_request(&stream.arrivals) {
        request_points(arrivals, borrowed, &mut points);
    }
    points
}

fn request_points(arrivals: &[Arrival], borrowed: Ratio, points: &mut Vec<TokenPoint>) {
    let with_usage = if is_continuous(arrivals) { TokenSource::ContinuousUsage } else { TokenSource::FinalUsageSpread };
    let counts = usage_counts(arrivals);
    let mut known = 0;
    // First point of those whose tokens the next usage will tell.
    let mut open = points.len();
    for a in arrivals {
        let chunk = a.kinds.is_output();
        if chunk {
            points.push(TokenPoint { t_us: a.t_us, tokens: 0, request: a.request, chunk, source: with_usage });
        }
        let Some(usage) = a.usage().filter(|_| counts) else { continue };
        let delta = usage.saturating_sub(known);
        known = known.max(usage);
        let waiting = points.get_mut(open..).unwrap_or_default();
        if waiting.is_empty() && delta > 0 {
            // Tokens without text: half of a character, or a token that is not shown.
            points.push(TokenPoint { t_us: a.t_us, tokens: delta, request: a.request, chunk: false, source: with_usage });
        } else {
            let told = Ratio { tokens: u64::from(delta), chunks: waiting.len() as u64 };
            spread(waiting, told, with_usage);
        }
        open = points.len();
    }
    let own = Ratio::of_request(arrivals);
    let rest = points.get_mut(open..).unwrap_or_default();
    match [own, borrowed].into_iter().find(|r| r.is_known()) {
        Some(ratio) => spread(rest, ratio, with_usage),
        None => {
            let one = Ratio { tokens: 1, chunks: 1 };
            spread(rest, one, TokenSource::ChunksFallback);
        }
    }
}

/// Whether a request's usage is the number of its tokens so far.
fn usage_counts(arrivals: &[Arrival]) -> bool {
    let (mut most, mut reports, mut chunks) = (0, 0, 0);
    for arrival in arrivals {
        most = most.max(arrival.usage().unwrap_or(0));
        reports += u32::from(arrival.usage().is_some());
        chunks += u32::from(arrival.kinds.is_output());
    }
    is_a_count(most, reports, chunks)
}

/// Gives each point its share, in whole tokens whose sum is right after every one of them.
fn spread(points: &mut [TokenPoint], ratio: Ratio, source: TokenSource) {
    let mut given = 0;
    for (i, p) in points.iter_mut().enumerate() {
        let due = ratio.of(i as u64 + 1);
        p.tokens = u32::try_from(due - given).unwrap_or(u32::MAX);
        p.source = source;
        given = due;
    }
}

/// Whether usage kept pace with the chunks: it grew at more than half of them, not counting what
/// came after the last one.
fn is_continuous(arrivals: &[Arrival]) -> bool {
    let Some(last) = arrivals.iter().rposition(|a| a.kinds.is_output()) else {
        return arrivals.iter().any(|a| a.usage().is_some_and(|u| u > 0));
    };
    let (mut known, mut grew, mut chunks) = (0, 0, 0);
    for a in arrivals.iter().take(last + 1) {
        chunks += u32::from(a.kinds.is_output());
        if let Some(usage) = a.usage().filter(|u| *u > known) {
            known = usage;
            grew += 1;
        }
    }
    grew * 2 > chunks
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::load::record::Kinds;
    use proptest::prelude::*;

    /// `(time, is text, usage)` of one request.
    type Event = (u64, bool, Option<u32>);

    fn stream(requests: &[&[Event]]) -> StreamRecord {
        let mut record = StreamRecord::default();
        for (r, events) in requests.iter().enumerate() {
            for &(t, text, usage) in *events {
                let kinds = if text { Kinds::CONTENT } else { Kinds::default() };
                let r = u32::try_from(r).unwrap();
                record.arrivals.push(Arrival::new(t, r, kinds, usage, None));
            }
        }
        record
    }

    fn count(streams: &[StreamRecord], from: u64, to: u64) -> (u64, Option<TokenSource>) {
        let w = TokenTimeline::new(streams).window(from, to);
        (w.tokens, w.source)
    }

    use TokenSource::{ChunksFallback, ContinuousUsage, FinalUsageSpread};

    #[test]
    fn continuous_usage_counts_what_usage_says_at_each_chunk() {
        let s = [stream(&[&[
            (0, false, Some(0)),
            (10, true, Some(1)),
            (20, true, Some(4)),
            (30, false, Some(5)),
            (40, true, Some(7)),
            (50, false, Some(7)),
        ]])];
        assert_eq!(count(&s, 0, 100), (7, Some(ContinuousUsage)));
        assert_eq!(count(&s, 20, 40), (4, Some(ContinuousUsage)), "start is in, end is out");
        assert_eq!(count(&s, 30, 31), (1, Some(ContinuousUsage)), "a token without text");
        assert_eq!(count(&s, 51, 60), (0, None));
    }

    #[test]
    fn final_usage_is_spread_evenly_over_the_chunks_of_its_own_request() {
        let mut events: Vec<Event> = (0..10).map(|i| (i * 10, true, None)).collect();
        events.push((500, false, Some(30)));
        let s = [stream(&[&events])];
        assert_eq!(count(&s, 0, 50), (15, Some(FinalUsageSpread)));
        assert_eq!(count(&s, 50, 1000), (15, Some(FinalUsageSpread)));
        assert_eq!(count(&s, 200, 1000), (0, None), "the usage event itself brings nothing");
    }

    #[test]
    fn a_usage_of_nothing_for_text_is_no_count() {
        let events: Vec<Event> = (0..10).map(|i| (i, true, None)).chain([(20, false, Some(0))]).collect();
        assert_eq!(count(&[stream(&[&events])], 0, 100), (10, Some(ChunksFallback)));
        let mut request = crate::load::record::RequestRecord::due("x".into(), 0, 0, 0);
        (request.usage_tokens, request.usage_reports, request.chunks) = (Some(0), 1, 10);
        assert_eq!(request.output_tokens(), 10, "a request has as many as its window");
    }

    #[test]
    fn a_cut_request_borrows_the_ratio_of_finished_ones() {
        let finished: Vec<Event> = (0..4).map(|i| (i, true, None)).chain([(9, false, Some(12))]).collect();
        let cut: Vec<Event> = (10..15).map(|i| (i, true, None)).collect();
        let same_stream = [stream(&[&finished, &cut])];
        assert_eq!(count(&same_stream, 10, 20), (15, Some(FinalUsageSpread)));
        let other_stream = [stream(&[&finished]), stream(&[&cut])];
        assert_eq!(count(&other_stream, 10, 20), (15, Some(FinalUsageSpread)));
    }

    #[test]
    fn chunks_count_as_tokens_only_where_nothing_else_is_known() {
        let s = [stream(&[&[(1, true, None), (2, true, None)]])];
        assert_eq!(count(&s, 0, 9), (2, Some(ChunksFallback)));
    }

    #[test]
    fn the_worst_source_names_the_cell() {
        let usage = stream(&[&[(1, true, Some(3)), (2, true, Some(6))]]);
        let w = TokenTimeline::new(std::slice::from_ref(&usage)).window(0, 9);
        assert_eq!(w.source, Some(ContinuousUsage));
        let late = stream(&[&[(1, true, None), (2, true, None), (3, false, Some(4))]]);
        let w = TokenTimeline::new(&[usage, late]).window(0, 9);
        assert_eq!(w.source, Some(FinalUsageSpread));
        assert_eq!(w.per_stream, [6, 4]);
        assert_eq!(w.by_source[&ContinuousUsage], 6);
    }

    #[test]
    fn usage_at_every_tenth_chunk_is_shared_by_the_ten() {
        let events: Vec<Event> = (1..=25).map(|i| (i, true, (i % 10 == 0).then(|| u32::try_from(i * 2).unwrap()))).collect();
        let s = [stream(&[&events])];
        assert_eq!(count(&s, 1, 6).0, 10);
        assert_eq!(count(&s, 1, 21).0, 40);
        assert_eq!(count(&s, 21, 26).0, 10, "the tail by the request's own ratio");
    }

    #[test]
    fn usage_that_shrinks_counts_nothing_twice() {
        let s = [stream(&[&[(1, true, Some(5)), (2, true, Some(3)), (3, true, Some(6))]])];
        assert_eq!(count(&s, 0, 9).0, 6);
    }

    #[test]
    fn usage_that_tells_each_chunks_own_tokens_is_not_taken_for_their_sum() {
        let events: Vec<Event> = (0..100).map(|i| (i, true, Some(1))).collect();
        assert_eq!(count(&[stream(&[&events])], 0, 1000), (100, Some(ChunksFallback)));
    }

    #[test]
    fn per_second_leaves_out_the_last_part() {
        let s = [stream(&[&[(0, true, Some(2)), (1_200_000, true, Some(5)), (2_100_000, true, Some(9))]])];
        assert_eq!(TokenTimeline::new(&s).per_second(0, 2_500_000), [2, 3]);
    }

    proptest! {
        #[test]
        fn adjacent_windows_add_up_to_the_whole(
            gaps in proptest::collection::vec((0_u64..50, any::<bool>(), proptest::option::of(0_u32..4)), 1..200),
            cuts in proptest::collection::vec(0_u64..10_000, 0..8),
            restart_every in 1_usize..40,
        ) {
            let (mut t, mut known) = (0, 0);
            let mut s = StreamRecord::default();
            for (i, (gap, text, more)) in gaps.into_iter().enumerate() {
                if i % restart_every == 0 {
                    known = 0;
                }
                t += gap;
                let usage = more.map(|m| { known += m; known });
                let kinds = if text { Kinds::CONTENT } else { Kinds::default() };
                let request = u32::try_from(i / restart_every).unwrap();
                s.arrivals.push(Arrival::new(t, request, kinds, usage, None));
            }
            let timeline = TokenTimeline::new(&[s]);
            let whole = timeline.window(0, u64::MAX).tokens;
            let mut edges = cuts;
            edges.push(0);
            edges.push(u64::MAX);
            edges.sort_unstable();
            let parts: u64 = edges.windows(2).map(|w| timeline.window(w[0], w[1]).tokens).sum();
            prop_assert_eq!(parts, whole);
        }

        #[test]
        fn a_final_usage_is_given_out_to_the_token(chunks in 1_u64..300, tokens in 1_u32..2000) {
            let mut events: Vec<Event> = (0..chunks).map(|i| (i, true, None)).collect();
            events.push((chunks + 5, false, Some(tokens)));
            let timeline = TokenTimeline::new(&[stream(&[&events])]);
            prop_assert_eq!(timeline.window(0, u64::MAX).tokens, u64::from(tokens));
            let fair = f64::from(tokens) / chunks as f64;
            for i in 0..chunks {
                let so_far = timeline.window(0, i + 1).tokens as f64;
                prop_assert!((so_far - fair * (i + 1) as f64).abs() <= 0.5 + 1e-9);
            }
        }
    }
}
