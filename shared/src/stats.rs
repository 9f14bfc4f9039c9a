//! Statistics and the formulas of speculative decoding: pure functions over plain numbers.

pub use crate::histogram::Histogram;

/// The p-th percentile of sorted values by linear interpolation between order statistics, at rank (n−1)·p/100
/// (Hyndman and Fan's type 7, NumPy's default); `None` of nothing.
pub fn percentile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let rank = last as f64 * (p / 100.0).clamp(0.0, 1.0);
    let low = rank.floor() as usize;
    let high = rank.ceil() as usize;
    let (a, b) = (*sorted.get(low)?, *sorted.get(high)?);
    Some(a + (b - a) * (rank - low as f64))
}

/// The same of values that stand for several each: `sorted` holds a value and how often it occurs.
pub fn weighted_percentile(sorted: &[(f64, u64)], p: f64) -> Option<f64> {
    let n = sorted.iter().fold(0u64, |n, (_, weight)| n.saturating_add(*weight));
    let last = n.checked_sub(1)?;
    let rank = last as f64 * (p / 100.0).clamp(0.0, 1.0);
    let at = |rank: f64| {
        let mut before = 0u64;
        let found = sorted.iter().find(|(_, weight)| {
            before = before.saturating_add(*weight);
            rank < before as f64
        });
        // Beyond 2⁵³ values a rank is no longer exact and may lie behind the last.
        found.or_else(|| sorted.iter().rfind(|(_, weight)| *weight > 0))
    };
    let (low, _) = at(rank.floor())?;
    let (high, _) = at(rank.ceil())?;
    Some(low + (high - low) * (rank - rank.floor()))
}

/// The arithmetic mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The values in ascending order, without those that aren't finite.
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Fewest values from which a percentile is shown: one value at the least must lie beyond it.
pub fn smallest_sample(p: f64) -> usize {
    (100.0 / (100.0 - p)).round() as usize
}

/// What a window's counters say of speculative decoding.
///
/// `drafts` D, `draft_tokens` T, `accepted` A and `output` O are increases over the same window. Steps count
/// a draft of one sequence each, so they compare only at the same concurrency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speculation {
    /// A/T.
    pub accept_rate: f64,
    /// 1 + A/D: tokens a verified step.
    pub accept_length: f64,
    /// D + max(0, O − (A + D)): steps with a draft and one for each token no draft explains.
    pub engine_steps: f64,
    /// O/steps.
    pub effective_length: f64,
}

impl Speculation {
    /// `None` where nothing was drafted or nothing came out.
    pub fn new(drafts: f64, draft_tokens: f64, accepted: f64, output: f64) -> Option<Self> {
        if !(drafts > 0.0 && draft_tokens > 0.0 && output > 0.0 && accepted >= 0.0) {
            return None;
        }
        let engine_steps = drafts + (output - (accepted + drafts)).max(0.0);
        Some(Speculation {
            accept_rate: accepted / draft_tokens,
            accept_length: 1.0 + accepted / drafts,
            engine_steps,
            effective_length: output / engine_steps,
        })
    }

    /// Steps a second at a rate of tokens a second.
    pub fn steps_per_s(&self, tokens_per_s: f64) -> f64 {
        tokens_per_s / self.effective_length
    }
}
