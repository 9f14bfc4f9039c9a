//! A tick every 2 ms on a load thread: how late it comes is how long an arrival could have waited
//! for us. Also reads the thread's CPU time.

use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::stop::Stop;
use crate::clock::{Clock, thread_cpu_us};

const PERIOD: Duration = Duration::from_millis(2);
const PERIOD_US: u64 = 2_000;
/// Half an hour of ticks; more are not kept.
const MOST_TICKS: usize = 900_000;

/// What one load thread's tick found.
#[derive(Debug, Default)]
pub(super) struct Ticks {
    /// Actual minus due, the timer's own granularity included; microseconds.
    pub(super) raw_us: Vec<u32>,
    /// CPU time of the thread meanwhile, microseconds.
    pub(super) cpu_us: u64,
}

/// Ticks until stopped. Runs on the load thread that it watches.
pub(super) async fn tick(clock: Clock, mut stop: Stop) -> Ticks {
    let mut ticks = Ticks {
        // Ten seconds without growing.
        raw_us: Vec::with_capacity(5_000),
        cpu_us: 0,
    };
    let cpu_before = thread_cpu_us();
    let mut due_us = clock.now_us();
    let mut interval = tokio::time::interval(PERIOD);
    // Each tick that was due is counted: a pause of 90 ms is 45 late ticks, not one.
    interval.set_missed_tick_behavior(MissedTickBehavior::Burst);
    // The first tick is due at once: it says nothing.
    interval.tick().await;
    loop {
        tokio::select! {
            biased;
            _ = interval.tick() => {}
            () = stop.stopped() => break,
        }
        due_us += PERIOD_US;
        if ticks.raw_us.len() < MOST_TICKS {
            let late = clock.now_us().saturating_sub(due_us);
            ticks.raw_us.push(u32::try_from(late).unwrap_or(u32::MAX));
        }
    }
    ticks.cpu_us = thread_cpu_us().saturating_sub(cpu_before);
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::health::TickLateness;
    use crate::load::stop::stop_pair;

    /// Ticks for about 200 ms, of which the thread is blocked for `blocked`.
    async fn lateness(blocked: Duration) -> Option<TickLateness> {
        let (stopper, stop) = stop_pair();
        let watched = tokio::spawn(tick(Clock::start(), stop));
        for _ in 0..20 {
            std::thread::sleep(blocked / 20);
            tokio::time::sleep(Duration::from_millis(10) - blocked / 20).await;
        }
        stopper.stop();
        TickLateness::from_raw(watched.await.map(|t| t.raw_us).unwrap_or_default())
    }

    #[tokio::test]
    async fn a_blocked_thread_ticks_late_by_as_long_as_it_was_blocked() {
        let busy = lateness(Duration::from_millis(180)).await;
        // Blocked for 9 of every 10 ms, ticks that were due meanwhile all come late.
        assert!(busy.is_some_and(|t| t.ticks > 50 && t.max_us >= 6_000), "{busy:?}");
    }
}
