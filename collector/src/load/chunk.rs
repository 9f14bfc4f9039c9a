//! What an event of a chat stream says, read without building a tree: which kinds of delta it
//! carries, usage, finish reason, whether it is an error. The text itself is looked at only as far
//! as to see that there is some.
//!
//! Of a key that stands twice in an object the last one counts. What has to be walked (the event,
//! `choices`, a choice, its `delta`) and is of another type is refused; what is only looked at and
//! says nothing we know is absent.

use std::borrow::Cow;

pub use super::json::BadJson;
use super::json::{Cursor, Text};
use super::record::Kinds;

/// One event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chunk<'a> {
    /// What the deltas of all choices carry.
    pub kinds: Kinds,
    /// Usage, if it is there and not null.
    pub usage: Option<Usage>,
    /// The finish reason of a choice, the last one that has any. `other` where it is not told in words.
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

/// Reads one event. Of many events of one stream, [`ChunkReader`] makes less work.
///
/// # Errors
/// Data that is no JSON object, or has another shape than a chat chunk.
pub fn parse(data: &[u8]) -> Result<Chunk<'_>, BadJson> {
    let mut event = Event::default();
    event.read(Cursor::new(data), None)?;
    event.chunk()
}

/// A beginning longer than this is not worth remembering.
const MAX_HEAD_BYTES: usize = 4 << 10;

/// Reads the events of a stream, each as [`parse`] does. Most begin with the same bytes (id, model, time), up
/// to their choices. What a reading has found by then depends on these bytes only; so where it had found
/// nothing, the next event that begins with them is read from there on.
#[derive(Clone, Debug, Default)]
pub struct ChunkReader {
    /// The last event's bytes up to and with `"choices":`; empty if there is nothing to go by.
    head: Vec<u8>,
}

impl ChunkReader {
    /// A reader that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads one event.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn read<'a>(&mut self, data: &'a [u8]) -> Result<Chunk<'a>, BadJson> {
        let mut event = Event::default();
        if !self.head.is_empty() && data.starts_with(&self.head) {
            event.read(Cursor::inside(data, self.head.len()), Some(CHOICES))?;
        } else {
            event.read(Cursor::new(data), None)?;
            self.head.clear();
            let head = event.choices_at.filter(|at| *at <= MAX_HEAD_BYTES).and_then(|at| data.get(..at));
            self.head.extend_from_slice(head.unwrap_or_default());
        }
        event.chunk()
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

const CHOICES: Text<'static> = Text::plain(b"choices");

/// What is known of an event so far.
#[derive(Default)]
struct Event<'a> {
    choices: Choices<'a>,
    usage: Option<Usage>,
    has_error: bool,
    is_error_object: bool,
    /// Where the value of the first `choices` begins, if nothing that counts stood before it.
    choices_at: Option<usize>,
}

#[derive(Default)]
struct Choices<'a> {
    kinds: Kinds,
    reason: Option<Text<'a>>,
    /// Where something stands that has to be walked and is of another type. No error at once: the same key may follow.
    misfit: Option<usize>,
}

impl<'a> Event<'a> {
    fn chunk(self) -> Result<Chunk<'a>, BadJson> {
        if let Some(at) = self.choices.misfit {
            return Err(BadJson { at });
        }
        Ok(Chunk {
            kinds: self.choices.kinds,
            usage: self.usage,
            finish_reason: self.choices.reason.map(Text::to_text),
            is_error: self.has_error || self.is_error_object,
        })
    }

    /// Reads an event whole, or from the value of `key` on.
    #[inline]
    fn read(&mut self, mut json: Cursor<'a>, key: Option<Text<'a>>) -> Result<(), BadJson> {
        let mut key = if key.is_some() { key } else { json.open_object()? };
        let mut before = true;
        while let Some(name) = key {
            match &*name.bytes() {
                b"choices" => {
                    if std::mem::take(&mut before) && self.usage.is_none() && !self.has_error && !self.is_error_object {
                        self.choices_at = Some(json.at());
                    }
                    self.choices = choices(&mut json)?;
                }
                b"usage" => self.usage = usage(&mut json)?,
                b"error" => self.has_error = !json.is_null()?,
                b"object" => self.is_error_object = is_text(&mut json, b"error")?,
                _ => json.skip()?,
            }
            key = json.next_key()?;
        }
        json.end()
    }
}

#[inline]
fn choices<'a>(json: &mut Cursor<'a>) -> Result<Choices<'a>, BadJson> {
    let mut all = Choices::default();
    if json.peek()? == b'[' {
        let mut more = json.open_list()?;
        while more {
            choice(json, &mut all)?;
            more = json.next_item()?;
        }
    } else {
        all.misfit = null_or_misfit(json)?;
    }
    Ok(all)
}

fn null_or_misfit(json: &mut Cursor<'_>) -> Result<Option<usize>, BadJson> {
    let at = json.at();
    Ok((!json.is_null()?).then_some(at))
}

#[inline]
fn choice<'a>(json: &mut Cursor<'a>, all: &mut Choices<'a>) -> Result<(), BadJson> {
    if json.peek()? != b'{' {
        all.misfit = Some(json.at());
        return json.skip();
    }
    let (mut delta, mut reason, mut text) = ((Kinds::default(), None), None, false);
    let mut key = json.open_object()?;
    while let Some(name) = key {
        match &*name.bytes() {
            b"delta" => delta = delta_kinds(json)?,
            b"finish_reason" => reason = finish_reason(json)?,
            // Of a stream of plain completions.
            b"text" => text = json.is_filled()?,
            _ => json.skip()?,
        }
        key = json.next_key()?;
    }
    let (kinds, misfit) = delta;
    all.kinds = all.kinds.with(kinds);
    all.misfit = all.misfit.or(misfit);
    if text {
        all.kinds = all.kinds.with(Kinds::CONTENT);
    }
    if reason.is_some() {
        all.kinds = all.kinds.with(Kinds::FINISH);
        all.reason = reason;
    }
    Ok(())
}

/// What each key of a delta makes it. Reasoning has three names, a call has two.
const PARTS: [(&[u8], Kinds); 7] = [
    (b"role", Kinds::ROLE),
    (b"content", Kinds::CONTENT),
    (b"reasoning", Kinds::REASONING),
    (b"reasoning_content", Kinds::REASONING),
    (b"reasoning_text", Kinds::REASONING),
    (b"tool_calls", Kinds::TOOL),
    (b"function_call", Kinds::TOOL),
];

/// What a delta carries, or where it stands if it is none.
#[inline]
fn delta_kinds(json: &mut Cursor<'_>) -> Result<(Kinds, Option<usize>), BadJson> {
    if json.peek()? != b'{' {
        return Ok((Kinds::default(), null_or_misfit(json)?));
    }
    let mut there = [false; PARTS.len()];
    let mut key = json.open_object()?;
    while let Some(name) = key {
        let name = name.bytes();
        match PARTS.iter().position(|(part, _)| *part == &*name) {
            // The role itself says nothing; that there is one does.
            Some(0) => there[0] = !json.is_null()?,
            Some(part) => there[part] = json.is_filled()?,
            None => json.skip()?,
        }
        key = json.next_key()?;
    }
    let present = PARTS.iter().zip(there).filter(|(_, there)| *there);
    Ok((present.fold(Kinds::default(), |all, ((_, kind), _)| all.with(*kind)), None))
}

/// Text, or with SGLang an object with a `type`. An empty text is none: some servers write it until the end.
#[inline]
fn finish_reason<'a>(json: &mut Cursor<'a>) -> Result<Option<Text<'a>>, BadJson> {
    const OTHER: Text<'static> = Text::plain(b"other");
    match json.peek()? {
        b'n' => json.skip().map(|()| None),
        b'"' => Ok(Some(json.text()?).filter(|text| !text.is_empty())),
        b'{' => {
            let mut reason = OTHER;
            let mut key = json.open_object()?;
            while let Some(name) = key {
                if &*name.bytes() == b"type" {
                    reason = if json.peek()? == b'"' { json.text()? } else { json.skip().map(|()| OTHER)? };
                } else {
                    json.skip()?;
                }
                key = json.next_key()?;
            }
            Ok(Some(if reason.is_empty() { OTHER } else { reason }))
        }
        _ => json.skip().map(|()| Some(OTHER)),
    }
}

#[inline]
fn usage(json: &mut Cursor<'_>) -> Result<Option<Usage>, BadJson> {
    if json.peek()? != b'{' {
        return json.skip().map(|()| None);
    }
    let mut usage = Usage::default();
    let mut key = json.open_object()?;
    while let Some(name) = key {
        match &*name.bytes() {
            b"completion_tokens" => usage.completion_tokens = count(json)?,
            b"prompt_tokens" => usage.prompt_tokens = count(json)?,
            b"prompt_tokens_details" => usage.cached_tokens = cached_tokens(json)?,
            _ => json.skip()?,
        }
        key = json.next_key()?;
    }
    Ok(Some(usage))
}

fn cached_tokens(json: &mut Cursor<'_>) -> Result<Option<u32>, BadJson> {
    if json.peek()? != b'{' {
        return json.skip().map(|()| None);
    }
    let mut cached = None;
    let mut key = json.open_object()?;
    while let Some(name) = key {
        if &*name.bytes() == b"cached_tokens" {
            cached = count(json)?;
        } else {
            json.skip()?;
        }
        key = json.next_key()?;
    }
    Ok(cached)
}

/// A count of tokens, however it is written; what is no count is none.
#[inline]
fn count(json: &mut Cursor<'_>) -> Result<Option<u32>, BadJson> {
    match json.peek()? {
        b'"' => Ok(digits(&json.text()?.bytes())),
        b'-' | b'0'..=b'9' => {
            let number = json.number()?;
            Ok(digits(number).or_else(|| whole(number)))
        }
        _ => json.skip().map(|()| None),
    }
}

#[inline]
fn digits(text: &[u8]) -> Option<u32> {
    let mut n = 0_u32;
    for b in text {
        let digit = b.is_ascii_digit().then(|| u32::from(b - b'0'))?;
        n = n.checked_mul(10)?.checked_add(digit)?;
    }
    (!text.is_empty()).then_some(n)
}

/// A number with a point or exponent that is whole all the same.
#[cold]
fn whole(number: &[u8]) -> Option<u32> {
    let n: f64 = std::str::from_utf8(number).ok()?.parse().ok()?;
    let is_count = n.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&n);
    is_count.then_some(n as u32)
}

#[inline]
fn is_text(json: &mut Cursor<'_>, want: &[u8]) -> Result<bool, BadJson> {
    if json.peek()? != b'"' {
        return json.skip().map(|()| false);
    }
    Ok(&*json.text()?.bytes() == want)
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
