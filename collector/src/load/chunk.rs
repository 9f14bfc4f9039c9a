//! What an event of a chat stream says, read without building a tree: which kinds of delta it
//! carries, usage, finish reason, whether it is an error. The text itself is looked at only as far
//! as to see that there is some.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::record::Kinds;

/// One event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chunk<'a> {
    /// What the deltas of all choices carry.
    pub kinds: Kinds,
    /// Usage, if it is there and not null.
    pub usage: Option<Usage>,
    /// The finish reason of a choice.
    pub finish_reason: Option<Cow<'a, str>>,
    /// Whether there is an error object. Its words are read by [`error_text`].
    pub is_error: bool,
}

/// Token counts as the server told them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Output tokens so far.
    pub completion_tokens: Option<u32>,
    /// Prompt tokens.
    pub prompt_tokens: Option<u32>,
    /// Prompt tokens from the prefix cache.
    pub cached_tokens: Option<u32>,
}

/// Whether an event's data is the end mark.
#[must_use]
pub fn is_done(data: &[u8]) -> bool {
    data.trim_ascii() == b"[DONE]"
}

/// Reads one event.
///
/// # Errors
/// Data that is no JSON object, or has another shape than a chat chunk.
pub fn parse(data: &[u8]) -> Result<Chunk<'_>, serde_json::Error> {
    let raw: RawChunk<'_> = serde_json::from_slice(data)?;
    let choices = raw.choices.unwrap_or_default();
    Ok(Chunk {
        kinds: choices.kinds,
        usage: raw.usage.map(|u| Usage {
            completion_tokens: u.completion_tokens.and_then(|c| c.0),
            prompt_tokens: u.prompt_tokens.and_then(|c| c.0),
            cached_tokens: u.prompt_tokens_details.and_then(|d| d.cached_tokens).and_then(|c| c.0),
        }),
        finish_reason: choices.finish_reason,
        is_error: raw.error.is_some() || raw.object.is_some_and(|o| o == "error"),
    })
}

/// Reads the events of one stream.
#[derive(Debug, Default)]
pub struct ChunkReader {}

impl ChunkReader {
    /// Reads one event.
    ///
    /// # Errors
    /// As of [`parse`].
    pub fn read<'a>(&mut self, data: &'a [u8]) -> Result<Chunk<'a>, serde_json::Error> {
        parse(data)
    }
}

/// The words of an error event: its message, else its beginning.
#[must_use]
pub fn error_text(data: &[u8]) -> String {
    let whole = || String::from_utf8_lossy(data).into_owned();
    let value: serde_json::Value = serde_json::from_slice(data).unwrap_or_default();
    let error = value.get("error").unwrap_or(&value);
    let message = error.get("message").or(Some(error));
    let text = message.and_then(|m| m.as_str().map(str::to_owned));
    let text = text.unwrap_or_else(whole);
    crate::secrets::beginning(&text, 200)
}

#[derive(serde::Deserialize)]
struct RawChunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Choices<'a>>,
    #[serde(default)]
    usage: Option<RawUsage>,
    #[serde(default)]
    error: Option<IgnoredAny>,
    #[serde(borrow, default)]
    object: Option<Cow<'a, str>>,
}

#[derive(serde::Deserialize)]
struct RawUsage {
    #[serde(default)]
    completion_tokens: Option<Count>,
    #[serde(default)]
    prompt_tokens: Option<Count>,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
}

#[derive(serde::Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: Option<Count>,
}

#[derive(serde::Deserialize)]
struct RawChoice<'a> {
    #[serde(default)]
    delta: Option<Delta>,
    #[serde(borrow, default)]
    finish_reason: Option<Reason<'a>>,
}

#[derive(serde::Deserialize)]
struct Delta {
    #[serde(default)]
    role: Option<IgnoredAny>,
    #[serde(default)]
    content: Option<Filled>,
    #[serde(default)]
    reasoning: Option<Filled>,
    #[serde(default)]
    reasoning_content: Option<Filled>,
    #[serde(default)]
    reasoning_text: Option<Filled>,
    #[serde(default)]
    tool_calls: Option<Filled>,
    #[serde(default)]
    function_call: Option<Filled>,
}

impl Delta {
    fn kinds(&self) -> Kinds {
        let full = |f: &Option<Filled>| f.as_ref().is_some_and(|f| f.0);
        let table = [
            (self.role.is_some(), Kinds::ROLE),
            (full(&self.content), Kinds::CONTENT),
            (full(&self.reasoning), Kinds::REASONING),
            (full(&self.reasoning_content), Kinds::REASONING),
            (full(&self.reasoning_text), Kinds::REASONING),
            (full(&self.tool_calls), Kinds::TOOL),
            (full(&self.function_call), Kinds::TOOL),
        ];
        let present = table.iter().filter(|(there, _)| *there);
        present.fold(Kinds::default(), |all, (_, kind)| all.with(*kind))
    }
}

/// All choices folded into one: a list is not needed.
#[derive(Default)]
struct Choices<'a> {
    kinds: Kinds,
    finish_reason: Option<Cow<'a, str>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Choices<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fold;
        impl<'de> Visitor<'de> for Fold {
            type Value = Choices<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of choices")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut all = Choices::default();
                while let Some(choice) = seq.next_element::<RawChoice<'de>>()? {
                    if let Some(delta) = &choice.delta {
                        all.kinds = all.kinds.with(delta.kinds());
                    }
                    if let Some(Reason(Some(reason))) = choice.finish_reason {
                        all.kinds = all.kinds.with(Kinds::FINISH);
                        all.finish_reason = Some(reason);
                    }
                }
                Ok(all)
            }
        }
        deserializer.deserialize_seq(Fold)
    }
}

/// Whether a text, list or object has anything in it. Text is not decoded, so half a character
/// does not make the event unreadable.
struct Filled(bool);

impl<'de> Deserialize<'de> for Filled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(FilledVisitor)
    }
}

struct FilledVisitor;

impl<'de> Visitor<'de> for FilledVisitor {
    type Value = Filled;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or a list")
    }
    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Filled, E> {
        Ok(Filled(!bytes.is_empty()))
    }
    fn visit_str<E>(self, text: &str) -> Result<Filled, E> {
        Ok(Filled(!text.is_empty()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Filled, A::Error> {
        let mut filled = false;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            filled = true;
        }
        Ok(Filled(filled))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Filled, A::Error> {
        let mut filled = false;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            filled = true;
        }
        Ok(Filled(filled))
    }
}

/// A finish reason is text, or with SGLang an object with a type.
struct Reason<'a>(Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Reason<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Reason<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a finish reason")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Reason(Some(Cow::Borrowed(text))))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Reason(Some(Cow::Owned(text.to_owned()))))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut reason = Reason(Some(Cow::Borrowed("other")));
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    if key == "type" {
                        reason = Reason(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(reason)
            }
        }
        deserializer.deserialize_any(Read)
    }
}

/// A count of tokens, however it is written; what is no count is none.
struct Count(Option<u32>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Count;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a count")
            }
            fn visit_u64<E>(self, n: u64) -> Result<Count, E> {
                Ok(Count(u32::try_from(n).ok()))
            }
            fn visit_i64<E>(self, n: i64) -> Result<Count, E> {
                Ok(Count(u32::try_from(n).ok()))
            }
            fn visit_f64<E>(self, n: f64) -> Result<Count, E> {
                let whole = n.is_finite() && n >= 0.0 && n < f64::from(u32::MAX);
                Ok(Count(whole.then_some(n as u32)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Count, E> {
                Ok(Count(text.parse().ok()))
            }
        }
        deserializer.deserialize_any(Read)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn kinds(delta: &str) -> Kinds {
        let json = format!("{{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}");
        parse(json.as_bytes()).unwrap().kinds
    }

    #[test]
    fn each_kind_of_delta_is_seen_and_empty_ones_are_not() {
        let table = [
            ("{}", Kinds::default()),
            (r#"{"role":"assistant","content":""}"#, Kinds::ROLE),
            (r#"{"role":"assistant","content":null}"#, Kinds::ROLE),
            (r#"{"content":"a"}"#, Kinds::CONTENT),
            (r#"{"content":"\n"}"#, Kinds::CONTENT),
            (r#"{"reasoning":"a"}"#, Kinds::REASONING),
            (r#"{"reasoning_content":"a","content":null}"#, Kinds::REASONING),
            (r#"{"reasoning_text":"a"}"#, Kinds::REASONING),
            (r#"{"tool_calls":[{"index":0,"function":{"name":"f"}}]}"#, Kinds::TOOL),
            (r#"{"tool_calls":[]}"#, Kinds::default()),
            (r#"{"content":"a","tool_calls":[{}]}"#, Kinds::CONTENT.with(Kinds::TOOL)),
        ];
        for (delta, want) in table {
            assert_eq!(kinds(delta), want, "{delta}");
        }
    }

    #[test]
    fn empty_choices_null_usage_and_no_choices_are_read() {
        let c = parse(br#"{"choices":[],"usage":{"prompt_tokens":13,"completion_tokens":12}}"#).unwrap();
        assert_eq!(c.kinds, Kinds::default());
        assert_eq!(c.usage.unwrap().completion_tokens, Some(12));
        assert_eq!(c.usage.unwrap().cached_tokens, None);
        let c = parse(br#"{"choices":null,"usage":null,"error":null}"#).unwrap();
        assert_eq!(c, Chunk::default());
        let c = parse(br#"{"usage":{"completion_tokens":3.0,"prompt_tokens":-1,"prompt_tokens_details":{"cached_tokens":0}}}"#).unwrap();
        let u = c.usage.unwrap();
        assert_eq!((u.completion_tokens, u.prompt_tokens, u.cached_tokens), (Some(3), None, Some(0)));
    }

    #[test]
    fn a_finish_reason_is_text_or_an_object_with_a_type() {
        let reason = |r: &str| {
            let json = format!("{{\"choices\":[{{\"delta\":{{}},\"finish_reason\":{r}}}]}}");
            parse(json.as_bytes()).unwrap().finish_reason.map(Cow::into_owned)
        };
        assert_eq!(reason("\"length\"").as_deref(), Some("length"));
        assert_eq!(reason("null"), None);
        assert_eq!(reason(r#"{"type":"abort","message":"x"}"#).as_deref(), Some("abort"));
    }

    #[test]
    fn an_error_inside_the_stream_is_one_with_its_words() {
        for (json, words) in [
            (r#"{"error":{"message":"out of memory","code":500}}"#, "out of memory"),
            (r#"{"error":"plain"}"#, "plain"),
            (r#"{"object":"error","message":"old way"}"#, "old way"),
        ] {
            assert!(parse(json.as_bytes()).unwrap().is_error, "{json}");
            assert_eq!(error_text(json.as_bytes()), words);
        }
    }

    #[test]
    fn half_a_character_does_not_hide_a_delta() {
        let json = b"{\"choices\":[{\"delta\":{\"content\":\"\xE2\x82\"}}]}";
        assert_eq!(parse(json).unwrap().kinds, Kinds::CONTENT);
    }

    #[test]
    fn what_is_no_json_is_an_error_and_done_is_done() {
        assert!(parse(b"{\"choices\":[").is_err());
        assert!(parse(b"hello").is_err());
        assert!(is_done(b"[DONE]") && is_done(b" [DONE] ") && !is_done(b"[done]"));
    }
}
