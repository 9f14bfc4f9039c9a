//! What the client knows of itself: how late its own clock ticked, how much CPU its load threads used, how far its
//! starts were apart, how long bytes waited for it. It judges nothing.

use super::record::StreamRecord;
use super::tick::{PERIOD_US, Ticks};

/// The client during one cell.
#[derive(Clone, Debug, Default)]
pub struct ClientHealth {
    /// Of each load thread.
    pub ticks: Vec<Ticks>,
    /// CPU time of the load threads from the streams' start to their end, microseconds.
    pub load_cpu_us: u64,
    /// The part of it that ticking took; absent if the threads never did nothing else.
    pub tick_cpu_us: Option<u64>,
    /// CPU time of the busiest load thread over that time, 0 to 1.
    pub busy_share: f64,
    /// From the streams' start to their end, microseconds.
    pub span_us: u64,
    /// Load threads.
    pub threads: u32,
    /// First to last of the streams' first sends, microseconds; absent below two streams.
    pub start_spread_us: Option<u64>,
    /// Connections opened, over all streams.
    pub connections_opened: u32,
    /// Requests sent on a connection that had carried one before.
    pub connections_reused: u32,
    /// Kept connections that the server had closed as the next request was sent, which then went
    /// out on a new one.
    pub connections_stale: u32,
    /// Body bytes received, over all streams.
    pub body_bytes: u64,
    /// Events received that said something.
    pub events: u64,
    /// Events that could not be read and were passed over.
    pub bad_events: u64,
    /// Reads that brought bytes.
    pub reads: u64,
    /// Whose time the arrivals have.
    pub stamp: StampSource,
    /// How long bytes lay in the kernel; absent without its stamps.
    pub queue_delay: Option<Lateness>,
}

/// Whose time arrivals have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StampSource {
    /// The kernel's, as it received the last byte of a read.
    Kernel,
    /// That of the read, and why.
    Read(String),
    /// Nothing arrived.
    #[default]
    Nothing,
}

/// How late something was, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Lateness {
    /// Sample size.
    pub n: u64,
    /// Median.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Latest.
    pub max_us: u64,
}

impl Lateness {
    /// Of values in any order; `None` without any.
    #[must_use]
    pub fn of(mut values_us: Vec<u32>) -> Option<Self> {
        values_us.sort_unstable();
        let n = values_us.len();
        let last = values_us.last()?;
        // Nearest rank: with hundreds of values interpolation would change nothing.
        let at = |q: usize| u64::from(values_us[(n * q).div_ceil(100).clamp(1, n) - 1]);
        Some(Self { n: n as u64, p50_us: at(50), p99_us: at(99), max_us: u64::from(*last) })
    }
}

/// How late the tick was, in microseconds, relative to the most punctual tick of its thread: the timer's own delay
/// is the same for all and says nothing about the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickLateness {
    /// Ticks that were due.
    pub ticks: u64,
    /// Median.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Latest.
    pub max_us: u64,
}

impl TickLateness {
    /// Of all threads' ticks that were due between two instants of the run's clock, or of all; `None` without any.
    #[must_use]
    pub fn of(threads: &[Ticks], between_us: Option<(u64, u64)>) -> Option<Self> {
        let mut late = Vec::new();
        for ticks in threads {
            let best = ticks.late_us.iter().min().copied().unwrap_or(0);
            let due = |i: usize| ticks.first_due_us + PERIOD_US * i as u64;
            let inside = |i: usize| between_us.is_none_or(|(from, to)| (from..to).contains(&due(i)));
            late.extend(ticks.late_us.iter().enumerate().filter(|(i, _)| inside(*i)).map(|(_, late)| late - best));
        }
        let Lateness { n, p50_us, p99_us, max_us } = Lateness::of(late)?;
        Some(Self { ticks: n, p50_us, p99_us, max_us })
    }
}

impl ClientHealth {
    /// Adds up what the streams left behind.
    pub(super) fn count(&mut self, records: &[StreamRecord]) {
        let first_sends = || records.iter().filter_map(|r| r.requests.first()).filter_map(|r| r.sent_us);
        if records.len() > 1
            && let (Some(first), Some(last)) = (first_sends().min(), first_sends().max())
        {
            self.start_spread_us = Some(last - first);
        }
        for r in records {
            self.connections_opened += r.connections_opened;
            self.connections_reused += r.connections_reused;
            self.connections_stale += r.connections_stale;
            self.events += r.arrivals.len() as u64;
            self.body_bytes += r.requests.iter().map(|r| r.body_bytes).sum::<u64>();
            self.bad_events += r.requests.iter().map(|r| u64::from(r.bad_events)).sum::<u64>();
        }
        let delays = records.iter().flat_map(|r| &r.arrivals).filter_map(super::record::Arrival::queued_us);
        self.queue_delay = Lateness::of(delays.collect());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lateness_is_relative_to_the_most_punctual_tick() {
        let ticks = Ticks { first_due_us: 10_000, late_us: (0..100).map(|i| 700 + i).collect() };
        let late = TickLateness::of(std::slice::from_ref(&ticks), None).unwrap();
        assert_eq!((late.ticks, late.p50_us, late.p99_us, late.max_us), (100, 49, 98, 99));
        let late = TickLateness::of(std::slice::from_ref(&ticks), Some((10_000, 20_000))).unwrap();
        assert_eq!((late.ticks, late.max_us), (5, 4), "of those due in between only");
        assert_eq!(TickLateness::of(&[], None), None);
    }
}
