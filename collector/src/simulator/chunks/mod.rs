//! Answers: the text of the simulated tokens and the shape each server gives them, as a stream of
//! server-sent events (one an HTTP chunk) or in one piece. Bytes only; the driver sends them.

use std::io::Write as _;

use serde_json::json;

use super::engine::{Emission, Finish};
use super::http::{self, Response};
use super::model::{Flavour, Settings};
use super::tokens::mix;

mod llama_cpp;

/// Each is one token with the space before it.
const WORDS: [&str; 64] = [
    "amber", "arch", "atlas", "axis", "basin", "birch", "blue", "bolt", "brass", "brook", "cabin", "cedar", "chalk", "clay", "cliff",
    "cloud", "coal", "copse", "crane", "creek", "delta", "dune", "dusk", "east", "elm", "ember", "fern", "field", "flint", "ford", "frost",
    "gale", "glass", "grain", "grove", "gulf", "haze", "heath", "hill", "iron", "isle", "ivy", "kelp", "lake", "larch", "lime", "marsh",
    "mesa", "mist", "moss", "north", "oak", "opal", "peak", "pine", "quay", "reed", "ridge", "sand", "slate", "spur", "stone", "tide",
    "vale",
];

/// The sentence of a loop; each is one token.
const REPEATED: [&str; 12] = [" The", " ferry", " goes", " on", " to", " the", " same", " shore", " every", " day", " again", "."];

/// Who answers and for whom; the same in all chunks.
#[derive(Debug)]
pub(crate) struct Answer {
    flavour: Flavour,
    stream: bool,
    include_usage: bool,
    continuous_usage: bool,
    prompt_tokens_details: bool,
    reasoning_share: f64,
    empty_share: f64,
    repeat_text: bool,
    /// Id and model are JSON strings, quotes included.
    id: String,
    created: u64,
    model: String,
    /// How every event begins; llama.cpp's: how it ends.
    open: String,
    /// What stands around the text of a delta, and around its usage: built once, not for each token.
    content_delta: Around,
    reasoning_delta: Around,
    usage: Around,
    prompt_tokens: u32,
    rng: fastrand::Rng,
    generated: u32,
    /// Half a character is held back.
    half: bool,
    /// The text at hand; kept for its memory.
    text: String,
    reasoning: String,
    content: String,
    keep_alive: bool,
}

/// The parts of an event before and after what changes.
#[derive(Debug)]
struct Around {
    before: String,
    after: &'static str,
}

impl Answer {
    pub(crate) fn new(settings: &Settings, request: &super::openai::ChatRequest, id: &str, key: u64, keep_alive: bool) -> Self {
        let (id, created, model) = (json!(id).to_string(), super::clock::unix_s() as u64, json!(settings.model).to_string());
        let open = match settings.flavour {
            Flavour::LlamaCpp => llama_cpp::tail(&id, created, &model),
            _ => format!(r#"data: {{"id":{id},"object":"chat.completion.chunk","created":{created},"model":{model},"#),
        };
        let prompt_tokens = request.prompt.tokens;
        Self {
            flavour: settings.flavour,
            stream: request.stream,
            include_usage: request.include_usage,
            continuous_usage: request.continuous_usage && matches!(settings.flavour, Flavour::Vllm | Flavour::Sglang),
            prompt_tokens_details: settings.prompt_tokens_details,
            reasoning_share: settings.reasoning_share,
            empty_share: settings.empty_share,
            repeat_text: settings.quirks.repeat_text,
            id,
            created,
            model,
            content_delta: delta(settings.flavour, &open, false),
            reasoning_delta: delta(settings.flavour, &open, true),
            usage: Around {
                before: format!(r#","usage":{{"prompt_tokens":{prompt_tokens},"total_tokens":"#),
                after: match settings.flavour {
                    Flavour::Sglang => r#","prompt_tokens_details":null}"#,
                    _ => r#","completion_tokens_details":null}"#,
                },
            },
            open,
            prompt_tokens,
            rng: fastrand::Rng::with_seed(mix(settings.seed ^ mix(key ^ 0x7e47))),
            generated: 0,
            half: false,
            text: String::new(),
            reasoning: String::new(),
            content: String::new(),
            keep_alive,
        }
    }

    /// How it was asked for: what makes answers of the same lengths differ in their bytes' number.
    pub(crate) fn kind(&self) -> [bool; 3] {
        [self.stream, self.include_usage, self.continuous_usage]
    }

    /// What is sent before the first token: a stream's headers.
    pub(crate) fn head(&self, out: &mut Vec<u8>) {
        if self.stream {
            http::stream_head(out, self.flavour, self.keep_alive);
        }
    }

    /// Appends what these tokens put on the wire.
    pub(crate) fn emit(&mut self, emission: &Emission, out: &mut Vec<u8>) {
        if self.stream && self.flavour == Flavour::LlamaCpp {
            return self.llama_events(emission, out);
        }
        let first = self.generated == 0;
        let reasoning = self.is_reasoning(emission.planned_tokens);
        let text = self.next_text(emission.tokens, emission.planned_tokens);
        self.generated += emission.tokens;
        if !self.stream {
            let whole = if reasoning { &mut self.reasoning } else { &mut self.content };
            whole.push_str(&text);
            if emission.finish.is_some() {
                self.whole(emission, out);
            }
        } else {
            if first {
                http::chunk_of(out, |out| self.role(out));
            }
            // A proxy hands on only what says something.
            if self.flavour != Flavour::Proxy || !text.is_empty() {
                http::chunk_of(out, |out| self.delta(&text, reasoning, emission, out));
            }
            if emission.finish.is_some() {
                self.last(emission, out);
                http::chunk(out, b"data: [DONE]\n\n");
                http::last_chunk(out);
            }
        }
        self.text = text;
    }

    /// Whether the next token belongs to the reasoning.
    fn is_reasoning(&self, planned_tokens: u32) -> bool {
        f64::from(self.generated) < (self.reasoning_share * f64::from(planned_tokens)).floor()
    }

    /// The tokens' text. A token of half a character adds nothing, the next one the whole of it.
    fn next_text(&mut self, tokens: u32, planned_tokens: u32) -> String {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        for token in 0..tokens {
            let at = self.generated + token;
            if self.repeat_text {
                text.push_str(REPEATED[at as usize % REPEATED.len()]);
                continue;
            }
            let inside = at > 0 && at + 1 < planned_tokens;
            if inside && !self.half && self.rng.f64() < self.empty_share {
                self.half = true;
                continue;
            }
            if std::mem::take(&mut self.half) {
                text.push('\u{fffd}');
            }
            text.push(' ');
            text.push_str(WORDS[self.rng.usize(..WORDS.len())]);
        }
        text
    }

    fn role(&self, out: &mut Vec<u8>) {
        put(out, &self.open);
        put(
            out,
            match self.flavour {
                Flavour::Vllm => {
                    r#""choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]"#
                }
                Flavour::Sglang => {
                    r#""choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}]"#
                }
                Flavour::Proxy | Flavour::LlamaCpp => r#""choices":[{"index":0,"delta":{"role":"assistant","content":""}}]"#,
            },
        );
        self.running_usage(0, out);
        if self.flavour == Flavour::Vllm {
            put(out, r#","prompt_token_ids":null,"prompt_text":null"#);
        }
        put(out, "}\n\n");
    }

    fn delta(&self, text: &str, reasoning: bool, emission: &Emission, out: &mut Vec<u8>) {
        let around = if reasoning { &self.reasoning_delta } else { &self.content_delta };
        put(out, &around.before);
        // The words hold nothing that JSON would have to escape.
        put(out, text);
        put(out, around.after);
        if self.flavour == Flavour::Vllm {
            match emission.finish {
                None => put(out, r#""finish_reason":null,"token_ids":null}]"#),
                Some(finish) => {
                    put(out, r#""finish_reason":""#);
                    put(out, finish.name());
                    put(out, r#"","stop_reason":null,"token_ids":null}]"#);
                }
            }
        }
        self.running_usage(self.generated, out);
        if self.flavour == Flavour::Vllm && emission.finish.is_some() && !self.include_usage {
            put(out, FINGERPRINT);
        }
        put(out, "}\n\n");
    }

    fn running_usage(&self, completion: u32, out: &mut Vec<u8>) {
        if self.continuous_usage {
            put(out, &self.usage.before);
            put_number(out, self.prompt_tokens + completion);
            put(out, r#","completion_tokens":"#);
            put_number(out, completion);
            put(out, self.usage.after);
        } else if self.flavour == Flavour::Sglang {
            put(out, r#","usage":null"#);
        }
    }

    /// Ends the answer before its time.
    pub(crate) fn abort(&mut self, cached_tokens: u32, out: &mut Vec<u8>) {
        let emission = Emission { cached_tokens, finish: Some(Finish::Abort), ..Emission::default() };
        if !self.stream {
            return self.whole(&emission, out);
        }
        if self.generated == 0 {
            http::chunk_of(out, |out| self.role(out));
        }
        self.last(&emission, out);
        http::chunk(out, b"data: [DONE]\n\n");
        http::last_chunk(out);
    }

    /// What follows the last text: the finish reason where it has an event of its own, and usage.
    fn last(&self, emission: &Emission, out: &mut Vec<u8>) {
        let finish = emission.finish.map_or("stop", super::engine::Finish::name);
        let cached = emission.cached_tokens;
        let (prompt, completion) = (self.prompt_tokens, self.generated);
        let total = prompt + completion;
        let open = match self.flavour {
            Flavour::Vllm | Flavour::Sglang | Flavour::LlamaCpp => &self.open,
            // As recorded, these two events have their keys in another order.
            Flavour::Proxy => &format!(
                r#"data: {{"id":{},"created":{},"model":{},"object":"chat.completion.chunk"{FINGERPRINT},"#,
                self.id, self.created, self.model
            ),
        };
        match self.flavour {
            Flavour::Vllm | Flavour::LlamaCpp => {}
            Flavour::Sglang => http::chunk_of(out, |out| {
                put(out, open);
                put(
                    out,
                    r#""choices":[{"index":0,"delta":{"role":null,"content":null,"reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":""#,
                );
                put(out, finish);
                put(out, r#"","matched_stop":null}]"#);
                self.running_usage(completion, out);
                put(out, "}\n\n");
            }),
            Flavour::Proxy => {
                http::chunk(
                    out,
                    format!("{open}\"choices\":[{{\"finish_reason\":\"{finish}\",\"index\":0,\"delta\":{{}}}}]}}\n\n").as_bytes(),
                );
            }
        }
        if !self.include_usage {
            return;
        }
        http::chunk_of(out, |out| {
            put(out, open);
            // Writing to a Vec cannot fail.
            let _ = match self.flavour {
                Flavour::Vllm => write!(
                    out,
                    r#""choices":[],"usage":{{"prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens":{completion}{}}}{FINGERPRINT}"#,
                    match self.prompt_tokens_details {
                        true => format!(r#","prompt_tokens_details":{{"cached_tokens":{cached},"created_cache_tokens":0}}"#),
                        false => String::new(),
                    }
                ),
                Flavour::Sglang => write!(
                    out,
                    r#""choices":[],"usage":{{"prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens":{completion},"prompt_tokens_details":{}}}"#,
                    match self.prompt_tokens_details {
                        true => format!(r#"{{"cached_tokens":{cached}}}"#),
                        false => "null".to_owned(),
                    }
                ),
                Flavour::Proxy | Flavour::LlamaCpp => write!(
                    out,
                    r#""choices":[{{"index":0,"delta":{{}}}}],"usage":{{"completion_tokens":{completion},"prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens_details":{{"reasoning_tokens":0,"text_tokens":{completion}}},"prompt_tokens_details":{{"cached_tokens":{cached},"created_cache_tokens":0}}}}"#
                ),
            };
            put(out, "}\n\n");
        });
    }

    /// The answer in one piece.
    fn whole(&self, emission: &Emission, out: &mut Vec<u8>) {
        let finish = emission.finish.map(super::engine::Finish::name);
        let reasoning = Some(&self.reasoning).filter(|text| !text.is_empty());
        let (content, prompt, completion) = (&self.content, self.prompt_tokens, self.generated);
        let total = prompt + completion;
        let cached = json!({"cached_tokens": emission.cached_tokens});
        let details = Some(cached).filter(|_| self.prompt_tokens_details || self.flavour == Flavour::Proxy);
        let value = |text| serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
        let (id, created, model) = (value(&self.id), self.created, value(&self.model));
        let body = match self.flavour {
            Flavour::Vllm => json!({
                "id": id, "object": "chat.completion", "created": created, "model": model,
                "choices": [{"index": 0, "message": {
                    "role": "assistant", "content": content, "refusal": null, "annotations": null,
                    "audio": null, "function_call": null, "reasoning": reasoning,
                }, "logprobs": null, "finish_reason": finish, "stop_reason": null,
                "token_ids": null, "routed_experts": null}],
                "service_tier": null, "system_fingerprint": "vllm-0.32.0-simulated",
                "usage": {"prompt_tokens": prompt, "total_tokens": total,
                    "completion_tokens": completion, "prompt_tokens_details": details,
                    "completion_tokens_details": null},
                "prompt_logprobs": null, "prompt_token_ids": null, "prompt_text": null,
                "kv_transfer_params": null, "ec_transfer_params": null, "metrics": null,
            }),
            Flavour::Sglang => json!({
                "id": id, "object": "chat.completion", "created": created, "model": model,
                "choices": [{"index": 0, "message": {"role": "assistant", "content": content,
                    "reasoning_content": reasoning, "tool_calls": null},
                    "logprobs": null, "finish_reason": finish, "matched_stop": null}],
                "usage": {"prompt_tokens": prompt, "total_tokens": total,
                    "completion_tokens": completion, "prompt_tokens_details": details},
            }),
            Flavour::LlamaCpp => self.llama_whole(&id, &model, emission),
            Flavour::Proxy => json!({
                "id": id, "created": created, "model": model, "object": "chat.completion",
                "system_fingerprint": "vllm-0.32.0-simulated",
                "choices": [{"finish_reason": finish, "index": 0, "message": {
                    "content": content, "role": "assistant",
                    "provider_specific_fields": {"reasoning": reasoning}, "refusal": null},
                    "provider_specific_fields": {"token_ids": null, "routed_experts": null,
                        "stop_reason": null}, "logprobs": null}],
                "usage": {"completion_tokens": completion, "prompt_tokens": prompt,
                    "total_tokens": total, "prompt_tokens_details": details},
            }),
        };
        Response::json(200, &body).write(out, self.flavour, self.keep_alive);
    }
}

/// What stands around the text of a delta.
fn delta(flavour: Flavour, open: &str, reasoning: bool) -> Around {
    let (before, after) = match (flavour, reasoning) {
        (Flavour::LlamaCpp, _) => return llama_cpp::delta(reasoning),
        (Flavour::Vllm, false) => (r#""delta":{"content":""#, r#""},"logprobs":null,"#),
        (Flavour::Vllm, true) => (r#""delta":{"reasoning":""#, r#""},"logprobs":null,"#),
        (Flavour::Sglang, false) => (
            r#""delta":{"role":null,"content":""#,
            r#"","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}]"#,
        ),
        (Flavour::Sglang, true) => (
            r#""delta":{"role":null,"content":null,"reasoning_content":""#,
            r#"","tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}]"#,
        ),
        (Flavour::Proxy, false) => (r#""delta":{"content":""#, r#""}}]"#),
        (Flavour::Proxy, true) => (r#""delta":{"reasoning_content":""#, r#""}}]"#),
    };
    Around { before: format!(r#"{open}"choices":[{{"index":0,{before}"#), after }
}

fn put(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

/// A number in decimal. The formatting of the standard library would be a third of an event's cost.
fn put_number(out: &mut Vec<u8>, mut number: u32) {
    let mut digits = [0; 10];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

const FINGERPRINT: &str = r#","system_fingerprint":"vllm-0.32.0-simulated""#;

#[cfg(test)]
mod tests;
