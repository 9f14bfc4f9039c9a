//! The simulated inference engine as a pure state machine: requests come in with a time, tokens go
//! out with the time at which they are due. It has no clock and no sockets; the driver has.
//!
//! The model in full:
//! - A request is ready a fixed overhead after its last byte. Ready requests wait in one queue,
//!   first come, first served.
//! - One prompt is computed at a time, at the prefill rate; decoding goes on beside it at full
//!   speed. The prefill takes a slot, and blocks of the KV cache for the prompt and the whole
//!   answer, so nothing is ever preempted. The first token is due when the prefill ends.
//! - Sequences that have their first token decode together in steps. Who is there when a step
//!   begins gets its tokens when it ends: one, and with speculation those accepted. The next
//!   step begins at that very instant, however late the driver is.
//! - A cold engine's first requests take longer by a factor that falls from one to the next, and so do the steps
//!   they are in.
//! - A client that goes away frees a decoding sequence's slot at the end of the step; a prompt's
//!   or a waiting one's at once.

use std::collections::VecDeque;

use super::cache::{KvCache, Lease};
use super::counters::{Counters, Gauges};
use super::history;
use super::model::Settings;
use super::sequence::Sequence;
pub use super::sequence::{Arrival, Emission, Finish, Occupied};
use super::tokens::mix;

#[derive(Debug)]
struct Prefill {
    end_ns: u64,
    sequence: Sequence,
}

#[derive(Debug)]
struct Step {
    end_ns: u64,
    /// The first so many of `decoding` are in it.
    members: usize,
}

/// How many steps the recent rate looks back.
const RATE_STEPS: u32 = 40;

/// The engine.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    cache: KvCache,
    waiting: VecDeque<Sequence>,
    prefill: Option<Prefill>,
    decoding: Vec<Sequence>,
    step: Option<Step>,
    /// When the last prefill ended or a slot became free.
    free_since_ns: u64,
    arrivals: u64,
    counters: Counters,
    rate_since_ns: u64,
    rate_steps: u32,
    rate_tokens: u64,
    rate_drafts: u64,
    rate_accepted: u64,
    /// The step that ended last, until it is taken.
    ended: Option<history::Step>,
}

impl Engine {
    /// An idle engine. The settings must have passed [`Settings::check`].
    pub fn new(settings: Settings) -> Self {
        let cache = KvCache::new(settings.kv_blocks(), settings.block_tokens, settings.prefix_cache);
        let counters = Counters::new(settings.spec_accept.len());
        Self {
            settings,
            cache,
            waiting: VecDeque::new(),
            prefill: None,
            decoding: Vec::new(),
            step: None,
            free_since_ns: 0,
            arrivals: 0,
            counters,
            rate_since_ns: 0,
            rate_steps: 0,
            rate_tokens: 0,
            rate_drafts: 0,
            rate_accepted: 0,
            ended: None,
        }
    }

    /// The fixed time between a request's last byte and its place in the queue, in nanoseconds.
    pub fn overhead_ns(&self) -> u64 {
        self.settings.overhead_ns()
    }

    /// Takes a request in.
    pub fn arrive(&mut self, arrival: Arrival) {
        let seed = mix(self.settings.seed ^ mix(self.arrivals));
        let slower = self.settings.quirks.speed_up.map_or(1.0, |speed_up| speed_up.slower(self.arrivals));
        self.arrivals += 1;
        let mut rng = fastrand::Rng::with_seed(seed);
        let limit = arrival.max_output.max(1);
        let natural = match arrival.ignore_eos {
            true => u32::MAX,
            false => geometric(&mut rng, self.settings.mean_output_tokens),
        };
        self.waiting.push_back(Sequence {
            ready_ns: arrival.received_ns + self.settings.overhead_ns(),
            planned: natural.min(limit),
            finish: if natural < limit { Finish::Stop } else { Finish::Length },
            arrival,
            rng,
            lease: Lease::default(),
            cached: 0,
            generated: 0,
            prefill_start_ns: 0,
            first_ns: 0,
            last_ns: 0,
            gone: false,
            slot: 0,
            slower,
        });
        self.start_prefill();
    }

    /// The client of a request went away. Unknown or ended ones are ignored.
    pub fn cancel(&mut self, key: u64, now_ns: u64) {
        if let Some(at) = self.waiting.iter().position(|s| s.arrival.key == key) {
            self.waiting.remove(at);
            self.counters.aborted += 1;
        } else if let Some(prefill) = self.prefill.take_if(|p| p.sequence.arrival.key == key) {
            self.cache.release(&prefill.sequence.lease);
            self.counters.aborted += 1;
            self.free_since_ns = self.free_since_ns.max(now_ns);
        } else if let Some(sequence) = self.decoding.iter_mut().find(|s| s.arrival.key == key) {
            sequence.gone = true;
            return;
        }
        self.start_prefill();
    }

    /// When something is due next, in monotonic nanoseconds; nothing where the engine is idle.
    pub fn next_due(&self) -> Option<u64> {
        let step = self.step.as_ref().map(|step| step.end_ns);
        let prefill = self.prefill.as_ref().map(|prefill| prefill.end_ns);
        step.into_iter().chain(prefill).min()
    }

    /// Does the one thing that is due next, if it is due by `now_ns`, and appends what it emits.
    /// Says whether there was one.
    pub fn advance(&mut self, now_ns: u64, out: &mut Vec<Emission>) -> bool {
        match self.next_due() {
            Some(due) if due <= now_ns => {
                if self.step.as_ref().is_some_and(|step| step.end_ns == due) {
                    self.end_step(due, out);
                } else {
                    self.end_prefill(due, out);
                }
                true
            }
            _ => false,
        }
    }

    /// The decode step that ended with the last [`Self::advance`], once.
    pub fn take_step(&mut self) -> Option<history::Step> {
        self.ended.take()
    }

    /// Requests that hold a slot.
    pub fn running(&self) -> usize {
        self.decoding.len() + usize::from(self.prefill.is_some())
    }

    /// Requests in the queue.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// All requests.
    pub fn requests(&self) -> usize {
        self.running() + self.waiting()
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What is going on now.
    pub fn gauges(&self) -> Gauges {
        let running = self.decoding.iter().chain(self.prefill.as_ref().map(|p| &p.sequence));
        let own = running.clone().map(|sequence| {
            let tokens = sequence.context().div_ceil(u64::from(self.settings.block_tokens));
            (tokens as u32).saturating_sub(sequence.lease.shared_blocks())
        });
        Gauges {
            running: running.clone().count(),
            waiting: self.waiting.len(),
            kv_blocks_used: own.sum::<u32>() + self.cache.shared_in_use(),
            kv_blocks: self.settings.kv_blocks(),
        }
    }

    /// Begins the next prefill where the lane is free and the head of the queue fits.
    fn start_prefill(&mut self) {
        if self.prefill.is_some() || self.decoding.len() >= self.settings.running_limit() {
            return;
        }
        let Some(head) = self.waiting.front() else {
            return;
        };
        let Some((lease, cached)) = self.cache.reserve(&head.arrival.prompt, head.planned) else {
            return;
        };
        let Some(mut sequence) = self.waiting.pop_front() else {
            return;
        };
        let prompt = sequence.arrival.prompt.tokens;
        let start_ns = sequence.ready_ns.max(self.free_since_ns);
        sequence.lease = lease;
        sequence.cached = cached;
        sequence.slot = self.free_slot();
        sequence.prefill_start_ns = start_ns;
        self.counters.cache_queries += u64::from(prompt);
        self.counters.cache_hits += u64::from(cached);
        let end_ns = start_ns.saturating_add(scaled(self.settings.prefill_ns(prompt - cached), sequence.slower));
        self.prefill = Some(Prefill { end_ns, sequence });
    }

    /// The lowest slot that no decoding sequence has; prompts are computed one at a time.
    fn free_slot(&self) -> u32 {
        let mut taken = vec![false; self.decoding.len() + 1];
        for sequence in &self.decoding {
            if let Some(slot) = taken.get_mut(sequence.slot as usize) {
                *slot = true;
            }
        }
        taken.iter().position(|taken| !taken).unwrap_or_default() as u32
    }

    /// Requests that hold a slot, in no particular order.
    pub fn occupied(&self) -> impl Iterator<Item = Occupied> + '_ {
        let running = self.decoding.iter().chain(self.prefill.as_ref().map(|p| &p.sequence));
        running.map(|sequence| Occupied {
            slot: sequence.slot,
            key: sequence.arrival.key,
            prompt_tokens: sequence.arrival.prompt.tokens,
            cached_tokens: sequence.cached,
            generated: sequence.generated,
            max_output: sequence.arrival.max_output,
            ignore_eos: sequence.arrival.ignore_eos,
        })
    }

    fn end_prefill(&mut self, now_ns: u64, out: &mut Vec<Emission>) {
        let Some(Prefill { mut sequence, .. }) = self.prefill.take() else {
            return;
        };
        self.cache.publish(&mut sequence.lease, &sequence.arrival.prompt);
        sequence.generated = 1;
        sequence.first_ns = now_ns;
        sequence.last_ns = now_ns;
        let counters = &mut self.counters;
        counters.prompt_tokens += u64::from(sequence.arrival.prompt.tokens);
        counters.cached_tokens += u64::from(sequence.cached);
        counters.generation_tokens += 1;
        counters.prefill_ns += now_ns - sequence.prefill_start_ns;
        counters.stage_prefill.observe_ns(now_ns - sequence.prefill_start_ns);
        counters.decodes += 1;
        counters.busy_slots += 1;
        counters.first_token.observe_ns(now_ns - sequence.arrival.received_ns);
        counters.iteration.observe(f64::from(sequence.arrival.prompt.tokens - sequence.cached));
        out.push(sequence.emission(now_ns, 1, None));
        if sequence.generated == sequence.planned {
            self.retire(&sequence);
        } else {
            self.decoding.push(sequence);
        }
        self.free_since_ns = now_ns;
        self.start_prefill();
        if self.step.is_none() {
            self.start_step(now_ns);
        }
    }

    fn start_step(&mut self, now_ns: u64) {
        let context = self.decoding.iter().map(Sequence::context).sum();
        let members = self.decoding.len();
        let slower = self.decoding.iter().map(|sequence| sequence.slower).fold(1.0, f64::max);
        if self.rate_steps == 0 {
            // The first step of those that the recent rate is over.
            self.rate_since_ns = now_ns;
        }
        self.step =
            (members > 0).then(|| Step { end_ns: now_ns.saturating_add(scaled(self.settings.step_ns(members, context), slower)), members });
    }

    fn end_step(&mut self, now_ns: u64, out: &mut Vec<Emission>) {
        let members = self.step.take().map_or(0, |step| step.members);
        let before = self.decoding.len();
        let mut ended = history::Step { end_ns: now_ns, ..history::Step::default() };
        for (at, mut sequence) in std::mem::take(&mut self.decoding).into_iter().enumerate() {
            if sequence.gone {
                self.cache.release(&sequence.lease);
                self.counters.aborted += 1;
                self.leave(&sequence);
                continue;
            }
            if at >= members {
                self.decoding.push(sequence);
                continue;
            }
            let (tokens, accepted) = self.draw_tokens(&mut sequence);
            ended.sequences += 1;
            ended.tokens += tokens;
            ended.drafts += u32::from(accepted.is_some());
            ended.accepted += accepted.unwrap_or(0);
            self.counters.between_tokens.observe_ns(now_ns - sequence.last_ns);
            sequence.generated += tokens;
            sequence.last_ns = now_ns;
            out.push(sequence.emission(now_ns, tokens, accepted));
            if sequence.generated == sequence.planned {
                self.retire(&sequence);
            } else {
                self.decoding.push(sequence);
            }
        }
        let step_tokens = u64::from(ended.tokens);
        self.ended = Some(ended);
        self.counters.generation_tokens += step_tokens;
        self.counters.decodes += 1;
        self.counters.busy_slots += members as u64;
        self.counters.iteration.observe(step_tokens as f64);
        if self.decoding.len() < before && self.prefill.is_none() {
            self.free_since_ns = now_ns;
        }
        self.start_prefill();
        self.watch_rate(now_ns, &ended);
        self.start_step(now_ns);
    }

    /// How many tokens a sequence gets in a step, and how many of its draft were accepted.
    fn draw_tokens(&mut self, sequence: &mut Sequence) -> (u32, Option<u32>) {
        let shares = &self.settings.spec_accept;
        let left = sequence.planned - sequence.generated;
        if shares.is_empty() {
            return (1, None);
        }
        // One draw against falling shares: each position is accepted with its own share, and none
        // without the one before it.
        let draw = sequence.rng.f64();
        let accepted = shares.partition_point(|share| draw < *share);
        self.counters.draft(accepted);
        ((accepted as u32 + 1).min(left), Some(accepted as u32))
    }

    /// What counts when a request ends, however it does.
    fn leave(&mut self, sequence: &Sequence) {
        self.counters.ended_tokens += u64::from(sequence.generated);
        self.counters.ended_decode_ns += sequence.last_ns - sequence.first_ns;
        self.counters.longest = self.counters.longest.max(sequence.context());
    }

    fn retire(&mut self, sequence: &Sequence) {
        self.cache.release(&sequence.lease);
        self.leave(sequence);
        let counters = &mut self.counters;
        match sequence.finish {
            Finish::Stop => counters.ended_stop += 1,
            Finish::Length => counters.ended_length += 1,
            Finish::Abort => counters.aborted += 1,
        }
        let arrival = &sequence.arrival;
        let decode_ns = sequence.last_ns - sequence.first_ns;
        counters.whole.observe_ns(sequence.last_ns - arrival.received_ns);
        counters.queue.observe_ns(sequence.prefill_start_ns - arrival.received_ns);
        counters.inference.observe_ns(sequence.last_ns - sequence.prefill_start_ns);
        counters.prefill.observe_ns(sequence.first_ns - sequence.prefill_start_ns);
        counters.decode.observe_ns(decode_ns);
        let computed = arrival.prompt.tokens - sequence.cached;
        counters.computed_tokens.observe(f64::from(computed));
        counters.request_prompt.observe(f64::from(arrival.prompt.tokens));
        counters.request_generation.observe(f64::from(sequence.generated));
        counters.max_tokens.observe(f64::from(arrival.max_output));
        counters.ones.observe(1.0);
        counters.zeros.observe(0.0);
        if sequence.generated > 1 {
            counters.per_output_token.observe_ns(decode_ns / u64::from(sequence.generated - 1));
        }
    }

    fn watch_rate(&mut self, now_ns: u64, step: &history::Step) {
        self.rate_steps += 1;
        self.rate_tokens += u64::from(step.tokens);
        self.rate_drafts += u64::from(step.drafts);
        self.rate_accepted += u64::from(step.accepted);
        if self.decoding.is_empty() {
            self.counters.recent_tok_s = 0.0;
        } else if self.rate_steps >= RATE_STEPS {
            let seconds = (now_ns - self.rate_since_ns) as f64 / 1e9;
            self.counters.recent_tok_s = self.rate_tokens as f64 / seconds;
        } else {
            return;
        }
        if self.rate_drafts > 0 {
            let accepted = self.rate_accepted as f64 / self.rate_drafts as f64;
            self.counters.recent_accept_length = 1.0 + accepted;
            self.counters.recent_accept_rate = accepted / self.settings.spec_accept.len() as f64;
        }
        self.rate_steps = 0;
        self.rate_tokens = 0;
        self.rate_drafts = 0;
        self.rate_accepted = 0;
    }
}

/// A duration that is longer by a factor.
fn scaled(ns: u64, factor: f64) -> u64 {
    if factor > 1.0 { (ns as f64 * factor) as u64 } else { ns }
}

/// A length of at least 1 with the given mean.
fn geometric(rng: &mut fastrand::Rng, mean: f64) -> u32 {
    if mean <= 1.0 {
        return 1;
    }
    let more = (1.0 - rng.f64()).ln() / (1.0 - 1.0 / mean).ln();
    // Saturates at the ends.
    (more as u32).saturating_add(1)
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
