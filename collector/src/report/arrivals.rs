//! A sample of whole requests, arrival by arrival, that takes no more room in the file than it may.

use crate::load::record::StreamRecord;
use crate::load::tokens::{TokenPoint, TokenTimeline};
use tokscope_shared::field::{Field, List};
use tokscope_shared::report::own::Arrivals;

/// What the sample may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalsLimit {
    /// Bytes in the file; 0 is no sample.
    pub bytes: usize,
    /// By which it is drawn: the same requests for the same seed.
    pub seed: u64,
}

/// Of each request that received something one whole list, in an order drawn by the seed, as long as there is room.
pub(super) fn arrivals(streams: &[StreamRecord], timeline: &TokenTimeline, limit: ArrivalsLimit) -> Arrivals {
    // Place among all requests of the cell, and the points.
    let mut candidates: Vec<(usize, &[TokenPoint])> = Vec::new();
    let mut before = 0;
    for (stream, points) in streams.iter().zip(&timeline.streams) {
        candidates
            .extend(points.chunk_by(|a, b| a.request == b.request).filter_map(|of| Some((before + of.first()?.request as usize, of))));
        before += stream.requests.len();
    }
    let total = candidates.len();
    fastrand::Rng::with_seed(limit.seed).shuffle(&mut candidates);
    let mut left = limit.bytes;
    let mut sample: Vec<_> = candidates.into_iter().filter(|(_, points)| take(&mut left, bytes(points))).collect();
    sample.sort_unstable_by_key(|(place, _)| *place);
    let of_each = |of: fn(&(usize, &[TokenPoint])) -> u64| Field::Is(List(sample.iter().map(|one| Field::count(of(one))).collect()));
    let gaps = sample.iter().flat_map(|(_, points)| {
        let first = points.first().map_or(0, |point| point.t_us);
        points.iter().scan(first, |last, point| Some(point.t_us - std::mem::replace(last, point.t_us)))
    });
    let tokens = sample.iter().flat_map(|(_, points)| points.iter()).map(|point| u64::from(point.tokens));
    Arrivals {
        requests_total: Field::count(total as u64),
        request: of_each(|(place, _)| *place as u64),
        arrivals: of_each(|(_, points)| points.len() as u64),
        start_us: of_each(|(_, points)| points.first().map_or(0, |point| point.t_us)),
        gap_us: Field::Is(List(gaps.map(Field::count).collect())),
        tokens: Field::Is(List(tokens.map(Field::count).collect())),
        ..Arrivals::default()
    }
}

fn take(left: &mut usize, bytes: usize) -> bool {
    let fits = bytes <= *left;
    *left -= if fits { bytes } else { 0 };
    fits
}

/// What a request's lists take: digits and a comma each.
fn bytes(points: &[TokenPoint]) -> usize {
    let digits = |n: u64| n.checked_ilog10().unwrap_or(0) as usize + 2;
    let gaps: usize = points.windows(2).map(|pair| digits(pair[1].t_us - pair[0].t_us)).sum();
    let tokens: usize = points.iter().map(|point| digits(point.tokens.into())).sum();
    40 + gaps + tokens
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::load::record::{Arrival, Kinds, RequestRecord};

    /// Streams of requests with so many arrivals each, 20 ms apart.
    fn streams(lengths: &[&[u32]]) -> Vec<StreamRecord> {
        let mut t_us = 1_000;
        let mut stream = |(index, lengths): (usize, &&[u32])| {
            let mut record = StreamRecord { stream: u32::try_from(index).unwrap(), ..StreamRecord::default() };
            for (request, n) in (0..).zip(*lengths) {
                record.requests.push(RequestRecord::due("x".into(), record.stream, request, t_us));
                for usage in 1..=*n {
                    t_us += 20_000;
                    record.arrivals.push(Arrival::new(t_us, request, Kinds::CONTENT, Some(usage), None));
                }
            }
            record
        };
        lengths.iter().enumerate().map(&mut stream).collect()
    }

    fn sample(streams: &[StreamRecord], bytes: usize) -> Arrivals {
        arrivals(streams, &TokenTimeline::new(streams), ArrivalsLimit { bytes, seed: 7 })
    }

    #[test]
    fn a_sample_holds_whole_requests_with_their_places() {
        let streams = streams(&[&[3, 0, 2], &[4]]);
        let all = sample(&streams, 100_000);
        let list = |field: &Field<List<tokscope_shared::field::Int>>| field.items().map(tokscope_shared::field::Int::i64).collect::<Vec<_>>();
        assert_eq!(all.requests_total.i64(), Some(3), "a request without arrivals is none to draw from");
        assert_eq!(list(&all.request), [0, 2, 3]);
        assert_eq!(list(&all.arrivals), [3, 2, 4]);
        assert_eq!(list(&all.start_us), [21_000, 81_000, 121_000]);
        assert_eq!(list(&all.gap_us), [0, 20_000, 20_000, 0, 20_000, 0, 20_000, 20_000, 20_000]);
        assert_eq!(list(&all.tokens), [1; 9]);
    }

    #[test]
    fn it_takes_no_more_than_it_may_and_is_the_same_for_the_same_seed() {
        let lengths = vec![50; 40];
        let streams = streams(&[&lengths]);
        let few = sample(&streams, 2_000);
        let n = few.request.items().count();
        assert!((1..40).contains(&n), "{n}");
        assert_eq!(few.requests_total.i64(), Some(40));
        let text: usize =
            [&few.gap_us, &few.tokens].iter().map(|list| list.items().map(|n| n.i64().to_string().len() + 1).sum::<usize>()).sum();
        assert!(text <= 2_000, "{text}");
        assert_eq!(format!("{few:?}"), format!("{:?}", sample(&streams, 2_000)));
        assert_eq!(sample(&streams, 0).request.items().count(), 0);
    }
}
