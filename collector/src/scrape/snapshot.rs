//! What one scrape of a server's metrics said, and what a window's scrapes say together.
//! Plain data; a value that is not there stays not there.

/// The values of one scrape that the measurement uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    /// Requests running.
    pub running: Option<f64>,
    /// Requests waiting.
    pub waiting: Option<f64>,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_usage: Option<f64>,
    /// Output tokens so far (counter).
    pub generation_tokens: Option<f64>,
    /// Prompt tokens so far, cached ones among them (counter).
    pub prompt_tokens: Option<f64>,
    /// Prompt tokens taken from the prefix cache so far (counter).
    pub cached_prompt_tokens: Option<f64>,
    /// Prompt tokens that this server computed itself so far (counter).
    pub local_compute_tokens: Option<f64>,
    /// Prompt tokens computed into the KV cache, of requests that ended (counter).
    pub kv_computed_tokens: Option<f64>,
    /// Seconds in prefill, of requests that ended (counter).
    pub prefill_seconds_sum: Option<f64>,
    /// Prefills in that sum (counter).
    pub prefill_count: Option<f64>,
    /// Drafts so far (counter).
    pub spec_drafts: Option<f64>,
    /// Draft tokens so far (counter).
    pub spec_draft_tokens: Option<f64>,
    /// Accepted draft tokens so far (counter).
    pub spec_accepted_tokens: Option<f64>,
    /// Accepted draft tokens by position so far (counters), position 0 first; empty if not told.
    pub spec_accepted_per_pos: Vec<f64>,
    /// Output tokens a second as the server reckons them.
    pub gen_throughput: Option<f64>,
    /// Tokens a step as the server reckons them (SGLang).
    pub spec_accept_length: Option<f64>,
    /// Share of draft tokens accepted as the server reckons it (SGLang).
    pub spec_accept_rate: Option<f64>,
    /// Requests that ended well so far (counter).
    pub request_success: Option<f64>,
    /// Preemptions so far (counter).
    pub preemptions: Option<f64>,
}

/// One scrape that came back.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// When the request was sent, microseconds on the run's clock.
    pub sent_us: u64,
    /// When the answer arrived: the time its values are taken for.
    pub t_us: u64,
    /// What it said.
    pub values: Values,
}

/// One scrape that did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When it had failed, microseconds on the run's clock.
    pub t_us: u64,
    /// Why.
    pub reason: String,
}

/// A gauge over the scrapes inside the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaugeStats {
    /// Scrapes with a value.
    pub samples: u32,
    /// Mean.
    pub mean: f64,
    /// Largest.
    pub max: f64,
    /// Smallest.
    pub min: f64,
    /// Share of the samples above zero.
    pub above_zero: f64,
}

/// A counter between the two scrapes nearest to the window's edges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CounterDelta {
    /// Increase.
    pub delta: f64,
    /// Time of the first scrape, microseconds.
    pub from_us: u64,
    /// Time of the second, microseconds.
    pub to_us: u64,
}

impl CounterDelta {
    /// Increase a second, over the counter's own interval.
    #[must_use]
    pub fn per_second(&self) -> Option<f64> {
        let us = self.to_us.checked_sub(self.from_us).filter(|us| *us > 0)?;
        Some(self.delta / (us as f64 / 1e6))
    }
}

/// Speculative decoding between the two edge scrapes.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecDelta {
    /// Drafts.
    pub drafts: f64,
    /// Draft tokens.
    pub draft_tokens: f64,
    /// Accepted draft tokens.
    pub accepted_tokens: f64,
    /// Accepted draft tokens by position; empty if the server does not tell.
    pub accepted_per_pos: Vec<f64>,
    /// Time of the first scrape, microseconds.
    pub from_us: u64,
    /// Time of the second, microseconds.
    pub to_us: u64,
}

/// What the server's metrics say about a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerWindow {
    /// Why there is nothing, where there is nothing.
    pub unavailable: Option<String>,
    /// Requests running.
    pub running: Option<GaugeStats>,
    /// Requests waiting.
    pub waiting: Option<GaugeStats>,
    /// Share of the KV cache in use.
    pub kv_usage: Option<GaugeStats>,
    /// The server's own rate, tokens a second.
    pub gen_throughput: Option<GaugeStats>,
    /// Its median over the window: the predecessor's `server_gen_throughput` where no counter is.
    pub gen_throughput_median: Option<f64>,
    /// Output tokens.
    pub generation_tokens: Option<CounterDelta>,
    /// Prompt tokens.
    pub prompt_tokens: Option<CounterDelta>,
    /// Prompt tokens from the prefix cache.
    pub cached_prompt_tokens: Option<CounterDelta>,
    /// Preemptions.
    pub preemptions: Option<CounterDelta>,
    /// Speculative decoding, if the server drafts.
    pub spec: Option<SpecDelta>,
    /// Acceptance length gauge (SGLang).
    pub spec_accept_length: Option<GaugeStats>,
    /// Acceptance rate gauge (SGLang).
    pub spec_accept_rate: Option<GaugeStats>,
    /// Per scrape with both: rate / acceptance length, i.e. steps a second (SGLang).
    pub steps_per_s: Vec<f64>,
    /// Tokens counted by the client between the same two scrapes as `generation_tokens`.
    pub client_tokens_between_scrapes: Option<u64>,
    /// Scrapes inside the window.
    pub samples: u32,
    /// Longest of them, from sending to arrival; microseconds.
    pub longest_scrape_us: Option<u64>,
    /// Scrapes that failed inside the window.
    pub gaps: Vec<Gap>,
    /// The scrapes inside the window, for series.
    pub snapshots: Vec<Snapshot>,
}
