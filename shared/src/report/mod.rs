//! The report: one JSON object, a file a section. Reading is lenient and loses nothing; what a value means is
//! said in `metric` and `verdict`, what the file is in `import`.

pub mod cell;
pub mod diagnostics;
pub mod extras;
pub mod hardware;
pub mod identity;
pub mod metadata;
pub mod own;
pub mod prefill;
pub mod profile;
pub mod request;

use crate::field::{Int, Json, List, Num, Table, section};
use cell::Cell;
use diagnostics::{AmdFabric, P2pMark, P2pOverride, StartupDiagnostics};
use extras::{CodingPeak, Methodology, MixedPrefillRow, ToolEval};
use hardware::Hardware;
use metadata::Metadata;
use own::RunOwn;
use prefill::PrefillRow;
use profile::{Accuracy, CategorySummary, Comparison, LevelSummary, ProfileRun, ProfileSummary};
use serde_json::{Map, Value, json};

/// Version of the shape that this version of Tokscope writes, in `tokscope.schema`.
pub const SCHEMA: i64 = 1;

section! {
    /// A report of a run.
    pub struct Report {
        /// What only Tokscope records.
        tokscope: RunOwn,
        /// Settings and identity.
        @always metadata: Metadata,
        /// The machine before the run.
        @always startup_diagnostics: StartupDiagnostics,
        /// The NVIDIA peer-to-peer override.
        @always nvidia_p2p_override: P2pOverride,
        /// The GPU peer-to-peer test.
        @always p2pmark: P2pMark,
        /// The CPU fabric test.
        @always amd_fabric: AmdFabric,
        /// The machine over the whole run.
        @always hardware_run_summary: Hardware,
        /// Log lines, `HH:MM:SS text`.
        @always event_log: List<String>,
        /// Prefill by context length.
        @always prefill: Table<PrefillRow>,
        /// Cells of the sustained matrix, in order of execution.
        @always results: List<Cell>,
        /// Rates by context and concurrency.
        @always summary_table: Table<Table<Num>>,
        /// Cells of the burst matrix.
        @always burst_results: List<Cell>,
        /// Burst rates by context and concurrency.
        @always burst_summary_table: Table<Table<Num>>,
        /// How the numbers were made.
        @always methodology: Methodology,
        /// Peak speed on a coding prompt.
        coding_peak: CodingPeak,
        /// A long prompt among running decodes, by context.
        mixed_prefill: Table<MixedPrefillRow>,
        /// The request sent ahead, of a profile.
        prefill_scout: ProfileRun,
        /// Concurrency taken, of a profile.
        selected_concurrency: Int,
        /// Answers at that concurrency.
        selected_summary: ProfileSummary,
        /// All answers.
        all_summary: ProfileSummary,
        /// Levels of the search.
        level_summaries: List<LevelSummary>,
        /// Accuracy on a data set.
        accuracy: Accuracy,
        /// Accuracy by category.
        category_summaries: List<CategorySummary>,
        /// Wrong or failed answers.
        wrong_runs: List<ProfileRun>,
        /// The answers.
        runs: List<ProfileRun>,
        /// Two profile reports side by side.
        comparison: Comparison,
        /// An external tool-use suite.
        tool_eval: ToolEval,
        /// Its own file.
        tool_eval_raw: Value,
    }
}

impl Report {
    /// The report as JSON text: two spaces, keys in a stable order, a line end.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.write()).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Whether Tokscope measured it.
    pub fn is_ours(&self) -> bool {
        self.tokscope.get().is_some_and(|own| own.schema.get().is_some())
    }

    /// The cells of the sustained matrix.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.results.items()
    }
}

/// The JSON Schema (2020-12) of a report as Tokscope writes it.
pub fn json_schema() -> Value {
    let mut defs = Map::new();
    let reference = Report::schema(&mut defs);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tokscope report",
        "description": format!("A report measured by Tokscope, schema {SCHEMA}. Keys it doesn't name may stand beside those it names."),
        "$ref": reference["$ref"],
        "$defs": defs,
    })
}
