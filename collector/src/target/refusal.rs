//! What the words of a refused request say: which option it is about, and how large an output limit may be. Pure; servers
//! agree on no form, so it looks for names and for numbers behind words of limit.

use serde_json::Value;

/// A refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// The answer's body, whole.
    pub(super) text: String,
}

/// The largest output limit, as a refusal tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cap {
    /// Of prompt and answer together.
    Context(u32),
    /// Of the answer.
    Output(u32),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let message = self.message();
        let words: Vec<&str> = message.split_whitespace().collect();
        write!(f, "HTTP {}: {}", self.status, crate::secrets::beginning(&words.join(" "), 160))
    }
}

impl Refusal {
    /// The sentence in it, else all of it.
    fn message(&self) -> String {
        let json: Value = serde_json::from_str(&self.text).unwrap_or_default();
        let places = ["/error/message", "/message", "/detail", "/error"];
        let message = places.into_iter().find_map(|place| json.pointer(place)?.as_str());
        message.unwrap_or(&self.text).to_owned()
    }

    /// The parameters it names as such: OpenAI's `param`, and the places of a schema's complaints.
    fn parameters(&self) -> String {
        let json: Value = serde_json::from_str(&self.text).unwrap_or_default();
        let param = json.pointer("/error/param").or_else(|| json.get("param")).and_then(Value::as_str);
        let complaints = json["detail"].as_array().into_iter().flatten();
        let places = complaints.filter_map(|complaint| complaint["loc"].as_array()).flatten().filter_map(Value::as_str);
        let all: Vec<&str> = param.into_iter().chain(places).collect();
        all.join(" ").to_lowercase()
    }

    /// Of things with their words, the one that is named as the parameter, else the one that is named first: the rest
    /// may be the request, repeated.
    pub(super) fn earliest<T: Copy>(&self, things: &[(T, &'static [&'static str])]) -> Option<T> {
        let (parameters, message) = (self.parameters(), self.message().to_lowercase());
        [parameters, message].into_iter().find_map(|text| {
            let places = things.iter().filter_map(|(thing, words)| Some((words.iter().filter_map(|word| text.find(word)).min()?, thing)));
            places.min_by_key(|(place, _)| *place).map(|(_, thing)| *thing)
        })
    }

    /// Whether a word is in it.
    pub(super) fn names(&self, word: &str) -> bool {
        self.text.to_lowercase().contains(word)
    }

    /// Whether no option can help: the model itself is refused.
    pub(super) fn is_about_the_model(&self) -> bool {
        let message = self.message().to_lowercase();
        message.contains("model")
            && ["does not exist", "invalid model", "not found", "not a valid model"].iter().any(|words| message.contains(words))
    }

    /// The limit it tells, below `asked`: a number behind a word of limit. The largest of several, since what is
    /// smaller is what the prompt took.
    pub(super) fn cap(&self, asked: u32) -> Option<Cap> {
        let message = self.message().to_lowercase();
        let (limit, before) = numbers(&message)
            .filter(|(number, _)| (super::negotiate::FEW_TOKENS..asked).contains(number))
            .filter(|(_, before)| LIMIT_WORDS.iter().any(|word| before.contains(word)))
            .max_by_key(|(number, _)| *number)?;
        let of_context = ["context", "max_model_len", "n_ctx"].iter().any(|word| before.contains(word));
        Some(if of_context { Cap::Context(limit) } else { Cap::Output(limit) })
    }
}

const LIMIT_WORDS: [&str; 11] =
    ["most", "maximum", "max_model_len", "limit", "than", "exceed", "up to", "range", "between", "<=", "context"];

/// How many characters before a number may say what it is.
const BEFORE: usize = 40;

/// The numbers of a text, each with what stands before it. Thousands may be separated by commas.
fn numbers(text: &str) -> impl Iterator<Item = (u32, &str)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && !bytes.get(at)?.is_ascii_digit() {
            at += 1;
        }
        let start = at;
        let is_part = |at: usize| {
            let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
            digit(at) || (bytes.get(at) == Some(&b',') && digit(at + 1))
        };
        while is_part(at) {
            at += 1;
        }
        let digits: String = text.get(start..at)?.chars().filter(char::is_ascii_digit).collect();
        let mut from = start.saturating_sub(BEFORE);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        // What is no u32 is no limit: 0 is below every one.
        (start < bytes.len()).then(|| (digits.parse().unwrap_or(0), text.get(from..start).unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> Refusal {
        Refusal { status: 400, text: text.to_owned() }
    }

    #[test]
    fn the_limit_is_the_number_behind_a_word_of_limit() {
        let table = [
            ("max_tokens=32768 cannot be greater than max_model_len=8192. Please request fewer.", Some(Cap::Context(8192))),
            (
                "This model's maximum context length is 4096 tokens. However, you requested 32781 tokens (13 in the messages, 32768 in the completion).",
                Some(Cap::Context(4096)),
            ),
            (
                "max_tokens is too large: 32768. This model supports at most 16,384 completion tokens, whereas you provided 32768.",
                Some(Cap::Output(16_384)),
            ),
            ("Error code: 400 - the value must be less than or equal to 2048", Some(Cap::Output(2048))),
            ("Error code: 400 - bad request", None),
            ("too large: 32768", None),
            ("größer als das Maximum, höchstens (maximum) 1024 Zeichen", Some(Cap::Output(1024))),
        ];
        for (message, cap) in table {
            let body = serde_json::json!({"error": {"message": message, "code": 400}}).to_string();
            assert_eq!(refusal(&body).cap(32_768), cap, "{message}");
            assert_eq!(refusal(message).cap(32_768), cap, "{message}");
        }
    }

    #[test]
    fn a_parameter_named_as_such_is_meant_and_not_the_request_repeated_behind_it() {
        let things = [("stream", &["stream_options"][..]), ("eos", &["ignore_eos"][..])];
        let body = r#"{"detail":[{"type":"extra_forbidden","loc":["body","ignore_eos"],"input":{"stream_options":{},"ignore_eos":true}}]}"#;
        assert_eq!(refusal(body).earliest(&things), Some("eos"));
        let body = r#"{"error":{"message":"unknown: ignore_eos in {stream_options, ignore_eos}","param":null}}"#;
        assert_eq!(refusal(body).earliest(&things), Some("eos"));
        assert_eq!(refusal("bad request").earliest(&things), None);
    }
}
