//! Reading an event by its likeness to the last one. The events of a stream differ in little: a text and some
//! counts. Where the last event was plain, its bytes are kept with the places of those values, the holes; an
//! event that has the same bytes around its holes is read by comparing, without looking at a key.
//!
//! This changes no result. What a reading does with a byte depends on the bytes before it, and on a value in a
//! hole only by what is stored of it: any value would have been read by the same function and left the reader in
//! the same state. A key that stands twice would break that (the later one takes the place of the earlier), so
//! such an event is not kept.

use std::ops::Range;

use super::chunk::Chunk;
use super::event::{Event, Leaves};
use super::json::{BadJson, Cursor};

/// A longer event is not worth keeping.
const MAX_KEPT_BYTES: usize = 4 << 10;
const MAX_HOLES: usize = 12;

/// What is read of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Slot {
    /// Whether this part of a choice has anything in it.
    Part(u8),
    /// A count.
    CompletionTokens,
    /// A count.
    PromptTokens,
    /// A count.
    CachedTokens,
    /// Nothing.
    #[default]
    Unknown,
}

impl Slot {
    // What is walked and may stand once only, as bits above those of the parts and counts.
    pub(super) const CHOICES: u16 = 1 << 11;
    pub(super) const CHOICE: u16 = 1 << 12;
    pub(super) const DELTA: u16 = 1 << 13;
    pub(super) const USAGE: u16 = 1 << 14;
    pub(super) const DETAILS: u16 = 1 << 15;

    #[inline]
    fn bit(self) -> u16 {
        match self {
            Self::Part(part) => u16::from(part),
            Self::CompletionTokens => 1 << 8,
            Self::PromptTokens => 1 << 9,
            Self::CachedTokens => 1 << 10,
            Self::Unknown => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Hole {
    start: usize,
    end: usize,
    depth: u32,
    slot: Slot,
}

/// The places in an event where the next one may differ, in their order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holes {
    holes: [Hole; MAX_HOLES],
    len: usize,
    /// What has been met, as bits.
    seen: u16,
    /// Something was met twice.
    repeated: bool,
}

impl Holes {
    #[inline]
    pub(super) fn once(&mut self, bit: u16) {
        self.repeated |= self.seen & bit != 0;
        self.seen |= bit;
    }

    /// A value was read. A `null` is no hole: it mostly stays what it is, and is compared faster than read.
    #[inline]
    pub(super) fn add(&mut self, slot: Slot, place: Range<usize>, depth: u32, is_null: bool) {
        self.once(slot.bit());
        if is_null {
            return;
        }
        if let Some(hole) = self.holes.get_mut(self.len) {
            *hole = Hole { start: place.start, end: place.end, depth, slot };
        }
        self.len += 1;
    }

    fn get(&self) -> Option<&[Hole]> {
        self.holes.get(..self.len).filter(|_| !self.repeated)
    }
}

/// Reads the events of a stream, each to the same result as [`super::chunk::parse`], and most in a fraction of
/// the time. It may be kept over all requests of a stream.
#[derive(Clone, Debug, Default)]
pub struct ChunkReader {
    /// The last plain event; empty if there was none.
    last: Vec<u8>,
    holes: Vec<Hole>,
    /// What that event has outside of the holes.
    leaves: Leaves,
    has_usage: bool,
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
    /// As [`super::chunk::parse`].
    #[inline]
    pub fn read<'a>(&mut self, data: &'a [u8]) -> Result<Chunk<'a>, BadJson> {
        if let Some(chunk) = self.by_likeness(data) {
            return Ok(chunk);
        }
        let event = Event::read(data)?;
        self.keep(data, &event);
        event.chunk()
    }

    #[inline]
    fn by_likeness<'a>(&self, data: &'a [u8]) -> Option<Chunk<'a>> {
        if self.last.is_empty() {
            return None;
        }
        let mut leaves = self.leaves;
        let (mut at, mut kept_at) = (0, 0);
        for hole in &self.holes {
            let around = self.last.get(kept_at..hole.start)?;
            if !data.get(at..)?.starts_with(around) {
                return None;
            }
            let mut json = Cursor::inside(data, at + around.len(), hole.depth);
            leaves.read(hole.slot, &mut json).ok()?;
            (at, kept_at) = (json.at(), hole.end);
        }
        let is_alike = data.get(at..)? == self.last.get(kept_at..)?;
        is_alike.then(|| leaves.chunk(data, self.has_usage))
    }

    fn keep(&mut self, data: &[u8], event: &Event<'_>) {
        let Some((holes, leaves, has_usage)) = event.holes().filter(|_| data.len() <= MAX_KEPT_BYTES) else { return };
        let Some(holes) = holes.get() else { return };
        self.last.clear();
        self.last.extend_from_slice(data);
        self.holes.clear();
        self.holes.extend_from_slice(holes);
        (self.leaves, self.has_usage) = (leaves.role(), has_usage);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::chunk::parse;
    use super::super::record::Kinds;
    use super::*;

    /// Reads `first`, then `second`; whether the second one was read by likeness. It has to be right anyway.
    fn is_alike(first: &str, second: &str) -> bool {
        let mut reader = ChunkReader::new();
        assert_eq!(reader.read(first.as_bytes()), parse(first.as_bytes()), "{first}");
        let by_likeness = reader.by_likeness(second.as_bytes());
        assert_eq!(reader.read(second.as_bytes()), parse(second.as_bytes()), "{second} after {first}");
        by_likeness.is_some()
    }

    fn vllm(content: &str, n: u32) -> String {
        format!(
            r#"{{"id":"c","created":1,"choices":[{{"index":0,"delta":{{"content":{content}}},"finish_reason":null}}],"usage":{{"prompt_tokens":13,"total_tokens":{},"completion_tokens":{n},"completion_tokens_details":null}}}}"#,
            n + 13
        )
    }

    #[test]
    fn an_event_that_differs_in_its_text_and_counts_is_read_by_likeness() {
        assert!(is_alike(&vllm("\"a\"", 9), &vllm(r#""b \" \u00e9""#, 10_000)));
        assert!(is_alike(&vllm("\"a\"", 9), &vllm("\"\"", 0)));
        let mut reader = ChunkReader::new();
        reader.read(vllm("\"\"", 9).as_bytes()).unwrap();
        let second = vllm("\"b\"", 10);
        let chunk = reader.by_likeness(second.as_bytes()).unwrap();
        assert_eq!(chunk.kinds, Kinds::CONTENT);
        assert_eq!(chunk.usage.unwrap().completion_tokens, Some(10));
    }

    #[test]
    fn a_text_beside_an_absent_one_is_the_same_both_ways() {
        for behind in ["\"text\":null", "\"text\":\"\"", "\"text\":[]", "\"text\":\"b\""] {
            let event = |text: &str| format!(r#"{{"choices":[{{"delta":{{"content":"{text}"}},{behind}}}]}}"#);
            assert!(is_alike(&event("a"), &event("a")), "{behind}");
            assert!(is_alike(&event(""), &event("a")), "{behind}");
            let expected: &[u8] = if behind.ends_with("\"b\"") { b"b" } else { b"a" };
            assert_eq!(parse(event("a").as_bytes()).unwrap().content, expected, "{behind}");
        }
    }

    #[test]
    fn the_role_and_the_absence_of_usage_are_part_of_the_likeness() {
        let event = |text: &str| format!(r#"{{"choices":[{{"delta":{{"role":"assistant","content":"{text}"}}}}],"usage":null}}"#);
        assert!(is_alike(&event(""), &event("a")));
        let mut reader = ChunkReader::new();
        reader.read(event("").as_bytes()).unwrap();
        let second = event("a");
        let chunk = reader.by_likeness(second.as_bytes()).unwrap();
        assert_eq!((chunk.kinds, chunk.usage), (Kinds::ROLE.with(Kinds::CONTENT), None));
    }

    #[test]
    fn whatever_else_differs_is_read_anew() {
        let first = vllm("\"a\"", 9);
        for (from, to) in [
            ("null}]", "\"stop\"}]"),
            ("\"c\"", "\"d\""),
            ("\"a\"", "\"a\",\"content\":\"\""),
            ("\"a\"", "x"),
            ("9", "9]"),
            ("null}}", "null}} x"),
            ("null}}", "null}"),
            ("null}}", "nulx}}"),
            ("null}}", "null]}"),
            ("null}]", "nul}]]"),
            ("null}}", "null},\"error\":1}"),
        ] {
            let second = first.replacen(from, to, 1);
            assert_ne!(first, second);
            assert!(!is_alike(&first, &second), "{second}");
        }
    }

    #[test]
    fn what_would_lead_astray_is_not_kept() {
        for first in [
            r#"{"choices":[{"delta":{"content":"","content":null}}]}"#,
            r#"{"choices":[{"delta":{"content":""}},{"delta":{"content":""}}]}"#,
            r#"{"choices":[{"delta":{"content":""},"delta":{}}]}"#,
            r#"{"choices":[{"delta":{"content":""}}],"choices":[]}"#,
            r#"{"choices":[{"delta":{"content":""},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"delta":{"content":""}}],"error":{}}"#,
            r#"{"choices":[{"delta":{"content":""}}],"object":"error"}"#,
            r#"{"choices":[{"delta":{"content":""}}],"usage":{"prompt_tokens":1},"usage":{}}"#,
            r#"{"choices":[{"delta":{"content":""}}],"usage":{"prompt_tokens_details":{"cached_tokens":1},"prompt_tokens_details":null}}"#,
        ] {
            assert!(!is_alike(first, &first.replacen("\"content\":\"\"", "\"content\":\"a\"", 1)), "{first}");
        }
        let long = vllm(&format!("\"{}\"", "a".repeat(MAX_KEPT_BYTES)), 1);
        assert!(!is_alike(&long, &long));
        let many: String = (0..MAX_HOLES).map(|n| format!("\"{n}\":1,")).collect();
        let many = format!("{{\"usage\":{{{many}\"prompt_tokens\":1}}}}");
        assert!(!is_alike(&many, &many));
    }

    #[test]
    fn a_value_too_deep_for_its_place_is_refused_there_too() {
        let nested = |n: usize| vllm(&format!("{}{}", "[".repeat(n), "]".repeat(n)), 1);
        // Four objects and lists are around it.
        assert!(is_alike(&nested(1), &nested(123)));
        assert!(!is_alike(&nested(1), &nested(124)));
        assert!(parse(nested(124).as_bytes()).is_err());
    }
}
