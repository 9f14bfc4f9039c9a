//! What the simulator knows to be true: when each request was read, when its tokens were due and
//! when the kernel took them. Records and their report; the driver fills them in.

use super::history::HistoryTruth;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Chunks remembered of ended requests, at 20 bytes each; then the oldest requests are forgotten.
pub const MAX_CHUNKS: usize = 4_000_000;
/// Ended requests remembered.
pub const MAX_REQUESTS: usize = 200_000;

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It has not.
    #[default]
    Running,
    /// The answer ended by itself.
    Stop,
    /// The answer reached its limit.
    Length,
    /// The client went away.
    Disconnect,
    /// The client read so slowly that the simulator gave up on it.
    TooSlow,
    /// Somebody asked for it.
    Abort,
}

/// One request. Times are nanoseconds of `CLOCK_MONOTONIC`; the three columns have one entry for
/// each time tokens were handed over (for an answer in one piece, one).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestTruth {
    /// The id in the answer.
    pub id: String,
    /// When the request's last byte reached this machine.
    pub received_ns: u64,
    /// Whether the kernel said so. If not, it is when that byte was read, and it may have come earlier.
    #[serde(default)]
    pub received_by_kernel: bool,
    /// How long after [`Self::received_ns`] and the fixed overhead of a request the engine heard of it. Above 0
    /// the simulator was to blame, and the first token may have been late by as much.
    #[serde(default)]
    pub taken_late_ns: u64,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Those of them that came from the prefix cache; 0 until the first token.
    pub cached_tokens: u32,
    /// When its prompt was begun, by the model; nothing before the first token.
    #[serde(default)]
    pub prefill_start_ns: Option<u64>,
    /// When its prompt was computed, which is when its first token was due.
    #[serde(default)]
    pub prefill_end_ns: Option<u64>,
    /// Which engine's it was, from 0.
    #[serde(default)]
    pub engine: u32,
    /// Decode steps that it got tokens from; the first token comes before them.
    #[serde(default)]
    pub steps: u32,
    /// Drafts made for it.
    #[serde(default)]
    pub drafts: u32,
    /// Drafted tokens accepted, also those beyond the end of the answer.
    #[serde(default)]
    pub accepted: u32,
    /// When the kernel was given the last byte of these tokens: just before the call in which it took it, so that
    /// no client can have it earlier.
    pub handed_ns: Vec<u64>,
    /// How many tokens.
    pub tokens: Vec<u32>,
    /// How long after they were due. Due is `handed_ns - late_ns`. Empty in a firehose, where nothing is due.
    pub late_ns: Vec<u64>,
    /// How it ended.
    pub end: End,
    /// Whether the answer was a stream.
    pub stream: bool,
}

impl RequestTruth {
    fn touched_ns(&self) -> u64 {
        self.handed_ns.last().copied().unwrap_or(self.received_ns)
    }
}

/// How late the simulator was itself, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// How often: for tokens, times that some were handed over.
    pub count: usize,
    /// Median; absent without any.
    pub p50: Option<u64>,
    /// 90th percentile.
    pub p90: Option<u64>,
    /// 99th percentile.
    pub p99: Option<u64>,
    /// The worst.
    pub max: Option<u64>,
}

/// What `GET /simulator/truth` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// When this was read off, on the same clock.
    pub now_ns: u64,
    /// Requests forgotten since the last reset because there were too many.
    pub forgotten_requests: u64,
    /// Chat requests that were answered without tokens, by status.
    #[serde(default)]
    pub rejected: BTreeMap<u16, u64>,
    /// Requests at any time and decode steps; empty of a firehose.
    #[serde(default)]
    pub history: HistoryTruth,
    /// The simulator's own lateness.
    pub late_ns: Lateness,
    /// How late requests were taken up, by [`RequestTruth::taken_late_ns`]; `count` is requests.
    #[serde(default)]
    pub taken_late_ns: Lateness,
    /// Ended requests in the order of their end, then those still running.
    pub requests: Vec<RequestTruth>,
}

/// Ended requests, at most [`MAX_REQUESTS`] with [`MAX_CHUNKS`] chunks between them.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    ended: VecDeque<Arc<RequestTruth>>,
    chunks: usize,
    forgotten: u64,
}

/// What the driver gives away: cheap to make, turned into a [`Truth`] elsewhere.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) now_ns: u64,
    pub(crate) forgotten: u64,
    pub(crate) history: HistoryTruth,
    pub(crate) requests: Vec<Arc<RequestTruth>>,
}

impl Archive {
    pub(crate) fn add(&mut self, mut record: RequestTruth) {
        record.handed_ns.shrink_to_fit();
        record.tokens.shrink_to_fit();
        record.late_ns.shrink_to_fit();
        self.chunks += record.tokens.len();
        self.ended.push_back(Arc::new(record));
        while self.chunks > MAX_CHUNKS || self.ended.len() > MAX_REQUESTS {
            let Some(oldest) = self.ended.pop_front() else {
                break;
            };
            self.chunks -= oldest.tokens.len();
            self.forgotten += 1;
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Requests that were read or got tokens at or after `since_ns`.
    pub(crate) fn records<'a>(&self, now_ns: u64, since_ns: u64, running: impl Iterator<Item = &'a RequestTruth>) -> Records {
        let ended = self.ended.iter().filter(|r| r.touched_ns() >= since_ns).cloned();
        Records {
            now_ns,
            forgotten: self.forgotten,
            history: HistoryTruth::default(),
            requests: ended.chain(running.map(|r| Arc::new(r.clone()))).collect(),
        }
    }
}

impl From<Records> for Truth {
    fn from(records: Records) -> Self {
        let requests = records.requests.iter().map(|r| r.as_ref().clone()).collect();
        let late = records.requests.iter().flat_map(|r| &r.late_ns).copied().collect();
        let taken = records.requests.iter().map(|r| r.taken_late_ns).collect();
        Self {
            now_ns: records.now_ns,
            forgotten_requests: records.forgotten,
            rejected: BTreeMap::new(),
            history: records.history,
            late_ns: Lateness::of(late),
            taken_late_ns: Lateness::of(taken),
            requests,
        }
    }
}

impl Lateness {
    fn of(mut late: Vec<u64>) -> Self {
        late.sort_unstable();
        // Nearest rank: the smallest value that at least this share does not exceed.
        let rank = |share: f64| {
            let at = (late.len() as f64 * share).ceil() as usize;
            late.get(at.saturating_sub(1)).copied()
        };
        Self { count: late.len(), p50: rank(0.5), p90: rank(0.9), p99: rank(0.99), max: late.last().copied() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn record(received_ns: u64, late_ns: Vec<u64>) -> RequestTruth {
        RequestTruth {
            id: format!("r{received_ns}"),
            received_ns,
            prompt_tokens: 1,
            handed_ns: late_ns.iter().map(|late| received_ns + 10 + late).collect(),
            tokens: vec![1; late_ns.len()],
            late_ns,
            end: End::Length,
            stream: true,
            ..RequestTruth::default()
        }
    }

    #[test]
    fn lateness_is_over_all_tokens_and_absent_without_any() {
        let mut archive = Archive::default();
        let empty = Truth::from(archive.records(5, 0, std::iter::empty()));
        assert_eq!(empty.late_ns, Lateness::default());
        archive.add(record(1, (1..=60).collect()));
        archive.add(record(2, (61..=100).collect()));
        let late = Truth::from(archive.records(5, 0, std::iter::empty())).late_ns;
        assert_eq!((late.count, late.p50, late.p90, late.p99, late.max), (100, Some(50), Some(90), Some(99), Some(100)));
    }

    #[test]
    fn since_leaves_out_what_ended_before() {
        let mut archive = Archive::default();
        archive.add(record(100, vec![0]));
        archive.add(record(200, vec![0]));
        let records = archive.records(300, 205, std::iter::empty());
        assert_eq!(records.requests.len(), 1);
        assert_eq!(records.requests[0].id, "r200");
    }

    #[test]
    fn the_oldest_are_forgotten_and_counted() {
        let mut archive = Archive::default();
        for at in 0..5 {
            archive.add(record(at, vec![0; MAX_CHUNKS / 4]));
        }
        let records = archive.records(9, 0, std::iter::empty());
        assert_eq!(records.forgotten, 1);
        assert_eq!(records.requests.len(), 4);
        assert_eq!(records.requests[0].id, "r1");
    }
}
