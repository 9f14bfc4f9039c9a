//! What must hold of any bytes at all. The generated tests and the fuzzer both come here; a breach panics.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::load::body::Framing;
use super::load::chunk::{self, BadJson, Chunk, ChunkReader};
use super::load::sse::SseParser;
use super::reference;

/// Reads one event in every way there is and compares.
///
/// What serde_json reads into a tree we read too, and to the same result; what is no JSON by its grammar we
/// refuse. In between lie the differences that are meant: half a character, half a surrogate pair and a number
/// beyond f64 are in nobody's way (serde_json has no tree for them), and deeper nesting than it allows in a tree
/// is refused.
pub(crate) fn event<'a>(reader: &mut ChunkReader, data: &'a [u8]) -> Result<Chunk<'a>, BadJson> {
    let ours = chunk::parse(data);
    let shown = || String::from_utf8_lossy(data).into_owned();
    assert_eq!(reader.read(data), ours, "with what came before: {}", shown());
    assert_eq!(reader.read(data), ours, "once more: {}", shown());
    if let Err(BadJson { at }) = ours {
        assert!(at <= data.len(), "{at} in {}", shown());
    }
    let is_json = serde_json::from_slice::<IgnoredAny>(data).is_ok();
    assert!(is_json || ours.is_err(), "no JSON: {}", shown());
    let tree: Result<Value, _> = serde_json::from_str(&String::from_utf8_lossy(data));
    if is_json && let Ok(tree) = tree {
        let plain = ours.clone().ok().map(|chunk| Chunk { content: b"", reasoning: b"", ..chunk });
        assert_eq!(plain, reference::chunk(&tree), "{}", shown());
        if let (Ok(chunk), Some(content)) = (&ours, reference::only_content(&tree)) {
            assert_eq!(chunk::text(chunk.content), content, "{}", shown());
        }
    }
    // Never fails, whatever it is given.
    let _ = (chunk::error_text(data), chunk::is_done(data));
    ours
}

/// What a stream brought.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) payload: Vec<u8>,
    pub(crate) events: Vec<Vec<u8>>,
    pub(crate) chunks: Vec<Result<Chunk<'static>, BadJson>>,
    /// The framing was bad from some byte on.
    pub(crate) is_broken: bool,
    pub(crate) is_done: bool,
    /// Bytes that belong to whatever comes behind the body.
    pub(crate) left: usize,
}

/// Reads a body as the program does, from these pieces; an event by `one`.
fn read<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    mut framing: Framing,
    one: for<'e> fn(&mut ChunkReader, &'e [u8]) -> Result<Chunk<'e>, BadJson>,
) -> Seen {
    let (mut seen, mut sse, mut reader) = (Seen::default(), SseParser::new(), ChunkReader::new());
    let Seen { payload: all, events, chunks, is_broken, is_done, left } = &mut seen;
    let mut on_event = |data: &[u8]| {
        events.push(data.to_vec());
        chunks.push(one(&mut reader, data).map(owned));
    };
    'pieces: for piece in pieces {
        let mut rest = piece;
        while !rest.is_empty() && !framing.is_done() {
            let Ok((used, payload)) = framing.take(rest) else {
                *is_broken = true;
                break 'pieces;
            };
            assert!(used > 0, "no byte of {rest:?} is taken");
            all.extend_from_slice(payload);
            sse.feed(payload, &mut on_event).unwrap();
            rest = &rest[used..];
        }
        *left += rest.len();
    }
    sse.finish(&mut on_event);
    *is_done = framing.is_done();
    seen
}

fn owned(chunk: Chunk<'_>) -> Chunk<'static> {
    // The texts were compared where both were at hand.
    Chunk {
        finish_reason: chunk.finish_reason.map(|reason| Cow::Owned(reason.into_owned())),
        kinds: chunk.kinds,
        usage: chunk.usage,
        is_error: chunk.is_error,
        content: b"",
        reasoning: b"",
    }
}

/// Reads a body whole, in the pieces that `cuts` make, and byte by byte: the same must come of it, and the
/// events must be those of the plain reading.
pub(crate) fn stream(body: &[u8], framing: fn() -> Framing, cuts: &[usize]) -> Seen {
    let whole = read([body], framing(), event);
    let mut edges: Vec<usize> = cuts.iter().map(|cut| (*cut).min(body.len())).chain([0, body.len()]).collect();
    edges.sort_unstable();
    let pieces = edges.windows(2).map(|edge| &body[edge[0]..edge[1]]);
    assert_eq!(read(pieces, framing(), ChunkReader::read), whole, "cut at {edges:?}: {}", String::from_utf8_lossy(body));
    assert_eq!(read(body.chunks(1), framing(), ChunkReader::read), whole, "byte by byte: {}", String::from_utf8_lossy(body));
    assert_eq!(reference::events(&whole.payload), whole.events, "{}", String::from_utf8_lossy(body));
    whole
}

/// An input of the fuzzer. The first byte says what the rest is: a chunked body, a body as it is, or events on
/// lines of their own. The second one says where the body is cut.
pub(crate) fn input(data: &[u8]) {
    let [way, cut, rest @ ..] = data else { return };
    let cut = usize::from(*cut);
    let cuts = [cut, cut * 2 + 1, cut * 5 + 2, cut * 5 + 3];
    match way % 3 {
        0 => drop(stream(rest, Framing::chunked, &cuts)),
        1 => drop(stream(rest, || Framing::UntilClose, &cuts)),
        _ => {
            let mut reader = ChunkReader::new();
            for data in rest.split(|b| *b == b'\n') {
                let _ = event(&mut reader, data);
            }
        }
    }
}
