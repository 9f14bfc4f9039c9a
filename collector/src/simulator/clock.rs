//! The simulator's two clocks: monotonic nanoseconds, which any process of the machine can compare
//! with its own, and wall time for headers. Nothing else here asks for the time.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // The monotonic clock starts at boot and is never negative.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Seconds since 1970.
pub(crate) fn unix_s() -> f64 {
    jiff::Timestamp::now().as_microsecond() as f64 / 1e6
}

/// The time as the `date` header wants it.
pub(crate) fn http_date() -> String {
    jiff::Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}
