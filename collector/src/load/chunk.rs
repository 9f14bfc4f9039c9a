//! What an event of a chat stream says: which kinds of delta it carries, usage, finish reason, whether
//! it is an error. How it is read is in `event` and `repeat`.

use std::borrow::Cow;

use super::event::Event;
pub use super::json::BadJson;
use super::json::Text;
use super::record::Kinds;
pub use super::repeat::ChunkReader;

/// One event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chunk<'a> {
    /// What the deltas of all choices carry.
    pub kinds: Kinds,
    /// Usage, if it is there and not null.
    pub usage: Option<Usage>,
    /// The finish reason of a choice, the last one that has any. `other` where it is not told in words.
    pub finish_reason: Option<Cow<'a, str>>,
    /// Text of the content, as it stands between its quotes: [`text`] resolves it. Of several choices that of the
    /// last one that has any.
    pub content: &'a [u8],
    /// The same of the reasoning.
    pub reasoning: &'a [u8],
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

/// Reads one event. Of many events of one stream, [`ChunkReader`] makes less work.
///
/// # Errors
/// Data that is no JSON object, or has another shape than a chat chunk.
pub fn parse(data: &[u8]) -> Result<Chunk<'_>, BadJson> {
    Event::read(data).and_then(Event::chunk)
}

/// What a text between its quotes stands for.
#[must_use]
pub fn text(raw: &[u8]) -> Cow<'_, str> {
    Text::checked(raw).to_text()
}

/// The server's id of the answer that an event belongs to.
#[must_use]
pub fn id(data: &[u8]) -> Option<String> {
    super::event::id(data)
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
    fn half_a_character_hides_neither_a_delta_nor_a_reason() {
        let json = b"{\"choices\":[{\"finish_reason\":\"a\xE2\x82\"}]}";
        assert_eq!(parse(json).unwrap().finish_reason.as_deref(), Some("a\u{fffd}"));
        let json = b"{\"choices\":[{\"delta\":{\"content\":\"\xE2\x82\"}}]}";
        assert_eq!(parse(json).unwrap().kinds, Kinds::CONTENT);
    }

    #[test]
    fn what_is_no_json_is_an_error_and_done_is_done() {
        assert!(parse(b"{\"choices\":[").is_err());
        assert!(parse(b"hello").is_err());
        assert!(is_done(b"[DONE]") && is_done(b" [DONE] ") && !is_done(b"[done]"));
    }

    #[test]
    fn a_plain_completion_has_its_text_in_the_choice_and_a_whole_message_is_no_delta() {
        let kinds = |choice: &str| parse(format!("{{\"choices\":[{choice}]}}").as_bytes()).unwrap().kinds;
        assert_eq!(kinds(r#"{"index":0,"text":"a","finish_reason":null}"#), Kinds::CONTENT);
        assert_eq!(kinds(r#"{"text":""}"#), Kinds::default());
        assert_eq!(kinds(r#"{"message":{"role":"assistant","content":"a"}}"#), Kinds::default());
        assert_eq!(kinds(r#"{"delta":{"content":""}},{"delta":{"content":"b"}}"#), Kinds::CONTENT);
    }

    #[test]
    fn a_call_is_a_list_or_an_object_with_anything_in_it() {
        for (delta, want) in [
            (r#"{"function_call":{"name":"f"}}"#, Kinds::TOOL),
            (r#"{"function_call":{ }}"#, Kinds::default()),
            (r#"{"tool_calls":[[]]}"#, Kinds::TOOL),
            (r#"{"tool_calls":null,"function_call":null}"#, Kinds::default()),
        ] {
            assert_eq!(kinds(delta), want, "{delta}");
        }
    }

    #[test]
    fn a_count_is_a_whole_number_however_it_is_written() {
        let table = [
            ("3", Some(3)),
            ("3.0", Some(3)),
            ("30e-1", Some(3)),
            ("\"3\"", Some(3)),
            ("\"\\u0033\"", Some(3)),
            ("0", Some(0)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("99999999999999999999", None),
            ("1e999", None),
            ("3.5", None),
            ("-1", None),
            ("\"\"", None),
            ("\"3 tokens\"", None),
            ("null", None),
            ("true", None),
            ("[3]", None),
        ];
        for (json, want) in table {
            let event = format!("{{\"usage\":{{\"completion_tokens\":{json}}}}}");
            assert_eq!(parse(event.as_bytes()).unwrap().usage.unwrap().completion_tokens, want, "{json}");
        }
    }

    #[test]
    fn of_a_key_that_stands_twice_the_last_one_counts() {
        assert_eq!(kinds(r#"{"content":"a","content":""}"#), Kinds::default());
        assert_eq!(kinds(r#"{"reasoning":"a","content":"","reasoning":null,"content":"b"}"#), Kinds::CONTENT);
        let chunk = parse(br#"{"choices":1,"usage":{"prompt_tokens":1},"choices":[],"usage":null}"#).unwrap();
        assert_eq!(chunk, Chunk::default());
    }

    #[test]
    fn escapes_hide_no_key_and_no_reason() {
        assert_eq!(kinds(r#"{"cont\u0065nt":"a"}"#), Kinds::CONTENT);
        let chunk = parse(br#"{"ch\u006fices":[{"finish_reason":"l\u0065ngth"}]}"#).unwrap();
        assert_eq!(chunk.finish_reason.as_deref(), Some("length"));
        assert!(parse(br#"{"obj\u0065ct":"\u0065rror"}"#).unwrap().is_error);
    }

    #[test]
    fn what_has_to_be_walked_and_is_of_another_type_is_refused_where_it_stands() {
        for (json, at) in [("[]", 0), ("{\"choices\":5}", 11), ("{\"choices\":[{},5]}", 15), ("{\"choices\":[{\"delta\":[]}]}", 21)] {
            assert_eq!(parse(json.as_bytes()), Err(BadJson { at }), "{json}");
        }
        assert_eq!(parse(b"{\"usage\":5,\"object\":5}"), Ok(Chunk::default()));
        assert_eq!(parse(b"{} x"), Err(BadJson { at: 3 }));
    }

    #[test]
    fn an_empty_finish_reason_is_none_and_one_without_words_is_another() {
        let reason = |r: &str| {
            let json = format!("{{\"choices\":[{{\"finish_reason\":{r}}}]}}");
            let chunk = parse(json.as_bytes()).unwrap();
            assert_eq!(chunk.kinds.has(Kinds::FINISH), chunk.finish_reason.is_some());
            chunk.finish_reason.map(Cow::into_owned)
        };
        assert_eq!(reason("\"\""), None);
        for other in ["{}", "{\"type\":null}", "{\"type\":5}", "1", "true", "[]"] {
            assert_eq!(reason(other).as_deref(), Some("other"), "{other}");
        }
    }
}
