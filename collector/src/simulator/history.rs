//! What the truth keeps of the server as a whole: how many requests ran and waited from when on, and every decode
//! step. At most [`MAX_HISTORY`] entries of each; the oldest are forgotten and counted.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Entries of each kind, at 24 and 28 bytes.
pub const MAX_HISTORY: usize = 200_000;

/// How many requests ran and waited: each entry holds from its time to the next one's. Nanoseconds of
/// `CLOCK_MONOTONIC`, when the server's own gauges changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// From when on.
    pub at_ns: Vec<u64>,
    /// Requests that held a slot.
    pub running: Vec<u32>,
    /// Requests that waited, told by a gauge or not.
    pub waiting: Vec<u32>,
}

/// Decode steps, in the order of their end. Prefills are not among them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    /// When it was over, by the model.
    pub end_ns: Vec<u64>,
    /// Which engine's, from 0.
    pub engine: Vec<u32>,
    /// Sequences that got tokens.
    pub sequences: Vec<u32>,
    /// Tokens they got.
    pub tokens: Vec<u32>,
    /// Drafts made.
    pub drafts: Vec<u32>,
    /// Drafted tokens accepted, also those beyond an answer's end.
    pub accepted: Vec<u32>,
}

/// Both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistoryTruth {
    /// Requests at any time.
    pub load: Load,
    /// Decode steps.
    pub steps: Steps,
    /// Entries forgotten since the last reset because there were too many.
    pub forgotten: u64,
}

/// A decode step that is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub end_ns: u64,
    /// Sequences that got tokens.
    pub sequences: u32,
    /// Tokens they got.
    pub tokens: u32,
    /// Drafts made.
    pub drafts: u32,
    /// Drafted tokens accepted.
    pub accepted: u32,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    load: VecDeque<(u64, u32, u32)>,
    steps: VecDeque<(u32, Step)>,
    forgotten: u64,
}

impl History {
    /// Notes how many run and wait, where that changed.
    pub(crate) fn load(&mut self, now_ns: u64, running: u32, waiting: u32) {
        if self.load.back().is_some_and(|(_, r, w)| (*r, *w) == (running, waiting)) {
            return;
        }
        self.load.push_back((now_ns, running, waiting));
        if self.load.len() > MAX_HISTORY {
            self.load.pop_front();
            self.forgotten += 1;
        }
    }

    pub(crate) fn step(&mut self, engine: u32, step: Step) {
        self.steps.push_back((engine, step));
        if self.steps.len() > MAX_HISTORY {
            self.steps.pop_front();
            self.forgotten += 1;
        }
    }

    /// From `since_ns` on, with the load that held then.
    pub(crate) fn truth(&self, since_ns: u64) -> HistoryTruth {
        let mut truth = HistoryTruth { forgotten: self.forgotten, ..HistoryTruth::default() };
        let first = self.load.partition_point(|(at_ns, ..)| *at_ns < since_ns).saturating_sub(1);
        for (at_ns, running, waiting) in self.load.range(first..) {
            truth.load.at_ns.push(*at_ns);
            truth.load.running.push(*running);
            truth.load.waiting.push(*waiting);
        }
        let first = self.steps.partition_point(|(_, step)| step.end_ns < since_ns);
        for (engine, step) in self.steps.range(first..) {
            let steps = &mut truth.steps;
            steps.end_ns.push(step.end_ns);
            steps.engine.push(*engine);
            steps.sequences.push(step.sequences);
            steps.tokens.push(step.tokens);
            steps.drafts.push(step.drafts);
            steps.accepted.push(step.accepted);
        }
        truth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_what_is_forgotten_is_counted() {
        let mut history = History::default();
        for at in 0..MAX_HISTORY as u64 + 10 {
            history.load(at, (at % 2) as u32, 0);
            history.load(at, (at % 2) as u32, 0);
            history.step(0, Step { end_ns: at, ..Step::default() });
        }
        let truth = history.truth(0);
        assert_eq!((truth.load.at_ns.len(), truth.steps.end_ns.len(), truth.forgotten), (MAX_HISTORY, MAX_HISTORY, 20));
        assert_eq!(truth.steps.end_ns.first(), Some(&10));
    }
}
