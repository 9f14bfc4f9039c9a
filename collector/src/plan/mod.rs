//! From options to an ordered list of cells, with the reasons for those left out. Pure: it asks
//! nobody and sends nothing.

mod lists;

use std::collections::BTreeMap;

pub use lists::{ListError, parse_concurrency, parse_contexts, parse_tokens};

use crate::event::context_label;

/// Tokens that must be left for output before a context counts as fitting the model.
pub const MIN_OUTPUT_TOKENS: u64 = 64;
/// Kept free when `max_tokens` is clamped: endings of prompts differ by a few tokens.
const CLAMP_SLACK_TOKENS: u64 = 16;

/// A part of the matrix with its own way of loading the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// C streams that restart as they finish, measured over a window with fixed edges.
    Sustained,
    /// A finite number of requests, from the first one sent to the last one finished.
    Burst,
    /// Requests that are due by a schedule, whatever the server does.
    OpenLoop,
}

impl Layer {
    /// The one of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Sustained, Self::Burst, Self::OpenLoop].into_iter().find(|layer| layer.as_str() == name)
    }

    /// As the report writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sustained => "sustained_decode",
            Self::Burst => "burst_e2e_decode",
            Self::OpenLoop => "open_loop",
        }
    }
}

/// How a cell loads the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CellLoad {
    /// Streams that restart as they finish.
    Sustained,
    /// So many requests, by as many workers as the concurrency says.
    Requests {
        /// Measured.
        count: u32,
        /// Sent before, and thrown away.
        warmup: u32,
    },
    /// Requests due by a schedule; the concurrency is the most that may be under way.
    Rate {
        /// Requests a second.
        per_s: f64,
        /// Whether the gaps are drawn at random (exponentially), and not all the same.
        poisson: bool,
    },
}

/// What is measured at each place of the matrix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layers {
    /// The sustained matrix.
    pub sustained: bool,
    /// The burst matrix: how many requests at a concurrency, and how many before.
    pub burst: Option<BurstCount>,
    /// Rates of the open loop, requests a second.
    pub rates: Vec<f64>,
    /// Whether the open loop's gaps are drawn at random.
    pub poisson: bool,
    /// Most requests of the open loop that may be under way.
    pub most_in_flight: u32,
}

/// How many requests a burst has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstCount {
    /// So many in all; 0: `per_stream` for each stream.
    pub count: u32,
    /// Used where `count` is 0.
    pub per_stream: u32,
    /// So many before, thrown away; `None`: one for each stream.
    pub warmup: Option<u32>,
}

impl BurstCount {
    fn load(self, concurrency: u32) -> CellLoad {
        let count = if self.count > 0 { self.count } else { concurrency.saturating_mul(self.per_stream).max(concurrency) };
        CellLoad::Requests { count, warmup: self.warmup.unwrap_or(concurrency) }
    }
}

/// What the plan is made from.
#[derive(Clone, Debug, Default)]
pub struct PlanInput {
    /// Contexts in tokens, in the order asked for.
    pub contexts: Vec<u32>,
    /// Concurrency levels, in the order asked for.
    pub concurrency: Vec<u32>,
    /// What is measured at each of them.
    pub layers: Layers,
    /// How often.
    pub repeats: u32,
    /// Output limit per request, tokens.
    pub max_tokens: u32,
    /// Tokens the KV cache holds; `None`: unknown, nothing is left out for it.
    pub kv_budget_tokens: Option<u64>,
    /// Tokens of a block of the KV cache; a request takes whole blocks. `None`: unknown, taken as 1.
    pub kv_block_tokens: Option<u64>,
    /// Engines among which a data-parallel server divides its requests; 0 counts as 1.
    pub engines: u64,
    /// Tokens that the KV cache of each of them holds, where there are several.
    pub kv_budget_per_engine: Option<u64>,
    /// Requests the server runs at once; `None`: unknown.
    pub max_running: Option<u64>,
    /// The model's context limit in tokens; `None`: unknown.
    pub max_model_len: Option<u64>,
    /// The largest output limit that the server takes; `None`: any.
    pub max_tokens_limit: Option<u32>,
    /// Real prompt tokens of a context where they are known; else the context is taken at its word. Of the user's own
    /// prompts those of the longest, at context 0.
    pub prompt_tokens: BTreeMap<u32, u64>,
    /// Tokens at the beginning of a context's prompts that are the same for all streams, where the prefix cache was
    /// shown to keep them; empty where it was not.
    pub shared_tokens: BTreeMap<u32, u64>,
    /// Why what prompts have in common is not counted once, where they have anything.
    pub not_shared: Option<&'static str>,
    /// Whether prompts are the user's own: most of their lengths are not known before.
    pub own_prompts: bool,
}

/// A cell to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedCell {
    /// Which part of the matrix it belongs to.
    pub layer: Layer,
    /// How it loads the server.
    pub load: CellLoad,
    /// Requested context, tokens.
    pub context_tokens: u32,
    /// Streams at once.
    pub concurrency: u32,
    /// Output limit of this cell's requests, tokens.
    pub max_tokens: u32,
    /// What was asked for, if `max_tokens` had to be lowered to fit the model's limit.
    pub clamped_from: Option<u32>,
    /// Which repeat of the matrix, from 1.
    pub repeat: u32,
}

impl PlannedCell {
    /// A cell of the sustained matrix.
    #[must_use]
    pub fn sustained(context_tokens: u32, concurrency: u32, max_tokens: u32) -> Self {
        Self { layer: Layer::Sustained, load: CellLoad::Sustained, context_tokens, concurrency, max_tokens, clamped_from: None, repeat: 1 }
    }

    /// Connections it opens, at most; a schedule lasts for `duration_s`.
    #[must_use]
    pub fn connections(&self, duration_s: f64) -> u32 {
        match self.load {
            CellLoad::Sustained => self.concurrency,
            CellLoad::Requests { count, warmup } => self.concurrency.min(count.max(warmup)),
            CellLoad::Rate { per_s, .. } => self.concurrency.min((per_s * duration_s).ceil() as u32 + 1),
        }
    }
}

impl PlannedCell {
    /// Where it stands.
    #[must_use]
    pub fn place(&self) -> Place {
        let per_s = if let CellLoad::Rate { per_s, .. } = self.load { Some(per_s) } else { None };
        Place { layer: self.layer, context_tokens: self.context_tokens, concurrency: self.concurrency, per_s, repeat: self.repeat }
    }
}

/// Where a cell stands in the matrix: no two cells of a run have the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Which part of the matrix.
    pub layer: Layer,
    /// Requested context, tokens.
    pub context_tokens: u32,
    /// Streams at once.
    pub concurrency: u32,
    /// Requests a second, of the open loop.
    pub per_s: Option<f64>,
    /// Which repeat of the matrix, from 1.
    pub repeat: u32,
}

impl Place {
    /// Left out, for this reason.
    #[must_use]
    pub fn left_out(&self, code: LeftOutCode, text: &str) -> LeftOut {
        let Self { layer, context_tokens, concurrency, .. } = *self;
        LeftOut { layer: layer.as_str(), context_tokens, concurrency, code, missing_tokens: None, text: format!("{self}: {text}") }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "C={} at {}", self.concurrency, context_label(self.context_tokens))?;
        match self.per_s {
            Some(per_s) => write!(f, ", {per_s} requests/s")?,
            None if self.layer == Layer::Burst => write!(f, ", burst")?,
            None => {}
        }
        if self.repeat > 1 { write!(f, ", repeat {}", self.repeat) } else { Ok(()) }
    }
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
    /// The user skipped it.
    Skipped,
    /// The run ended before it, as the user wanted.
    NotReached,
    /// The server could not be reached any more.
    ServerGone,
}

impl LeftOutCode {
    /// The code as the report writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KvBudget => "kv-budget",
            Self::MaxRunning => "max-running",
            Self::ContextLimit => "context-limit",
            Self::Skipped => "skipped",
            Self::NotReached => "not-reached",
            Self::ServerGone => "server-gone",
        }
    }
}

/// A cell that is not measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The layer it belongs to, as the report writes it.
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// To measure, in this order.
    pub cells: Vec<PlannedCell>,
    /// Left out, in the same order; each once, whatever the number of repeats.
    pub left_out: Vec<LeftOut>,
    /// By which rule cells had to fit the KV cache, in a sentence.
    pub kv_rule: String,
}

/// Makes the plan. A matrix is run so: all contexts at the first concurrency, then the first context at the others,
/// then the remaining contexts row by row; first the sustained one, then bursts, then the open loop. Every second
/// repeat goes backwards, so that a slow drift of the machine meets all cells alike.
#[must_use]
pub fn plan(input: &PlanInput) -> Plan {
    let mut plan = Plan { kv_rule: kv_rule(input), ..Plan::default() };
    let mut once = Vec::new();
    for (layer, load, context_tokens, concurrency) in places(input) {
        // The most that may be under way in an open loop is no number that will be: one has to fit.
        let at_once = if layer == Layer::OpenLoop { 1 } else { concurrency };
        match judge(input, context_tokens, at_once) {
            Ok((max_tokens, clamped_from)) => {
                once.push(PlannedCell { layer, load, context_tokens, concurrency, max_tokens, clamped_from, repeat: 1 });
            }
            Err((code, missing_tokens, text)) => {
                plan.left_out.push(LeftOut { layer: layer.as_str(), context_tokens, concurrency, code, missing_tokens, text });
            }
        }
    }
    for repeat in 1..=input.repeats.max(1) {
        let these = once.iter().map(|cell| PlannedCell { repeat, ..*cell });
        if repeat % 2 == 0 { plan.cells.extend(these.rev()) } else { plan.cells.extend(these) }
    }
    plan
}

/// All places, layer by layer.
fn places(input: &PlanInput) -> Vec<(Layer, CellLoad, u32, u32)> {
    let layers = &input.layers;
    let matrix = order(&input.contexts, &input.concurrency);
    let mut places = Vec::new();
    if layers.sustained {
        places.extend(matrix.iter().map(|(context, c)| (Layer::Sustained, CellLoad::Sustained, *context, *c)));
    }
    if let Some(burst) = layers.burst {
        places.extend(matrix.iter().map(|(context, c)| (Layer::Burst, burst.load(*c), *context, *c)));
    }
    for context in &input.contexts {
        let rates = layers.rates.iter().map(|per_s| CellLoad::Rate { per_s: *per_s, poisson: layers.poisson });
        places.extend(rates.map(|load| (Layer::OpenLoop, load, *context, layers.most_in_flight)));
    }
    places
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

/// The output limit of a place, and what was asked for where that is more; or why it is left out.
fn judge(input: &PlanInput, context_tokens: u32, concurrency: u32) -> Result<(u32, Option<u32>), Refusal> {
    let label = context_label(context_tokens);
    let prompt = input.prompt_tokens.get(&context_tokens).copied().unwrap_or(u64::from(context_tokens));
    if let Some(limit) = input.max_running
        && u64::from(concurrency) > limit
    {
        let text = format!("C={concurrency} is more than the {limit} requests the server runs at once");
        return Err((LeftOutCode::MaxRunning, None, text));
    }
    let mut max_tokens = input.max_tokens.min(input.max_tokens_limit.unwrap_or(u32::MAX));
    if let Some(limit) = input.max_model_len {
        let least = u64::from(context_tokens) + MIN_OUTPUT_TOKENS;
        if least > limit {
            let text =
                format!("context {label} and {MIN_OUTPUT_TOKENS} tokens of output need {least} tokens, the model's limit is {limit}");
            return Err((LeftOutCode::ContextLimit, Some(least - limit), text));
        }
        // One's own prompts are all sent: the longest of them is no reason to leave out the others.
        let least_room = if input.own_prompts { MIN_OUTPUT_TOKENS } else { 1 };
        let room = limit.saturating_sub(prompt + CLAMP_SLACK_TOKENS).max(least_room);
        max_tokens = max_tokens.min(u32::try_from(room).unwrap_or(u32::MAX));
    }
    // Each engine of a data-parallel server has a cache, and a copy of what is shared, of its own.
    let (engines, budget, whose) = match input.kv_budget_per_engine.filter(|_| input.engines > 1) {
        Some(each) => (input.engines, Some(each), format!("the KV cache of each of {} engines", input.engines)),
        None => (1, input.kv_budget_tokens, "the KV cache".to_owned()),
    };
    if let Some(budget) = budget.filter(|_| !input.own_prompts) {
        let (need, rule) = kv_need(input, context_tokens, prompt, max_tokens, u64::from(concurrency).div_ceil(engines));
        if need > budget {
            let why = whole_because(input).map_or_else(String::new, |why| format!(" (prompts are counted whole: {why})"));
            return Err((LeftOutCode::KvBudget, Some(need - budget), format!("{rule} = {need} tokens, {whose} holds {budget}{why}")));
        }
    }
    let clamped_from = (max_tokens < input.max_tokens).then_some(input.max_tokens);
    Ok((max_tokens, clamped_from))
}

/// Why prompts are counted whole, where some of them may be kept once.
fn whole_because(input: &PlanInput) -> Option<&'static str> {
    input.not_shared.filter(|_| input.shared_tokens.is_empty())
}

fn kv_rule(input: &PlanInput) -> String {
    if input.own_prompts {
        "no cell is left out for it: how long one's own prompts are is not known before they are sent".to_owned()
    } else if input.kv_budget_tokens.is_none() && input.kv_budget_per_engine.is_none() {
        "no cell is left out for it: how many tokens it holds is not known".to_owned()
    } else if !input.shared_tokens.is_empty() {
        "what the prompts of a context have in common is counted once: the server was seen to keep it".to_owned()
    } else {
        let why = whole_because(input).map_or_else(String::new, |why| format!(": {why}"));
        format!("prompts are counted whole{why}")
    }
}

/// Tokens of the KV cache that a cell needs, in whole blocks, and the rule in words.
fn kv_need(input: &PlanInput, context_tokens: u32, prompt: u64, max_tokens: u32, c: u64) -> (u64, String) {
    let block = input.kv_block_tokens.unwrap_or(1).max(1);
    let max = u64::from(max_tokens);
    let blocks = if block > 1 { format!(" in blocks of {block}") } else { String::new() };
    // Only whole blocks of a prefix are shared.
    let shared = input.shared_tokens.get(&context_tokens).map_or(0, |tokens| tokens.min(&prompt) / block * block);
    let each = (prompt - shared + max).div_ceil(block) * block;
    let need = shared.saturating_add(c.saturating_mul(each));
    let rule = if shared > 0 {
        format!("{shared} shared + {c} x ({} prompt + {max} output){blocks}", prompt - shared)
    } else {
        format!("{c} x ({prompt} prompt + {max} output){blocks}")
    };
    (need, rule)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn input(contexts: &[u32], concurrency: &[u32]) -> PlanInput {
        PlanInput {
            contexts: contexts.to_vec(),
            concurrency: concurrency.to_vec(),
            layers: Layers { sustained: true, ..Layers::default() },
            repeats: 1,
            max_tokens: 1000,
            ..PlanInput::default()
        }
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
    fn only_a_prefix_that_is_shown_to_be_shared_is_counted_once_and_blocks_are_whole() {
        let mut i = input(&[4000], &[4]);
        i.prompt_tokens.insert(4000, 4010);
        i.kv_budget_tokens = Some(1);
        i.kv_block_tokens = Some(128);
        let alone = plan(&i).left_out[0].clone();
        // 5010 tokens are 40 blocks.
        assert_eq!(alone.missing_tokens, Some(4 * 40 * 128 - 1), "{}", alone.text);
        i.shared_tokens.insert(4000, 3990);
        let shared = plan(&i).left_out[0].clone();
        // 31 whole blocks are shared; 42 + 1000 tokens are 9 blocks.
        assert_eq!(shared.missing_tokens, Some(31 * 128 + 4 * 9 * 128 - 1), "{}", shared.text);
        assert!(shared.text.contains("3968 shared + 4 x (42 prompt + 1000 output) in blocks of 128"), "{}", shared.text);
    }

    #[test]
    fn the_rule_of_the_kv_cache_is_said() {
        let mut i = input(&[4000], &[4]);
        assert!(plan(&i).kv_rule.contains("how many tokens it holds is not known"));
        i.kv_budget_tokens = Some(1);
        assert_eq!(plan(&i).kv_rule, "prompts are counted whole");
        assert!(!plan(&i).left_out[0].text.contains("whole"), "where they have nothing in common there is nothing to say");
        i.not_shared = Some("nobody knows");
        assert_eq!(plan(&i).kv_rule, "prompts are counted whole: nobody knows");
        assert!(plan(&i).left_out[0].text.ends_with("holds 1 (prompts are counted whole: nobody knows)"));
        i.shared_tokens.insert(4000, 3990);
        assert!(plan(&i).kv_rule.contains("counted once"));
        assert!(!plan(&i).left_out[0].text.contains("whole"), "{}", plan(&i).left_out[0].text);
    }

    #[test]
    fn prompts_of_ones_own_are_left_out_for_the_servers_requests_only() {
        let mut i = input(&[0], &[4, 9]);
        (i.kv_budget_tokens, i.max_running, i.own_prompts) = (Some(1), Some(8), true);
        let plan = plan(&i);
        assert_eq!((plan.cells.len(), plan.left_out[0].code), (1, LeftOutCode::MaxRunning));
        assert!(plan.kv_rule.contains("one's own prompts"), "{}", plan.kv_rule);
    }

    #[test]
    fn each_engine_of_a_data_parallel_server_has_to_hold_its_share() {
        let mut i = input(&[4000], &[5]);
        i.engines = 2;
        i.kv_budget_tokens = Some(2 * 12_000);
        i.kv_budget_per_engine = Some(12_000);
        let out = plan(&i).left_out[0].clone();
        assert_eq!(out.missing_tokens, Some(3 * 5000 - 12_000), "{}", out.text);
        assert!(out.text.contains("each of 2 engines"), "{}", out.text);
    }

    #[test]
    fn repeats_go_there_and_back_and_left_out_cells_are_said_once() {
        let mut i = input(&[0, 100], &[1, 2, 9]);
        i.max_running = Some(8);
        i.repeats = 3;
        let plan = plan(&i);
        let of =
            |repeat| -> Vec<_> { plan.cells.iter().filter(|c| c.repeat == repeat).map(|c| (c.context_tokens, c.concurrency)).collect() };
        let there = of(1);
        assert_eq!(there, of(3));
        assert_eq!(there.into_iter().rev().collect::<Vec<_>>(), of(2));
        assert_eq!(plan.cells.len(), 12);
        assert_eq!(plan.left_out.len(), 2);
    }

    #[test]
    fn a_burst_has_requests_for_each_stream_unless_a_number_is_given() {
        let mut i = input(&[0], &[1, 4]);
        i.layers = Layers { burst: Some(BurstCount { count: 0, per_stream: 5, warmup: None }), ..Layers::default() };
        let loads: Vec<_> = plan(&i).cells.iter().map(|c| c.load).collect();
        assert_eq!(loads, [CellLoad::Requests { count: 5, warmup: 1 }, CellLoad::Requests { count: 20, warmup: 4 }]);
        i.layers.burst = Some(BurstCount { count: 7, per_stream: 5, warmup: Some(0) });
        assert_eq!(plan(&i).cells[1].load, CellLoad::Requests { count: 7, warmup: 0 });
    }
}
