//! What the client knows of itself: how late its own clock ticked, how much CPU its load threads
//! used, how far its starts were apart. It judges nothing.

/// The client during one cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientHealth {
    /// Lateness of the 2 ms tick on the load threads, from the first stream's start to the last
    /// stream's end; absent if nothing ticked.
    pub tick: Option<TickLateness>,
    /// CPU time of the load threads over that time, microseconds.
    pub load_cpu_us: Option<u64>,
    /// What of it the tick itself took, microseconds; absent if it isn't told apart.
    pub tick_cpu_us: Option<u64>,
    /// That time, microseconds.
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
    /// Events received that carried output or usage.
    pub events: u64,
}

/// How late the tick was, in microseconds, relative to the most punctual tick of the cell: the
/// timer's own granularity is the same for all and says nothing about the client.
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
    /// From raw deviations (actual minus due), in any order; `None` without any.
    #[must_use]
    pub fn from_raw(mut raw_us: Vec<u32>) -> Option<Self> {
        raw_us.sort_unstable();
        let best = *raw_us.first()?;
        let n = raw_us.len();
        // Nearest rank: with hundreds of ticks a second interpolation would change nothing.
        let at = |q: usize| u64::from(raw_us[(n * q).div_ceil(100).clamp(1, n) - 1] - best);
        Some(Self { ticks: n as u64, p50_us: at(50), p99_us: at(99), max_us: at(100) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lateness_is_relative_to_the_most_punctual_tick() {
        let raw = (0..100).map(|i| 700 + i).collect();
        let late = TickLateness::from_raw(raw).unwrap();
        assert_eq!((late.p50_us, late.p99_us, late.max_us), (49, 98, 99));
        assert_eq!(TickLateness::from_raw(vec![]), None);
    }
}
