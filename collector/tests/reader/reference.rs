//! What an event or a stream says, read the plain way: a tree of values, and lines split one by one. Slow and
//! short; the real reader has to agree with it.

use std::borrow::Cow;

use serde_json::Value;

use super::load::chunk::{Chunk, Usage};
use super::load::record::Kinds;

/// What is read of an event that serde_json can read. `None`: the event has another shape than a chat chunk.
pub(crate) fn chunk(value: &Value) -> Option<Chunk<'static>> {
    let event = value.as_object()?;
    let mut chunk = Chunk::default();
    for choice in list_or_null(event.get("choices"))? {
        let choice = choice.as_object()?;
        let delta = match choice.get("delta").unwrap_or(&Value::Null) {
            Value::Null => &serde_json::Map::new(),
            delta => delta.as_object()?,
        };
        let parts = [
            (is_there(delta.get("role")), Kinds::ROLE),
            (is_filled(delta.get("content")), Kinds::CONTENT),
            (is_filled(choice.get("text")), Kinds::CONTENT),
            (is_filled(delta.get("reasoning")), Kinds::REASONING),
            (is_filled(delta.get("reasoning_content")), Kinds::REASONING),
            (is_filled(delta.get("reasoning_text")), Kinds::REASONING),
            (is_filled(delta.get("tool_calls")), Kinds::TOOL),
            (is_filled(delta.get("function_call")), Kinds::TOOL),
        ];
        for (_, kind) in parts.iter().filter(|(there, _)| *there) {
            chunk.kinds = chunk.kinds.with(*kind);
        }
        if let Some(reason) = finish_reason(choice.get("finish_reason")) {
            chunk.kinds = chunk.kinds.with(Kinds::FINISH);
            chunk.finish_reason = Some(Cow::Owned(reason));
        }
    }
    chunk.usage = event.get("usage").and_then(Value::as_object).map(|usage| Usage {
        completion_tokens: count(usage.get("completion_tokens")),
        prompt_tokens: count(usage.get("prompt_tokens")),
        cached_tokens: usage.get("prompt_tokens_details").and_then(|details| count(details.get("cached_tokens"))),
    });
    chunk.is_error = is_there(event.get("error")) || event.get("object").is_some_and(|object| object == "error");
    Some(chunk)
}

/// The content of an event of one choice, whose delta has a text there.
pub(crate) fn only_content(value: &Value) -> Option<&str> {
    let [choice] = value.get("choices")?.as_array()?.as_slice() else { return None };
    let content = choice.get("delta")?.get("content")?.as_str()?;
    choice.get("text").is_none().then_some(content)
}

fn list_or_null(value: Option<&Value>) -> Option<&[Value]> {
    match value {
        None | Some(Value::Null) => Some(&[]),
        Some(value) => value.as_array().map(Vec::as_slice),
    }
}

fn is_there(value: Option<&Value>) -> bool {
    value.is_some_and(|value| !value.is_null())
}

fn is_filled(value: Option<&Value>) -> bool {
    match value {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        _ => false,
    }
}

fn finish_reason(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::Null => None,
        Value::String(text) => (!text.is_empty()).then(|| text.clone()),
        other => {
            let kind = other.get("type").and_then(Value::as_str).filter(|text| !text.is_empty());
            Some(kind.unwrap_or("other").to_owned())
        }
    }
}

fn count(value: Option<&Value>) -> Option<u32> {
    let limit = f64::from(u32::MAX);
    match value? {
        Value::Number(n) => n.as_f64().filter(|n| *n >= 0.0 && *n <= limit && n.fract() == 0.0).map(|n| n as u32),
        Value::String(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

/// The data of each event in a whole stream of server-sent events, one that the end leaves open included.
pub(crate) fn events(stream: &[u8]) -> Vec<Vec<u8>> {
    let stream = stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream);
    let mut events = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    for line in lines(stream).into_iter().chain([&b""[..]]) {
        let (field, value) = match line.iter().position(|b| *b == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        if line.is_empty() {
            events.extend(open.take());
        } else if field == b"data" {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match &mut open {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => open = Some(value.to_vec()),
            }
        }
    }
    events
}

fn lines(stream: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at < stream.len() {
        if stream[at] == b'\n' || stream[at] == b'\r' {
            lines.push(&stream[start..at]);
            at += usize::from(stream[at..].starts_with(b"\r\n"));
            start = at + 1;
        }
        at += 1;
    }
    lines.push(&stream[start..]);
    lines
}
