//! What a server takes of the options that not every server knows: found out once, before anything is measured.

/// How much usage a stream tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageOption {
    /// `stream_options` with `include_usage` and `continuous_usage_stats`.
    Continuous,
    /// `stream_options` with `include_usage` alone.
    Final,
    /// No `stream_options`: the server refuses them.
    None,
}

/// What is sent with each generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Whether `ignore_eos` is taken.
    pub ignore_eos: bool,
    /// Which usage can be asked for.
    pub usage: UsageOption,
    /// The name of the output limit: `max_tokens`, or `max_completion_tokens` where the server wants that.
    pub max_tokens_name: &'static str,
    /// The largest output limit it takes, where it refuses larger ones for another reason than the model's context.
    pub max_tokens_limit: Option<u32>,
    /// What was refused, each a sentence for the report.
    pub notes: Vec<String>,
}

impl Default for Accepted {
    /// Everything is taken.
    fn default() -> Self {
        Self { ignore_eos: true, usage: UsageOption::Continuous, max_tokens_name: "max_tokens", max_tokens_limit: None, notes: Vec::new() }
    }
}
