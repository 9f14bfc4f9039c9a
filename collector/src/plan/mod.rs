//! From options to an ordered list of cells, with the reasons for those left out. Pure: it asks
//! nobody and sends nothing.

mod lists;

use std::collections::BTreeMap;

pub use lists::{ListError, parse_concurrency, parse_contexts, parse_tokens};

use crate::event::context_label;

/// Tokens that must be left for output before a context counts as fitting the model.
const MIN_OUTPUT_TOKENS: u64 = 64;
/// Kept free when `max_tokens` is clamped: endings of prompts differ by a few tokens.
const CLAMP_SLACK_TOKENS: u64 = 16;

/// What the plan is made from.
#[derive(Clone, Debug, Default)]
pub struct PlanInput {
    /// Contexts in tokens, in the order asked for.
    pub contexts: Vec<u32>,
    /// Concurrency levels, in the order asked for.
    pub concurrency: Vec<u32>,
    /// Output limit per request, tokens.
    pub max_tokens: u32,
    /// Tokens the KV cache holds; `None`: unknown, nothing is left out for it.
    pub kv_budget_tokens: Option<u64>,
    /// Requests the server runs at once; `None`: unknown.
    pub max_running: Option<u64>,
    /// The model's context limit in tokens; `None`: unknown.
    pub max_model_len: Option<u64>,
    /// Real prompt tokens of a context where they are known; else the context is taken at its word.
    pub prompt_tokens: BTreeMap<u32, u64>,
}

/// A cell to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedCell {
    /// Requested context, tokens.
    pub context_tokens: u32,
    /// Streams at once.
    pub concurrency: u32,
    /// Output limit of this cell's requests, tokens.
    pub max_tokens: u32,
    /// What was asked for, if `max_tokens` had to be lowered to fit the model's limit.
    pub clamped_from: Option<u32>,
}

/// Why a cell is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOutCode {
    /// Its tokens do not fit into the KV cache.
    KvBudget,
    /// The server does not run that many requests at once.
    MaxRunning,
    /// The context does not fit the model.
    ContextLimit,
}

impl LeftOutCode {
    /// The code as the report writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KvBudget => "kv-budget",
            Self::MaxRunning => "max-running",
            Self::ContextLimit => "context-limit",
        }
    }
}

/// A cell that is not measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The layer it belongs to; `sustained_decode` here.
    pub layer: &'static str,
    /// Requested context, tokens.
    pub context_tokens: u32,
    /// Streams at once.
    pub concurrency: u32,
    /// Why.
    pub code: LeftOutCode,
    /// Tokens that are missing; absent where tokens are not what is missing.
    pub missing_tokens: Option<u64>,
    /// Why, with the numbers and the rule.
    pub text: String,
}

/// The cells in the order they are run, and those that are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To measure, in this order.
    pub cells: Vec<PlannedCell>,
    /// Left out, in the same order.
    pub left_out: Vec<LeftOut>,
}

/// Makes the plan. Order: all contexts at the first concurrency, then the first context at the
/// others, then the remaining contexts row by row.
#[must_use]
pub fn plan(input: &PlanInput) -> Plan {
    let mut plan = Plan::default();
    for (context_tokens, concurrency) in order(&input.contexts, &input.concurrency) {
        match judge(input, context_tokens, concurrency) {
            Ok(cell) => plan.cells.push(cell),
            Err((code, missing_tokens, text)) => {
                plan.left_out.push(LeftOut { layer: "sustained_decode", context_tokens, concurrency, code, missing_tokens, text });
            }
        }
    }
    plan
}

fn order(contexts: &[u32], concurrency: &[u32]) -> Vec<(u32, u32)> {
    let (Some((&c0, more_c)), Some((&ctx0, more_ctx))) = (concurrency.split_first(), contexts.split_first()) else {
        return Vec::new();
    };
    let mut cells: Vec<_> = contexts.iter().map(|&ctx| (ctx, c0)).collect();
    cells.extend(more_c.iter().map(|&c| (ctx0, c)));
    for &ctx in more_ctx {
        cells.extend(more_c.iter().map(|&c| (ctx, c)));
    }
    cells
}

type Refusal = (LeftOutCode, Option<u64>, String);

fn judge(input: &PlanInput, context_tokens: u32, concurrency: u32) -> Result<PlannedCell, Refusal> {
    let label = context_label(context_tokens);
    let known = input.prompt_tokens.get(&context_tokens);
    let prompt = known.copied().unwrap_or(u64::from(context_tokens));
    if let Some(limit) = input.max_running
        && u64::from(concurrency) > limit
    {
        let text = format!("C={concurrency} is more than the {limit} requests the server runs at once");
        return Err((LeftOutCode::MaxRunning, None, text));
    }
    let mut max_tokens = input.max_tokens;
    if let Some(limit) = input.max_model_len {
        let least = u64::from(context_tokens) + MIN_OUTPUT_TOKENS;
        if least > limit {
            let text =
                format!("context {label} and {MIN_OUTPUT_TOKENS} tokens of output need {least} tokens, the model's limit is {limit}");
            return Err((LeftOutCode::ContextLimit, Some(least - limit), text));
        }
        let room = limit.saturating_sub(prompt + CLAMP_SLACK_TOKENS).max(1);
        max_tokens = max_tokens.min(u32::try_from(room).unwrap_or(u32::MAX));
    }
    if let Some(budget) = input.kv_budget_tokens {
        let need = u64::from(concurrency) * (prompt + u64::from(max_tokens));
        if need > budget {
            let text = format!("{concurrency} x ({prompt} prompt + {max_tokens} output) = {need} tokens, the KV cache holds {budget}");
            return Err((LeftOutCode::KvBudget, Some(need - budget), text));
        }
    }
    let clamped_from = (max_tokens < input.max_tokens).then_some(input.max_tokens);
    Ok(PlannedCell { context_tokens, concurrency, max_tokens, clamped_from })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn input(contexts: &[u32], concurrency: &[u32]) -> PlanInput {
        PlanInput { contexts: contexts.to_vec(), concurrency: concurrency.to_vec(), max_tokens: 1000, ..PlanInput::default() }
    }

    #[test]
    fn order_is_first_column_then_first_row_then_rows() {
        let plan = plan(&input(&[0, 100, 200], &[1, 2, 4]));
        let got: Vec<_> = plan.cells.iter().map(|c| (c.context_tokens, c.concurrency)).collect();
        let want = [(0, 1), (100, 1), (200, 1), (0, 2), (0, 4), (100, 2), (100, 4), (200, 2), (200, 4)];
        assert_eq!(got, want);
    }

    #[test]
    fn a_cell_beyond_the_kv_budget_is_left_out_with_what_is_missing() {
        let mut i = input(&[0, 4000], &[1, 4]);
        i.kv_budget_tokens = Some(10_000);
        let plan = plan(&i);
        assert_eq!(plan.cells.len(), 3, "context 0 at C=4 needs 4000 and stays");
        let out = &plan.left_out[0];
        assert_eq!((out.context_tokens, out.concurrency), (4000, 4));
        assert_eq!(out.code.as_str(), "kv-budget");
        assert_eq!(out.missing_tokens, Some(4 * 5000 - 10_000));
        assert_eq!(plan.left_out.len(), 1);
    }

    #[test]
    fn context_zero_is_not_exempt_from_the_kv_budget() {
        let mut i = input(&[0], &[11]);
        i.kv_budget_tokens = Some(10_999);
        i.max_running = Some(16);
        assert_eq!(plan(&i).left_out[0].missing_tokens, Some(1));
        i.kv_budget_tokens = Some(11_000);
        assert!(plan(&i).left_out.is_empty(), "an exact fit fits");
    }

    #[test]
    fn more_streams_than_the_server_runs_are_left_out_and_as_many_are_not() {
        let mut i = input(&[0], &[8, 9]);
        i.max_running = Some(8);
        let plan = plan(&i);
        assert_eq!(plan.cells.len(), 1);
        assert_eq!(plan.left_out[0].code, LeftOutCode::MaxRunning);
        assert_eq!(plan.left_out[0].missing_tokens, None);
    }

    #[test]
    fn a_context_that_leaves_64_tokens_stays_and_max_tokens_is_clamped() {
        let mut i = input(&[8128, 8129], &[1]);
        i.max_model_len = Some(8192);
        let plan = plan(&i);
        let cell = plan.cells[0];
        assert_eq!(cell.clamped_from, Some(1000));
        assert_eq!(cell.max_tokens, 64 - 16);
        assert_eq!(plan.left_out[0].code, LeftOutCode::ContextLimit);
        assert_eq!(plan.left_out[0].missing_tokens, Some(1));
    }

    #[test]
    fn a_clamped_cell_needs_less_kv_and_a_known_prompt_length_counts() {
        let mut i = input(&[4000], &[2]);
        i.max_model_len = Some(4516);
        i.kv_budget_tokens = Some(2 * 4500);
        let cell = plan(&i).cells[0];
        assert_eq!((cell.max_tokens, cell.clamped_from), (500, Some(1000)));
        i.prompt_tokens.insert(4000, 4001);
        assert_eq!(plan(&i).cells[0].max_tokens, 499);
    }

    #[test]
    fn without_clamp_nothing_is_said_to_be_clamped() {
        let mut i = input(&[0], &[1]);
        i.max_model_len = Some(8192);
        assert_eq!(plan(&i).cells[0].clamped_from, None);
    }
}
