//! What a server may do to make a client's life hard: refuse fields, demand a key, load for a while. Options of
//! `tokscope simulate`; without any of them the server is as it was recorded.

use std::str::FromStr;

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

/// What `/metrics` answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum MetricsAnswer {
    /// What the imitated server answers; a proxy sends on to `/metrics/`, which tells nothing of an engine.
    #[default]
    Ok,
    /// 404.
    Missing,
    /// 502, as from a gateway that has lost its server.
    BadGateway,
    /// 200 and a web page.
    Html,
    /// The page, after 30 seconds.
    Slow,
}

/// Whose names the metrics of vLLM have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum MetricsVersion {
    /// Those of the engine before 2025, after its documentation: `gpu_cache_usage_perc`,
    /// `avg_generation_throughput_toks_per_s`, no label for the engine.
    V0,
    /// Those recorded.
    #[default]
    V1,
}

/// A cold engine: its first requests, and all steps they are in, take longer, each less so than the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeedUp {
    /// The very first one by this factor.
    pub factor: f64,
    /// How many requests; of each engine where there are several.
    pub requests: u64,
}

impl SpeedUp {
    /// By which factor a request takes longer before which there were so many.
    pub(crate) fn slower(self, before: u64) -> f64 {
        let cold = self.requests.saturating_sub(before) as f64 / self.requests.max(1) as f64;
        1.0 + (self.factor - 1.0) * cold
    }
}

impl FromStr for SpeedUp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .split_once(',')
            .and_then(|(factor, requests)| Some(Self { factor: factor.trim().parse().ok()?, requests: requests.trim().parse().ok()? }));
        let fits = parsed.filter(|speed_up| (1.0..=1e6).contains(&speed_up.factor));
        fits.ok_or_else(|| "give a factor from 1 to 1e6 and a number of requests, as in 3,20".to_owned())
    }
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
    /// What /metrics answers: what the server has, 404, 502, a web page, or its page after 30 s
    #[arg(long = "metrics", value_enum, value_name = "HOW", default_value_t = MetricsAnswer::Ok)]
    pub metrics: MetricsAnswer,
    /// Go on with a request for so long after its client is gone (sglang without this: to its end, or until
    /// POST /abort_request {"rid": ID}; others: not at all)
    #[arg(long, value_name = "MS")]
    pub abort_lag_ms: Option<u64>,
    /// Say one sentence over and over
    #[arg(long)]
    pub repeat_text: bool,
    /// Be slower by factor F at first, and less with each of the first N requests, as a cold engine
    #[arg(long, value_name = "F,N")]
    pub speed_up: Option<SpeedUp>,
    /// Answer this share of chat requests with 500
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub fail_share: f64,
    /// Answer 429 with Retry-After to chat requests while so many are in flight
    #[arg(long, value_name = "N")]
    pub rate_limit: Option<usize>,
    /// Work on one request at a time; the others wait, and no gauge tells of them
    #[arg(long)]
    pub serial: bool,
    /// Make the prompts of every second request that streams so many tokens longer, as a template that is not the same for all
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    pub template_adds: u32,
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
        if !(0.0..=1.0).contains(&self.fail_share) {
            return bad("fail-share", self.fail_share.to_string(), "a share from 0 to 1");
        }
        if self.rate_limit == Some(0) {
            return bad("rate-limit", "0".to_owned(), "at least 1");
        }
        if self.api_key.as_deref() == Some("") {
            return bad("api-key", String::new(), "a key, or leave the option out");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_up_is_a_factor_and_a_number() {
        assert_eq!("2.5,10".parse(), Ok(SpeedUp { factor: 2.5, requests: 10 }));
        for wrong in ["", "2", "2,", ",3", "0.5,3", "nan,3", "2,-1", "2,3,4"] {
            assert!(wrong.parse::<SpeedUp>().is_err(), "{wrong}");
        }
    }
}
