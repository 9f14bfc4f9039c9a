//! The settings of the simulated server and the arithmetic of its timing. Pure: no clock, no
//! randomness, no state.

use super::{Firehose, MetricsVersion, Quirks, SimulatorError};

/// Whose behaviour is imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Flavour {
    /// vLLM 0.32, as recorded.
    Vllm,
    /// SGLang, after its public documentation.
    Sglang,
    /// llama.cpp's server b11434, as recorded.
    LlamaCpp,
    /// A proxy that knows only the OpenAI interface, as LiteLLM 1.108 was recorded.
    Proxy,
}

impl Flavour {
    /// What it pretends to be, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
            Self::LlamaCpp => "llama.cpp's server",
            Self::Proxy => "an OpenAI-compatible proxy",
        }
    }
}

/// What the simulated server is and how fast. Each field is an option of `tokscope simulate`.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// Which server to imitate
    #[arg(long, value_enum, default_value_t = Settings::default().flavour)]
    pub flavour: Flavour,
    /// Name of the served model
    #[arg(long = "model-name", value_name = "NAME", default_value_t = Settings::default().model)]
    pub model: String,
    /// Longest prompt plus answer, in tokens (llama-cpp: of each slot)
    #[arg(long, value_name = "TOKENS", default_value_t = Settings::default().max_context)]
    pub max_context: u32,
    /// Seed of everything random: lengths, accepted drafts, texts
    #[arg(long, default_value_t = Settings::default().seed)]
    pub seed: u64,
    /// Prompt tokens computed per second; prompts are computed one after the other
    #[arg(long, value_name = "TOK_S", default_value_t = Settings::default().prefill_tok_s)]
    pub prefill_tok_s: f64,
    /// Fixed time between a request's last byte and the start of its prefill, in µs
    #[arg(long, value_name = "US", default_value_t = Settings::default().request_overhead_us)]
    pub request_overhead_us: f64,
    /// Keep the blocks of computed prompts and reuse them
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, default_value_t = Settings::default().prefix_cache)]
    pub prefix_cache: bool,
    /// Duration of a decode step with nothing in it, in µs
    #[arg(long, value_name = "US", default_value_t = Settings::default().step_base_us)]
    pub step_base_us: f64,
    /// What each running sequence adds to a step, in µs
    #[arg(long, value_name = "US", default_value_t = Settings::default().step_per_sequence_us)]
    pub step_per_sequence_us: f64,
    /// What each token of context, over all running sequences, adds to a step, in ns
    #[arg(long, value_name = "NS", default_value_t = Settings::default().step_per_context_token_ns)]
    pub step_per_context_token_ns: f64,
    /// Sequences that run at once; more wait in a queue, first come, first served
    #[arg(long, default_value_t = Settings::default().slots)]
    pub slots: u32,
    /// Tokens the KV cache holds; a request waits until prompt and answer fit (llama-cpp: slots times context)
    #[arg(long, value_name = "TOKENS", default_value_t = Settings::default().kv_tokens)]
    pub kv_tokens: u32,
    /// Tokens in a block of the KV cache
    #[arg(long, value_name = "TOKENS", default_value_t = Settings::default().block_tokens)]
    pub block_tokens: u32,
    /// Speculative decoding: share of drafts accepted up to position 1, 2, 3 ..., never rising
    #[arg(long, value_delimiter = ',', value_name = "P,P,...")]
    pub spec_accept: Vec<f64>,
    /// Share of each answer's tokens that comes first, as reasoning
    #[arg(long, value_name = "SHARE", default_value_t = Settings::default().reasoning_share)]
    pub reasoning_share: f64,
    /// Mean length of answers that may end by themselves (without ignore_eos), in tokens
    #[arg(long, value_name = "TOKENS", default_value_t = Settings::default().mean_output_tokens)]
    pub mean_output_tokens: f64,
    /// Share of tokens that carry no text of their own (half a character)
    #[arg(long, value_name = "SHARE", default_value_t = Settings::default().empty_share)]
    pub empty_share: f64,
    /// Say in the last usage how many prompt tokens came from the cache
    #[arg(long, default_value_t = Settings::default().prompt_tokens_details)]
    pub prompt_tokens_details: bool,
    /// Send prebuilt answers as fast as the sockets take them, without any timing: for measuring clients
    #[arg(long, value_enum, value_name = "HOW", hide_short_help = true)]
    pub firehose: Option<Firehose>,
    /// Engines beside each other, each with slots and KV cache of its own; a request goes to the one with the fewest
    #[arg(long, value_name = "N", default_value_t = Settings::default().data_parallel)]
    pub data_parallel: u32,
    /// Whose names vLLM's metrics have
    #[arg(long, value_enum, default_value_t = Settings::default().metrics_version)]
    pub metrics_version: MetricsVersion,
    /// Tell the KV cache's size in tokens in vllm:cache_config_info, as newer versions do
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, default_value_t = Settings::default().kv_size_label)]
    pub kv_size_label: bool,
    /// What makes it less obliging than a server as recorded
    #[command(flatten)]
    pub quirks: Quirks,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            flavour: Flavour::Vllm,
            model: "simulated-8b".to_owned(),
            max_context: 131_072,
            seed: 1,
            prefill_tok_s: 20_000.0,
            request_overhead_us: 3_000.0,
            prefix_cache: true,
            step_base_us: 12_000.0,
            step_per_sequence_us: 80.0,
            step_per_context_token_ns: 20.0,
            slots: 256,
            kv_tokens: 1_048_576,
            block_tokens: 128,
            spec_accept: Vec::new(),
            reasoning_share: 0.0,
            mean_output_tokens: 400.0,
            empty_share: 0.005,
            prompt_tokens_details: false,
            firehose: None,
            data_parallel: 1,
            metrics_version: MetricsVersion::V1,
            kv_size_label: true,
            quirks: Quirks::default(),
        }
    }
}

impl Settings {
    /// Duration of one decode step.
    ///
    /// `base + per_sequence * running + per_context_token * context_sum`, in nanoseconds, at least 1.
    pub fn step_ns(&self, running: usize, context_sum: u64) -> u64 {
        let us = self.step_base_us + self.step_per_sequence_us * running as f64;
        let ns = us * 1e3 + self.step_per_context_token_ns * context_sum as f64;
        (ns as u64).max(1)
    }

    /// Time to compute `tokens` prompt tokens that are not in the prefix cache, in nanoseconds.
    pub fn prefill_ns(&self, tokens: u32) -> u64 {
        (f64::from(tokens) / self.prefill_tok_s * 1e9) as u64
    }

    /// Sequences that run at once.
    pub(crate) fn running_limit(&self) -> usize {
        if self.quirks.serial { 1 } else { self.slots as usize }
    }

    /// How long a request of a client that went away goes on, in nanoseconds; nothing where it does to its end.
    pub(crate) fn abort_lag_ns(&self) -> Option<u64> {
        match (self.quirks.abort_lag_ms, self.flavour) {
            (Some(ms), _) => Some(ms.saturating_mul(1_000_000)),
            (None, Flavour::Sglang) => None,
            (None, _) => Some(0),
        }
    }

    /// The fixed overhead of a request, in nanoseconds.
    pub fn overhead_ns(&self) -> u64 {
        (self.request_overhead_us * 1e3) as u64
    }

    /// Blocks in the whole KV cache. Each of llama.cpp's slots has a context of its own.
    pub fn kv_blocks(&self) -> u32 {
        match self.flavour {
            Flavour::LlamaCpp => self.slots.saturating_mul(self.max_context.div_ceil(self.block_tokens)),
            _ => self.kv_tokens / self.block_tokens,
        }
    }

    /// Refuses settings that describe no server.
    ///
    /// # Errors
    /// [`SimulatorError::Setting`] names the first bad setting, its value and what would do.
    pub fn check(&self) -> Result<(), SimulatorError> {
        let bad = |name, value: String, wanted| Err(SimulatorError::Setting { name, value, wanted });
        let not_negative = [
            ("request-overhead-us", self.request_overhead_us),
            ("step-base-us", self.step_base_us),
            ("step-per-sequence-us", self.step_per_sequence_us),
            ("step-per-context-token-ns", self.step_per_context_token_ns),
        ];
        for (name, value) in not_negative {
            if !(0.0..=1e9).contains(&value) {
                return bad(name, value.to_string(), "0 to 1e9");
            }
        }
        // A step of no length would be an endless loop of tokens at one instant.
        if self.step_ns(1, 1) < 10_000 {
            return bad("step-base-us", self.step_base_us.to_string(), "at least 10");
        }
        if !(1.0..=1e12).contains(&self.prefill_tok_s) {
            return bad("prefill-tok-s", self.prefill_tok_s.to_string(), "1 to 1e12");
        }
        if !(1.0..=1e9).contains(&self.mean_output_tokens) {
            return bad("mean-output-tokens", self.mean_output_tokens.to_string(), "1 to 1e9");
        }
        for (name, value) in [("reasoning-share", self.reasoning_share), ("empty-share", self.empty_share)] {
            if !(0.0..=1.0).contains(&value) {
                return bad(name, value.to_string(), "a share from 0 to 1");
            }
        }
        let falling = self.spec_accept.windows(2).all(|pair| pair[1] <= pair[0]);
        let shares = self.spec_accept.iter().all(|p| (0.0..=1.0).contains(p));
        if !falling || !shares || self.spec_accept.len() > 64 {
            let wanted = "at most 64 shares from 0 to 1, each at most the one before it";
            return bad("spec-accept", format!("{:?}", self.spec_accept), wanted);
        }
        for (name, value) in [("slots", self.slots), ("block-tokens", self.block_tokens)] {
            if value == 0 {
                return bad(name, value.to_string(), "at least 1");
            }
        }
        if !(1..=64).contains(&self.data_parallel) {
            return bad("data-parallel", self.data_parallel.to_string(), "1 to 64");
        }
        let alone = self.flavour == Flavour::LlamaCpp || self.metrics_version == MetricsVersion::V0;
        if self.data_parallel > 1 && alone {
            return bad("data-parallel", self.data_parallel.to_string(), "1 with --flavour llama-cpp or --metrics-version v0");
        }
        if self.max_context < 2 {
            return bad("max-context", self.max_context.to_string(), "at least 2");
        }
        // Else a request could wait for room that never comes.
        if self.kv_blocks() < self.max_context.div_ceil(self.block_tokens) {
            let wanted = "at least max-context, rounded up to whole blocks";
            return bad("kv-tokens", self.kv_tokens.to_string(), wanted);
        }
        if self.model.is_empty() {
            return bad("model-name", String::new(), "a name");
        }
        self.quirks.check()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn default_settings_are_valid() {
        Settings::default().check().unwrap();
    }

    #[test]
    fn step_time_is_the_documented_sum() {
        let settings =
            Settings { step_base_us: 10_000.0, step_per_sequence_us: 100.0, step_per_context_token_ns: 20.0, ..Settings::default() };
        for (running, context, wanted_ns) in [(0, 0, 10_000_000), (1, 0, 10_100_000), (1, 1_000, 10_120_000), (16, 1_000_000, 31_600_000)] {
            assert_eq!(settings.step_ns(running, context), wanted_ns);
        }
    }

    #[test]
    fn impossible_settings_are_refused_by_name() {
        type Change = fn(&mut Settings);
        let cases: [(&str, Change); 19] = [
            ("step-base-us", |s| s.step_base_us = -1.0),
            ("step-base-us", |s| {
                s.step_base_us = 0.0;
                s.step_per_sequence_us = 0.0;
            }),
            ("prefill-tok-s", |s| s.prefill_tok_s = 0.0),
            ("prefill-tok-s", |s| s.prefill_tok_s = f64::NAN),
            ("reasoning-share", |s| s.reasoning_share = 1.5),
            ("spec-accept", |s| s.spec_accept = vec![0.5, 0.6]),
            ("spec-accept", |s| s.spec_accept = vec![1.1]),
            ("slots", |s| s.slots = 0),
            ("block-tokens", |s| s.block_tokens = 0),
            ("max-context", |s| s.max_context = 1),
            ("kv-tokens", |s| s.kv_tokens = s.max_context - 1),
            ("model-name", |s| s.model.clear()),
            ("data-parallel", |s| s.data_parallel = 0),
            ("data-parallel", |s| {
                s.data_parallel = 2;
                s.flavour = Flavour::LlamaCpp;
            }),
            ("data-parallel", |s| {
                s.data_parallel = 2;
                s.metrics_version = MetricsVersion::V0;
            }),
            ("fail-share", |s| s.quirks.fail_share = 1.5),
            ("rate-limit", |s| s.quirks.rate_limit = Some(0)),
            ("loading-s", |s| s.quirks.loading_s = -1.0),
            ("api-key", |s| s.quirks.api_key = Some(String::new())),
        ];
        for (name, change) in cases {
            let mut settings = Settings::default();
            change(&mut settings);
            let error = settings.check().unwrap_err().to_string();
            assert!(error.contains(name), "{error} should name {name}");
        }
    }
}
