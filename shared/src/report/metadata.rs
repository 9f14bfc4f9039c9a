//! `metadata`: what was asked for, of decode reports and of profile reports alike.

use super::cell::LoopFinding;
use crate::field::{Int, List, Num, section};
use serde_json::Value;

section! {
    /// Settings and identity of a run.
    pub struct Metadata {
        /// Version of the program that wrote the report.
        @always version: String,
        /// What kind of report this is; absent for a decode matrix.
        mode: String,
        /// `vllm`, `sglang`, `openai_proxy` or `llama_cpp`; empty in an interrupted report of the predecessor.
        @always engine: String,
        /// The model's name as the server lists it.
        @always model: String,
        /// Host and port, or the URL given.
        @always server: String,
        /// When the report was saved; the predecessor's have no zone.
        @always timestamp: String,
        /// `duration` or `request-count`.
        @always decode_mode: String,
        /// `sustained_decode` or `burst_e2e_decode`.
        @always primary_decode_layer: String,
        /// Seconds of the measured window.
        @always duration_per_test: Num,
        /// Requests a cell in request-count mode; 0 in duration mode.
        @always request_count: Int,
        /// Discarded requests before such a cell.
        @always warmup_request_count: Int,
        /// Whether a burst matrix was asked for.
        @always run_burst: bool,
        /// `skipped`, `standalone_cold` or `integrated_decode_scout`.
        @always prefill_mode: String,
        /// Whether prefill was measured on its own.
        @always standalone_prefill: bool,
        /// Whether only prefill was measured.
        @always prefill_only: bool,
        /// Whether prefill rows were left out.
        @always skip_prefill: bool,
        /// `enabled` or `not_run_use_--run-burst`.
        @always burst_e2e_status: String,
        /// Requests of a burst cell; 0 is automatic.
        @always burst_request_count: Int,
        /// Discarded requests of a burst cell; 0 is automatic.
        @always burst_warmup_request_count: Int,
        /// Requests a level of concurrency in a burst cell.
        @always burst_requests_per_concurrency: Int,
        /// Seconds of the hidden warm-up cell.
        @always decode_warmup_seconds: Num,
        /// Context of the hidden warm-up; 0 where none ran.
        @always decode_warmup_context: Int,
        /// Repetition found in the hidden warm-up.
        decode_warmup_loop_diagnostics: List<LoopFinding>,
        /// Settings of the repetition guard.
        loop_detection: LoopDetection,
        /// Concurrency of the hidden warm-up; 0 where none ran.
        @always decode_warmup_concurrency: Int,
        /// Limit of a cell's warm-up in seconds; 0 is automatic.
        @always cell_warmup_timeout_seconds: Num,
        /// The automatic limits in words.
        @always cell_warmup_timeout_policy: String,
        /// Whether numbers of capacity-limited cells were shown.
        @always show_capacity_limited_values: bool,
        /// Output limit a request; null where it was left to the server.
        @always max_tokens: Int,
        /// Temperature sent with decode requests; null where it was left to the server.
        @always temperature: Num,
        /// Whether the end-of-sequence token was ignored.
        @always ignore_eos: bool,
        /// Effective token budget; 0 is unknown.
        @always max_total_tokens: Int,
        /// Context-parallel size given; 0 where none was.
        @always dcp_size: Int,
        /// Whether the server's metrics could be read.
        @always metrics_available: bool,
        /// Why they could not.
        @always metrics_warning: String,
        /// Levels of concurrency asked for.
        @always concurrency_levels: List<Int>,
        /// Context lengths asked for, in tokens.
        @always context_lengths: List<Int>,
        /// Whether start-up diagnostics are in the report.
        @always startup_diagnostics_available: bool,
        /// Whether the NVIDIA peer-to-peer override was in effect.
        @always nvidia_p2p_override_effective: bool,
        /// State of the GPU peer-to-peer test.
        @always p2pmark_status: String,
        /// State of the CPU fabric test.
        @always amd_fabric_status: String,
        /// Token forced at every step.
        forced_token_id: Int,
        /// Bias by which it was forced.
        forced_token_logit_bias: Num,
        /// Name of the route that forces a token.
        decode_route: String,
        /// Whether only the mixed-prefill test ran.
        mixed_only: bool,
        /// Settings of the mixed-prefill test.
        mixed_prefill: Value,
        /// Whether a profile run was stopped early.
        interrupted: bool,
        /// The server's version.
        server_version: String,
        /// KV budget in tokens.
        kv_budget: Int,
        /// Where the KV budget was read.
        kv_source: String,
        /// The server's limit of running requests.
        max_running_requests: Int,
        /// All models the server listed.
        models: List<String>,
        /// Name of the profile.
        test_profile: String,
        /// The profile in words.
        test_profile_description: String,
        /// Where the prompt came from.
        prompt_source: String,
        /// Length of the prompt in characters.
        prompt_chars: Int,
        /// Name of the request field that carries the output limit.
        token_limit_field: String,
        /// Whether the output limit was left out of the request.
        max_tokens_omitted: bool,
        /// Fixed concurrency of a profile; 0 is adaptive.
        fixed_concurrency: Int,
        /// Number of runs asked for.
        requested_runs: Int,
        /// Levels of an adaptive profile.
        concurrency_levels_requested: List<Int>,
        /// Results wanted at the least.
        min_results: Int,
        /// Waves of requests a probed level.
        probe_waves: Int,
        /// Whether the search stops by itself.
        auto_stop: bool,
        /// Improvement that the search asks of a level.
        min_improvement: Num,
        /// Levels without improvement before the search stops.
        patience: Int,
        /// Expression that a right answer matches.
        correct_regex: String,
        /// Part of the answer that is scored.
        score_source: String,
        /// Name of the scorer.
        profile_scorer: String,
        /// Version of the scorer.
        scorer_version: Int,
        /// Version of the profile.
        profile_version: Value,
        /// The right answer.
        expected_answer: Value,
        /// Answers that look right and are not.
        decoy_answers: Value,
        /// Tolerance of a numeric answer, by part.
        approx_tolerance: Value,
        /// Rows of the data set; text in some versions.
        dataset_rows: Value,
        /// SHA-256 of the data set.
        dataset_sha256: String,
        /// The data set.
        dataset: Value,
        /// Path of the data set.
        dataset_path: String,
        /// Where the data set came from.
        dataset_source: String,
        /// Items of the data set.
        dataset_items_total: Int,
        /// Items that were asked.
        dataset_items_selected: Int,
        /// SHA-256 of the prompt.
        prompt_sha256: String,
        /// Whether the prompt was sent once before.
        prefill_scout: bool,
        /// Nucleus sampling parameter.
        top_p: Num,
        /// Further fields of the request.
        request_overrides: Value,
        /// Whether there was a system prompt.
        system_prompt: bool,
        /// First seed.
        seed_base: Int,
        /// Seconds without a chunk after which a stream counts as stalled.
        stall_timeout_s: Num,
        /// Seconds after which a request was given up.
        request_timeout_s: Num,
        /// Reasoning effort sent.
        reasoning_effort: String,
        /// Path of the baseline of a comparison.
        baseline_path: String,
        /// Path of the candidate of a comparison.
        candidate_path: String,
    }

    /// Settings of the guard against repeated text.
    pub struct LoopDetection {
        /// Whether it ran.
        enabled: bool,
        /// What it looked at.
        scope: String,
        /// Repeated characters for a confirmed loop.
        confirmed_min_chars: Int,
        /// Repeated cycles for a confirmed loop.
        confirmed_min_cycles: Int,
        /// Longest period looked for.
        max_period_chars: Int,
        /// Characters kept a stream and channel.
        history_chars_per_request_channel: Int,
        /// Characters between two looks.
        check_interval_chars: Int,
        /// The rate written for a cell that looped.
        invalid_cell_aggregate_tps_sentinel: Num,
        /// What it doesn't find.
        limitation: String,
    }
}
