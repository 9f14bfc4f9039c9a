//! When requests are due, made ahead of time, and who takes the next one. Pure: the same rate, length and seed give
//! the same schedule on any machine, whatever takes from it, and it is told what time it is.

use std::sync::atomic::{AtomicU32, Ordering};

/// A schedule has no more requests than this.
pub const MOST_REQUESTS: u32 = 1_000_000;

/// Due times of a cell's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    due_us: Vec<u64>,
    length_us: u64,
}

impl Schedule {
    /// Requests of one rate over `length_us`: as many as the rate says, rounded, and at least one. With equal gaps the
    /// first is due at 0; at random (`seed`), they lie as the arrivals of a Poisson process of which is known that as
    /// many came in that time, so that the rate is the one asked for and not one drawn near it. `None` where they are
    /// more than [`MOST_REQUESTS`].
    #[must_use]
    pub fn new(per_s: f64, length_us: u64, seed: Option<u64>) -> Option<Self> {
        let wanted = per_s * (length_us as f64 / 1e6);
        if !wanted.is_finite() || wanted > f64::from(MOST_REQUESTS) {
            return None;
        }
        let n = (wanted.round() as u32).max(1);
        let due_us = match seed {
            None => (0..n).map(|number| length_us.saturating_mul(number.into()) / u64::from(n)).collect(),
            Some(seed) => random(n, length_us, seed),
        };
        Some(Self { due_us, length_us })
    }

    /// Number of requests.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.due_us.len()).unwrap_or(u32::MAX)
    }

    /// Whether there is none. There always is one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.due_us.is_empty()
    }

    /// Due times after the start, in order; microseconds.
    #[must_use]
    pub fn due_us(&self) -> &[u64] {
        &self.due_us
    }

    /// The time that the schedule covers, microseconds.
    #[must_use]
    pub fn length_us(&self) -> u64 {
        self.length_us
    }
}

/// Sums of exponential gaps, of which the last one ends with the schedule: n sorted points, equally likely anywhere.
fn random(n: u32, length_us: u64, seed: u64) -> Vec<u64> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut sum = 0.0;
    let mut gap = || {
        // 1 - f64() is never 0.
        sum -= (1.0 - rng.f64()).ln();
        sum
    };
    let points: Vec<f64> = (0..n).map(|_| gap()).collect();
    let whole = gap();
    points.into_iter().map(|point| (point / whole * length_us as f64) as u64).collect()
}

/// What whoever has a free connection is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The request of this number is due, and is yours.
    Yours {
        /// Place in the schedule.
        number: u32,
        /// When it was due after the start, microseconds.
        due_us: u64,
    },
    /// The next one is due then, microseconds after the start.
    Later(u64),
    /// All are taken.
    Over,
}

/// A schedule that is being taken from, by any number of threads: each request goes out once, in order.
#[derive(Debug)]
pub struct Cursor {
    schedule: Schedule,
    taken: AtomicU32,
}

impl Cursor {
    /// Nothing is taken yet.
    #[must_use]
    pub fn new(schedule: Schedule) -> Self {
        Self { schedule, taken: AtomicU32::new(0) }
    }

    /// The schedule.
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The first number that nobody has taken.
    #[must_use]
    pub fn next(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes the next request if it is due `now_us` after the start.
    #[must_use]
    pub fn claim(&self, now_us: u64) -> Claim {
        let mut number = self.next();
        loop {
            let Some(due_us) = self.schedule.due_us.get(number as usize).copied() else { return Claim::Over };
            if due_us > now_us {
                return Claim::Later(due_us);
            }
            match self.taken.compare_exchange_weak(number, number + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Claim::Yours { number, due_us },
                Err(other) => number = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeMap;

    const S: u64 = 1_000_000;

    #[test]
    fn equal_gaps_are_equal_and_as_many_as_the_rate_says() {
        let schedule = Schedule::new(4.0, 2 * S, None).unwrap();
        assert_eq!(schedule.due_us(), [0, 250_000, 500_000, 750_000, 1_000_000, 1_250_000, 1_500_000, 1_750_000]);
        assert_eq!(Schedule::new(0.01, 2 * S, None).unwrap().due_us(), [0], "one at least");
        assert_eq!(Schedule::new(1e6, 2 * S, None), None, "no end of requests");
    }

    #[test]
    fn random_gaps_are_exponential_and_keep_the_rate() {
        let schedule = Schedule::new(100.0, 100 * S, Some(7)).unwrap();
        let due = schedule.due_us();
        assert_eq!(due.len(), 10_000);
        assert!(due.is_sorted() && *due.last().unwrap() < 100 * S);
        let gaps: Vec<f64> = due.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 10_000.0).collect();
        let share = |below: f64| gaps.iter().filter(|gap| **gap < below).count() as f64 / gaps.len() as f64;
        // 1 - e^-x of them are shorter than x times the mean.
        for x in [0.1_f64, 0.5, 1.0, 2.0] {
            assert!((share(x) - (1.0 - (-x).exp())).abs() < 0.02, "{x}: {}", share(x));
        }
    }

    #[test]
    fn a_seed_gives_the_same_schedule_on_any_machine() {
        let of = |seed| Schedule::new(2.0, 3 * S, Some(seed)).unwrap();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        // Known by heart: neither cores nor workers nor the time of day have a part in it.
        assert_eq!(of(1).due_us(), PINNED);
    }

    const PINNED: [u64; 6] = [485_487, 832_493, 956_778, 1_641_359, 1_645_772, 2_334_915];

    /// Workers on a simulated clock, each with its share of the connections; every request takes `service_us`. Who sent
    /// what when, by number, and the most that were under way.
    fn simulate(schedule: &Schedule, workers: usize, connections: usize, service_us: u64) -> (BTreeMap<u32, (u64, u64)>, usize) {
        let cursor = Cursor::new(schedule.clone());
        let mut busy: Vec<Vec<u64>> = vec![Vec::new(); workers];
        let (mut sent, mut most, mut now_us, mut over) = (BTreeMap::new(), 0, 0, false);
        while !over {
            busy.iter_mut().for_each(|until| until.retain(|end_us| *end_us > now_us));
            let mut next_us = busy.iter().flatten().copied().min().unwrap_or(u64::MAX);
            for (worker, until) in busy.iter_mut().enumerate() {
                let share = (worker..connections).step_by(workers).count();
                while until.len() < share {
                    match cursor.claim(now_us) {
                        Claim::Yours { number, due_us } => {
                            until.push(now_us + service_us);
                            assert!(now_us >= due_us, "{number} was sent before it was due");
                            assert!(sent.insert(number, (due_us, now_us)).is_none(), "{number} was sent twice");
                        }
                        Claim::Later(due_us) => {
                            next_us = next_us.min(due_us);
                            break;
                        }
                        Claim::Over => {
                            over = true;
                            break;
                        }
                    }
                }
                next_us = until.iter().copied().min().unwrap_or(u64::MAX).min(next_us);
            }
            most = most.max(busy.iter().map(Vec::len).sum());
            now_us = next_us;
        }
        (sent, most)
    }

    #[test]
    fn one_two_and_sixteen_workers_send_the_same_requests_at_the_same_times_and_no_more_at_once() {
        let schedule = Schedule::new(40.0, 10 * S, Some(3)).unwrap();
        // Room enough, and far too little: 32 connections at 2 s each carry 16 requests a second.
        for (service_us, connections) in [(100_000, 64), (2 * S, 32)] {
            let (alone, most) = simulate(&schedule, 1, connections, service_us);
            assert_eq!(alone.len(), 400);
            assert!(most <= connections);
            let due: Vec<u64> = alone.values().map(|sent| sent.0).collect();
            assert_eq!(due, schedule.due_us());
            for workers in [2, 16] {
                assert_eq!(simulate(&schedule, workers, connections, service_us), (alone.clone(), most), "{workers} workers");
            }
        }
    }
}
