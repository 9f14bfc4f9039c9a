//! From options to an ordered list of cells, with the reasons for those left out. Pure: it asks
//! nobody and sends nothing.

use std::collections::BTreeMap;

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

/// What is wrong with a list given on the command line. Each is one sentence without the option's
/// name, which the caller puts in front.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ListError {
    /// Nothing in it.
    #[error("the list is empty; give at least one value, e.g. {example}")]
    Empty {
        /// A list that would do.
        example: &'static str,
    },
    /// An item between two commas is missing.
    #[error("there is an empty item in '{list}'; remove the extra comma")]
    EmptyItem {
        /// The list as given.
        list: String,
    },
    /// Not a number.
    #[error("cannot read '{item}'; write {expected}")]
    Unreadable {
        /// The item as given.
        item: String,
        /// What would be read.
        expected: &'static str,
    },
    /// A number that makes no sense here.
    #[error("'{item}' is too small; the least is {least}")]
    TooSmall {
        /// The item as given.
        item: String,
        /// The least allowed.
        least: u32,
    },
    /// A number beyond all servers.
    #[error("'{item}' is too large; the most is {most}")]
    TooLarge {
        /// The item as given.
        item: String,
        /// The most allowed.
        most: u32,
    },
    /// Twice the same.
    #[error("{value} is listed twice; remove one")]
    Duplicate {
        /// The value.
        value: String,
    },
}

/// Tokens as people write them: `0`, `512`, `32k`, `1.5k`, `1m` (k = 1024, m = 1024²; fractions
/// of a token are dropped).
///
/// # Errors
/// Text that is no such number, negative numbers, more than 2³¹ tokens.
pub fn parse_tokens(text: &str) -> Result<u32, ListError> {
    const EXPECTED: &str = "tokens as 512, 32k, 1.5k or 1m";
    const MOST: u32 = 1 << 31;
    let item = text.trim();
    let unreadable = || ListError::Unreadable { item: item.to_owned(), expected: EXPECTED };
    let (number, factor) = match item.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&item[..at], 1024.0),
        Some((at, 'm' | 'M')) => (&item[..at], 1024.0 * 1024.0),
        _ => (item, 1.0),
    };
    let (sign, digits) = match number.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, number),
    };
    let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let has_digit = digits.bytes().any(|b| b.is_ascii_digit());
    if !plain || !has_digit || (factor == 1.0 && digits.contains('.')) {
        return Err(unreadable());
    }
    let value: f64 = digits.parse().map_err(|_| unreadable())?;
    if sign < 0.0 {
        return Err(ListError::TooSmall { item: item.to_owned(), least: 0 });
    }
    let tokens = (value * factor).floor();
    if tokens > f64::from(MOST) {
        return Err(ListError::TooLarge { item: item.to_owned(), most: MOST });
    }
    // In range by the check above; whole by floor.
    Ok(tokens as u32)
}

/// `--contexts`: a comma-separated list of [`parse_tokens`] values without duplicates.
///
/// # Errors
/// As [`parse_tokens`]; an empty list or item, a duplicate.
pub fn parse_contexts(list: &str) -> Result<Vec<u32>, ListError> {
    parse_list(list, "0,16k,32k", parse_tokens)
}

/// `--concurrency`: a comma-separated list of whole numbers from 1, without duplicates.
///
/// # Errors
/// Zero, negative or unreadable numbers, more than 65536; an empty list or item, a duplicate.
pub fn parse_concurrency(list: &str) -> Result<Vec<u32>, ListError> {
    const MOST: u32 = 65_536;
    parse_list(list, "1,4,16", |text| {
        let item = text.trim();
        let unreadable = || ListError::Unreadable { item: item.to_owned(), expected: "whole numbers as 1,4,16" };
        let value: i64 = item.parse().map_err(|_| unreadable())?;
        match u32::try_from(value) {
            Ok(v) if (1..=MOST).contains(&v) => Ok(v),
            _ if value < 1 => Err(ListError::TooSmall { item: item.to_owned(), least: 1 }),
            _ => Err(ListError::TooLarge { item: item.to_owned(), most: MOST }),
        }
    })
}

fn parse_list(list: &str, example: &'static str, parse: impl Fn(&str) -> Result<u32, ListError>) -> Result<Vec<u32>, ListError> {
    if list.trim().is_empty() {
        return Err(ListError::Empty { example });
    }
    let mut values = Vec::new();
    for item in list.split(',') {
        if item.trim().is_empty() {
            let list = list.to_owned();
            return Err(ListError::EmptyItem { list });
        }
        let value = parse(item)?;
        if values.contains(&value) {
            let value = item.trim().to_owned();
            return Err(ListError::Duplicate { value });
        }
        values.push(value);
    }
    Ok(values)
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

    #[test]
    fn token_values_read_as_people_write_them() {
        for (text, want) in [("0", 0), ("512", 512), ("32k", 32_768), (" 1.5K ", 1536), ("0.3k", 307), ("1m", 1 << 20), ("2M", 2 << 20)] {
            assert_eq!(parse_tokens(text).unwrap(), want, "{text}");
        }
        for text in ["", "k", "1.5", "4g", "1e3", "0x10", "1_000", "٣k", "1.2.3k", "inf", "nan", "--1"] {
            assert!(matches!(parse_tokens(text), Err(ListError::Unreadable { .. })), "{text}");
        }
        assert!(matches!(parse_tokens("-1k"), Err(ListError::TooSmall { .. })));
        assert!(matches!(parse_tokens("9999m"), Err(ListError::TooLarge { .. })));
    }

    #[test]
    fn lists_refuse_what_makes_no_sense_in_words() {
        let text = |e: Result<Vec<u32>, ListError>| e.unwrap_err().to_string();
        assert_eq!(parse_contexts("0, 16k,1m").unwrap(), [0, 16_384, 1 << 20]);
        assert_eq!(parse_concurrency("1,7, 2").unwrap(), [1, 7, 2]);
        assert!(text(parse_contexts(" ")).contains("empty"));
        assert!(text(parse_contexts("1k,,2k")).contains("extra comma"));
        assert!(text(parse_contexts("1k,1024")).contains("listed twice"));
        assert!(text(parse_concurrency("1,0")).contains("least is 1"));
        assert!(text(parse_concurrency("-4")).contains("least is 1"));
        assert!(text(parse_concurrency("4k")).contains("whole numbers"));
        assert!(text(parse_concurrency("2,2")).contains("listed twice"));
        assert!(text(parse_concurrency("70000")).contains("most is 65536"));
    }
}
