//! A tick every 2 ms on the load thread: how late it comes is how long an arrival could have waited for us. It
//! keeps account of its own CPU time as well, so that the load's can be told without it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime};

use crate::clock::{Clock, thread_cpu_us};

pub(super) const PERIOD_US: u64 = 2_000;
/// A minute without growing; half an hour at most is kept.
const USUAL_TICKS: usize = 30_000;
const MOST_TICKS: usize = 900_000;

/// What one load thread's tick found.
#[derive(Clone, Debug, Default)]
pub struct Ticks {
    /// When the first one was due, microseconds on the run's clock; each next one 2 ms later.
    pub first_due_us: u64,
    /// Actual minus due, the timer's own delay included; microseconds.
    pub late_us: Vec<u32>,
}

/// The timer.
#[derive(Debug)]
pub(super) struct Ticker {
    timer: OwnedFd,
    pub(super) ticks: Ticks,
    due_us: u64,
    /// CPU time of the thread when the last tick was over, if nothing but it was done since the one before.
    cpu_us: u64,
    alone: bool,
    /// Turns of the loop that did nothing but tick.
    idle_turns: u64,
    /// CPU time of such a turn: sum, and over how many.
    cost_us: (u64, u64),
}

impl Ticker {
    /// Starts ticking.
    ///
    /// # Errors
    /// The system gives no timer.
    pub(super) fn start(clock: Clock) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let period = Timespec { tv_sec: 0, tv_nsec: i64::try_from(PERIOD_US * 1_000).unwrap_or(2_000_000) };
        let due_us = clock.now_us() + PERIOD_US;
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: period, it_value: period })?;
        let ticks = Ticks { first_due_us: due_us, late_us: Vec::with_capacity(USUAL_TICKS) };
        Ok(Self { timer, ticks, due_us, cpu_us: thread_cpu_us(), alone: false, idle_turns: 0, cost_us: (0, 0) })
    }

    /// The timer has fired. `alone`: nothing else woke the thread in this turn. Each tick that was due is counted:
    /// a pause of 90 ms is 45 late ticks, not one.
    pub(super) fn fired(&mut self, now_us: u64, alone: bool) {
        let mut expirations = [0; 8];
        // Nothing to read: it was read already.
        if rustix::io::read(&self.timer, &mut expirations[..]).is_err() {
            return;
        }
        while self.due_us <= now_us {
            if self.ticks.late_us.len() < MOST_TICKS {
                self.ticks.late_us.push(u32::try_from(now_us - self.due_us).unwrap_or(u32::MAX));
            }
            self.due_us += PERIOD_US;
        }
        let cpu_us = thread_cpu_us();
        if alone {
            self.idle_turns += 1;
            if self.alone {
                self.cost_us.0 += cpu_us - self.cpu_us;
                self.cost_us.1 += 1;
            }
        }
        self.cpu_us = cpu_us;
        self.alone = alone;
    }

    /// Something else was done.
    pub(super) fn interrupted(&mut self) {
        self.alone = false;
    }

    /// CPU time that ticking took: of each turn that did nothing else, what such a turn takes on average; in the
    /// other turns a tick costs next to nothing. Absent if no turn was idle.
    pub(super) fn cpu_us(&self) -> Option<u64> {
        let (sum, turns) = self.cost_us;
        (turns > 0).then(|| sum * self.idle_turns / turns)
    }
}

impl AsFd for Ticker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::load::health::TickLateness;
    use std::time::Duration;

    /// Ticks for about 200 ms, of which the thread doesn't look for `blocked` out of 10.
    fn ticks(blocked: Duration) -> Ticker {
        let clock = Clock::start();
        let mut ticker = Ticker::start(clock).unwrap();
        for _ in 0..20 {
            std::thread::sleep(blocked);
            let until = clock.now_us() + 10_000 - u64::try_from(blocked.as_micros()).unwrap();
            while clock.now_us() < until {
                ticker.fired(clock.now_us(), true);
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        ticker
    }

    #[test]
    fn a_blocked_thread_ticks_late_by_as_long_as_it_was_blocked() {
        let busy = ticks(Duration::from_millis(9));
        let late = TickLateness::of(&[busy.ticks], None).unwrap();
        // Blocked for 9 of every 10 ms, ticks that were due meanwhile all come late.
        assert!(late.ticks > 50 && late.max_us >= 6_000, "{late:?}");
    }

    #[test]
    fn each_tick_that_was_due_is_counted_once() {
        let clock = Clock::start();
        let mut ticker = Ticker::start(clock).unwrap();
        std::thread::sleep(Duration::from_millis(91));
        ticker.fired(clock.now_us(), false);
        ticker.fired(clock.now_us(), false);
        let n = ticker.ticks.late_us.len();
        assert!(n >= 45, "{n}");
        assert!(ticker.ticks.late_us.windows(2).all(|w| w[0] - w[1] == 2_000));
        assert_eq!(ticker.cpu_us(), None, "no turn was idle");
    }
}
