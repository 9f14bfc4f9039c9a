//! What a server takes of the options that not every server knows: found out once, before anything is measured.

use serde_json::{Map, Value, json};

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
    /// Whether the run's `temperature` is taken.
    pub temperature: bool,
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
        Self {
            ignore_eos: true,
            temperature: true,
            usage: UsageOption::Continuous,
            max_tokens_name: "max_tokens",
            max_tokens_limit: None,
            notes: Vec::new(),
        }
    }
}

impl Accepted {
    /// The options of a streamed generation, without those that the server refuses: what the body of a request holds
    /// besides model and messages. The negotiation sends just these, so that it tries what the run will send.
    #[must_use]
    pub fn fields(&self, max_tokens: u32, ignore_eos: bool, temperature: Option<f64>) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("stream".into(), true.into());
        fields.insert(self.max_tokens_name.into(), max_tokens.into());
        match self.usage {
            UsageOption::Continuous => {
                fields.insert("stream_options".into(), json!({"include_usage": true, "continuous_usage_stats": true}));
            }
            UsageOption::Final => {
                fields.insert("stream_options".into(), json!({"include_usage": true}));
            }
            UsageOption::None => {}
        }
        if ignore_eos && self.ignore_eos {
            fields.insert("ignore_eos".into(), true.into());
        }
        if let Some(temperature) = temperature.filter(|_| self.temperature) {
            fields.insert("temperature".into(), temperature.into());
        }
        fields
    }
}
