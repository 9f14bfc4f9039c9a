//! The only place that asks for the time: microseconds on a monotonic clock since the run's start,
//! and the wall clock for people. It does not schedule anything but its own sleeps.

use std::time::Duration;

use jiff::{Timestamp, Zoned, tz::TimeZone};
use rustix::time::{ClockId, clock_gettime};

/// The run's clock. Copies share the same origin, so their readings can be compared.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin_ns: i64,
    started: Timestamp,
}

impl Clock {
    /// Starts the run's clock now.
    #[must_use]
    pub fn start() -> Self {
        Self { origin_ns: whole(monotonic_ns()), started: Timestamp::now() }
    }

    /// The clock of a run that began earlier, perhaps before the machine was started anew: it goes on by the wall
    /// clock, and never before `least_us`. Where `earlier_ns`, the origin then, still says the same, it is kept to the
    /// nanosecond.
    #[must_use]
    pub fn go_on(started: Timestamp, earlier_ns: i64, least_us: u64) -> Self {
        let wall_us = i64::try_from(Timestamp::now().duration_since(started).as_micros()).unwrap_or(i64::MAX);
        let (now_ns, least_us) = (whole(monotonic_ns()), i64::try_from(least_us).unwrap_or(i64::MAX));
        let earlier_us = now_ns.saturating_sub(earlier_ns) / 1_000;
        let same = earlier_us >= least_us && (earlier_us - wall_us).abs() < SAME_US;
        let origin_ns = if same { earlier_ns } else { now_ns.saturating_sub(wall_us.max(least_us).saturating_mul(1_000)) };
        Self { origin_ns, started }
    }

    /// `CLOCK_MONOTONIC` at the run's start, in nanoseconds; below 0 if the machine was started since. Stamps that
    /// another process on this machine took from the same clock become ours by subtracting it.
    #[must_use]
    pub fn origin_ns(&self) -> i64 {
        self.origin_ns
    }

    /// Microseconds since the run's start.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        whole(monotonic_ns()).saturating_sub(self.origin_ns).max(0).unsigned_abs() / 1_000
    }

    /// A `CLOCK_MONOTONIC` stamp in nanoseconds as microseconds since the run's start; negative if
    /// it lies before.
    #[must_use]
    pub fn us_of_monotonic_ns(&self, ns: u64) -> i64 {
        let (ns, origin) = (i128::from(ns), i128::from(self.origin_ns));
        i64::try_from((ns - origin).div_euclid(1_000)).unwrap_or(i64::MAX)
    }

    /// The wall clock at the run's start, in the system's time zone.
    #[must_use]
    pub fn started(&self) -> Zoned {
        self.started.to_zoned(TimeZone::system())
    }

    /// The wall clock at `t_us` of this clock, reckoned from the start: a step of the wall clock
    /// during the run does not disturb the order of events.
    #[must_use]
    pub fn wall_at(&self, t_us: u64) -> Zoned {
        let t = self.started + Duration::from_micros(t_us);
        t.to_zoned(TimeZone::system())
    }

    /// The wall clock now.
    #[must_use]
    pub fn wall_now(&self) -> Zoned {
        Timestamp::now().to_zoned(TimeZone::system())
    }

    /// Sleeps until `t_us` of this clock; returns at once if that is past. Wakes up to about a
    /// millisecond late, never early.
    pub async fn sleep_until_us(&self, t_us: u64) {
        loop {
            let now = self.now_us();
            if now >= t_us {
                return;
            }
            tokio::time::sleep(Duration::from_micros(t_us - now)).await;
        }
    }
}

/// RFC 3339 with microseconds and offset, e.g. `2026-12-02T03:20:32.000125+01:00`.
#[must_use]
pub fn rfc3339(t: &Zoned) -> String {
    t.strftime("%Y-%m-%dT%H:%M:%S%.6f%:z").to_string()
}

/// The wall clock may have been put right by so much since an earlier stretch of the run.
const SAME_US: i64 = 1_000_000;

fn whole(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// How long the machine has slept since it was started, microseconds: what `CLOCK_BOOTTIME` counts and
/// `CLOCK_MONOTONIC` doesn't. Only its growth says something.
#[must_use]
pub fn slept_us() -> u64 {
    let all_ns = || {
        let all = clock_gettime(ClockId::Boottime);
        all.tv_sec.unsigned_abs() * 1_000_000_000 + all.tv_nsec.unsigned_abs()
    };
    // Between two readings this thread may have been held back: of several pairs the one nearest together counts.
    let pairs = (0..5).map(|_| {
        let (before, all, after) = (monotonic_ns(), all_ns(), monotonic_ns());
        (after.saturating_sub(before), all.saturating_sub(before) / 1_000)
    });
    pairs.min().map_or(0, |(_, slept_us)| slept_us)
}

/// CPU time used by the calling thread so far, in microseconds.
#[must_use]
pub fn thread_cpu_us() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    let (s, ns) = (t.tv_sec.unsigned_abs(), t.tv_nsec.unsigned_abs());
    s * 1_000_000 + ns / 1_000
}

/// `CLOCK_MONOTONIC` now, in nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn never_runs_backwards_and_maps_foreign_stamps_onto_itself() {
        let clock = Clock::start();
        let a = clock.now_us();
        let ns = monotonic_ns();
        let b = clock.now_us();
        let mapped = clock.us_of_monotonic_ns(ns);
        assert!(i64::try_from(a).unwrap() <= mapped && mapped <= i64::try_from(b).unwrap());
        assert_eq!(clock.us_of_monotonic_ns(clock.origin_ns().unsigned_abs() - 1), -1);
    }

    #[test]
    fn a_run_that_goes_on_keeps_its_origin_or_goes_by_the_wall_clock() {
        let first = Clock::start();
        let started = first.started().timestamp();
        assert_eq!(Clock::go_on(started, first.origin_ns(), 0).origin_ns(), first.origin_ns());
        // Started an hour ago, before the machine was.
        let before = started - Duration::from_secs(3600);
        let later = Clock::go_on(before, first.origin_ns() + 5_000_000_000_000, 0);
        assert!((3_600_000_000..3_601_000_000).contains(&later.now_us()), "{}", later.now_us());
        assert!(later.origin_ns() < first.origin_ns() - 3_590_000_000_000);
        // A wall clock that was put back does not let events overtake each other.
        assert!(Clock::go_on(started, i64::MAX / 2, 7_000_000).now_us() >= 7_000_000);
    }

    #[test]
    fn a_machine_that_is_awake_does_not_sleep_more() {
        let before = slept_us();
        std::thread::sleep(Duration::from_millis(20));
        assert!(slept_us().saturating_sub(before) < 5_000);
    }

    #[test]
    fn wall_time_has_an_offset_and_microseconds() {
        let clock = Clock::start();
        let text = rfc3339(&clock.wall_at(1_500_000));
        let parsed: Timestamp = text.parse().unwrap();
        let apart = parsed.duration_since(clock.started().timestamp());
        assert!((apart.as_micros() - 1_500_000).abs() <= 1, "{text}");
        assert_eq!(text.len(), "2026-12-02T03:20:32.000125+01:00".len());
    }

    #[tokio::test]
    async fn sleeping_until_never_ends_early() {
        let clock = Clock::start();
        let due = clock.now_us() + 3_000;
        clock.sleep_until_us(due).await;
        assert!(clock.now_us() >= due);
    }
}
