//! Distributions of what fell into a window: exact percentiles of the values, and a histogram of them that can be
//! added to others.

use super::cell::{latency_s, ttft_s};
use crate::cell::measurement::Window;
use crate::load::record::{RequestRecord, StreamRecord};
use crate::load::tokens::TokenTimeline;
use tokscope_shared::field::{Field, List};
use tokscope_shared::report::own::{Distribution, Distributions};
use tokscope_shared::stats::{Histogram, smallest_sample, weighted_percentile};

/// Of what fell into the window.
pub(super) fn distributions(streams: &[StreamRecord], timeline: &TokenTimeline, window: &Window) -> Distributions {
    let requests = || streams.iter().flat_map(|stream| &stream.requests);
    let inside = |t_us: Option<u64>| t_us.is_some_and(|t_us| window.contains(t_us));
    let once = |of: fn(&RequestRecord) -> Option<f64>, at: fn(&RequestRecord) -> Option<u64>| {
        distribution(requests().filter(|r| inside(at(r))).filter_map(of).map(|seconds| (seconds * 1e6, 1)).collect())
    };
    Distributions {
        ttft_s: Field::Is(once(ttft_s, |r| r.first_token_us)),
        chunk_gap_s: Field::Is(distribution(gaps(timeline, window, |gap_us, _| (gap_us, 1)))),
        // A chunk that counts several tokens gives each an equal share of its gap.
        itl_s: Field::Is(distribution(gaps(timeline, window, |gap_us, tokens| (gap_us / f64::from(tokens.max(1)), tokens)))),
        request_latency_s: Field::Is(once(latency_s, |r| r.last_us)),
        ..Distributions::default()
    }
}

/// Each gap between two chunks of a request inside the window, µs, as `share` makes it.
fn gaps(timeline: &TokenTimeline, window: &Window, share: fn(f64, u32) -> (f64, u32)) -> Vec<(f64, u32)> {
    let mut values = Vec::new();
    for points in &timeline.streams {
        let mut chunks = points.iter().filter(|point| point.chunk && window.contains(point.t_us));
        let Some(mut before) = chunks.next() else { continue };
        for after in chunks {
            if before.request == after.request {
                values.push(share((after.t_us - before.t_us) as f64, after.tokens));
            }
            before = after;
        }
    }
    values
}

/// Of values in µs with how often each occurs.
pub(super) fn distribution(mut values: Vec<(f64, u32)>) -> Distribution {
    values.retain(|(_, weight)| *weight > 0);
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut histogram = Histogram::default();
    // Equal values once: there are far fewer different ones than values.
    let mut counted: Vec<(f64, u64)> = Vec::new();
    for (us, weight) in values {
        histogram.record_n(us.round() as u64, weight.into());
        match counted.last_mut() {
            Some((last, n)) if *last == us => *n += u64::from(weight),
            _ => counted.push((us, weight.into())),
        }
    }
    let n: u64 = counted.iter().map(|(_, weight)| weight).sum();
    let sum: f64 = counted.iter().map(|(us, weight)| us * *weight as f64).sum();
    let seconds = |us: Option<f64>| Field::opt(us.map(|us| us / 1e6));
    let at = |p: f64| seconds(weighted_percentile(&counted, p).filter(|_| n >= smallest_sample(p) as u64));
    Distribution {
        n: Field::count(n),
        min: seconds(counted.first().map(|value| value.0)),
        mean: seconds((n > 0).then(|| sum / n as f64)),
        p50: seconds(weighted_percentile(&counted, 50.0)),
        p90: at(90.0),
        p95: at(95.0),
        p99: at(99.0),
        max: seconds(counted.last().map(|value| value.0)),
        bucket_us: Field::Is(List(histogram.buckets().map(|(us, _)| Field::count(us)).collect())),
        bucket_n: Field::Is(List(histogram.buckets().map(|(_, n)| Field::count(n)).collect())),
        ..Distribution::default()
    }
}
