//! Filler text: sentences of an invented gazetteer, drawn word by word from a seeded generator, so
//! that they are the same for the same seed and do not come back every few sentences.

use fastrand::Rng;

const NOUNS: &[&str] = &[
    "harbour",
    "lantern",
    "orchard",
    "ledger",
    "mountain",
    "printer",
    "river",
    "signal",
    "teacher",
    "valley",
    "window",
    "archive",
    "bridge",
    "captain",
    "engine",
    "festival",
    "garden",
    "hospital",
    "island",
    "journal",
    "kitchen",
    "library",
    "market",
    "notebook",
    "observer",
    "pattern",
    "quarry",
    "railway",
    "station",
    "theory",
    "village",
    "weather",
    "workshop",
    "anchor",
    "border",
    "canal",
    "dictionary",
    "element",
    "forest",
    "glacier",
    "history",
    "instrument",
    "merchant",
    "number",
    "ocean",
    "painter",
    "question",
    "record",
    "season",
    "tunnel",
    "universe",
    "voyage",
    "wheel",
    "committee",
    "telescope",
    "proposal",
    "sculptor",
    "treaty",
    "granary",
    "meadow",
    "current",
    "debate",
    "furnace",
    "horizon",
    "citizen",
    "compass",
    "shelter",
    "manuscript",
];
const ADJECTIVES: &[&str] = &[
    "ancient",
    "bright",
    "careful",
    "distant",
    "early",
    "familiar",
    "gentle",
    "hidden",
    "immense",
    "jagged",
    "known",
    "local",
    "modern",
    "narrow",
    "open",
    "patient",
    "quiet",
    "remote",
    "silent",
    "tall",
    "unusual",
    "vivid",
    "weathered",
    "young",
    "broken",
    "curious",
    "double",
    "empty",
    "frozen",
    "golden",
    "hollow",
    "iron",
    "northern",
    "ordinary",
    "pale",
    "restless",
    "shallow",
    "temporary",
    "uneven",
    "wooden",
];
const VERBS: &[&str] = &[
    "follows",
    "describes",
    "carries",
    "measures",
    "remembers",
    "crosses",
    "repairs",
    "reflects",
    "borrows",
    "collects",
    "divides",
    "explains",
    "guards",
    "imitates",
    "joins",
    "mentions",
    "observes",
    "protects",
    "questions",
    "replaces",
    "separates",
    "translates",
    "visits",
    "watches",
    "balances",
    "changes",
    "delays",
    "examines",
    "gathers",
    "improves",
    "lifts",
    "outlives",
    "predicts",
    "resembles",
    "supports",
    "survives",
];
const ADVERBS: &[&str] = &[
    "slowly",
    "often",
    "rarely",
    "quietly",
    "twice",
    "again",
    "carefully",
    "nearly",
    "once",
    "always",
    "seldom",
    "openly",
    "suddenly",
    "hardly",
];
const PREPOSITIONS: &[&str] =
    &["near", "beyond", "under", "across", "behind", "above", "beside", "within", "before", "after", "without", "along"];
const LINKS: &[&str] = &["while", "because", "although", "until", "whenever", "and", "but", "so that"];

/// Text of at least `chars` characters that ends with a sentence; all of it is ASCII.
#[must_use]
pub fn prose(seed: u64, chars: usize) -> String {
    let mut rng = Rng::with_seed(seed);
    let mut text = String::with_capacity(chars + 256);
    while text.len() < chars {
        sentence(&mut rng, &mut text);
    }
    text
}

fn sentence(rng: &mut Rng, text: &mut String) {
    let start = text.len();
    clause(rng, text);
    if rng.u8(..3) > 0 {
        text.push(' ');
        text.push_str(pick(rng, LINKS));
        text.push(' ');
        clause(rng, text);
    }
    if let Some(first) = text.get_mut(start..=start) {
        first.make_ascii_uppercase();
    }
    text.push_str(". ");
}

fn clause(rng: &mut Rng, text: &mut String) {
    phrase(rng, text);
    if rng.bool() {
        text.push(' ');
        text.push_str(pick(rng, ADVERBS));
    }
    text.push(' ');
    text.push_str(pick(rng, VERBS));
    text.push(' ');
    phrase(rng, text);
    if rng.bool() {
        text.push(' ');
        text.push_str(pick(rng, PREPOSITIONS));
        text.push(' ');
        phrase(rng, text);
    }
}

fn phrase(rng: &mut Rng, text: &mut String) {
    text.push_str(pick(rng, &["the", "a certain", "every", "that", "no"]));
    if rng.bool() {
        text.push(' ');
        text.push_str(pick(rng, ADJECTIVES));
    }
    text.push(' ');
    text.push_str(pick(rng, NOUNS));
}

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from.get(rng.usize(..from.len())).copied().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_same_seed_gives_the_same_text_and_a_longer_one_begins_with_it() {
        let short = prose(7, 1_000);
        assert!(prose(7, 50_000).starts_with(&short));
        assert!(!prose(8, 1_000).starts_with(short.get(..100).unwrap_or("")));
        assert!(short.is_ascii());
    }

    #[test]
    fn sentences_do_not_come_back() {
        let text = prose(1, 1_000_000);
        let sentences: Vec<&str> = text.split(". ").filter(|s| !s.is_empty()).collect();
        let distinct: HashSet<&&str> = sentences.iter().collect();
        assert!(sentences.len() > 8_000);
        assert!(distinct.len() * 1000 > sentences.len() * 999);
    }

    #[test]
    fn no_block_of_64_characters_comes_back() {
        for seed in [1, 7, 1234] {
            let text = prose(seed, 100_000);
            let text = text.as_bytes();
            let mut seen = HashSet::new();
            let back = text.windows(64).filter(|block| !seen.insert(*block)).count();
            assert!(back <= 10, "seed {seed}: {back} of {}", text.len());
        }
    }
}
