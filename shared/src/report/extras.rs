//! What some reports carry besides the matrix: methodology, coding peak, mixed prefill, tool evaluation.

use super::cell::LoopFinding;
use super::hardware::Hardware;
use crate::field::{Field, Int, Json, Leaf, List, Num, Reader, section};
use serde_json::{Map, Value};

section! {
    /// How the numbers were made, in words.
    pub struct Methodology {
        /// Name of a profile's method.
        name: String,
        /// Prefill.
        prefill: Method,
        /// Sustained decode.
        sustained_decode: Method,
        /// Burst.
        burst_e2e_decode: Method,
        /// Normalisation by acceptance length.
        acceptance_normalization: Method,
        /// The route that forces a token.
        fixed_token_route: Method,
        /// Coding peak.
        coding_peak: Method,
        /// Mixed prefill.
        mixed_prefill: Method,
        /// Search for a concurrency, of a profile.
        adaptive_concurrency: Method,
        /// What token need means, of a profile.
        token_need: Method,
        /// How answers were judged, of a profile.
        correctness: Method,
    }

    /// One method.
    pub struct MethodEntry {
        /// Its name.
        name: String,
        /// Whether the report has numbers made by it.
        present: bool,
        /// Its mode.
        mode: String,
        /// Its state.
        status: String,
        /// Its formula.
        formula: String,
        /// Remarks.
        notes: String,
        /// What is sent.
        request_contract: String,
        /// What it is for.
        purpose: String,
        /// What it can't show.
        limitation: String,
    }

    /// Peak speed on one coding prompt.
    pub struct CodingPeak {
        /// Always `coding_peak`.
        mode: String,
        /// The prompt.
        prompt: String,
        /// Runs asked for.
        runs_requested: Int,
        /// Runs that worked.
        runs_ok: Int,
        /// Output limit.
        max_tokens: Int,
        /// Temperature.
        temperature: Num,
        /// What came out.
        summary: CodingPeakSummary,
        /// The runs.
        samples: List<CodingPeakRun>,
    }

    /// Statistics of the coding peak.
    pub struct CodingPeakSummary {
        /// Mean tokens a second.
        mean_generation_tok_s: Num,
        /// Median tokens a second.
        median_generation_tok_s: Num,
        /// Most tokens a second.
        max_generation_tok_s: Num,
        /// Fewest tokens a second.
        min_generation_tok_s: Num,
        /// Runs with Chinese, Japanese or Korean characters.
        cjk_runs: Int,
    }

    /// One run of the coding peak.
    pub struct CodingPeakRun {
        /// Number, from 1.
        run: Int,
        /// Whether it worked.
        ok: bool,
        /// Why it ended.
        finish_reason: String,
        /// Generated tokens.
        completion_tokens: Int,
        /// Seconds to the first token.
        ttft: Num,
        /// Seconds of generating.
        gen_elapsed: Num,
        /// Seconds of all.
        total_elapsed: Num,
        /// Tokens a second while generating.
        generation_tok_s: Num,
        /// Tokens a second over all.
        total_tok_s: Num,
        /// Characters of the answer.
        content_chars: Int,
        /// Characters of the reasoning.
        reasoning_chars: Int,
        /// Chinese, Japanese or Korean characters.
        cjk_chars: Int,
        /// Begin of the answer.
        content_preview: String,
        /// What went wrong.
        error: String,
    }

    /// A long prompt arriving among running decodes.
    pub struct MixedPrefillRow {
        /// Context length in tokens.
        context: Int,
        /// `ok`, `error` or `skipped`.
        status: String,
        /// Why it was skipped.
        reason: String,
        /// Seconds to the first token, alone.
        ttft_alone_s: Num,
        /// Seconds to the first token, among decodes.
        ttft_under_load_s: Num,
        /// The second by the first.
        slowdown: Num,
        /// Prompt tokens, alone.
        prompt_tokens_alone: Int,
        /// Prompt tokens, among decodes.
        prompt_tokens_under_load: Int,
        /// Cached tokens, alone.
        cached_tokens_alone: Int,
        /// Cached tokens, among decodes.
        cached_tokens_under_load: Int,
        /// Prompt tokens a second, alone.
        prefill_tok_s_alone: Num,
        /// Prompt tokens a second, among decodes.
        prefill_tok_s_under_load: Num,
        /// Tokens a second of the decodes, before.
        bg_tok_s_before: Num,
        /// Tokens a second of the decodes, meanwhile.
        bg_tok_s_during: Num,
        /// Tokens a second of the decodes, after.
        bg_tok_s_after: Num,
        /// Meanwhile by before.
        bg_during_vs_before: Num,
        /// The three windows.
        windows: Value,
        /// The decodes.
        background: Value,
        /// Tokens a second over time.
        timeline: Value,
        /// What went wrong.
        errors: List<String>,
        /// What is doubtful.
        warnings: List<String>,
        /// Whether text repeated.
        loop_detected: bool,
        /// What repeated.
        loop_diagnostics: List<LoopFinding>,
        /// The machine meanwhile.
        hardware_summary: Hardware,
    }

    /// Outcome of an external tool-use suite.
    pub struct ToolEval {
        /// State.
        status: String,
        /// Settings.
        settings: Value,
        /// Identity of the suite.
        tool_eval_bench: Value,
        /// Folder of its files.
        artifacts_dir: String,
        /// Seconds it took.
        duration_seconds: Num,
        /// The command.
        command: Value,
        /// Its exit status.
        exit_code: Int,
        /// What came out.
        summary: Value,
        /// What came out before it ended early.
        partial: Value,
        /// What went wrong.
        error: Value,
    }
}

/// A method: an entry in decode reports, a sentence in profile reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Method {
    /// An entry.
    Entry(Box<MethodEntry>),
    /// A sentence.
    Text(String),
}

impl Json for Method {
    fn read(value: Value, reader: &mut Reader) -> Result<Self, Value> {
        match value {
            Value::String(text) => Ok(Method::Text(text)),
            other => MethodEntry::read(other, reader).map(|entry| Method::Entry(Box::new(entry))),
        }
    }
    fn write(&self) -> Value {
        match self {
            Method::Entry(entry) => entry.write(),
            Method::Text(text) => Value::String(text.clone()),
        }
    }
    fn each_leaf(&mut self, path: &str, edit: &mut dyn FnMut(&str, Leaf<'_>)) {
        match self {
            Method::Entry(entry) => entry.each_leaf(path, edit),
            Method::Text(text) => edit(path, Leaf::Text(text)),
        }
    }
    fn schema(defs: &mut Map<String, Value>) -> Value {
        serde_json::json!({ "anyOf": [MethodEntry::schema(defs), { "type": "string" }] })
    }
}

impl Method {
    /// An entry as decode reports have it.
    pub fn entry(name: &str, present: bool, formula: &str, notes: &str) -> Field<Method> {
        Field::Is(Method::Entry(Box::new(MethodEntry {
            name: Field::text(name),
            present: Field::Is(present),
            formula: Field::text(formula),
            notes: Field::text(notes),
            ..MethodEntry::default()
        })))
    }
}
