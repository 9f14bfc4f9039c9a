//! A tick every 2 ms on a load thread: how late it comes is how long an arrival could have waited
//! for us. Also reads the thread's CPU time.

use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::stop::Stop;
use crate::clock::{Clock, thread_cpu_us};

const PERIOD: Duration = Duration::from_millis(2);
const PERIOD_US: u64 = 2_000;
/// Ticks may also come a little early against the first one, which may have been late itself.
const HEAD_START_US: u64 = 5_000;
/// Half an hour of ticks; more are not kept.
const MOST_TICKS: usize = 900_000;

/// What one load thread's tick found.
#[derive(Debug, Default)]
pub(super) struct Ticks {
    /// Actual minus due, plus a constant; microseconds.
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
    let mut interval = tokio::time::interval(PERIOD);
    // Each tick that was due is counted: a pause of 90 ms is 45 late ticks, not one.
    interval.set_missed_tick_behavior(MissedTickBehavior::Burst);
    interval.tick().await;
    let mut due_us = clock.now_us().saturating_sub(HEAD_START_US);
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
