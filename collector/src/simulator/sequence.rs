//! A request on its way through the engine: what comes in, what it is there, what goes out. Data; `engine` moves it.

use super::cache::Lease;
use super::tokens::Prompt;

/// A request as it comes in.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The caller's name for it, unique.
    pub key: u64,
    /// When its last byte was read, in monotonic nanoseconds.
    pub received_ns: u64,
    /// Its prompt.
    pub prompt: Prompt,
    /// Most tokens it may get, at least 1; prompt and answer fit the context.
    pub max_output: u32,
    /// Whether it always gets that many.
    pub ignore_eos: bool,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// By itself.
    Stop,
    /// At its limit.
    Length,
    /// Somebody asked for it.
    Abort,
}

impl Finish {
    /// As `finish_reason` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Abort => "abort",
        }
    }
}

/// Tokens of one request that are due together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emission {
    /// Whose.
    pub key: u64,
    /// When they are due, in monotonic nanoseconds.
    pub due_ns: u64,
    /// How many, at least 1.
    pub tokens: u32,
    /// Prompt tokens that came from the prefix cache; the same in all emissions of a request.
    pub cached_tokens: u32,
    /// How many tokens the whole answer will have.
    pub planned_tokens: u32,
    /// Set on the last one.
    pub finish: Option<Finish>,
    /// When its prompt was begun; the same in all emissions of a request.
    pub prefill_start_ns: u64,
    /// When its first token was due, which is when the prompt was computed; the same in all.
    pub first_ns: u64,
    /// Drafted tokens that were accepted in this step, also those beyond the end of the answer; nothing without a
    /// draft.
    pub accepted: Option<u32>,
}

/// A request in a slot, as llama.cpp shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupied {
    /// Number of the slot, from 0; the lowest free one is taken.
    pub slot: u32,
    /// The caller's name for the request.
    pub key: u64,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Those of them that were cached.
    pub cached_tokens: u32,
    /// Tokens it has got.
    pub generated: u32,
    /// Most tokens it may get.
    pub max_output: u32,
    /// Whether it always gets that many.
    pub ignore_eos: bool,
}

#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) arrival: Arrival,
    pub(super) ready_ns: u64,
    pub(super) planned: u32,
    pub(super) finish: Finish,
    pub(super) rng: fastrand::Rng,
    pub(super) lease: Lease,
    pub(super) cached: u32,
    pub(super) generated: u32,
    pub(super) prefill_start_ns: u64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    pub(super) gone: bool,
    pub(super) slot: u32,
    /// By how much it slows down what it is in.
    pub(super) slower: f64,
}

impl Sequence {
    pub(super) fn context(&self) -> u64 {
        u64::from(self.arrival.prompt.tokens) + u64::from(self.generated)
    }

    pub(super) fn emission(&self, due_ns: u64, tokens: u32, accepted: Option<u32>) -> Emission {
        Emission {
            key: self.arrival.key,
            due_ns,
            tokens,
            cached_tokens: self.cached,
            planned_tokens: self.planned,
            finish: (self.generated == self.planned).then_some(self.finish),
            prefill_start_ns: self.prefill_start_ns,
            first_ns: self.first_ns,
            accepted,
        }
    }
}
