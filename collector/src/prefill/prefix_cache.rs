//! Whether the server keeps the beginnings of prompts: the same prompt twice, and what usage, counters and times say.

use std::sync::Arc;
use std::time::Duration;

use super::once;
use crate::cell::{Bench, Scout};
use crate::load::LoadLimits;
use crate::load::request::RequestSource;
use crate::load::stop::Stop;
use crate::prompt::{Shape, Tag};
use crate::scrape::snapshot::Values;

/// Tokens of the prompt, where the blocks are small.
const TOKENS: u64 = 2048;
/// Blocks that it has at least, and one more for what is not whole.
const BLOCKS: u64 = 5;
/// What the prompt leaves of the model's limit.
const ROOM: u64 = 64;
/// For the counters to show a request that has ended.
const COUNTERS_LIMIT: Duration = Duration::from_secs(3);
/// A prefill too short to tell from the rest of a request, microseconds.
const TELLING_US: u64 = 20_000;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It keeps them.
    Works,
    /// It does not.
    DoesNot,
    /// That could not be told.
    Unknown,
}

impl Finding {
    /// As the report writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::DoesNot => "does not",
            Self::Unknown => "unknown",
        }
    }
}

/// What was found, and how that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixCache {
    /// What.
    pub finding: Finding,
    /// By what, in a sentence.
    pub evidence: String,
    /// Tokens of the prompt that were kept, where usage or counters say so.
    pub shared_tokens: Option<u64>,
}

impl PrefixCache {
    fn new(finding: Finding, evidence: String, shared_tokens: Option<u64>) -> Self {
        Self { finding, evidence, shared_tokens }
    }

    /// Why what prompts have in common must not be counted once; none where it was seen to be kept. Times tell that
    /// something is kept, and not how much.
    #[must_use]
    pub fn not_shared(&self) -> Option<&'static str> {
        match (self.finding, self.shared_tokens) {
            (Finding::Works, Some(_)) => None,
            (Finding::Works, None) => Some("that prefixes are kept is known by times alone, and not how many tokens of them"),
            (Finding::DoesNot, _) => Some("the server keeps no prefixes"),
            (Finding::Unknown, _) => Some("whether the server keeps prefixes is not known"),
        }
    }
}

/// One request as it was seen.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    ttft_us: u64,
    prompt_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    /// How much the server's counter of cached tokens moved, where it moved by this request alone.
    counted: Option<u64>,
}

/// Asks the server: the same prompt twice, then another one, each for one token.
pub async fn find(bench: &Bench<'_>, limits: LoadLimits, stop: &Stop) -> PrefixCache {
    let longest = bench.target.max_model_len().map_or(u64::MAX, |limit| limit.saturating_sub(ROOM));
    let tokens = TOKENS.max(BLOCKS * bench.target.kv_block_tokens().unwrap_or(0)).min(longest);
    let context = u32::try_from(tokens).unwrap_or(u32::MAX);
    let mut seen = Vec::new();
    for tag in [Tag::PrefixCache(1), Tag::PrefixCache(1), Tag::PrefixCache(2)] {
        match ask(bench, tag, context, limits, stop).await {
            Ok(one) => seen.push(one),
            Err(reason) => return PrefixCache::new(Finding::Unknown, format!("a request failed ({reason})"), None),
        }
    }
    match &seen[..] {
        [first, again, other] => judge(first, again, other),
        _ => PrefixCache::new(Finding::Unknown, "nothing was sent".to_owned(), None),
    }
}

async fn ask(bench: &Bench<'_>, tag: Tag, context: u32, limits: LoadLimits, stop: &Stop) -> Result<Seen, String> {
    let source: Arc<dyn RequestSource> = Arc::new(bench.prompts.single(bench.target, tag, context, &Shape::one_token(bench.target)));
    let before = scrape(bench).await;
    let Scout { ttft_us, prompt_tokens, cached_tokens, error, .. } = once(bench, &source, 1, limits, stop).await;
    if let Some(error) = error {
        return Err(error);
    }
    let ttft_us = ttft_us.ok_or_else(|| if stop.is_stopped() { "stopped" } else { "no token came" }.to_owned())?;
    let prompt_tokens = prompt_tokens.map(u64::from);
    let counted = match (before, prompt_tokens) {
        (Some(before), Some(tokens)) => counted(bench, &before, tokens).await,
        _ => None,
    };
    Ok(Seen { ttft_us, prompt_tokens, cached_tokens: cached_tokens.map(Into::into), counted })
}

async fn scrape(bench: &Bench<'_>) -> Option<Values> {
    let scraper = bench.scraper?;
    let asked_us = bench.load.clock().now_us();
    scraper.scrape_now();
    Some(scraper.wait_since(asked_us, COUNTERS_LIMIT).await?.values)
}

/// How many cached tokens the counters show, once they show the request, and nothing but it.
async fn counted(bench: &Bench<'_>, before: &Values, prompt_tokens: u64) -> Option<u64> {
    let until = tokio::time::Instant::now() + COUNTERS_LIMIT;
    loop {
        let after = scrape(bench).await?;
        let prompts = after.prompt_tokens? - before.prompt_tokens?;
        let cached = after.cached_prompt_tokens? - before.cached_prompt_tokens?;
        // Some servers leave what was cached out of the prompt's tokens.
        if [prompts, prompts + cached].iter().any(|all| (all - prompt_tokens as f64).abs() < 1.5) {
            return Some(cached.max(0.0) as u64);
        }
        if prompts > prompt_tokens as f64 || tokio::time::Instant::now() >= until {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What three requests say: a prompt, the same again, and another one.
fn judge(first: &Seen, again: &Seen, other: &Seen) -> PrefixCache {
    let all = again.prompt_tokens;
    let tokens = all.map_or_else(|| "the".to_owned(), |all| all.to_string());
    let half = |cached: u64| all.is_some_and(|all| cached * 2 >= all);
    // Zero is what servers say, too, that don't look.
    if let Some(cached) = again.cached_tokens.filter(|cached| half(*cached)) {
        let evidence = format!("usage: {cached} of {tokens} prompt tokens cached when sent again");
        return PrefixCache::new(Finding::Works, evidence, Some(cached));
    }
    if let Some(cached) = again.counted {
        let evidence = format!("the server's counters: {cached} of {tokens} prompt tokens cached when sent again");
        let finding = if half(cached) { Finding::Works } else { Finding::DoesNot };
        return PrefixCache::new(finding, evidence, half(cached).then_some(cached));
    }
    // The very first request may pay for more than its prompt: the other one is what a new prompt takes.
    let new_us = other.ttft_us.min(first.ttft_us);
    let ratio = again.ttft_us as f64 / new_us.max(1) as f64;
    let ms = |us: u64| us as f64 / 1e3;
    let times = format!("time to first token {:.1} ms when sent again, {:.1} ms when new", ms(again.ttft_us), ms(new_us));
    if new_us < TELLING_US {
        return PrefixCache::new(Finding::Unknown, format!("{times}: too short to tell, and neither usage nor counters say"), None);
    }
    let told_zero = if again.cached_tokens == Some(0) { "; usage says that nothing was cached" } else { "" };
    let finding = match ratio {
        ..0.5 if told_zero.is_empty() => Finding::Works,
        0.8.. => Finding::DoesNot,
        _ => Finding::Unknown,
    };
    PrefixCache::new(finding, format!("{times}{told_zero}"), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(ttft_us: u64, cached_tokens: Option<u64>, counted: Option<u64>) -> Seen {
        Seen { ttft_us, prompt_tokens: Some(2_050), cached_tokens, counted }
    }

    fn judged(again: &Seen) -> (Finding, Option<u64>) {
        let found = judge(&seen(300_000, None, None), again, &seen(100_000, None, None));
        assert!(!found.evidence.is_empty());
        (found.finding, found.shared_tokens)
    }

    #[test]
    fn usage_goes_before_counters_and_counters_before_times() {
        assert_eq!(judged(&seen(99_000, Some(2_048), Some(0))), (Finding::Works, Some(2_048)));
        assert_eq!(judged(&seen(10_000, Some(0), Some(0))), (Finding::DoesNot, None));
        assert_eq!(judged(&seen(99_000, Some(0), Some(1_920))), (Finding::Works, Some(1_920)), "a zero of a server that does not look");
        assert_eq!(judged(&seen(99_000, None, Some(16))), (Finding::DoesNot, None), "the template is no prompt");
    }

    #[test]
    fn times_alone_are_judged_with_care() {
        assert_eq!(judged(&seen(20_000, None, None)), (Finding::Works, None));
        assert_eq!(judged(&seen(65_000, None, None)), (Finding::Unknown, None));
        assert_eq!(judged(&seen(98_000, None, None)), (Finding::DoesNot, None), "of the first request's 300 ms most was paid once");
        assert_eq!(judged(&seen(20_000, Some(0), None)), (Finding::Unknown, None), "usage and times contradict each other");
        let short = judge(&seen(9_000, None, None), &seen(2_000, None, None), &seen(9_000, None, None));
        assert_eq!(short.finding, Finding::Unknown);
        assert!(short.evidence.contains("too short"), "{}", short.evidence);
    }

    #[test]
    fn only_counted_tokens_make_a_shared_prefix_never_times() {
        let found = |again: &Seen| judge(&seen(300_000, None, None), again, &seen(100_000, None, None));
        for counted in [seen(99_000, Some(2_048), None), seen(99_000, None, Some(1_920))] {
            assert_eq!(found(&counted).not_shared(), None);
        }
        let by_times = found(&seen(10_000, None, None));
        assert_eq!(by_times.finding, Finding::Works);
        assert!(by_times.not_shared().is_some_and(|why| why.contains("times alone")));
        assert!(found(&seen(99_000, None, Some(0))).not_shared().is_some());
        assert!(found(&seen(60_000, None, None)).not_shared().is_some());
    }
}
