//! Prefill by the server's own counters: between two instants at which it was idle.

use std::time::Duration;

use crate::cell::Bench;
use crate::load::stop::Stop;
use crate::scrape::snapshot::Values;

/// For one scrape.
const SCRAPE_LIMIT: Duration = Duration::from_secs(5);

/// How an idle server is waited for.
#[derive(Clone, Copy, Debug)]
pub struct IdleOptions {
    /// How long it has to have been idle, microseconds.
    pub stable_us: u64,
    /// Between two looks, microseconds.
    pub look_us: u64,
    /// How long to wait at most, microseconds.
    pub limit_us: u64,
}

impl Default for IdleOptions {
    fn default() -> Self {
        Self { stable_us: 1_000_000, look_us: 200_000, limit_us: 120_000_000 }
    }
}

/// The server's counters, and whether it was idle then.
#[derive(Clone, Debug, PartialEq)]
pub struct Idle {
    /// The last scrape.
    pub values: Values,
    /// Whether nothing ran or waited for as long as wanted.
    pub idle: bool,
}

/// Waits for an idle server. `None`: without metrics, or where they don't come.
pub async fn idle(bench: &Bench<'_>, options: &IdleOptions, stop: &Stop) -> Option<Idle> {
    let scraper = bench.scraper?;
    let clock = bench.load.clock();
    let begun_us = clock.now_us();
    let (mut since_us, mut last) = (None, None);
    loop {
        let asked_us = clock.now_us();
        scraper.scrape_now();
        match scraper.wait_since(asked_us, SCRAPE_LIMIT).await {
            Some(seen) if seen.values.running == Some(0.0) && seen.values.waiting == Some(0.0) => {
                let since_us = *since_us.get_or_insert(seen.t_us);
                if seen.t_us - since_us >= options.stable_us {
                    return Some(Idle { values: seen.values, idle: true });
                }
                last = Some(seen.values);
            }
            Some(seen) => {
                since_us = None;
                last = Some(seen.values);
            }
            None => since_us = None,
        }
        if clock.now_us() - begun_us >= options.limit_us || stop.is_stopped() {
            return last.map(|values| Idle { values, idle: false });
        }
        tokio::time::sleep(Duration::from_micros(options.look_us)).await;
    }
}

/// What the counters say about one request.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ServerValidation {
    /// Computed prompt tokens a second.
    pub tok_per_sec: Option<f64>,
    /// Seconds of prefill.
    pub prefill_seconds: Option<f64>,
    /// Prompt tokens computed.
    pub prompt_tokens: Option<u64>,
    /// Prompt tokens of the request.
    pub request_prompt_tokens: Option<u64>,
    /// Prompt tokens from the prefix cache.
    pub cached_tokens: Option<u64>,
    /// Which counter gave the tokens: `kv_computed`, `local_compute`, `request_total`, or empty.
    pub token_source: String,
    /// Requests behind it.
    pub samples: u32,
    /// Why it is not valid; empty where it is.
    pub invalid_reason: String,
}

impl ServerValidation {
    /// Whether the counters moved by this request alone.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.invalid_reason.is_empty() && self.tok_per_sec.is_some()
    }

    /// `server_validation.method` of an integrated row; empty where nothing is valid.
    #[must_use]
    pub fn method(&self) -> String {
        if self.is_valid() { format!("prometheus:{}", self.token_source) } else { String::new() }
    }
}

/// Judges the counters around one request, `usage` being its prompt tokens. With `alone`, it has to be the only one that
/// they show.
#[must_use]
pub fn validate(before: Option<&Idle>, after: Option<&Idle>, usage: Option<u64>, alone: bool) -> ServerValidation {
    let invalid = |reason: String| ServerValidation { request_prompt_tokens: usage, invalid_reason: reason, ..ServerValidation::default() };
    let (Some(before), Some(after)) = (before, after) else { return invalid("the server's metrics could not be read".to_owned()) };
    if !(before.idle && after.idle) {
        let when = if before.idle { "after" } else { "before" };
        return invalid(format!("the server was not idle {when} the request"));
    }
    let (a, b) = (&before.values, &after.values);
    let delta = |of: fn(&Values) -> Option<f64>| of(b).zip(of(a)).map(|(b, a)| b - a);
    let seconds = delta(|v| v.prefill_seconds_sum);
    let total = delta(|v| v.prompt_tokens);
    let sources =
        [("kv_computed", delta(|v| v.kv_computed_tokens)), ("local_compute", delta(|v| v.local_compute_tokens)), ("request_total", total)];
    if seconds.is_none() || sources.iter().all(|(_, tokens)| tokens.is_none()) {
        return invalid("the server does not count prompt tokens and the time of prefills".to_owned());
    }
    let found = sources.into_iter().find_map(|(source, tokens)| Some((source, tokens.filter(|tokens| *tokens > 0.0)?)));
    let (source, tokens) = found.unwrap_or_default();
    let (count, success) = (delta(|v| v.prefill_count), delta(|v| v.request_success));
    let known = [count, success].into_iter().flatten();
    let one = |n: f64| n >= 0.5 && (n <= 1.5 || !alone);
    let cached = delta(|v| v.cached_prompt_tokens).or_else(|| total.filter(|_| source != "request_total").map(|total| total - tokens));
    let beside = cached.filter(|_| source != "request_total").unwrap_or_default();
    // A server that counts neither still tells of this request alone where no token of another is among them.
    let to_the_token = usage.is_some_and(|usage| (tokens + beside - usage as f64).abs() <= 1.0);
    let as_many = if known.clone().next().is_some() { known.clone().all(one) } else { to_the_token };
    let as_usage = source != "request_total" || usage.is_none_or(|usage| (tokens - usage as f64).abs() <= 1.0);
    let seconds = seconds.unwrap_or_default();
    let whole = |tokens: f64| tokens.max(0.0).round() as u64;
    let mut result = ServerValidation {
        tok_per_sec: None,
        prefill_seconds: Some(seconds).filter(|s| *s > 0.0),
        prompt_tokens: Some(whole(tokens)).filter(|n| *n > 0),
        request_prompt_tokens: usage.or(total.map(whole)),
        cached_tokens: cached.map(whole),
        token_source: source.to_owned(),
        samples: 1,
        invalid_reason: String::new(),
    };
    if as_many && as_usage && tokens > 0.0 && seconds > 0.0 {
        result.tok_per_sec = Some(tokens / seconds);
    } else {
        let told = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), |value| value.to_string());
        result.samples = 0;
        result.invalid_reason = format!(
            "the counters do not show this request alone: prefills={} requests={} tokens={tokens} ({source}) usage={} seconds={seconds}",
            told(count),
            told(success),
            told(usage.map(|usage| usage as f64)),
        );
    }
    result
}
