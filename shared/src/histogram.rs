//! A histogram of times that can be added to others: of streams, cells, repeats and runs. What its values mean
//! says who fills it.
//!
//! Log-linear buckets, after HdrHistogram (Gil Tene, <https://hdrhistogram.github.io/HdrHistogram/>): each power
//! of two is divided into equally many buckets, so that a bucket's width is a fixed share of its values. The bounds
//! are the same for all histograms: adding up loses nothing.

use crate::stats::weighted_percentile;

/// Buckets a power of two, as a power of two.
const BITS: u32 = 6;
/// The largest value told apart: whole numbers from 2⁵³ on aren't exact for every reader of JSON.
const LARGEST_US: u64 = (1 << 53) - 1;

/// How often each time occurred, in µs: exact below 128 µs, then in 64 buckets a power of two, at most 1.6 % wide.
/// Times from 2⁵³ µs on (285 years) count as the largest; counts end at the largest `u64`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    // By bucket, up to the last one that holds anything.
    counts: Vec<u64>,
}

impl Histogram {
    /// Counts a value in µs.
    pub fn record(&mut self, us: u64) {
        self.record_n(us, 1);
    }

    /// Counts a value in µs that occurred `n` times.
    pub fn record_n(&mut self, us: u64, n: u64) {
        self.add(bucket_of(us), n);
    }

    /// Counts all that the other one counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (bucket, n) in other.counts.iter().enumerate() {
            self.add(bucket, *n);
        }
    }

    fn add(&mut self, bucket: usize, n: u64) {
        if n == 0 {
            return;
        }
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] = self.counts[bucket].saturating_add(n);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// The p-th percentile (0 to 100) in µs, by the rank of [`percentile`](crate::stats::percentile); `None` of
    /// nothing. Each value counts as the middle of its bucket: what comes out is off by less than half a bucket.
    pub fn quantile(&self, p: f64) -> Option<f64> {
        let middles: Vec<(f64, u64)> = self.filled().map(|(bucket, n)| (middle_us(bucket), n)).collect();
        weighted_percentile(&middles, p)
    }

    /// Lower bound in µs and count of each bucket that holds values, in ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.filled().map(|(bucket, n)| (lower_us(bucket), n))
    }

    /// From what [`buckets`](Self::buckets) gave, in any order; `None` where a bound is no bucket's.
    pub fn from_buckets(buckets: impl IntoIterator<Item = (u64, u64)>) -> Option<Self> {
        let mut histogram = Histogram::default();
        for (us, n) in buckets {
            let bucket = bucket_of(us);
            if lower_us(bucket) != us {
                return None;
            }
            histogram.add(bucket, n);
        }
        Some(histogram)
    }

    fn filled(&self) -> impl Iterator<Item = (usize, u64)> {
        self.counts.iter().copied().enumerate().filter(|(_, n)| *n > 0)
    }
}

/// How far a bucket's values are shifted right to fit into `BITS` and the leading bit; its width is 2 to that.
fn shift_of(bucket: usize) -> u32 {
    ((bucket >> BITS) as u32).saturating_sub(1)
}

fn bucket_of(us: u64) -> usize {
    let us = us.min(LARGEST_US);
    let shift = (u64::BITS - us.leading_zeros()).saturating_sub(BITS + 1);
    ((shift as usize) << BITS) + (us >> shift) as usize
}

fn lower_us(bucket: usize) -> u64 {
    let shift = shift_of(bucket);
    (bucket as u64 - (u64::from(shift) << BITS)) << shift
}

/// The middle of the whole numbers that fall into a bucket: that number itself where there is one only.
fn middle_us(bucket: usize) -> f64 {
    lower_us(bucket) as f64 + ((1u64 << shift_of(bucket)) - 1) as f64 / 2.0
}
