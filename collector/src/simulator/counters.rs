//! What the engine counts about itself, as `/metrics` tells it. Counting only; `metrics` writes it.

/// A Prometheus histogram.
#[derive(Clone, Debug)]
pub struct Histogram {
    pub(crate) bounds: &'static [f64],
    /// One more than bounds; not yet cumulated.
    pub(crate) counts: Vec<u64>,
    pub(crate) sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub(crate) fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket] += 1;
        self.sum += value;
    }

    pub(crate) fn observe_ns(&mut self, ns: u64) {
        self.observe(ns as f64 / 1e9);
    }

    /// How many values were observed.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }
}

const FIRST_TOKEN_S: &[f64] =
    &[0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0];
const BETWEEN_TOKENS_S: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const REQUEST_S: &[f64] =
    &[0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0];
const TOKENS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 20_000.0, 50_000.0, 100_000.0];
const ITERATION_TOKENS: &[f64] = &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
const FEW: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];

/// Counters since the start. Times are the model's, not the clock's.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Prompt tokens of prefills that ended, cached ones included.
    pub prompt_tokens: u64,
    /// Those of them that came from the prefix cache.
    pub cached_tokens: u64,
    /// Prompt tokens looked up in the prefix cache, at the start of a prefill.
    pub cache_queries: u64,
    /// Those found there.
    pub cache_hits: u64,
    /// Generated tokens.
    pub generation_tokens: u64,
    /// Those of them whose request has ended or was given up.
    pub ended_tokens: u64,
    /// Time from first token to end of those requests.
    pub ended_decode_ns: u64,
    /// Time of prefills that ended.
    pub prefill_ns: u64,
    /// Prefills and decode steps that ended.
    pub decodes: u64,
    /// Sequences in them, added up.
    pub busy_slots: u64,
    /// Longest prompt and answer so far, in tokens.
    pub longest: u64,
    /// Requests that ended by themselves.
    pub ended_stop: u64,
    /// Requests that reached their limit.
    pub ended_length: u64,
    /// Requests whose client went away (vLLM shows 0 for these, SGLang shows them).
    pub aborted: u64,
    /// Drafts: one a sequence and step.
    pub drafts: u64,
    /// Tokens in all drafts.
    pub draft_tokens: u64,
    /// Accepted ones among them.
    pub accepted_tokens: u64,
    /// Accepted ones by position in the draft.
    pub accepted_per_pos: Vec<u64>,
    /// Tokens a second of the last 40 steps.
    pub recent_tok_s: f64,
    /// Tokens a sequence and step in the last 40 steps with drafts; 0 before there were any.
    pub recent_accept_length: f64,
    /// Share of drafted tokens accepted in them.
    pub recent_accept_rate: f64,
    pub(crate) first_token: Histogram,
    pub(crate) between_tokens: Histogram,
    pub(crate) per_output_token: Histogram,
    pub(crate) whole: Histogram,
    pub(crate) queue: Histogram,
    pub(crate) inference: Histogram,
    /// Observed when a request ends.
    pub(crate) prefill: Histogram,
    /// The same, observed when its prompt is computed.
    pub(crate) stage_prefill: Histogram,
    pub(crate) decode: Histogram,
    pub(crate) computed_tokens: Histogram,
    pub(crate) request_prompt: Histogram,
    pub(crate) request_generation: Histogram,
    pub(crate) max_tokens: Histogram,
    pub(crate) iteration: Histogram,
    pub(crate) ones: Histogram,
    pub(crate) zeros: Histogram,
}

impl Counters {
    pub(crate) fn new(positions: usize) -> Self {
        Self {
            prompt_tokens: 0,
            cached_tokens: 0,
            cache_queries: 0,
            cache_hits: 0,
            generation_tokens: 0,
            ended_tokens: 0,
            ended_decode_ns: 0,
            prefill_ns: 0,
            decodes: 0,
            busy_slots: 0,
            longest: 0,
            ended_stop: 0,
            ended_length: 0,
            aborted: 0,
            drafts: 0,
            draft_tokens: 0,
            accepted_tokens: 0,
            accepted_per_pos: vec![0; positions],
            recent_tok_s: 0.0,
            recent_accept_length: 0.0,
            recent_accept_rate: 0.0,
            first_token: Histogram::new(FIRST_TOKEN_S),
            between_tokens: Histogram::new(BETWEEN_TOKENS_S),
            per_output_token: Histogram::new(BETWEEN_TOKENS_S),
            whole: Histogram::new(REQUEST_S),
            queue: Histogram::new(REQUEST_S),
            inference: Histogram::new(REQUEST_S),
            prefill: Histogram::new(REQUEST_S),
            stage_prefill: Histogram::new(REQUEST_S),
            decode: Histogram::new(REQUEST_S),
            computed_tokens: Histogram::new(TOKENS),
            request_prompt: Histogram::new(TOKENS),
            request_generation: Histogram::new(TOKENS),
            max_tokens: Histogram::new(TOKENS),
            iteration: Histogram::new(ITERATION_TOKENS),
            ones: Histogram::new(FEW),
            zeros: Histogram::new(FEW),
        }
    }

    /// Requests that ended well.
    pub fn succeeded(&self) -> u64 {
        self.ended_stop + self.ended_length
    }

    /// Accounts for one draft of which the first `accepted` tokens were accepted.
    pub(crate) fn draft(&mut self, accepted: usize) {
        self.drafts += 1;
        self.draft_tokens += self.accepted_per_pos.len() as u64;
        self.accepted_tokens += accepted as u64;
        for count in &mut self.accepted_per_pos[..accepted] {
            *count += 1;
        }
    }
}

/// What is going on at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Sequences that hold a slot: decoding, or computing their prompt.
    pub running: usize,
    /// Requests in the queue.
    pub waiting: usize,
    /// Blocks of the KV cache that hold something in use.
    pub kv_blocks_used: u32,
    /// Blocks there are.
    pub kv_blocks: u32,
}

impl Gauges {
    /// Share of the KV cache in use, 0 to 1.
    pub fn kv_usage(&self) -> f64 {
        f64::from(self.kv_blocks_used) / f64::from(self.kv_blocks.max(1))
    }
}
