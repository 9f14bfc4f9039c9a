//! Answers: the text of the simulated tokens and the shape each server gives them, as a stream of
//! server-sent events (one an HTTP chunk) or in one piece. Bytes only; the driver sends them.

use std::fmt::Write as _;

use serde_json::json;

use super::engine::Emission;
use super::http::{self, Response};
use super::model::{Flavour, Settings};
use super::tokens::mix;

/// Each is one token with the space before it.
const WORDS: [&str; 64] = [
    "amber", "arch", "atlas", "axis", "basin", "birch", "blue", "bolt", "brass", "brook", "cabin", "cedar", "chalk", "clay", "cliff",
    "cloud", "coal", "copse", "crane", "creek", "delta", "dune", "dusk", "east", "elm", "ember", "fern", "field", "flint", "ford", "frost",
    "gale", "glass", "grain", "grove", "gulf", "haze", "heath", "hill", "iron", "isle", "ivy", "kelp", "lake", "larch", "lime", "marsh",
    "mesa", "mist", "moss", "north", "oak", "opal", "peak", "pine", "quay", "reed", "ridge", "sand", "slate", "spur", "stone", "tide",
    "vale",
];

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
    /// Id and model are JSON strings, quotes included.
    id: String,
    created: u64,
    model: String,
    prompt_tokens: u32,
    rng: fastrand::Rng,
    generated: u32,
    /// Half a character is held back.
    half: bool,
    reasoning: String,
    content: String,
    keep_alive: bool,
}

impl Answer {
    pub(crate) fn new(settings: &Settings, request: &super::openai::ChatRequest, id: &str, key: u64, keep_alive: bool) -> Self {
        Self {
            flavour: settings.flavour,
            stream: request.stream,
            include_usage: request.include_usage,
            continuous_usage: request.continuous_usage && settings.flavour != Flavour::Proxy,
            prompt_tokens_details: settings.prompt_tokens_details,
            reasoning_share: settings.reasoning_share,
            empty_share: settings.empty_share,
            id: json!(id).to_string(),
            created: super::clock::unix_s() as u64,
            model: json!(settings.model).to_string(),
            prompt_tokens: request.prompt.tokens,
            rng: fastrand::Rng::with_seed(mix(settings.seed ^ mix(key ^ 0x7e47))),
            generated: 0,
            half: false,
            reasoning: String::new(),
            content: String::new(),
            keep_alive,
        }
    }

    /// What is sent before the first token: a stream's headers.
    pub(crate) fn head(&self, out: &mut Vec<u8>) {
        if self.stream {
            http::stream_head(out, self.flavour, self.keep_alive);
        }
    }

    /// Appends what these tokens put on the wire.
    pub(crate) fn emit(&mut self, emission: &Emission, out: &mut Vec<u8>) {
        let first = self.generated == 0;
        let share = self.reasoning_share * f64::from(emission.planned_tokens);
        let reasoning = f64::from(self.generated) < share.floor();
        let text = self.text(emission);
        self.generated += emission.tokens;
        if !self.stream {
            let whole = if reasoning { &mut self.reasoning } else { &mut self.content };
            whole.push_str(&text);
            if emission.finish.is_some() {
                self.whole(emission, out);
            }
            return;
        }
        if first {
            self.event(out, &self.role());
        }
        // A proxy hands on only what says something.
        if self.flavour != Flavour::Proxy || !text.is_empty() {
            self.event(out, &self.delta(&text, reasoning, emission));
        }
        if emission.finish.is_some() {
            self.last(emission, out);
            http::chunk(out, b"data: [DONE]\n\n");
            http::last_chunk(out);
        }
    }

    /// The tokens' text. A token of half a character adds nothing, the next one the whole of it.
    fn text(&mut self, emission: &Emission) -> String {
        let mut text = String::new();
        for token in 0..emission.tokens {
            let at = self.generated + token;
            let inside = at > 0 && at + 1 < emission.planned_tokens;
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

    fn event(&self, out: &mut Vec<u8>, event: &str) {
        http::chunk(out, event.as_bytes());
    }

    fn open(&self) -> String {
        let mut event = String::with_capacity(384);
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            event,
            r#"data: {{"id":{},"object":"chat.completion.chunk","created":{},"model":{},"#,
            self.id, self.created, self.model
        );
        event
    }

    fn role(&self) -> String {
        let mut event = self.open();
        event.push_str(match self.flavour {
            Flavour::Vllm => {
                r#""choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]"#
            }
            Flavour::Sglang => {
                r#""choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}]"#
            }
            Flavour::Proxy => r#""choices":[{"index":0,"delta":{"role":"assistant","content":""}}]"#,
        });
        self.running_usage(&mut event, 0);
        if self.flavour == Flavour::Vllm {
            event.push_str(r#","prompt_token_ids":null,"prompt_text":null"#);
        }
        event.push_str("}\n\n");
        event
    }

    fn delta(&self, text: &str, reasoning: bool, emission: &Emission) -> String {
        let mut event = self.open();
        // The words hold nothing that JSON would have to escape.
        let _ = match (self.flavour, reasoning) {
            (Flavour::Vllm, _) => {
                let key = if reasoning { "reasoning" } else { "content" };
                write!(event, r#""choices":[{{"index":0,"delta":{{"{key}":"{text}"}},"logprobs":null,"#)
            }
            (Flavour::Sglang, true) => write!(
                event,
                r#""choices":[{{"index":0,"delta":{{"role":null,"content":null,"reasoning_content":"{text}","tool_calls":null}},"logprobs":null,"finish_reason":null,"matched_stop":null}}]"#
            ),
            (Flavour::Sglang, false) => write!(
                event,
                r#""choices":[{{"index":0,"delta":{{"role":null,"content":"{text}","reasoning_content":null,"tool_calls":null}},"logprobs":null,"finish_reason":null,"matched_stop":null}}]"#
            ),
            (Flavour::Proxy, _) => {
                let key = if reasoning { "reasoning_content" } else { "content" };
                write!(event, r#""choices":[{{"index":0,"delta":{{"{key}":"{text}"}}}}]"#)
            }
        };
        if self.flavour == Flavour::Vllm {
            let _ = match emission.finish {
                None => write!(event, r#""finish_reason":null,"token_ids":null}}]"#),
                Some(finish) => write!(event, r#""finish_reason":"{}","stop_reason":null,"token_ids":null}}]"#, finish.name()),
            };
        }
        self.running_usage(&mut event, self.generated);
        if self.flavour == Flavour::Vllm && emission.finish.is_some() && !self.include_usage {
            event.push_str(FINGERPRINT);
        }
        event.push_str("}\n\n");
        event
    }

    fn running_usage(&self, event: &mut String, completion: u32) {
        if self.continuous_usage {
            let details = match self.flavour {
                Flavour::Sglang => r#","prompt_tokens_details":null"#,
                _ => r#","completion_tokens_details":null"#,
            };
            let _ = write!(
                event,
                r#","usage":{{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{completion}{details}}}"#,
                self.prompt_tokens,
                self.prompt_tokens + completion,
            );
        } else if self.flavour == Flavour::Sglang {
            event.push_str(r#","usage":null"#);
        }
    }

    /// What follows the last text: the finish reason where it has an event of its own, and usage.
    fn last(&self, emission: &Emission, out: &mut Vec<u8>) {
        let finish = emission.finish.map_or("stop", super::engine::Finish::name);
        let cached = emission.cached_tokens;
        let (prompt, completion) = (self.prompt_tokens, self.generated);
        let total = prompt + completion;
        let open = match self.flavour {
            Flavour::Vllm | Flavour::Sglang => self.open(),
            // As recorded, these two events have their keys in another order.
            Flavour::Proxy => format!(
                r#"data: {{"id":{},"created":{},"model":{},"object":"chat.completion.chunk"{FINGERPRINT},"#,
                self.id, self.created, self.model
            ),
        };
        match self.flavour {
            Flavour::Vllm => {}
            Flavour::Sglang => {
                let mut event = open.clone();
                let _ = write!(
                    event,
                    r#""choices":[{{"index":0,"delta":{{"role":null,"content":null,"reasoning_content":null,"tool_calls":null}},"logprobs":null,"finish_reason":"{finish}","matched_stop":null}}]"#
                );
                self.running_usage(&mut event, completion);
                self.event(out, &(event + "}\n\n"));
            }
            Flavour::Proxy => {
                self.event(out, &format!("{open}\"choices\":[{{\"finish_reason\":\"{finish}\",\"index\":0,\"delta\":{{}}}}]}}\n\n"))
            }
        }
        if !self.include_usage {
            return;
        }
        let mut event = open;
        let _ = match self.flavour {
            Flavour::Vllm => write!(
                event,
                r#""choices":[],"usage":{{"prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens":{completion}{}}}{FINGERPRINT}"#,
                match self.prompt_tokens_details {
                    true => format!(r#","prompt_tokens_details":{{"cached_tokens":{cached},"created_cache_tokens":0}}"#),
                    false => String::new(),
                }
            ),
            Flavour::Sglang => write!(
                event,
                r#""choices":[],"usage":{{"prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens":{completion},"prompt_tokens_details":{}}}"#,
                match self.prompt_tokens_details {
                    true => format!(r#"{{"cached_tokens":{cached}}}"#),
                    false => "null".to_owned(),
                }
            ),
            Flavour::Proxy => write!(
                event,
                r#""choices":[{{"index":0,"delta":{{}}}}],"usage":{{"completion_tokens":{completion},"prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens_details":{{"reasoning_tokens":0,"text_tokens":{completion}}},"prompt_tokens_details":{{"cached_tokens":{cached},"created_cache_tokens":0}}}}"#
            ),
        };
        self.event(out, &(event + "}\n\n"));
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

const FINGERPRINT: &str = r#","system_fingerprint":"vllm-0.32.0-simulated""#;

#[cfg(test)]
#[path = "chunks_tests.rs"]
mod tests;
