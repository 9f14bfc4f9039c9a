//! How fast prompts are read: one request for one token, by the client's clock and by the server's counters. Which
//! contexts, what a request costs, and whether the server keeps prefixes; it decides nothing about the matrix.

mod once;
pub mod prefix_cache;
mod server;
mod standalone;
mod warmup;

pub use once::once;
pub use prefix_cache::{Finding, PrefixCache};
pub use server::{Idle, IdleOptions, ServerValidation, idle, validate};
pub use standalone::{Ahead, StandaloneOptions, ahead, standalone, standalone_context};
pub use warmup::{decode_warmup, prefill_warmup};

use crate::cell::Scout;

/// Longest prompt of prefill.
const LONGEST: u64 = 131_072;
/// Tokens that a prompt leaves of the model's limit.
const ROOM: u64 = 64;
/// Where more of a prompt came from the cache, it was not cold: 1/20. Less is the chat template's own beginning.
const WARM_SHARE: u64 = 20;

/// Which number is a prefill row's headline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PrefillMetric {
    /// Prompt tokens by the time to the first token.
    #[default]
    #[value(alias("ttft"), alias("aiperf"))]
    Client,
    /// The same, and the server's counters beside it.
    Auto,
    /// The server's counters.
    Prometheus,
}

impl PrefillMetric {
    /// As the report writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Auto => "auto",
            Self::Prometheus => "prometheus",
        }
    }
}

/// Which contexts have a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefillContexts {
    /// All of them, in order of execution; those of the matrix come with its scouts.
    pub recorded: Vec<u32>,
    /// Those of them that the matrix doesn't have, and that are sent for themselves; none where prefill has a phase of
    /// its own.
    pub extras: Vec<u32>,
    /// Those asked for that don't fit, and the most that would.
    pub too_long: Vec<(u32, u64)>,
}

/// The contexts of prefill: in a phase of its own those `asked` for that fit, in their order, or the longest that fits;
/// else those of the matrix and those asked for, sorted.
#[must_use]
pub fn contexts(matrix: &[u32], asked: &[u32], max_model_len: Option<u64>, standalone: bool) -> PrefillContexts {
    let most = max_model_len.map_or(LONGEST, |limit| limit.saturating_sub(ROOM).min(LONGEST));
    let fits = |context: &u32| *context > 0 && u64::from(*context) <= most;
    let too_long = asked.iter().filter(|context| u64::from(**context) > most).map(|context| (*context, most)).collect();
    let mut wanted: Vec<u32> = asked.iter().copied().filter(fits).collect();
    if standalone {
        if let (true, Ok(most @ 1..)) = (wanted.is_empty(), u32::try_from(most)) {
            wanted.push(most);
        }
        return PrefillContexts { recorded: wanted, extras: Vec::new(), too_long };
    }
    wanted.extend(matrix.iter().copied().filter(fits));
    wanted.sort_unstable();
    wanted.dedup();
    let extras = wanted.iter().copied().filter(|context| !matrix.contains(context)).collect();
    PrefillContexts { recorded: wanted, extras, too_long }
}

/// How a row was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Method {
    /// The request ahead of a cell's streams.
    IntegratedScout,
    /// Such a request without a cell.
    ScoutOnly,
    /// In a phase of its own, by the client's clock.
    Client,
    /// In a phase of its own, by the server's counters.
    Prometheus,
}

impl Method {
    /// As the report writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IntegratedScout => "integrated_scout",
            Self::ScoutOnly => "scout_only",
            Self::Client => "client",
            Self::Prometheus => "prometheus",
        }
    }
}

/// How fast the prompts of one context were read. Of several samples all values are those of the median one (of an even
/// number the slower), so that tokens over time are the rate.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct PrefillRow {
    /// Context asked for, tokens.
    pub context_tokens: u32,
    /// Seconds to the first token.
    pub ttft_s: Option<f64>,
    /// Seconds of prefill: the same, or the server's where its counters are the headline.
    pub prefill_s: Option<f64>,
    /// Prompt tokens as the server counted them.
    pub prompt_tokens: Option<u64>,
    /// Those of them from the prefix cache, where the server tells.
    pub cached_tokens: Option<u64>,
    /// Requests behind it.
    pub samples: u32,
    /// How it was measured.
    pub method: Method,
    /// Whether the server had to compute the whole prompt.
    pub cold: bool,
    /// Computed prompt tokens a second: those from the cache are taken out. Absent with a reason.
    pub tok_per_sec: Option<f64>,
    /// What the server's counters say, where they were asked.
    pub server: Option<ServerValidation>,
    /// Whether the user skipped it.
    pub skipped: bool,
    /// Why there is no rate.
    pub reason: Option<String>,
}

/// What is known of a prompt when it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentBefore {
    /// Nothing with its beginning was.
    No,
    /// It was, to a server which keeps prefixes, doesn't, or of which that isn't known.
    Yes(Finding),
}

/// A row of one request.
#[must_use]
pub fn row(context_tokens: u32, scout: &Scout, before: SentBefore, method: Method, server: Option<ServerValidation>) -> PrefillRow {
    let counted = server.as_ref().filter(|server| server.is_valid()).and_then(|server| server.cached_tokens);
    let cached_tokens = scout.cached_tokens.map(u64::from).or(counted);
    let prompt_tokens = scout.prompt_tokens.map(u64::from);
    let ttft_s = scout.ttft_us.filter(|us| *us > 0 && scout.error.is_none()).map(|us| us as f64 / 1e6);
    let tokens = prompt_tokens.unwrap_or_else(|| context_tokens.into());
    let rate = computed(tokens, cached_tokens, before).and_then(|computed| match ttft_s {
        Some(seconds) => Ok(computed as f64 / seconds),
        None => Err(scout.error.clone().unwrap_or_else(|| "no token came".to_owned())),
    });
    let reused = cached_tokens.is_some_and(|cached| cached * WARM_SHARE > tokens);
    PrefillRow {
        context_tokens,
        ttft_s,
        prefill_s: ttft_s,
        prompt_tokens,
        cached_tokens,
        samples: u32::from(ttft_s.is_some()),
        method,
        cold: ttft_s.is_some() && before == SentBefore::No && !reused,
        tok_per_sec: rate.clone().ok(),
        server,
        skipped: false,
        reason: rate.err(),
    }
}

/// Prompt tokens that the server had to compute, or why that says nothing about its speed.
fn computed(tokens: u64, cached: Option<u64>, before: SentBefore) -> Result<u64, String> {
    match (cached, before) {
        // What is left of a prompt costs hardly more than the request itself.
        (Some(cached), _) if cached * 2 > tokens => Err(format!("{cached} of {tokens} prompt tokens came from the prefix cache")),
        (Some(cached), _) => Ok(tokens - cached),
        (None, SentBefore::No | SentBefore::Yes(Finding::DoesNot)) => Ok(tokens),
        (None, SentBefore::Yes(_)) => Err("the prompt was sent before, and how much of it was kept is not known".to_owned()),
    }
}

#[cfg(test)]
mod tests;
