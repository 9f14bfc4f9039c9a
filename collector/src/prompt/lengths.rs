//! Whether prompts have the length that was asked for. Pure.

use crate::event::context_label;

/// A context within this many tokens, or this share of it, is as wanted.
const CLOSE_TOKENS: u64 = 8;
const CLOSE_SHARE: u64 = 500;

/// By how many tokens a prompt may differ from its context: 8, or 0.2 %.
#[must_use]
pub fn close_enough(context_tokens: u32) -> u64 {
    CLOSE_TOKENS.max(u64::from(context_tokens) / CLOSE_SHARE)
}

/// The prompt tokens of several requests of one context, as the server counted them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lengths {
    /// Requests.
    pub count: u64,
    /// The shortest.
    pub min: u64,
    /// Their mean.
    pub mean: f64,
    /// The longest.
    pub max: u64,
    /// Those that differ from the expected length by more than may be.
    pub off: u64,
}

impl Lengths {
    /// Of these; `expected` is what the prompts were made for. `None` of none.
    pub fn of(counts: impl IntoIterator<Item = u64>, expected: u64) -> Option<Self> {
        Self::against(counts, Some(expected))
    }

    /// The same; without an expected length none is off.
    pub fn against(counts: impl IntoIterator<Item = u64>, expected: Option<u64>) -> Option<Self> {
        let is_off = |tokens: u64| {
            expected.is_some_and(|expected| tokens.abs_diff(expected) > close_enough(u32::try_from(expected).unwrap_or(u32::MAX)))
        };
        let (mut all, mut sum) = (Self { count: 0, min: u64::MAX, mean: 0.0, max: 0, off: 0 }, 0);
        for tokens in counts {
            all.count += 1;
            sum += tokens;
            all.min = all.min.min(tokens);
            all.max = all.max.max(tokens);
            all.off += u64::from(is_off(tokens));
        }
        all.mean = sum as f64 / all.count as f64;
        (all.count > 0).then_some(all)
    }

    /// What is to be said where some were off.
    #[must_use]
    pub fn warning(&self, context_tokens: u32, expected: u64) -> Option<String> {
        let Self { count, min, max, off, .. } = self;
        let label = context_label(context_tokens);
        (*off > 0).then(|| format!("{off} of {count} prompts of context {label} have another length than the {expected} tokens they were made for: {min} to {max}, as the server counts"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn prompts_of_another_length_are_counted_and_said() {
        let lengths = Lengths::of([8_192, 8_208, 8_209, 8_000], 8_192).unwrap();
        assert_eq!((lengths.count, lengths.min, lengths.max, lengths.off), (4, 8_000, 8_209, 2));
        assert!((lengths.mean - 8_152.25).abs() < 1e-9);
        let warning = lengths.warning(8_192, 8_192).unwrap();
        assert!(warning.starts_with("2 of 4 prompts of context 8k"), "{warning}");
        assert_eq!(Lengths::of([100, 108], 100).unwrap().warning(100, 100), None);
        assert_eq!(Lengths::of([], 100), None, "nothing is not zero");
        let own = Lengths::against([7, 900], None).unwrap();
        assert_eq!((own.min, own.max, own.off), (7, 900, 0), "prompts of one's own have the length that they have");
    }

    #[test]
    fn eight_tokens_or_a_500th_may_be_missing() {
        assert_eq!([0, 512, 4_096, 8_192, 131_072].map(close_enough), [8, 8, 8, 16, 262]);
    }
}
