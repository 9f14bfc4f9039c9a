//! Wakes a load thread at an instant, to some ten microseconds: the limit of an epoll has milliseconds, or the slack
//! that the system gives every sleep.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime};

use crate::clock::Clock;

/// A timer that goes off once.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: OwnedFd,
    clock: Clock,
}

impl Alarm {
    /// One that isn't set.
    ///
    /// # Errors
    /// The system gives no timer.
    pub(super) fn new(clock: Clock) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self { timer, clock })
    }

    /// Goes off at `t_us` of the run's clock, at once if that is over; an earlier setting is forgotten.
    pub(super) fn set(&self, t_us: u64) {
        // All zero would switch it off.
        let us = i64::try_from(t_us).unwrap_or(i64::MAX);
        let ns = us.saturating_mul(1_000).saturating_add(self.clock.origin_ns()).max(1);
        let second = 1_000_000_000;
        let at = Timespec { tv_sec: ns / second, tv_nsec: ns % second };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        // It can only fail for a time that is none.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once);
    }

    /// It has gone off: it is quiet until it is set again.
    pub(super) fn heard(&self) {
        // Nothing to read: it was set anew meanwhile.
        let _ = rustix::io::read(&self.timer, &mut [0_u8; 8][..]);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
