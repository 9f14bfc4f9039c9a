//! Making prompts of the wanted number of tokens: by the server's `/tokenize` where it agrees with the server's own
//! usage, else by asking for one token and reading how many the prompt had. A short piece tells about how many
//! characters make a token; each context is then counted at its full length, and once more where that was off.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::text::Document;
use super::{CHAT_PATH, ContextText, CountedBy, Dataset, Lengths, PromptMode, Prompts, Tag, close_enough, ending, new_run_id, prose};
use crate::event::context_label;
use crate::plan::MIN_OUTPUT_TOKENS;
use crate::target::{Target, Tokenize, thousands};

const LIMIT: Duration = Duration::from_secs(120);
/// Counts of one context at most: a call each to `/tokenize`, a prefill each by probe.
const MOST_CALLS: u32 = 4;
const MOST_PROBES: u32 = 2;
const ASSUMED_CHARS_PER_TOKEN: f64 = 4.5;
const ASSUMED_OVERHEAD: u64 = 90;
/// The piece by which the ratio is learnt, tokens.
const PIECE: u32 = 512;
/// More than tokenizers make of it for one token.
const MOST_CHARS_PER_TOKEN: usize = 10;
/// Texts of their own counted beside the first, where each stream has one.
const SAMPLE: u32 = 2;
const SAMPLE_BY_PROBE: u32 = 1;

/// Which prompts are wanted.
#[derive(Clone, Debug)]
pub struct PromptOptions {
    /// Context lengths, tokens.
    pub contexts: Vec<u32>,
    /// Seed of the text.
    pub seed: u64,
    /// How the prompts of a cell relate.
    pub mode: PromptMode,
}

/// Tokens as a straight line over characters.
#[derive(Clone, Copy, Debug)]
struct Line {
    overhead: f64,
    tokens_per_char: f64,
}

impl Line {
    fn chars(self, tokens: f64) -> usize {
        // Negative becomes 0: the context is shorter than template and task.
        ((tokens - self.overhead) / self.tokens_per_char).round().max(0.0) as usize
    }

    fn tokens(self, chars: usize) -> u64 {
        (self.overhead + self.tokens_per_char * chars as f64).round() as u64
    }

    /// The same line with the slope that this count shows; one that makes no sense is not followed.
    fn through(self, chars: usize, tokens: u64) -> Self {
        let slope = (tokens as f64 - self.overhead) / chars as f64;
        if slope.is_finite() && slope > 0.01 { Self { tokens_per_char: slope, ..self } } else { self }
    }
}

/// Shared prompts for these contexts, as [`make`] makes them.
pub async fn calibrate(target: &Target, contexts: &[u32], seed: u64) -> Prompts {
    make(target, &PromptOptions { contexts: contexts.to_vec(), seed, mode: PromptMode::Shared }).await
}

/// Makes the prompts of a run. What the server does not tell is reckoned, and a warning says so; it never fails.
pub async fn make(target: &Target, options: &PromptOptions) -> Prompts {
    let mut prompts = Prompts::begin(options, new_run_id());
    let longest = target.max_model_len();
    let probe = async |text: &str| by_probe(target, text).await;
    if target.tokenize == Tokenize::Chat {
        let tokenize = async |text: &str| by_tokenize(target, text).await;
        match prompts.by_tokenize(&options.contexts, longest, &tokenize, &probe).await {
            Ok(()) => return prompts,
            Err(reason) => prompts.warnings.push(format!("/tokenize can't be used ({reason}); prompts are sized by probes")),
        }
    }
    prompts.by_probes(&options.contexts, longest, &probe).await;
    prompts
}

/// Prompts of one's own. What is made beside them warms the server up and has no wanted length; only how long the
/// longest of them are is asked, where the server can say so.
pub async fn own(target: &Target, dataset: &Dataset, seed: u64) -> Prompts {
    let options = PromptOptions { contexts: vec![0], seed, mode: PromptMode::Shared };
    let mut prompts = Prompts::begin(&options, new_run_id());
    let text = prompts.reckoned(0);
    prompts.texts.insert(0, text);
    prompts.startup_lines =
        vec![format!("prompts of --dataset run={} {} of {}", prompts.run_id, thousands(dataset.len() as u64), dataset.file().display())];
    let longest = longest_of(target, dataset).await;
    if let Some(limit) = target.max_model_len().filter(|limit| longest.1.is_count() && longest.0 + MIN_OUTPUT_TOKENS > *limit) {
        prompts.warnings.push(format!(
            "the longest prompt of --dataset has {} tokens and leaves no room for an answer: the model's limit is {} tokens, and the \
             server will refuse what does not fit",
            thousands(longest.0),
            thousands(limit)
        ));
    }
    prompts.longest_own = Some(longest);
    prompts.dataset = Some(dataset.clone());
    prompts
}

/// The most tokens that a prompt of the file has: of the longest texts by `/tokenize`, else reckoned from their bytes.
async fn longest_of(target: &Target, dataset: &Dataset) -> (u64, CountedBy) {
    const ASKED: usize = 3;
    // Fewer than most languages have, so that the answer is rather too short than refused.
    const BYTES_PER_TOKEN: u64 = 3;
    let longest = dataset.longest(ASKED);
    let mut most = None;
    for messages in longest.iter().filter(|_| target.tokenize == Tokenize::Chat) {
        match tokens_of(target, messages).await {
            Ok(tokens) => most = most.max(Some(tokens)),
            Err(_) => break,
        }
    }
    let bytes = longest.first().map_or(0, |messages| messages.to_string().len() as u64);
    most.map_or((bytes / BYTES_PER_TOKEN, CountedBy::Assumed), |tokens| (tokens, CountedBy::Tokenize))
}

/// How contexts are counted.
#[derive(Clone, Copy, Debug)]
struct Counting {
    by: CountedBy,
    most_calls: u32,
    sample: u32,
}

impl Prompts {
    pub(super) fn begin(options: &PromptOptions, run_id: String) -> Self {
        let largest = options.contexts.iter().copied().max().unwrap_or(0);
        Self {
            startup_lines: vec![format!("calibrating padding text run={run_id} up_to={}", context_label(largest))],
            run_id,
            seed: options.seed,
            mode: options.mode,
            chars_per_token: None,
            overhead_tokens: None,
            warnings: Vec::new(),
            dataset: None,
            longest_own: None,
            filler: prose(options.seed, MOST_CHARS_PER_TOKEN * largest.max(4096) as usize).into(),
            texts: BTreeMap::new(),
        }
    }

    /// Every context by `/tokenize`.
    async fn by_tokenize(
        &mut self,
        contexts: &[u32],
        longest: Option<u64>,
        tokenize: &impl AsyncFn(&str) -> Result<u64, String>,
        probe: &impl AsyncFn(&str) -> Result<u64, String>,
    ) -> Result<(), String> {
        let (line, piece, counted) = self.learn(tokenize).await?;
        // The server's own count is the truth, where it tells: a tokenizer beside it may leave out the template.
        if let Ok(told) = probe(&piece).await
            && told != counted
        {
            return Err(format!("it counts {counted} tokens where the server's usage has {told}"));
        }
        self.learnt(line);
        self.startup_lines.push("token targeting: /tokenize exact".to_owned());
        let counting = Counting { by: CountedBy::Tokenize, most_calls: MOST_CALLS, sample: SAMPLE };
        self.fit_all(contexts, longest, line, counting, tokenize).await;
        Ok(())
    }

    /// Every context by requests for one token.
    async fn by_probes(&mut self, contexts: &[u32], longest: Option<u64>, probe: &impl AsyncFn(&str) -> Result<u64, String>) {
        match self.learn(probe).await {
            Ok((line, _, _)) => {
                self.learnt(line);
                let label = context_label(PIECE);
                let ratio = 1.0 / line.tokens_per_char;
                self.startup_lines.push(format!("token targeting: estimate from {label}"));
                self.startup_lines.push(format!("calibrated: {ratio:.2} chars/token (from {label} probe)"));
                let counting = Counting { by: CountedBy::Probe, most_calls: MOST_PROBES, sample: SAMPLE_BY_PROBE };
                self.fit_all(contexts, longest, line, counting, probe).await;
            }
            Err(reason) => {
                self.warnings.push(format!(
                    "the server does not tell how long prompts are ({reason}); {ASSUMED_CHARS_PER_TOKEN} characters a token are assumed"
                ));
                for &context in contexts {
                    let text = self.reckoned(context);
                    self.keep(text);
                }
            }
        }
    }

    /// An empty prompt and a short piece: the line of the tokenizer, the piece, and its count.
    async fn learn(&self, count: &impl AsyncFn(&str) -> Result<u64, String>) -> Result<(Line, String, u64), String> {
        let tag = if self.mode == PromptMode::Distinct { lone(0) } else { Tag::Probe(0) };
        let overhead = count(&self.counted(tag, 0, &Document::default())).await?;
        let document = Document::new(&self.filler, (f64::from(PIECE) * ASSUMED_CHARS_PER_TOKEN) as usize);
        let piece = self.counted(tag, PIECE, &document);
        let tokens = count(&piece).await?;
        let assumed = Line { overhead: overhead as f64, tokens_per_char: 1.0 / ASSUMED_CHARS_PER_TOKEN };
        Ok((assumed.through(document.chars(), tokens), piece, tokens))
    }

    fn learnt(&mut self, line: Line) {
        self.overhead_tokens = Some(line.overhead.round() as u64);
        self.chars_per_token = Some(1.0 / line.tokens_per_char);
    }

    async fn fit_all(
        &mut self,
        contexts: &[u32],
        longest: Option<u64>,
        mut line: Line,
        counting: Counting,
        count: &impl AsyncFn(&str) -> Result<u64, String>,
    ) {
        for &context in contexts {
            let overhead = line.overhead.round() as u64;
            let short = u64::from(context) <= overhead;
            // What the server can't hold is left out of the plan, and needs no exact length.
            if short || longest.is_some_and(|longest| u64::from(context) >= longest) {
                let mut text = self.reckoned(context);
                if short {
                    text.counted_by = counting.by;
                }
                if short && context > 0 {
                    self.warnings.push(format!(
                        "context {} is shorter than template and task alone: its prompts have {overhead} tokens",
                        context_label(context)
                    ));
                }
                self.keep(text);
                continue;
            }
            let text = match self.fit(context, &mut line, counting, count).await {
                Ok(text) => text,
                Err(reason) => {
                    self.warnings
                        .push(format!("the length of context {} could not be checked ({reason}) and is reckoned", context_label(context)));
                    self.reckoned(context)
                }
            };
            self.chars_per_token = Some(1.0 / line.tokens_per_char);
            self.warn_if_off(&text);
            self.keep(text);
        }
    }

    /// One context. Improves `line` on the way, so that the next one needs fewer calls.
    async fn fit(
        &self,
        context: u32,
        line: &mut Line,
        counting: Counting,
        count: &impl AsyncFn(&str) -> Result<u64, String>,
    ) -> Result<ContextText, String> {
        let tag = match (self.mode, counting.by) {
            (PromptMode::Distinct, _) => lone(0),
            // A tag of its own: no context's text is in the cache before it is measured.
            (_, CountedBy::Probe) => Tag::Probe(0),
            _ => Tag::Shared,
        };
        // Room for what other tags and endings differ by, where counting costs nothing.
        let may_differ = if counting.by == CountedBy::Probe { close_enough(context) } else { close_enough(context) / 2 };
        let mut chars = line.chars(f64::from(context));
        let mut best: Option<(Document, u64)> = None;
        for _ in 0..counting.most_calls {
            let document = Document::new(&self.filler, chars);
            let tokens = count(&self.counted(tag, context, &document)).await?;
            *line = line.through(document.chars(), tokens);
            let off = |tokens: u64| tokens.abs_diff(u64::from(context));
            if best.as_ref().is_none_or(|(_, t)| off(tokens) < off(*t)) {
                best = Some((document, tokens));
            }
            // By the slope, from what was found: the line itself may not go through this point.
            let more = (f64::from(context) - tokens as f64) / line.tokens_per_char;
            let next = (chars as f64 + more).round().max(0.0) as usize;
            if off(tokens) <= may_differ || next == chars {
                break;
            }
            chars = next;
        }
        let (document, tokens) = best.ok_or_else(|| "nothing was counted".to_owned())?;
        let mut text = ContextText {
            context_tokens: context,
            chars: document.chars(),
            prompt_tokens: tokens,
            counted_by: counting.by,
            sample: None,
            document: Arc::new(document),
        };
        text.sample = self.sample(&text, counting, count).await?;
        Ok(text)
    }

    /// Where each stream has a text of its own, some of those: whether they have as many tokens.
    async fn sample(
        &self,
        text: &ContextText,
        counting: Counting,
        count: &impl AsyncFn(&str) -> Result<u64, String>,
    ) -> Result<Option<Lengths>, String> {
        if self.mode != PromptMode::Distinct {
            return Ok(None);
        }
        let mut counts = vec![text.prompt_tokens];
        for n in 1..=counting.sample {
            counts.push(count(&self.counted(lone(n), text.context_tokens, &text.document)).await?);
        }
        Ok(Lengths::of(counts, text.context_tokens.into()))
    }

    /// A context by what is known of others.
    pub(super) fn reckoned(&self, context: u32) -> ContextText {
        let line = Line {
            overhead: self.overhead_tokens.unwrap_or(ASSUMED_OVERHEAD) as f64,
            tokens_per_char: 1.0 / self.chars_per_token.unwrap_or(ASSUMED_CHARS_PER_TOKEN),
        };
        let document = Document::new(&self.filler, line.chars(f64::from(context)));
        let counted_by = if self.overhead_tokens.is_some() { CountedBy::ProbeRatio } else { CountedBy::Assumed };
        ContextText {
            context_tokens: context,
            chars: document.chars(),
            prompt_tokens: line.tokens(document.chars()),
            counted_by,
            sample: None,
            document: Arc::new(document),
        }
    }

    /// A prompt as it is counted, with an ending as long as a stream's.
    fn counted(&self, tag: Tag, context: u32, document: &Document) -> String {
        format!("{}{}", document.plain(&self.place(tag, context)), ending(1, 1, 1))
    }

    fn keep(&mut self, text: ContextText) {
        let (context, tokens) = (text.context_tokens, thousands(text.prompt_tokens));
        if context > 0 {
            let how = if text.counted_by == CountedBy::Tokenize {
                format!("{tokens} prompt tokens via /tokenize")
            } else {
                format!("~{tokens} tokens")
            };
            let chars = thousands(text.chars as u64);
            self.startup_lines.push(format!("context {}: {chars} chars ({how})", context_label(context)));
        }
        self.texts.insert(context, text);
    }

    fn warn_if_off(&mut self, text: &ContextText) {
        let (context, tokens) = (text.context_tokens, text.prompt_tokens);
        if tokens.abs_diff(context.into()) > close_enough(context) {
            let label = context_label(context);
            self.warnings.push(format!("the prompt of context {label} has {tokens} tokens: no closer length was found"));
        }
        self.warnings.extend(text.sample.and_then(|sample| sample.warning(context, context.into())));
    }
}

/// A text as no stream of any cell has it.
fn lone(n: u32) -> Tag {
    Tag::Own { cell: Tag::AHEAD, stream: Tag::AHEAD, ordinal: n }
}

async fn by_tokenize(target: &Target, content: &str) -> Result<u64, String> {
    tokens_of(target, &json!([{"role": "user", "content": content}])).await
}

async fn tokens_of(target: &Target, messages: &Value) -> Result<u64, String> {
    let body = json!({"model": target.model, "messages": messages});
    let answer = post(target, "/tokenize", &body).await?;
    answer["count"].as_u64().filter(|n| *n > 0).ok_or_else(|| "its answer has no count".to_owned())
}

async fn by_probe(target: &Target, content: &str) -> Result<u64, String> {
    let mut body = json!({
        "model": target.model,
        "messages": [{"role": "user", "content": content}],
    });
    body[target.accepted.max_tokens_name] = 1.into();
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
mod tests;
