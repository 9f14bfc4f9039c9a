//! Answers as llama.cpp's server was recorded to give them: an event a token, the role's event in one HTTP chunk
//! with the first of them, the finish and usage in another, and `timings` on the last.

use serde_json::{Value, json};

use super::super::engine::{Emission, Finish};
use super::super::http;
use super::{Answer, Around, put};

pub(super) const FINGERPRINT: &str = "b11434-simulated";

/// What stands after the choices of every event.
pub(super) fn tail(id: &str, created: u64, model: &str) -> String {
    format!(r#","created":{created},"id":{id},"model":{model},"system_fingerprint":"{FINGERPRINT}","object":"chat.completion.chunk""#)
}

pub(super) fn delta(reasoning: bool) -> Around {
    let key = if reasoning { "reasoning_content" } else { "content" };
    Around { before: format!(r#"data: {{"choices":[{{"finish_reason":null,"index":0,"delta":{{"{key}":""#), after: r#""}}]"# }
}

impl Answer {
    pub(super) fn llama_events(&mut self, emission: &Emission, out: &mut Vec<u8>) {
        for _ in 0..emission.tokens {
            let first = self.generated == 0;
            let reasoning = self.is_reasoning(emission.planned_tokens);
            let text = self.next_text(1, emission.planned_tokens);
            self.generated += 1;
            // Half a character is held back, and no event tells of it.
            if !text.is_empty() {
                http::chunk_of(out, |out| {
                    if first {
                        let role = r#"data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}]"#;
                        self.llama_event(role, "", out);
                    }
                    let around = if reasoning { &self.reasoning_delta } else { &self.content_delta };
                    put(out, &around.before);
                    put(out, &text);
                    self.llama_event(around.after, "", out);
                });
            }
            self.text = text;
        }
        if let Some(finish) = emission.finish {
            http::chunk_of(out, |out| self.llama_end(finish, emission, out));
            http::chunk(out, b"data: [DONE]\n\n");
            http::last_chunk(out);
        }
    }

    fn llama_event(&self, choices: &str, more: &str, out: &mut Vec<u8>) {
        put(out, choices);
        put(out, &self.open);
        put(out, more);
        put(out, "}\n\n");
    }

    fn llama_end(&self, finish: Finish, emission: &Emission, out: &mut Vec<u8>) {
        let timings = format!(r#","timings":{}"#, self.timings(emission));
        let finished = format!(r#"data: {{"choices":[{{"finish_reason":"{}","index":0,"delta":{{}}}}]"#, finish.name());
        if self.include_usage {
            self.llama_event(&finished, "", out);
            let usage = format!(r#","usage":{}{timings}"#, self.llama_usage(emission));
            self.llama_event(r#"data: {"choices":[]"#, &usage, out);
        } else {
            self.llama_event(&finished, &timings, out);
        }
    }

    fn llama_usage(&self, emission: &Emission) -> Value {
        json!({"completion_tokens": self.generated, "prompt_tokens": self.prompt_tokens,
               "total_tokens": self.prompt_tokens + self.generated,
               "prompt_tokens_details": {"cached_tokens": emission.cached_tokens}})
    }

    /// As recorded, the first token belongs to the prompt's time, so that the rest has one interval less.
    fn timings(&self, emission: &Emission) -> Value {
        let ms = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
        let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let prompt = self.prompt_tokens - emission.cached_tokens.min(self.prompt_tokens);
        let prompt_ms = ms(emission.prefill_start_ns, emission.first_ns);
        let predicted_ms = ms(emission.first_ns, emission.due_ns);
        let intervals = f64::from(self.generated.saturating_sub(1));
        json!({
            "cache_n": emission.cached_tokens,
            "prompt_n": prompt, "prompt_ms": prompt_ms,
            "prompt_per_token_ms": ratio(prompt_ms, f64::from(prompt)),
            "prompt_per_second": ratio(f64::from(prompt) * 1e3, prompt_ms),
            "predicted_n": self.generated, "predicted_ms": predicted_ms,
            "predicted_per_token_ms": ratio(predicted_ms, intervals),
            "predicted_per_second": ratio(intervals * 1e3, predicted_ms),
        })
    }

    /// The body of an answer in one piece.
    pub(super) fn llama_whole(&self, id: &Value, model: &Value, emission: &Emission) -> Value {
        let mut message = json!({"role": "assistant", "content": self.content});
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = json!(self.reasoning);
        }
        json!({
            "choices": [{"finish_reason": emission.finish.map(Finish::name), "index": 0, "message": message}],
            "created": self.created, "model": model, "system_fingerprint": FINGERPRINT, "object": "chat.completion",
            "usage": self.llama_usage(emission), "id": id, "timings": self.timings(emission),
        })
    }
}
