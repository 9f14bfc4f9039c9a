//! Finds text that repeats itself, as it comes: in linear time, with bounded memory, and exactly. Pure: it is told the
//! text and nothing else. A character is a Unicode code point.
//!
//! At the end of each block of 256 characters the last 64 are remembered, an anchor. Where the text says the same 64
//! again within 32,768 characters, the distance may be a period: from then on each character is compared with the one
//! a period before, for as long as they are the same. As an anchor lies in every 320 characters, a repetition is
//! noticed soon after it has begun, so that looking back for its beginning costs no more than reading it did.

use std::collections::VecDeque;

use sha2::{Digest as _, Sha256};

/// Characters between two looks.
pub const BLOCK: u64 = 256;
/// Characters of an anchor.
const ANCHOR: u64 = 64;
/// Longest period.
pub const MAX_PERIOD: u64 = 32_768;
/// Most periods that are followed at once.
const MOST_RUNS: usize = 64;
/// Characters that are kept: a period and what led to it. A power of two.
pub const KEPT: u64 = 65_536;
/// Places of the table of anchors: four times as many as are young enough. A power of two.
const PLACES_LOG2: u32 = 9;
/// Repeated characters, and cycles, from which a repetition is suspected, and from which it is sure.
const SUSPECTED_CHARS: u64 = 1_024;
const SUSPECTED_CYCLES: u64 = 3;
/// The same, from which it is sure.
pub const CONFIRMED_CHARS: u64 = 4_096;
/// The same, from which it is sure.
pub const CONFIRMED_CYCLES: u64 = 4;
/// Characters of the excerpts.
const CYCLE_EXCERPT: u64 = 512;
const CONTEXT_EXCERPT: u64 = 512;
const TAIL_EXCERPT: u64 = 1_024;
/// An odd number for the hash, and its 64th power, by which a character leaves it.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
const FACTOR_64: u64 = {
    let (mut power, mut n) = (1_u64, 0);
    while n < ANCHOR {
        power = power.wrapping_mul(FACTOR);
        n += 1;
    }
    power
};

/// A repetition at the end of the text as far as it had come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// Character where the first cycle begins.
    pub start: u64,
    /// Characters of a cycle.
    pub period: u64,
    /// Characters from there to the end, the first cycle included.
    pub repeated: u64,
    /// Whether it is sure.
    pub confirmed: bool,
    /// Character at which it was noticed.
    pub detected_at: u64,
    /// SHA-256 of one cycle in UTF-8.
    pub period_sha256: String,
    /// The beginning of one cycle.
    pub cycle_excerpt: String,
    /// What stood before the first cycle; empty where that is too long ago.
    pub context_excerpt: String,
    /// The end of the text.
    pub tail_excerpt: String,
}

impl Repetition {
    /// Whole cycles.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.repeated / self.period.max(1)
    }
}

/// A period that holds so far.
#[derive(Clone, Copy, Debug)]
struct Run {
    period: u64,
    /// The first character that is the same as the one a period before.
    from: u64,
}

impl Run {
    /// Characters of the repetition when the text has `n`.
    fn repeated(self, n: u64) -> u64 {
        n - self.from + self.period
    }
}

/// Reads one text.
#[derive(Clone, Debug)]
pub struct Detector {
    /// The last characters, in a ring once there are as many as are kept.
    chars: Vec<char>,
    /// Characters read.
    n: u64,
    /// Of the last 64 characters.
    hash: u64,
    /// Hash and end of anchors, by their hash; an end of 0 is none.
    anchors: Box<[(u64, u64)]>,
    runs: VecDeque<Run>,
    found: Option<Repetition>,
}

impl Default for Detector {
    fn default() -> Self {
        Self { chars: Vec::new(), n: 0, hash: 0, anchors: vec![(0, 0); 1 << PLACES_LOG2].into(), runs: VecDeque::new(), found: None }
    }
}

impl Detector {
    /// A detector that has read nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads more of the text. Whether a repetition was confirmed just now.
    pub fn push(&mut self, text: &str) -> bool {
        let was_sure = self.is_sure();
        for c in text.chars() {
            self.take(c);
        }
        self.is_sure() && !was_sure
    }

    /// The text is over: what stands at its end, or was confirmed before.
    #[must_use]
    pub fn finish(mut self) -> Option<Repetition> {
        self.look();
        self.found
    }

    /// What was found so far: the newest suspicion, or what was confirmed first.
    #[must_use]
    pub fn found(&self) -> Option<&Repetition> {
        self.found.as_ref()
    }

    /// Characters that it holds in memory.
    #[must_use]
    pub fn held(&self) -> usize {
        self.chars.capacity()
    }

    fn is_sure(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.confirmed)
    }

    fn at(&self, i: u64) -> char {
        self.chars.get((i % KEPT) as usize).copied().unwrap_or_default()
    }

    fn take(&mut self, c: char) {
        let n = self.n;
        if !self.runs.is_empty() {
            let mut runs = std::mem::take(&mut self.runs);
            runs.retain(|run| self.at(n - run.period) == c);
            self.runs = runs;
        }
        let leaving = if n >= ANCHOR { value(self.at(n - ANCHOR)) } else { 0 };
        self.hash = self.hash.wrapping_mul(FACTOR).wrapping_add(value(c)).wrapping_sub(leaving.wrapping_mul(FACTOR_64));
        match self.chars.get_mut((n % KEPT) as usize) {
            Some(place) => *place = c,
            None => self.chars.push(c),
        }
        self.n = n + 1;
        if self.n < ANCHOR {
            return;
        }
        let place = (self.hash >> (u64::BITS - PLACES_LOG2)) as usize;
        if let Some((hash, end)) = self.anchors.get(place).copied()
            && hash == self.hash
            && end > 0
        {
            self.same_again(self.n - end);
        }
        if self.n.is_multiple_of(BLOCK) {
            if let Some(anchor) = self.anchors.get_mut(place) {
                *anchor = (self.hash, self.n);
            }
            self.look();
        }
    }

    /// The last 64 characters seem to be those that stood `period` before.
    fn same_again(&mut self, period: u64) {
        let known = |run: &Run| period.is_multiple_of(run.period);
        if period > MAX_PERIOD || self.runs.len() >= MOST_RUNS || self.runs.iter().any(known) {
            return;
        }
        // The oldest character that can be compared has one a period before it that is still kept.
        let oldest = (self.n.saturating_sub(KEPT) + period).max(period);
        let mut from = self.n;
        while from > oldest && self.at(from - 1) == self.at(from - 1 - period) {
            from -= 1;
        }
        if self.n - from >= ANCHOR {
            self.runs.push_back(Run { period, from });
        }
    }

    /// Judges the periods that hold.
    fn look(&mut self) {
        if self.is_sure() {
            return;
        }
        let n = self.n;
        let long = |run: &&Run| run.repeated(n) >= SUSPECTED_CHARS.max(SUSPECTED_CYCLES * run.period);
        let said = |run: &&Run| !(n - run.period..n).all(|i| self.at(i).is_whitespace());
        let best = self.runs.iter().filter(long).filter(said).min_by_key(|run| run.period);
        if let Some(run) = best {
            self.found = Some(self.repetition(*run));
        }
    }

    fn repetition(&self, run: Run) -> Repetition {
        let (n, period, repeated) = (self.n, run.period, run.repeated(self.n));
        let start = n - repeated;
        // The last whole cycle that is in step with the first.
        let cycle = start + (repeated / period - 1) * period;
        let cycle_text = self.text(cycle, cycle + period);
        let kept_from = n.saturating_sub(KEPT);
        let context =
            if start >= kept_from { self.text(start.saturating_sub(CONTEXT_EXCERPT).max(kept_from), start) } else { String::new() };
        Repetition {
            start,
            period,
            repeated,
            confirmed: repeated >= CONFIRMED_CHARS.max(CONFIRMED_CYCLES * period),
            detected_at: n,
            period_sha256: Sha256::digest(cycle_text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect(),
            cycle_excerpt: cycle_text.chars().take(CYCLE_EXCERPT as usize).collect(),
            context_excerpt: context,
            tail_excerpt: self.text(n.saturating_sub(TAIL_EXCERPT), n),
        }
    }

    fn text(&self, from: u64, to: u64) -> String {
        (from..to).map(|i| self.at(i)).collect()
    }
}

/// Of a character in the hash; none has 0, or beginnings would be alike.
fn value(c: char) -> u64 {
    u64::from(u32::from(c)) + 1
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// Text that repeats nothing: words drawn at random.
    fn prose(chars: usize, seed: u64) -> String {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut text = String::new();
        while text.chars().count() < chars {
            text.extend(std::iter::repeat_with(|| random.lowercase()).take(2 + seed as usize % 7));
            text.push(' ');
        }
        text.chars().take(chars).collect()
    }

    fn read(text: &str, piece: usize) -> Option<Repetition> {
        let mut detector = Detector::new();
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(piece) {
            detector.push(&piece.iter().collect::<String>());
        }
        detector.finish()
    }

    /// The rule, word by word: the smallest period for which the end of `text` is periodic for long enough.
    fn by_rule(text: &[char]) -> Option<(u64, u64)> {
        let n = text.len();
        (1..n.min(MAX_PERIOD as usize)).find_map(|period| {
            let same = (period..n).rev().take_while(|i| text[*i] == text[i - period]).count();
            let repeated = (same + period) as u64;
            let said = !text[n - period..].iter().all(|c| c.is_whitespace());
            (same > 0 && said && repeated >= 1_024.max(3 * period as u64)).then_some((period as u64, repeated))
        })
    }

    #[test]
    fn a_loop_is_found_with_its_beginning_period_and_cycles() {
        for (period, cycles) in [(1, 5_000), (2, 3_000), (37, 200), (130, 40), (1_000, 6), (1_024, 5), (7_001, 5), (32_768, 5)] {
            let text = prose(3_000, 1) + "|" + &prose(period, 2).repeat(cycles);
            let found = read(&text, 5).unwrap();
            assert!(found.confirmed, "{period}");
            assert_eq!((found.period, found.start), (period as u64, 3_001), "{period}");
            assert!(found.cycles() >= 4 && found.repeated >= 4_096 && found.repeated < 4_096.max(4 * period as u64) + 320 + 256);
            assert_eq!(found.start + found.repeated, found.detected_at);
            assert_eq!(found.cycle_excerpt, prose(period, 2).chars().take(512).collect::<String>());
            let sum: String = Sha256::digest(prose(period, 2)).iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(found.period_sha256, sum, "{period}");
            let before: String = text.chars().take(3_001).skip(3_001 - 512).collect();
            assert_eq!(found.context_excerpt, if found.repeated <= KEPT { &before } else { "" }, "{period}");
            assert_eq!(found.tail_excerpt.chars().count(), 1_024);
        }
    }

    #[test]
    fn less_than_four_cycles_or_4096_characters_is_a_suspicion() {
        let looped = |period: usize, chars: usize| {
            let cycle = prose(period, 4) + "|";
            prose(777, 3) + &cycle.repeat(chars / period + 1).chars().take(chars).collect::<String>()
        };
        for (period, chars, confirmed) in [
            (99, 4_095, Some(false)),
            (99, 4_096, Some(true)),
            (1_999, 7_999, Some(false)),
            (1_999, 8_000, Some(true)),
            (1_999, 5_999, None),
            (99, 1_023, None),
        ] {
            assert_eq!(read(&looped(period, chars), 64).map(|found| found.confirmed), confirmed, "{chars} characters of {period}");
        }
    }

    #[test]
    fn text_that_repeats_nothing_or_only_white_space_or_only_parts_is_clean() {
        assert_eq!(read(&prose(200_000, 3), 7), None);
        assert_eq!(read(&(prose(300, 3) + &" \n".repeat(5_000)), 7), None);
        // A table: each line begins alike and ends otherwise.
        let table: String = (0..3_000).map(|n| format!("| a long beginning that is the same in each line of the table, {n} |\n")).collect();
        assert_eq!(read(&table, 7), None);
        // A rule of many dashes is none either, as long as it ends.
        let rules = (0..40).map(|n| "-".repeat(900) + &prose(700, n)).collect::<String>();
        assert_eq!(read(&rules, 7), None);
        assert_eq!(read("", 1), None);
    }

    #[test]
    fn a_loop_that_ended_before_it_was_sure_is_still_told_as_suspected() {
        let found = read(&(prose(500, 3) + &prose(100, 4).repeat(30) + &prose(3_000, 5)), 9).unwrap();
        assert!(!found.confirmed && found.period == 100);
    }

    #[test]
    fn rules_of_dashes_inside_a_cycle_hide_it_not() {
        let cycle = prose(900, 1) + &"-".repeat(700) + &prose(400, 2);
        let found = read(&(prose(100, 3) + &cycle.repeat(6)), 11).unwrap();
        assert!(found.confirmed);
        assert_eq!((found.period, found.start), (2_000, 100));
    }

    #[test]
    fn characters_are_code_points() {
        let found = read(&("é😀".to_owned() + &"Ж😀漢".repeat(1_500)), 3).unwrap();
        assert_eq!((found.period, found.start), (3, 2));
        assert_eq!(found.cycle_excerpt, "Ж😀漢");
    }

    #[test]
    fn memory_has_an_end() {
        let mut detector = Detector::new();
        for n in 0..40 {
            detector.push(&prose(50_000, n));
        }
        assert!(detector.held() <= KEPT as usize);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Where the rule sees a loop at the end, so does the detector, with the same period and beginning.
        #[test]
        fn it_finds_what_the_rule_finds(lead in 0usize..900, period in 1usize..500, chars in 0usize..6_000, letters in 2u8..5, piece in 1usize..40, seed in any::<u64>()) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut draw = |n: usize| (0..n).map(|_| char::from(b'a' + random.u8(..letters))).collect::<String>();
            let (lead, cycle) = (draw(lead), draw(period));
            let text: String = lead.chars().chain(cycle.chars().cycle().take(chars)).collect();
            let found = read(&text, piece).filter(|found| found.confirmed || found.start + found.repeated == text.len() as u64);
            let chars: Vec<char> = text.chars().collect();
            match by_rule(&chars) {
                None => prop_assert!(found.is_none_or(|found| found.confirmed)),
                // So short a repetition may not have met an anchor yet.
                Some((_, repeated)) if repeated < 1_344 => {}
                Some((period, repeated)) => {
                    let found = found.unwrap();
                    prop_assert_eq!(found.period, period);
                    prop_assert_eq!(found.start, text.len() as u64 - repeated);
                }
            }
        }
    }
}
