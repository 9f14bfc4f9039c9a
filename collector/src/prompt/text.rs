//! How a prompt is put together: a tag at the very beginning, a document of the wanted length, a task at the end. Pure.

/// What a prompt begins with. Prefix caches work from the first token on: prompts with different tags share nothing
/// but the chat template's own beginning and, at most, a few characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// The context that all streams of the matrix share.
    Shared,
    /// Asked ahead to learn its length, and never measured.
    Probe(u32),
    /// A request of one stream alone.
    Own {
        /// The cell, in order of execution.
        cell: u32,
        /// The stream; 9999 for the request ahead of the streams.
        stream: u32,
        /// The request's number in it.
        ordinal: u32,
    },
    /// A repetition of a cold prefill.
    Repeat(u32),
    /// Sent before anything is measured.
    Warmup(u32),
    /// Sent to find out whether the server keeps prefixes.
    PrefixCache(u32),
}

impl Tag {
    /// The request of a cell that goes ahead of its streams, where each has a context of its own.
    pub(super) const AHEAD: u32 = 9999;

    /// The words in front of the document. All of one kind have about the same number of tokens.
    pub(super) fn words(self, run_id: &str, context: u32) -> String {
        let place = match self {
            Self::Shared => "A".to_owned(),
            Self::Probe(n) => format!("P{n}"),
            Self::Own { cell, stream, ordinal } => format!("{cell:04}-{stream:04}-{ordinal:04}"),
            Self::Repeat(n) => format!("R{n}"),
            Self::Warmup(n) => format!("W{n}"),
            Self::PrefixCache(n) => format!("C{n}"),
        };
        format!("[{place} {run_id} {context}] ")
    }

    /// The seed of the order of a document's sentences; `None`: as they were written.
    fn order(self) -> Option<u64> {
        let Self::Own { cell, stream, ordinal } = self else { return None };
        let place = u64::from(cell) << 42 ^ u64::from(stream) << 21 ^ u64::from(ordinal);
        Some(place.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

const INTRODUCTION: &str = "Read the document below, then do the task that follows it.\n\n";
const CLOSE: &str = "\n\nThe document ends here. ";
/// A document shorter than that is no document: the words go without introduction.
const SHORTEST_DOCUMENT: usize = 64;

/// The part of a prompt between its tag and its task, of exactly `chars` characters. A cut inside a word costs a
/// token at most, and a length to the character is what servers need that count bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Document {
    introduction: &'static str,
    filler: String,
    close: &'static str,
}

impl Document {
    /// Of `chars` characters, from the beginning of `filler`; shorter where that is.
    pub(super) fn new(filler: &str, chars: usize) -> Self {
        let frame = INTRODUCTION.len() + CLOSE.len();
        let (introduction, close, rest) =
            if chars >= frame + SHORTEST_DOCUMENT { (INTRODUCTION, CLOSE, chars - frame) } else { ("", "", chars) };
        Self { introduction, filler: filler.get(..rest).unwrap_or(filler).to_owned(), close }
    }

    /// Its length.
    pub(super) fn chars(&self) -> usize {
        self.introduction.len() + self.filler.len() + self.close.len()
    }

    /// All of the prompt but its task, as it stands inside a string of JSON.
    pub(super) fn json(&self, at: &Place<'_>) -> String {
        self.assembled(at, json_inside)
    }

    /// The same as plain text.
    pub(super) fn plain(&self, at: &Place<'_>) -> String {
        self.assembled(at, str::to_owned)
    }

    fn assembled(&self, at: &Place<'_>, escaped: impl Fn(&str) -> String) -> String {
        let mut text = String::with_capacity(self.chars() + 128);
        text.push_str(&escaped(&at.tag.words(at.run_id, at.context)));
        text.push_str(&escaped(self.introduction));
        // Letters, blanks and full stops: nothing that JSON would want to have escaped.
        match at.tag.order() {
            Some(order) => shuffled(&self.filler, at.seed ^ order, &mut text),
            None => text.push_str(&self.filler),
        }
        text.push_str(&escaped(self.close));
        text
    }
}

/// Which prompt of a run a document is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) tag: Tag,
    pub(super) run_id: &'a str,
    pub(super) context: u32,
    pub(super) seed: u64,
}

/// The same sentences in another order: another text of the same number of tokens, made by copying. What is cut off in
/// the middle stays at the end.
fn shuffled(filler: &str, seed: u64, into: &mut String) {
    let mut sentences: Vec<&str> = filler.split_inclusive(". ").collect();
    let last = sentences.pop();
    fastrand::Rng::with_seed(seed).shuffle(&mut sentences);
    sentences.into_iter().chain(last).for_each(|sentence| into.push_str(sentence));
}

const SUBJECTS: [&str; 16] = [
    "mathematics",
    "navigation",
    "astronomy",
    "printing",
    "medicine",
    "agriculture",
    "architecture",
    "music",
    "chemistry",
    "cartography",
    "weaving",
    "metallurgy",
    "trade",
    "optics",
    "clocks",
    "law",
];

/// The task at the end of a prompt, of nearly the same length for all; (0, 0, 0) is nobody's. The cell is in it, as a
/// server that keeps prefixes would have read the whole prompt before, in another cell of that context.
pub(super) fn ending(cell: u32, stream: u32, turn: u32) -> String {
    let at = (cell as usize + stream as usize + 5 * turn as usize) % SUBJECTS.len();
    let subject = SUBJECTS.get(at).copied().unwrap_or("mathematics");
    format!(
        "Task {cell:04}-{stream:04}-{turn:04}: write an encyclopaedia article about the history of {subject}, as long and as detailed as you can, chapter after chapter, from its beginnings to our time. Do not summarise and do not stop early."
    )
}

/// Text as it stands between the quotes of JSON.
pub(super) fn json_inside(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::prose;
    use super::*;

    const OWN: [Tag; 4] = [
        Tag::Own { cell: 0, stream: 0, ordinal: 0 },
        Tag::Own { cell: 0, stream: 0, ordinal: 1 },
        Tag::Own { cell: 0, stream: 1, ordinal: 0 },
        Tag::Own { cell: 1, stream: 0, ordinal: 0 },
    ];

    fn at(tag: Tag, seed: u64) -> Place<'static> {
        Place { tag, run_id: "abcdefghijkl", context: 8192, seed }
    }

    #[test]
    fn a_document_has_the_length_asked_for_to_the_character() {
        let filler = prose(1, 10_000);
        for chars in [0, 1, 63, 64, 148, 149, 200, 5_000] {
            let document = Document::new(&filler, chars);
            assert_eq!(document.chars(), chars);
            for tag in [Tag::Shared, OWN[3]] {
                let plain = document.plain(&at(tag, 1));
                assert_eq!(plain.len(), tag.words("abcdefghijkl", 8192).len() + chars);
                assert_eq!(document.json(&at(tag, 1)), json_inside(&plain));
            }
        }
    }

    #[test]
    fn documents_of_their_own_have_the_same_sentences_in_orders_of_their_own() {
        let document = Document::new(&prose(1, 40_000), 40_000);
        let sentences = |tag: Tag, seed| {
            let text = document.plain(&at(tag, seed)).split_once("\n\n").unwrap().1.to_owned();
            text.split(". ").map(str::to_owned).collect::<Vec<_>>()
        };
        let sorted = |mut all: Vec<String>| {
            all.sort_unstable();
            all
        };
        let all: Vec<_> = OWN.into_iter().map(|tag| sentences(tag, 7)).collect();
        for (place, one) in all.iter().enumerate() {
            assert!(one.len() > 300);
            assert_eq!(*one, sentences(OWN[place], 7), "the same again");
            for other in &all[place + 1..] {
                assert_eq!(sorted(one.clone()), sorted(other.clone()));
                let same = one.iter().zip(other).filter(|(a, b)| a == b).count();
                assert!(same <= 10, "{same} sentences are at the same place");
            }
        }
        assert_ne!(all[0], sentences(OWN[0], 8), "by seed");
    }

    #[test]
    fn tags_differ_from_their_first_characters_on() {
        let kinds = [Tag::Shared, Tag::Probe(0), OWN[0], Tag::Repeat(0), Tag::Warmup(0), Tag::PrefixCache(0)];
        let mut words: Vec<String> = kinds.iter().chain(&OWN[1..]).map(|tag| tag.words("abcdefghijkl", 8)).collect();
        assert!(words.iter().all(|words| words.contains("abcdefghijkl")));
        words.iter_mut().for_each(|words| *words = words.split(' ').next().unwrap().to_owned());
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), kinds.len() + OWN.len() - 1, "before the run id, by which they would be alike");
    }
}
