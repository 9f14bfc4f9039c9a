//! When the streams are up: by what the server and the streams do, not by a sleep. Pure: it is told
//! what was seen and when.

/// What was seen at one look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Look {
    /// When, microseconds on the run's clock.
    pub(super) t_us: u64,
    /// Streams that received something lately.
    pub(super) active: u32,
    /// Streams in the middle of an answer.
    pub(super) answering: u32,
    /// Whether every stream has finished a request: with short requests not all are ever active at once.
    pub(super) all_finished_one: bool,
    /// Running and waiting as a scrape since the start says; `None` if metrics can't be had.
    pub(super) server: Option<(f64, f64)>,
}

/// Whether metrics are part of the judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metrics {
    Used,
    Unavailable,
}

/// Judges looks until the streams have been up for long enough.
#[derive(Debug)]
pub(super) struct Readiness {
    concurrency: u32,
    stable_us: u64,
    metrics: Metrics,
    since_us: Option<u64>,
    /// The last look at which nothing waited on the server.
    no_queue_us: Option<u64>,
    last: Option<Look>,
    together: Together,
    /// The most that a server without metrics answered at once, if it takes them one after the other.
    one_by_one: Option<u32>,
}

/// How many streams were answered at once, since they have been up.
#[derive(Clone, Copy, Debug, Default)]
struct Together {
    looks: u32,
    /// Looks at which any was.
    busy: u32,
    most: u32,
}

impl Together {
    fn look(&mut self, answering: u32) {
        self.looks += 1;
        self.busy += u32::from(answering > 0);
        self.most = self.most.max(answering);
    }

    /// The server is at work most of the time, and yet never at more than half of the streams: it takes them one
    /// after the other. Answers of a token or two are over too soon to tell.
    fn one_by_one(&self, concurrency: u32) -> bool {
        concurrency > 1 && self.busy * 2 >= self.looks && self.most * 2 <= concurrency
    }
}

/// Requests that end together wait together for a moment: a queue that was empty so short a time ago is none.
const QUEUE_MEMORY_US: u64 = 1_000_000;

impl Readiness {
    pub(super) fn new(concurrency: u32, stable_us: u64, metrics: Metrics) -> Self {
        Self {
            concurrency,
            stable_us,
            metrics,
            since_us: None,
            no_queue_us: None,
            last: None,
            together: Together::default(),
            one_by_one: None,
        }
    }

    /// Takes a look into account; the reason, in the predecessor's words, once the streams are up.
    pub(super) fn look(&mut self, look: Look) -> Option<String> {
        self.last = Some(look);
        if look.server.is_some_and(|(_, waiting)| waiting == 0.0) {
            self.no_queue_us = Some(look.t_us);
        }
        if !self.is_up(&look) {
            self.since_us = None;
            self.together = Together::default();
            return None;
        }
        let since = *self.since_us.get_or_insert(look.t_us);
        self.together.look(look.answering);
        if look.t_us - since < self.stable_us {
            return None;
        }
        // Gauges say it better, where there are any.
        if self.metrics == Metrics::Unavailable && self.together.one_by_one(self.concurrency) {
            self.since_us = Some(look.t_us);
            self.one_by_one = Some(std::mem::take(&mut self.together).most);
            return None;
        }
        Some(self.reason(&look))
    }

    fn is_up(&self, look: &Look) -> bool {
        let c = self.concurrency;
        let short_flow = look.all_finished_one && look.active > 0;
        let streams_up = look.active >= c || short_flow;
        let server_up = match (self.metrics, look.server) {
            (Metrics::Unavailable, _) => true,
            (Metrics::Used, None) => false,
            (Metrics::Used, Some(_)) if short_flow => self.no_queue_us.is_some_and(|t_us| look.t_us - t_us < QUEUE_MEMORY_US),
            (Metrics::Used, Some((running, waiting))) => waiting == 0.0 && running >= f64::from(c),
        };
        streams_up && server_up
    }

    fn reason(&self, look: &Look) -> String {
        let c = self.concurrency;
        let streams = format!("active_streams={}/{c}", look.active);
        let stable = format!("stable={:.1}s", self.stable_us as f64 / 1e6);
        match look.server {
            Some((running, waiting)) if self.metrics == Metrics::Used => {
                format!("running_reqs={running:.0}/{c}, queue_reqs={waiting:.0}, {streams}, {stable}")
            }
            _ => format!("metrics_unavailable, {streams}, {stable}"),
        }
    }

    /// What was missing at the last look: the predecessor's code.
    pub(super) fn missing(&self) -> String {
        let c = self.concurrency;
        let Some(look) = self.last else {
            return "no_generation".to_owned();
        };
        match (self.metrics, look.server) {
            (Metrics::Used, None) => return "metrics_unavailable".to_owned(),
            (Metrics::Used, Some((running, _))) if running < f64::from(c) => {
                return format!("running_reqs={running:.0}/{c}");
            }
            (Metrics::Used, Some((_, waiting))) if waiting > 0.0 => {
                return format!("queue_reqs={waiting:.0}");
            }
            _ => {}
        }
        if let Some(most) = self.one_by_one {
            return format!("active_streams={most}/{c}");
        }
        match look.active {
            0 => "no_generation".to_owned(),
            active if active < c => format!("active_streams={active}/{c}"),
            _ => "not_stable".to_owned(),
        }
    }
}

/// How long a cell's streams may take to come up: the predecessor's limits by context.
pub(super) fn automatic_timeout_us(context_tokens: u32) -> u64 {
    match context_tokens {
        0..65_536 => 60_000_000,
        65_536..131_072 => 120_000_000,
        _ => 180_000_000,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn look(t_us: u64, active: u32, server: Option<(f64, f64)>) -> Look {
        Look { t_us, active, answering: active, all_finished_one: false, server }
    }

    const UP: Option<(f64, f64)> = Some((4.0, 0.0));

    #[test]
    fn all_must_be_up_without_a_break_for_the_whole_time() {
        let mut r = Readiness::new(4, 3_000_000, Metrics::Used);
        assert_eq!(r.look(look(0, 4, UP)), None);
        assert_eq!(r.look(look(2_900_000, 4, UP)), None);
        assert_eq!(r.look(look(3_000_000, 3, UP)), None, "one stream fell silent");
        assert_eq!(r.look(look(3_100_000, 4, UP)), None);
        assert_eq!(r.look(look(6_000_000, 4, UP)), None);
        assert_eq!(r.look(look(6_100_000, 4, UP)).unwrap(), "running_reqs=4/4, queue_reqs=0, active_streams=4/4, stable=3.0s");
    }

    #[test]
    fn a_queue_or_too_few_running_is_not_up_and_is_named() {
        let mut r = Readiness::new(4, 0, Metrics::Used);
        assert_eq!(r.look(look(0, 4, Some((3.0, 1.0)))), None);
        assert_eq!(r.missing(), "running_reqs=3/4");
        assert_eq!(r.look(look(1, 4, Some((4.0, 2.0)))), None);
        assert_eq!(r.missing(), "queue_reqs=2");
        assert_eq!(r.look(look(2, 2, UP)), None);
        assert_eq!(r.missing(), "active_streams=2/4");
        assert_eq!(r.look(look(3, 0, UP)), None);
        assert_eq!(r.missing(), "no_generation");
        assert_eq!(r.look(look(4, 4, None)), None, "a failed scrape is no zero");
        assert_eq!(r.missing(), "metrics_unavailable");
    }

    #[test]
    fn without_metrics_the_streams_alone_decide() {
        let mut r = Readiness::new(2, 1_000_000, Metrics::Unavailable);
        assert_eq!(r.look(look(0, 2, None)), None);
        assert_eq!(r.look(look(1_000_000, 2, None)).unwrap(), "metrics_unavailable, active_streams=2/2, stable=1.0s");
    }

    #[test]
    fn without_metrics_a_server_that_takes_one_at_a_time_is_not_up() {
        let mut r = Readiness::new(4, 1_000_000, Metrics::Unavailable);
        for n in 0..50 {
            let one = Look { answering: u32::from(n % 4 > 0), all_finished_one: true, ..look(n * 100_000, 4, None) };
            assert_eq!(r.look(one), None, "{n}");
        }
        assert_eq!(r.missing(), "active_streams=1/4");
        // All at once for a moment is enough, and so are answers that are too short to be seen.
        for answering in [[1, 4], [0, 0]] {
            let mut r = Readiness::new(4, 1_000_000, Metrics::Unavailable);
            let seen = |n: u64| Look { answering: answering[n as usize % 2], all_finished_one: true, ..look(n * 100_000, 4, None) };
            assert!((0..=10).find_map(|n| r.look(seen(n))).is_some(), "{answering:?}");
        }
    }

    #[test]
    fn short_requests_need_not_all_run_at_once() {
        let mut r = Readiness::new(4, 0, Metrics::Used);
        let mut short = look(0, 3, Some((3.0, 0.0)));
        short.all_finished_one = true;
        assert!(r.look(short).is_some());
        (short.t_us, short.server) = (2_000_000, Some((3.0, 1.0)));
        assert_eq!(r.look(short), None, "but nothing may go on waiting");
    }

    #[test]
    fn short_requests_that_wait_together_for_a_moment_are_up_and_a_lasting_queue_is_not() {
        let mut r = Readiness::new(4, 2_000_000, Metrics::Used);
        let mut short = |t_us, waiting| r.look(Look { all_finished_one: true, ..look(t_us, 4, Some((4.0 - waiting, waiting))) });
        for half_s in 0..4 {
            assert_eq!(short(half_s * 500_000, if half_s % 2 == 0 { 0.0 } else { 3.0 }), None);
        }
        assert!(short(2_000_000, 0.0).is_some());
        let mut r = Readiness::new(4, 2_000_000, Metrics::Used);
        let mut short = |t_us, waiting| r.look(Look { all_finished_one: true, ..look(t_us, 4, Some((3.0, waiting))) });
        assert_eq!(short(0, 0.0), None);
        for half_s in 1..20 {
            assert_eq!(short(half_s * 500_000, 1.0), None, "{half_s}");
        }
    }

    #[test]
    fn longer_contexts_get_more_time() {
        let seconds = |ctx| automatic_timeout_us(ctx) / 1_000_000;
        assert_eq!([0, 32_768, 65_536, 131_072].map(seconds), [60, 60, 120, 180]);
    }
}
