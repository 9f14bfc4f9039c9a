//! What a server may do to make a client's life hard: refuse fields, demand a key, load for a while. Options of
//! `tokscope simulate`; without any of them the server is as it was recorded.

use super::SimulatorError;

/// A field of a chat request that a strict server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Refuse {
    /// `ignore_eos`, whatever it says.
    IgnoreEos,
    /// `stream_options.continuous_usage_stats`, whatever it says.
    ContinuousUsage,
    /// `stream_options`, whatever is in it.
    StreamOptions,
    /// A `temperature` other than 1.
    Temperature,
    /// More than [`LARGE_MAX_TOKENS`] in `max_tokens` or `max_completion_tokens`.
    LargeMaxTokens,
}

/// What a server with [`Refuse::LargeMaxTokens`] grants, in tokens.
pub const LARGE_MAX_TOKENS: i64 = 4096;

/// Options that make the simulated server less obliging.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Quirks {
    /// Refuse these fields with a 400 that names the field (large-max-tokens: above 4096)
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FIELD,...")]
    pub refuse: Vec<Refuse>,
    /// Demand this key (`Authorization: Bearer KEY`; with USER:PASSWORD also as basic authentication); 401 else
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,
    /// Answer 503 for so long after the start, as while a model is loaded; connections are accepted
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub loading_s: f64,
}

impl Quirks {
    /// Whether this field is refused.
    pub(crate) fn refuses(&self, field: Refuse) -> bool {
        self.refuse.contains(&field)
    }

    /// Refuses what can't be.
    pub(crate) fn check(&self) -> Result<(), SimulatorError> {
        let bad = |name, value: String, wanted| Err(SimulatorError::Setting { name, value, wanted });
        if !(0.0..=1e6).contains(&self.loading_s) {
            return bad("loading-s", self.loading_s.to_string(), "0 to 1e6");
        }
        if self.api_key.as_deref() == Some("") {
            return bad("api-key", String::new(), "a key, or leave the option out");
        }
        Ok(())
    }
}
