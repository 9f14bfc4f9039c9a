//! What the answers say, for whoever looks for repetitions: taken from the load threads in blocks. A load thread does
//! nothing with a text but copy its bytes; the blocks are made ahead of time and go round. Where none is free, text is
//! passed over and counted: the load never waits for its reader.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes and pieces of a block.
const BLOCK_BYTES: usize = 64 << 10;
const BLOCK_PIECES: usize = 4 << 10;
/// Blocks there are. What isn't used is never touched, and so takes no memory.
const BLOCKS: usize = 24;

/// Where a text stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// In the answer.
    Content,
    /// In what comes before it.
    Reasoning,
}

impl Channel {
    /// As the report writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Reasoning => "reasoning",
        }
    }
}

/// The text of one event. 24 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// When it came, microseconds on the run's clock.
    pub t_us: u64,
    /// The stream.
    pub stream: u32,
    /// The request's number in its stream.
    pub request: u32,
    /// `u32::MAX`: not told.
    tokens: u32,
    len: u16,
    /// Where it stood.
    pub channel: Channel,
}

impl Piece {
    /// The request's tokens by then, where the server tells.
    #[must_use]
    pub fn tokens(&self) -> Option<u32> {
        (self.tokens != u32::MAX).then_some(self.tokens)
    }
}

/// Texts in the order in which they came.
#[derive(Debug, Default)]
pub struct TextBlock {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    /// Which group of streams they are of, from 0.
    pub group: u32,
    /// Bytes that were passed over before this block.
    pub lost: u64,
}

impl TextBlock {
    fn new() -> Self {
        Self { bytes: Vec::with_capacity(BLOCK_BYTES), pieces: Vec::with_capacity(BLOCK_PIECES), ..Self::default() }
    }

    /// The pieces with their texts, as they stand between their quotes.
    pub fn pieces(&self) -> impl Iterator<Item = (&Piece, &[u8])> {
        let mut at = 0;
        self.pieces.iter().map(move |piece| {
            let text = self.bytes.get(at..at + usize::from(piece.len)).unwrap_or_default();
            at += usize::from(piece.len);
            (piece, text)
        })
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.bytes.len() + bytes <= BLOCK_BYTES && self.pieces.len() < BLOCK_PIECES
    }
}

/// Blocks that are free.
#[derive(Debug)]
struct Pool(Mutex<Vec<TextBlock>>);

/// The load's end: gives each load thread a writer.
#[derive(Clone, Debug)]
pub struct TextTap {
    to: Sender<TextBlock>,
    pool: Arc<Pool>,
    group: u32,
}

/// The reader's end.
#[derive(Debug)]
pub struct TextReader {
    from: Receiver<TextBlock>,
    pool: Arc<Pool>,
}

/// Both ends.
#[must_use]
pub fn text_tap() -> (TextTap, TextReader) {
    let (to, from) = channel();
    let pool = Arc::new(Pool(Mutex::new((0..BLOCKS).map(|_| TextBlock::new()).collect())));
    (TextTap { to, pool: Arc::clone(&pool), group: 0 }, TextReader { from, pool })
}

impl TextTap {
    /// The same for another group of streams.
    #[must_use]
    pub fn of_group(&self, group: u32) -> Self {
        Self { group, ..self.clone() }
    }

    /// For one load thread.
    #[must_use]
    pub fn writer(&self) -> TextWriter {
        TextWriter { tap: self.clone(), block: None, lost: 0 }
    }
}

impl TextReader {
    /// The next block; `None` when all writers and taps are gone.
    #[must_use]
    pub fn next(&self) -> Option<TextBlock> {
        self.from.recv().ok()
    }

    /// A block that is there already.
    #[must_use]
    pub fn try_next(&self) -> Option<TextBlock> {
        self.from.try_recv().ok()
    }

    /// Gives a block back that was read.
    pub fn give_back(&self, mut block: TextBlock) {
        block.bytes.clear();
        block.pieces.clear();
        self.pool.0.lock().unwrap_or_else(PoisonError::into_inner).push(block);
    }
}

/// A load thread's end.
#[derive(Debug)]
pub struct TextWriter {
    tap: TextTap,
    block: Option<TextBlock>,
    /// Bytes passed over since the last block.
    lost: u64,
}

/// Whose text it is.
#[derive(Clone, Copy, Debug)]
pub struct Whose {
    /// When it came, microseconds on the run's clock.
    pub t_us: u64,
    /// The stream.
    pub stream: u32,
    /// The request's number in its stream.
    pub request: u32,
    /// The request's tokens by then, where the server tells.
    pub tokens: Option<u32>,
}

impl TextWriter {
    /// Keeps an event's texts.
    #[inline]
    pub fn keep(&mut self, whose: Whose, content: &[u8], reasoning: &[u8]) {
        if !reasoning.is_empty() {
            self.push(whose, Channel::Reasoning, reasoning);
        }
        if !content.is_empty() {
            self.push(whose, Channel::Content, content);
        }
    }

    #[inline]
    fn push(&mut self, whose: Whose, channel: Channel, text: &[u8]) {
        if self.block.as_ref().is_none_or(|block| !block.has_room(text.len())) {
            self.flush();
        }
        let len = u16::try_from(text.len());
        let (Some(block), Ok(len)) = (self.block.as_mut().filter(|block| block.has_room(text.len())), len) else {
            self.lost += text.len() as u64;
            return;
        };
        let Whose { t_us, stream, request, tokens } = whose;
        block.pieces.push(Piece { t_us, stream, request, tokens: tokens.unwrap_or(u32::MAX), len, channel });
        block.bytes.extend_from_slice(text);
    }

    /// Hands over what there is, and takes a free block if nobody else is just at them.
    #[cold]
    pub fn flush(&mut self) {
        let has_more = |block: &mut TextBlock| !block.pieces.is_empty();
        if let Some(block) = self.block.take_if(has_more) {
            // Whoever read it may have given up.
            let _ = self.tap.to.send(block);
        }
        if self.block.is_none() {
            self.block = self.tap.pool.0.try_lock().ok().and_then(|mut free| free.pop());
        }
        if let Some(block) = &mut self.block {
            (block.group, block.lost) = (self.tap.group, block.lost + std::mem::take(&mut self.lost));
        }
    }
}

impl Drop for TextWriter {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn whose(request: u32) -> Whose {
        Whose { t_us: 7, stream: 3, request, tokens: Some(request) }
    }

    #[test]
    fn texts_come_out_as_they_went_in_and_blocks_go_round() {
        let (tap, reader) = text_tap();
        let mut writer = tap.of_group(5).writer();
        let long = vec![b'x'; 1000];
        for n in 0..4 * BLOCKS as u32 * 65 {
            writer.keep(whose(n), &long, b"");
            while let Some(block) = reader.try_next() {
                assert_eq!((block.group, block.lost), (5, 0));
                assert!(block.pieces().all(|(piece, text)| text == long && piece.tokens() == Some(piece.request)));
                reader.give_back(block);
            }
        }
        writer.keep(whose(0), b"answer", b"thought");
        drop((writer, tap));
        let mut last = Vec::new();
        while let Some(block) = reader.next() {
            last.extend(block.pieces().map(|(piece, text)| (piece.channel, text.to_vec())));
        }
        let end = &last[last.len() - 2..];
        assert_eq!(end, [(Channel::Reasoning, b"thought".to_vec()), (Channel::Content, b"answer".to_vec())]);
    }

    #[test]
    fn without_a_reader_memory_ends_and_what_is_passed_over_is_counted() {
        let (tap, reader) = text_tap();
        let mut writer = tap.writer();
        for n in 0..BLOCKS as u32 * 80 {
            writer.keep(whose(n), &[b'x'; 1000], b"");
        }
        let first = reader.next().unwrap();
        reader.give_back(first);
        writer.keep(whose(0), b"again", b"");
        drop((writer, tap));
        let (mut lost, mut kept) = (0, 0);
        while let Some(block) = reader.next() {
            lost += block.lost;
            kept += block.pieces().map(|(_, text)| text.len() as u64).sum::<u64>();
        }
        assert!(lost > 0);
        assert_eq!(lost + kept + 65_000, BLOCKS as u64 * 80_000 + 5, "65 pieces were in the block that was given back");
        assert_eq!(size_of::<Piece>(), 24);
    }
}
