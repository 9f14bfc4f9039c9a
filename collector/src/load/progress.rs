//! How far a stream is, for whoever watches while it flows: a few counters that the stream's worker
//! writes and others read, without locks. Measurements are computed from the records, not from this.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Counters of one stream, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Progress {
    tokens: AtomicU64,
    last_us: AtomicU64,
    longest_gap_us: AtomicU64,
    finished: AtomicU32,
    failures: AtomicU32,
    failed: AtomicBool,
    /// Between an answer's first output and its end.
    answering: AtomicBool,
}

/// Silence for less than this never makes a stream inactive.
const ACTIVE_AT_LEAST_US: u64 = 2_000_000;

impl Progress {
    /// More output arrived. Called by the stream's worker only.
    pub(super) fn output(&self, t_us: u64, tokens: u64, gap_us: Option<u64>) {
        // There is one writer: nothing has to be locked for an addition.
        self.tokens.store(self.tokens.load(Relaxed) + tokens, Relaxed);
        self.last_us.store(t_us, Relaxed);
        if gap_us.is_none() {
            self.answering.store(true, Relaxed);
        }
        if gap_us.is_some_and(|gap| gap > self.longest_gap_us.load(Relaxed)) {
            self.longest_gap_us.store(gap_us.unwrap_or(0), Relaxed);
        }
    }

    pub(super) fn request_finished(&self) {
        self.answering.store(false, Relaxed);
        self.finished.fetch_add(1, Relaxed);
    }

    pub(super) fn stream_failed(&self) {
        self.failures.fetch_add(1, Relaxed);
        self.answering.store(false, Relaxed);
        self.failed.store(true, Relaxed);
    }

    /// Tokens so far, over all requests: by usage where it comes along, else chunks.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens.load(Relaxed)
    }

    /// Requests finished.
    #[must_use]
    pub fn finished(&self) -> u32 {
        self.finished.load(Relaxed)
    }

    /// Requests that ended, well or not.
    #[must_use]
    pub fn ended(&self) -> u32 {
        self.finished() + self.failures.load(Relaxed)
    }

    /// Whether one of its requests has failed. Where streams restart by themselves it will not send again.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// Whether it is in the middle of an answer.
    #[must_use]
    pub fn is_answering(&self) -> bool {
        self.answering.load(Relaxed)
    }

    /// Whether output arrived lately: within two seconds, or twice the stream's longest gap so far.
    #[must_use]
    pub fn is_active(&self, now_us: u64) -> bool {
        let last = self.last_us.load(Relaxed);
        let patience = ACTIVE_AT_LEAST_US.max(2 * self.longest_gap_us.load(Relaxed));
        last > 0 && !self.has_failed() && now_us.saturating_sub(last) < patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_active_by_what_came_lately_and_not_by_what_once_came() {
        let p = Progress::default();
        assert!(!p.is_active(10), "nothing came yet");
        p.output(1_000_000, 1, None);
        assert!(p.is_active(2_900_000));
        assert!(!p.is_active(3_100_000));
        p.output(6_000_000, 1, Some(5_000_000));
        assert!(p.is_active(15_000_000), "a slow stream is given time");
        p.stream_failed();
        assert!(!p.is_active(6_000_001));
    }
}
