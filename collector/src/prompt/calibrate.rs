//! Making prompts of the wanted number of tokens: by the server's `/tokenize` where it works, else
//! by asking for one token and reading how many the prompt had.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{CHAT_PATH, ContextText, CountedBy, Prompts, ending, new_run_id, prose, shared_text};
use crate::event::context_label;
use crate::target::{Target, Tokenize, thousands};

const LIMIT: Duration = Duration::from_secs(120);
/// A context within this many tokens, or this share of it, is as wanted.
const CLOSE_TOKENS: u64 = 8;
const CLOSE_SHARE: u64 = 500;
/// Questions for one context at most.
const MOST_CALLS: u32 = 5;
const ASSUMED_CHARS_PER_TOKEN: f64 = 4.5;
const ASSUMED_OVERHEAD: u64 = 60;
/// The length at which the ratio is taken where every question costs a prefill.
const PROBE_CONTEXT: u32 = 8 << 10;

/// Tokens as a straight line over characters of filler.
#[derive(Clone, Copy, Debug)]
struct Line {
    overhead: f64,
    tokens_per_char: f64,
}

impl Line {
    fn chars(self, tokens: u32) -> usize {
        let chars = (f64::from(tokens) - self.overhead) / self.tokens_per_char;
        // Negative becomes 0: the context is shorter than the template.
        chars.round().max(0.0) as usize
    }

    fn tokens(self, chars: usize) -> u64 {
        (self.overhead + self.tokens_per_char * chars as f64).round() as u64
    }
}

/// Makes the prompts of a run for these contexts. What the server does not tell is reckoned, and a
/// warning says so; it never fails.
pub async fn calibrate(target: &Target, contexts: &[u32], seed: u64) -> Prompts {
    let run_id = new_run_id();
    let largest = contexts.iter().copied().max().unwrap_or(0);
    let mut prompts = Prompts {
        startup_lines: vec![format!("calibrating padding text run={run_id} up_to={}", context_label(largest))],
        run_id,
        seed,
        chars_per_token: None,
        overhead_tokens: None,
        warnings: Vec::new(),
        texts: BTreeMap::new(),
    };
    // Long enough for the most verbose of tokenizers; text is cheap.
    let filler = prose(seed, 8 * largest as usize + 4096);
    if target.tokenize == Tokenize::Chat {
        let count = async |text: &str| by_tokenize(target, text).await;
        match fit_all(&mut prompts, contexts, &filler, count).await {
            Ok(()) => {
                let line = "token targeting: /tokenize exact".to_owned();
                prompts.startup_lines.insert(1, line);
                return prompts;
            }
            Err(reason) => {
                prompts.texts.clear();
                prompts.startup_lines.truncate(1);
                let text = format!("/tokenize can't be used ({reason}); prompts are sized by probes");
                prompts.warnings.push(text);
            }
        }
    }
    let count = async |text: &str| by_probe(target, text).await;
    by_probes(&mut prompts, contexts, &filler, count).await;
    prompts
}

/// Every context counted until it is close.
async fn fit_all(
    prompts: &mut Prompts,
    contexts: &[u32],
    filler: &str,
    count: impl AsyncFn(&str) -> Result<u64, String>,
) -> Result<(), String> {
    let empty = shared_text(&prompts.run_id, "0", filler, 0);
    let overhead = count(&with_ending(&empty)).await?;
    prompts.overhead_tokens = Some(overhead);
    let mut line = Line { overhead: overhead as f64, tokens_per_char: 1.0 / ASSUMED_CHARS_PER_TOKEN };
    for &context in contexts {
        let (text, tokens) =
            if context == 0 { (empty.clone(), overhead) } else { fit(&prompts.run_id, context, filler, &mut line, &count).await? };
        if context > 0 {
            prompts.startup_lines.push(format!(
                "context {}: {} chars ({} prompt tokens via /tokenize)",
                context_label(context),
                thousands(text.len() as u64),
                thousands(tokens)
            ));
            prompts.chars_per_token = Some(1.0 / line.tokens_per_char);
            warn_if_off(&mut prompts.warnings, context, tokens);
        }
        keep(prompts, context, text, tokens, CountedBy::Tokenize);
    }
    Ok(())
}

/// One context. Improves `line` on the way, so that the next one needs fewer questions.
async fn fit(
    run_id: &str,
    context: u32,
    filler: &str,
    line: &mut Line,
    count: &impl AsyncFn(&str) -> Result<u64, String>,
) -> Result<(String, u64), String> {
    let label = context.to_string();
    let close = close_enough(context);
    let mut chars = line.chars(context);
    let mut before: Option<(usize, u64)> = None;
    let mut best: Option<(String, u64)> = None;
    for _ in 0..MOST_CALLS {
        let text = shared_text(run_id, &label, filler, chars);
        let tokens = count(&with_ending(&text)).await?;
        let off = |tokens: u64| tokens.abs_diff(u64::from(context));
        if best.as_ref().is_none_or(|(_, t)| off(tokens) < off(*t)) {
            best = Some((text, tokens));
        }
        *line = through(before, (chars, tokens), *line);
        if off(tokens) <= close {
            break;
        }
        before = Some((chars, tokens));
        let next = line.chars(context);
        if next == chars {
            break;
        }
        chars = next;
    }
    best.ok_or_else(|| "nothing was counted".to_owned())
}

/// The line through the last two points, or through the last one with the old overhead.
fn through(before: Option<(usize, u64)>, now: (usize, u64), old: Line) -> Line {
    let (x, y) = (now.0 as f64, now.1 as f64);
    let slope = match before {
        Some((bx, by)) if bx != now.0 && by != now.1 => (y - by as f64) / (x - bx as f64),
        _ if x > 0.0 => (y - old.overhead) / x,
        _ => old.tokens_per_char,
    };
    // A slope that makes no sense (a server that counts nothing) is not followed.
    let tokens_per_char = if slope.is_finite() && slope > 0.01 { slope } else { old.tokens_per_char };
    Line { overhead: y - tokens_per_char * x, tokens_per_char }
}

/// Two questions, and the line through them for all contexts.
async fn by_probes(prompts: &mut Prompts, contexts: &[u32], filler: &str, count: impl AsyncFn(&str) -> Result<u64, String>) {
    let largest = contexts.iter().copied().max().unwrap_or(0);
    let probe_context = largest.min(PROBE_CONTEXT);
    let empty = shared_text(&prompts.run_id, "0", filler, 0);
    let mut line = Line { overhead: ASSUMED_OVERHEAD as f64, tokens_per_char: 1.0 / ASSUMED_CHARS_PER_TOKEN };
    let overhead = count(&with_ending(&empty)).await;
    let mut counted_by = CountedBy::Assumed;
    let probed = match &overhead {
        Ok(overhead) => {
            line.overhead = *overhead as f64;
            prompts.overhead_tokens = Some(*overhead);
            let chars = line.chars(probe_context.max(512));
            // A label of its own: no context's text is in the cache before its scout.
            let text = shared_text(&prompts.run_id, "probe", filler, chars);
            let tokens = count(&with_ending(&text)).await;
            tokens.map(|tokens| through(Some((0, *overhead)), (chars, tokens), line))
        }
        Err(e) => Err(e.clone()),
    };
    match probed {
        Ok(probed) => {
            line = probed;
            counted_by = CountedBy::ProbeRatio;
            let ratio = 1.0 / line.tokens_per_char;
            prompts.chars_per_token = Some(ratio);
            let label = context_label(probe_context.max(512));
            let lines =
                [format!("token targeting: estimate from {label}"), format!("calibrated: {ratio:.2} chars/token (from {label} probe)")];
            prompts.startup_lines.extend(lines);
        }
        Err(reason) => prompts.warnings.push(format!(
            "the server does not tell how long prompts are ({reason}); {ASSUMED_CHARS_PER_TOKEN} characters a token are assumed"
        )),
    }
    for &context in contexts {
        let (text, tokens, by) = match (context, &overhead) {
            (0, Ok(overhead)) => (empty.clone(), *overhead, CountedBy::Probe),
            (0, Err(_)) => (empty.clone(), ASSUMED_OVERHEAD, CountedBy::Assumed),
            _ => {
                let chars = line.chars(context);
                let text = shared_text(&prompts.run_id, &context.to_string(), filler, chars);
                (text, line.tokens(chars), counted_by)
            }
        };
        if context > 0 {
            prompts.startup_lines.push(format!(
                "context {}: {} chars (~{} tokens)",
                context_label(context),
                thousands(text.len() as u64),
                thousands(tokens)
            ));
        }
        keep(prompts, context, text, tokens, by);
    }
}

fn keep(prompts: &mut Prompts, context: u32, text: String, tokens: u64, by: CountedBy) {
    let entry = ContextText { context_tokens: context, chars: text.len(), prompt_tokens: tokens, counted_by: by, text };
    prompts.texts.insert(context, entry);
}

fn close_enough(context: u32) -> u64 {
    CLOSE_TOKENS.max(u64::from(context) / CLOSE_SHARE)
}

fn warn_if_off(warnings: &mut Vec<String>, context: u32, tokens: u64) {
    if tokens.abs_diff(u64::from(context)) > close_enough(context) {
        warnings.push(format!("the prompt of context {} has {tokens} tokens: no closer length was found", context_label(context)));
    }
}

/// With the longest ending that a stream could have, about.
fn with_ending(shared: &str) -> String {
    format!("{shared}{}", ending(1, 1))
}

async fn by_tokenize(target: &Target, content: &str) -> Result<u64, String> {
    let body = json!({
        "model": target.model,
        "messages": [{"role": "user", "content": content}],
    });
    let answer = post(target, "/tokenize", &body).await?;
    answer["count"].as_u64().filter(|n| *n > 0).ok_or_else(|| "its answer has no count".to_owned())
}

async fn by_probe(target: &Target, content: &str) -> Result<u64, String> {
    let body = json!({
        "model": target.model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 1,
    });
    let answer = post(target, CHAT_PATH, &body).await?;
    answer["usage"]["prompt_tokens"].as_u64().filter(|n| *n > 0).ok_or_else(|| "its answer has no prompt_tokens".to_owned())
}

async fn post(target: &Target, path: &str, body: &Value) -> Result<Value, String> {
    let call = target.client.post(target.address.url(path));
    let words = |e: reqwest::Error| crate::target::root_cause(&e);
    let answer = call.json(body).timeout(LIMIT).send().await.map_err(words)?;
    if !answer.status().is_success() {
        return Err(format!("HTTP {}", answer.status().as_u16()));
    }
    let bytes = crate::target::body_of(answer).await?;
    serde_json::from_slice(&bytes).map_err(|_| "its answer is no JSON".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::cell::Cell;

    fn prompts() -> Prompts {
        Prompts {
            run_id: "abcdefghijkl".into(),
            seed: 1,
            chars_per_token: None,
            overhead_tokens: None,
            startup_lines: vec!["calibrating".into()],
            warnings: Vec::new(),
            texts: BTreeMap::new(),
        }
    }

    /// A tokenizer that splits long words, with a template of 17 tokens.
    fn tokens_of(text: &str) -> u64 {
        let pieces = text.split_whitespace().map(|w| w.len().div_ceil(5) as u64);
        17 + pieces.sum::<u64>()
    }

    #[tokio::test]
    async fn prompts_come_within_the_bound_in_few_questions() {
        let contexts = [0, 512, 8_192, 32_768, 131_072];
        let filler = prose(1, 8 * 131_072);
        let calls = Cell::new(0);
        let mut p = prompts();
        let count = async |text: &str| {
            calls.set(calls.get() + 1);
            Ok(tokens_of(text))
        };
        fit_all(&mut p, &contexts, &filler, count).await.unwrap();
        for context in contexts.into_iter().filter(|c| *c > 0) {
            let got = p.context(context).unwrap().prompt_tokens;
            let off = got.abs_diff(u64::from(context));
            assert!(off <= close_enough(context), "{context}: {got}");
        }
        assert!(calls.get() <= 13, "{} questions", calls.get());
        assert!(p.warnings.is_empty());
        assert_eq!(p.overhead_tokens, Some(p.context(0).unwrap().prompt_tokens));
    }

    #[tokio::test]
    async fn without_tokenize_two_probes_give_the_line() {
        let contexts = [0, 32_768];
        let filler = prose(1, 8 * 32_768);
        let calls = Cell::new(0);
        let mut p = prompts();
        let count = async |text: &str| {
            calls.set(calls.get() + 1);
            Ok(tokens_of(text))
        };
        by_probes(&mut p, &contexts, &filler, count).await;
        assert_eq!(calls.get(), 2);
        let text = p.context(32_768).unwrap();
        assert_eq!(text.counted_by, CountedBy::ProbeRatio);
        let real = tokens_of(&with_ending(&text.text));
        assert!(real.abs_diff(32_768) < 330, "within 1 %: {real}");
    }

    #[tokio::test]
    async fn a_server_that_tells_nothing_gets_assumed_lengths_and_a_warning() {
        let mut p = prompts();
        let count = async |_: &str| Err("HTTP 404".to_owned());
        by_probes(&mut p, &[0, 1024], &prose(1, 10_000), count).await;
        assert_eq!(p.context(1024).unwrap().counted_by, CountedBy::Assumed);
        assert!(p.warnings[0].contains("HTTP 404"));
        assert_eq!(p.chars_per_token, None);
    }

    #[tokio::test]
    async fn a_count_that_never_moves_ends_and_is_said() {
        let mut p = prompts();
        let count = async |_: &str| Ok(40);
        fit_all(&mut p, &[4096], &prose(1, 40_000), count).await.unwrap();
        assert!(p.warnings[0].contains("no closer length"));
    }
}
