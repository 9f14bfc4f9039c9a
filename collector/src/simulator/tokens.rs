//! The simulator's tokenizer: what `/tokenize` counts, what usage says and what fills the context
//! are all the same tokens. No real model's vocabulary, but about four bytes of English a token.

/// A prompt as the engine sees it: how many tokens, and a hash for each full block which stands
/// for all tokens up to the block's end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Length in tokens.
    pub tokens: u32,
    /// One hash for each full block, in order.
    pub blocks: Vec<u64>,
}

/// Longest piece of a word that is one token, without its leading space.
const WORD_BYTES: usize = 5;
/// Longest run of one punctuation mark or blank that is one token.
const RUN_BYTES: usize = 4;
/// Above every packed piece, whose top byte is its length.
const SPECIAL: u64 = 0xff << 56;

/// Splits a text into tokens: up to five letters or digits with the space before them, up to four
/// times the same other ASCII character, or one character beyond ASCII.
pub(crate) fn split(text: &str, mut each: impl FnMut(u64)) {
    let bytes = text.as_bytes();
    let word_at = |at: usize| bytes.get(at).is_some_and(|byte| IS_WORD[usize::from(*byte)]);
    let mut start = 0;
    while let Some(&first) = bytes.get(start) {
        let mut end = start;
        if first == b' ' && word_at(start + 1) {
            end += 1;
        }
        if word_at(end) {
            let limit = end + WORD_BYTES;
            while end < limit && word_at(end) {
                end += 1;
            }
        } else if first.is_ascii() {
            while end < bytes.len() && end - start < RUN_BYTES && bytes[end] == first {
                // The last space of several belongs to the word after it.
                if end > start && first == b' ' && word_at(end + 1) {
                    break;
                }
                end += 1;
            }
        } else {
            end += 1;
            while bytes.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
                end += 1;
            }
        }
        each(mix(packed(bytes, start, end)));
        start = end;
    }
}

/// Bytes of words: ASCII letters and digits.
const IS_WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    table
};

/// Up to six bytes and their number in one word. Prompts are long: eight bytes are taken at once where they
/// are there.
fn packed(bytes: &[u8], start: usize, end: usize) -> u64 {
    let length = end - start;
    let low = match bytes.get(start..start + 8).and_then(|eight| <[u8; 8]>::try_from(eight).ok()) {
        Some(eight) => u64::from_le_bytes(eight) & ((1 << (8 * length)) - 1),
        None => bytes[start..end].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    (length as u64) << 56 | low
}

/// Spreads a value over all 64 bits (the finalizer of SplitMix64).
pub(crate) fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The number of a token as `/tokenize` shows it.
pub(crate) fn token_id(token: u64) -> u32 {
    (token % 128_000) as u32
}

/// The tokens of a bare text.
pub(crate) fn of_text(text: &str) -> Vec<u64> {
    let mut tokens = Vec::with_capacity(text.len() / 4);
    split(text, |token| tokens.push(token));
    tokens
}

/// The tokens of a chat: each message is its role, its text and two marks; three more open the
/// answer.
pub(crate) fn of_chat<'a>(messages: impl Iterator<Item = (&'a str, Vec<&'a str>)>) -> Vec<u64> {
    let mut tokens = Vec::new();
    for (role, texts) in messages {
        split(role, |token| tokens.push(token));
        tokens.push(SPECIAL);
        for text in texts {
            tokens.reserve(text.len() / 4);
            split(text, |token| tokens.push(token));
        }
        tokens.push(SPECIAL + 1);
    }
    tokens.extend([SPECIAL, SPECIAL + 2, SPECIAL + 3]);
    tokens
}

/// Hashes tokens block by block, each block's hash continuing the one before.
pub(crate) fn to_prompt(tokens: &[u64], block_tokens: u32) -> Prompt {
    let mut hash = 0;
    let mut blocks = Vec::with_capacity(tokens.len() / block_tokens as usize);
    for block in tokens.chunks_exact(block_tokens as usize) {
        for token in block {
            hash = mix(hash ^ token);
        }
        blocks.push(hash);
    }
    Prompt { tokens: u32::try_from(tokens.len()).unwrap_or(u32::MAX), blocks }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn count(text: &str) -> usize {
        of_text(text).len()
    }

    #[test]
    fn words_are_split_as_documented() {
        for (text, tokens) in [
            ("", 0),
            ("a", 1),
            (" word", 1),
            ("words", 1),
            ("wordss", 2),
            ("two words", 2),
            ("two  words", 3),
            ("    ", 1),
            ("     ", 2),
            ("a, b", 3),
            ("....", 1),
            ("äöü", 3),
            ("世界", 2),
            ("\0", 1),
        ] {
            assert_eq!(count(text), tokens, "{text:?}");
        }
    }

    #[test]
    fn english_has_about_four_bytes_a_token() {
        let text = "The architecture of a building is shaped by the climate, the materials at hand \
                    and the habits of the people who are going to live in it.";
        let ratio = text.len() as f64 / count(text) as f64;
        assert!((3.5..4.5).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_block_hash_depends_on_everything_before_it() {
        let prompt = |text: &str| to_prompt(&of_text(text), 2);
        let (one, other) = (prompt("a b c d e"), prompt("x b c d e"));
        assert_eq!(one.blocks.len(), 2);
        assert_ne!(one.blocks[1], other.blocks[1]);
        assert_eq!(one.blocks, prompt("a b c d f").blocks);
    }

    proptest! {
        #[test]
        fn every_text_has_tokens_of_one_to_six_bytes(text in ".{0,200}") {
            let tokens = count(&text);
            prop_assert!(tokens <= text.len());
            prop_assert!(tokens * 6 >= text.len());
        }

        #[test]
        fn a_longer_text_keeps_the_blocks_of_its_beginning(text in "[a-z ,é]{0,300}", more in " [a-z ]{0,100}") {
            let short = to_prompt(&of_text(&text), 4);
            let long = to_prompt(&of_text(&format!("{text}.{more}")), 4);
            prop_assert!(long.blocks.starts_with(&short.blocks[..short.blocks.len().saturating_sub(1)]));
        }
    }
}
