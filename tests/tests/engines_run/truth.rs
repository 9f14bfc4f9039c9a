//! What the simulator knows to be true, asked in the ways a report can be doubted.

use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};

#[derive(Deserialize)]
pub struct Truth {
    pub forgotten_requests: u64,
    pub rejected: BTreeMap<String, u64>,
    pub history: History,
    pub requests: Vec<Request>,
    /// Places of the requests by the id that each was sent with.
    #[serde(skip)]
    by_id: HashMap<String, usize>,
}

#[derive(Deserialize)]
pub struct History {
    pub load: Load,
    pub steps: Steps,
    pub forgotten: u64,
}

#[derive(Deserialize)]
pub struct Load {
    pub at_ns: Vec<u64>,
    pub running: Vec<u32>,
    pub waiting: Vec<u32>,
}

#[derive(Deserialize)]
pub struct Steps {
    pub end_ns: Vec<u64>,
    pub sequences: Vec<u32>,
    pub drafts: Vec<u32>,
    pub accepted: Vec<u32>,
}

#[derive(Deserialize)]
pub struct Request {
    pub id: String,
    pub received_ns: u64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub prefill_start_ns: Option<u64>,
    pub prefill_end_ns: Option<u64>,
    pub handed_ns: Vec<u64>,
    pub tokens: Vec<u64>,
    pub late_ns: Vec<u64>,
    pub end: String,
}

impl Request {
    pub fn sum(&self) -> u64 {
        self.tokens.iter().sum()
    }

    /// Tokens handed over between two instants, the first of them included.
    pub fn handed_between(&self, from_ns: u64, to_ns: u64) -> u64 {
        let handed = self.handed_ns.iter().zip(&self.tokens);
        handed.filter(|(at, _)| (from_ns..to_ns).contains(at)).map(|(_, n)| n).sum()
    }

    /// From the request's arrival to its first token, seconds.
    pub fn ttft_s(&self) -> f64 {
        (self.handed_ns[0] - self.received_ns) as f64 / 1e9
    }

    /// From the request's arrival to its last token, seconds.
    pub fn latency_s(&self) -> f64 {
        (self.handed_ns.last().unwrap() - self.received_ns) as f64 / 1e9
    }

    /// Prompt tokens computed a second, by the model.
    pub fn prefill_rate(&self) -> f64 {
        let seconds = (self.prefill_end_ns.unwrap() - self.prefill_start_ns.unwrap()) as f64 / 1e9;
        (self.prompt_tokens - self.cached_tokens) as f64 / seconds
    }

    fn last_due_ns(&self) -> Option<u64> {
        Some(self.handed_ns.last()? - self.late_ns.last()?)
    }
}

/// Speculative decoding over some steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Drafted {
    pub drafts: u64,
    pub accepted: u64,
    pub sequences: u64,
}

impl Drafted {
    pub fn length(self) -> f64 {
        1.0 + self.accepted as f64 / self.drafts as f64
    }
}

impl Truth {
    pub fn new(answer: Value) -> Self {
        let mut truth: Truth = serde_json::from_value(answer).unwrap();
        let ids = truth.requests.iter().enumerate();
        truth.by_id = ids.map(|(at, request)| (request.id.trim_start_matches("chatcmpl-").to_owned(), at)).collect();
        truth
    }

    pub fn request(&self, id: &str) -> &Request {
        &self.requests[*self.by_id.get(id).unwrap_or_else(|| panic!("the server doesn't know {id}"))]
    }

    /// The most tokens that one chunk had.
    pub fn chunk(&self) -> u64 {
        self.requests.iter().flat_map(|request| &request.tokens).copied().max().unwrap()
    }

    /// The request that read this many tokens anew, wrote one, and was the last to do so.
    pub fn cold(&self, prompt_tokens: u64) -> Option<&Request> {
        let cold = self.requests.iter().filter(|r| r.prompt_tokens == prompt_tokens && r.cached_tokens == 0 && r.sum() == 1);
        cold.max_by_key(|request| request.received_ns)
    }

    /// What ran and what waited, each at some time between the two instants.
    pub fn load_between(&self, from_ns: u64, to_ns: u64) -> (HashSet<u32>, HashSet<u32>) {
        let load = &self.history.load;
        let first = load.at_ns.partition_point(|at| *at <= from_ns).saturating_sub(1);
        let last = load.at_ns.partition_point(|at| *at <= to_ns).max(first + 1);
        (load.running[first..last].iter().copied().collect(), load.waiting[first..last].iter().copied().collect())
    }

    /// Steps whose end lies in `(from_ns, to_ns]`, by their place.
    fn steps_between(&self, from_ns: u64, to_ns: u64) -> (usize, usize) {
        let ends = &self.history.steps.end_ns;
        (ends.partition_point(|end| *end <= from_ns), ends.partition_point(|end| *end <= to_ns))
    }

    fn drafted(&self, (from, to): (usize, usize)) -> Drafted {
        let steps = &self.history.steps;
        let sum = |of: &[u32]| of[from..to].iter().map(|n| u64::from(*n)).sum();
        Drafted { drafts: sum(&steps.drafts), accepted: sum(&steps.accepted), sequences: sum(&steps.sequences) }
    }

    pub fn drafted_between(&self, from_ns: u64, to_ns: u64) -> Drafted {
        self.drafted(self.steps_between(from_ns, to_ns))
    }

    /// The drafts between two scrapes, each of which may have met a step's end: what fits of a step more or less at each.
    pub fn drafted_around(&self, from_ns: u64, to_ns: u64) -> Vec<Drafted> {
        let ((from, to), all) = (self.steps_between(from_ns, to_ns), self.history.steps.end_ns.len());
        let around = |at: usize| at.saturating_sub(1)..=(at + 1).min(all);
        around(from).flat_map(|from| around(to).map(move |to| (from, to.max(from)))).map(|steps| self.drafted(steps)).collect()
    }

    /// The gauge of a server that tells of its last steps only: from when on it stood at which length. It moves every 40
    /// steps, and when nothing is left to decode.
    pub fn gauge(&self) -> Vec<(u64, f64)> {
        let steps = &self.history.steps;
        // When each request joined the steps and when it left them.
        let decoding: Vec<(u64, u64, bool)> = self
            .requests
            .iter()
            .filter_map(|r| Some((r.prefill_end_ns?, r.last_due_ns()?, r.end == "length" || r.end == "stop")))
            .collect();
        let goes_on = |end: u64| decoding.iter().any(|(from, last, done)| *from <= end && (*last > end || (*last == end && !done)));
        let (mut told, mut n, mut since) = (Vec::new(), 0, Drafted::default());
        for (at, end) in steps.end_ns.iter().enumerate() {
            n += 1;
            since.drafts += u64::from(steps.drafts[at]);
            since.accepted += u64::from(steps.accepted[at]);
            if n >= 40 || !goes_on(*end) {
                if since.drafts > 0 {
                    told.push((*end, since.length()));
                }
                (n, since) = (0, Drafted::default());
            }
        }
        told
    }
}
