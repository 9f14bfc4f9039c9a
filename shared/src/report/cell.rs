//! `results[]` and `burst_results[]`: one cell of the matrix, a context length at a concurrency.

use super::hardware::Hardware;
use super::own::CellOwn;
use super::request::RequestSample;
use crate::field::{Int, List, Num, section};

section! {
    /// One cell. In reports of the predecessor 0 and negative rates stand for "no value".
    pub struct Cell {
        /// Streams at once.
        @always concurrency: Int,
        /// Context length asked for, in tokens.
        @always context_tokens: Int,
        /// `duration`, `request-count` or `burst-e2e`.
        @always benchmark_mode: String,
        /// Requests asked for; 0 in duration mode.
        @always request_count_target: Int,
        /// Discarded requests; 0 in duration mode.
        @always warmup_request_count: Int,
        /// Seconds by which the tokens are divided.
        @always measurement_seconds: Num,
        /// Seconds of the window.
        @always measurement_wall_seconds: Num,
        /// Tokens counted by the client in the window.
        @always client_output_tokens: Int,
        /// Tokens counted by the server meanwhile.
        @always server_output_tokens: Int,
        /// What the tokens were counted by.
        @always aggregate_source: String,
        /// Share of the window covered by usage (an extension some reports carry).
        usage_window_coverage: Num,
        /// Usage updates seen (an extension some reports carry).
        usage_update_count: Int,
        /// Share of the window covered by chunks (an extension some reports carry).
        stream_chunk_window_coverage: Num,
        /// Tokens a second over all streams; null or a negative number where the cell is invalid.
        @always aggregate_tps: Num,
        /// Why the cell failed.
        @always failure_reason: String,
        /// Tokens a second by concurrency asked for.
        @always per_request_avg_tps: Num,
        /// Seconds to the first token: mean.
        @always ttft_avg: Num,
        /// Seconds to the first token: median.
        @always ttft_p50: Num,
        /// Seconds to the first token: 90th percentile.
        @always ttft_p90: Num,
        /// Seconds to the first token: 99th percentile.
        @always ttft_p99: Num,
        /// Seconds from the first to the second chunk with text: mean.
        @always time_to_second_token_avg: Num,
        /// Seconds from the first to the second chunk with text: median.
        @always time_to_second_token_p50: Num,
        /// Seconds from the first to the second chunk with text: 90th percentile.
        @always time_to_second_token_p90: Num,
        /// Seconds from the first to the second chunk with text: 99th percentile.
        @always time_to_second_token_p99: Num,
        /// Seconds of finished requests: mean.
        @always request_latency_avg: Num,
        /// Seconds of finished requests: median.
        @always request_latency_p50: Num,
        /// Seconds of finished requests: 90th percentile.
        @always request_latency_p90: Num,
        /// Seconds of finished requests: 99th percentile.
        @always request_latency_p99: Num,
        /// Seconds a token after the first, by request: mean.
        @always inter_token_latency_avg: Num,
        /// Seconds a token after the first, by request: median.
        @always inter_token_latency_p50: Num,
        /// Seconds a token after the first, by request: 90th percentile.
        @always inter_token_latency_p90: Num,
        /// Seconds a token after the first, by request: 99th percentile.
        @always inter_token_latency_p99: Num,
        /// Tokens a second a user after the first token, by request: mean.
        @always output_tps_per_user_avg: Num,
        /// Tokens a second a user after the first token, by request: median.
        @always output_tps_per_user_p50: Num,
        /// Tokens a second a user after the first token, by request: 90th percentile.
        @always output_tps_per_user_p90: Num,
        /// Tokens a second a user after the first token, by request: 99th percentile.
        @always output_tps_per_user_p99: Num,
        /// Tokens a second a user over the whole request: mean.
        @always e2e_output_tps_per_user_avg: Num,
        /// Tokens a second a user over the whole request: median.
        @always e2e_output_tps_per_user_p50: Num,
        /// Tokens a second a user over the whole request: 90th percentile.
        @always e2e_output_tps_per_user_p90: Num,
        /// Tokens a second a user over the whole request: 99th percentile.
        @always e2e_output_tps_per_user_p99: Num,
        /// Seconds between chunks with text, by request: mean.
        @always chunk_inter_token_latency_avg: Num,
        /// Seconds between chunks with text, by request: median.
        @always chunk_inter_token_latency_p50: Num,
        /// Seconds between chunks with text, by request: 90th percentile.
        @always chunk_inter_token_latency_p90: Num,
        /// Seconds between chunks with text, by request: 99th percentile.
        @always chunk_inter_token_latency_p99: Num,
        /// Prompt tokens: mean.
        @always input_seq_len_avg: Num,
        /// Generated tokens a request: mean.
        @always output_seq_len_avg: Num,
        /// Generated tokens a request: median.
        @always output_seq_len_p50: Num,
        /// Generated tokens a request: 90th percentile.
        @always output_seq_len_p90: Num,
        /// Generated tokens a request: 99th percentile.
        @always output_seq_len_p99: Num,
        /// Requests with at least one token.
        @always request_count: Int,
        /// Requests that reached their end.
        @always completed_request_count: Int,
        /// The requests.
        @always request_samples: List<RequestSample>,
        /// Tokens in the window by an older rule.
        @always total_tokens: Int,
        /// Seconds of the whole cell.
        @always wall_time: Num,
        /// Streams that ended without error, or requests completed.
        @always num_completed: Int,
        /// Streams that ended with an error.
        @always num_errors: Int,
        /// Tokens a second by the server's counters.
        @always server_gen_throughput: Num,
        /// Share of the KV cache in use, 0 to 1.
        @always server_utilization: Num,
        /// Share of drafted tokens accepted, 0 to 1.
        @always server_spec_accept_rate: Num,
        /// Tokens a verified step: 1 + accepted a draft.
        @always server_spec_accept_length: Num,
        /// Drafts in the window.
        @always server_spec_drafts: Int,
        /// Drafted tokens in the window.
        @always server_spec_draft_tokens: Int,
        /// Accepted tokens in the window.
        @always server_spec_accepted_tokens: Int,
        /// Accepted a draft, by position.
        @always server_spec_pos_accept: List<Num>,
        /// Forward passes of sequences in the window.
        @always server_engine_steps: Num,
        /// Forward passes a second.
        @always server_steps_per_s: Num,
        /// Tokens a forward pass.
        @always server_accept_len_effective: Num,
        /// Rate at the reference acceptance length.
        @always accept_norm_tps: Num,
        /// The reference acceptance length.
        @always accept_norm_ref_len: Num,
        /// Mean of running requests.
        @always avg_running_reqs: Num,
        /// Most running requests.
        @always max_running_reqs: Num,
        /// The same as the mean of running requests.
        @always effective_concurrency: Num,
        /// Mean of waiting requests.
        @always avg_queue_reqs: Num,
        /// Most waiting requests.
        @always max_queue_reqs: Num,
        /// Share of samples with waiting requests.
        @always queue_fraction: Num,
        /// Whether fewer requests ran than asked for.
        @always underfilled: bool,
        /// Whether readiness was not reached in time.
        @always warmup_timed_out: bool,
        /// Seconds from the cell's start to the window.
        @always warmup_duration: Num,
        /// How readiness was seen.
        @always ready_reason: String,
        /// What was missing for readiness.
        @always timeout_reason: String,
        /// Whether the server could not hold the concurrency.
        @always capacity_limited: bool,
        /// The machine meanwhile.
        @always hardware_summary: Hardware,
        /// Whether the repetition guard ran.
        loop_detection_enabled: bool,
        /// Whether it confirmed a loop.
        loop_detected: bool,
        /// What it found.
        loop_diagnostics: List<LoopFinding>,
        /// Findings left out.
        loop_diagnostics_omitted: Int,
        /// What only Tokscope records.
        tokscope: CellOwn,
    }

    /// Repeated text in one stream.
    pub struct LoopFinding {
        /// Character where the repetition begins.
        observed_start_char: Int,
        /// Length of one cycle.
        period_chars: Int,
        /// Characters repeated.
        repeated_chars: Int,
        /// Whole cycles.
        complete_cycles: Int,
        /// `suspected` or `confirmed`.
        status: String,
        /// Character where it was noticed.
        detected_at_char: Int,
        /// What a character is.
        coordinate_unit: String,
        /// SHA-256 of one cycle.
        period_sha256: String,
        /// One cycle.
        cycle_excerpt: String,
        /// Text before the loop.
        context_excerpt: String,
        /// The last text.
        tail_excerpt: String,
        /// `content` or `reasoning`.
        channel: String,
        /// Which stream.
        stream_index: Int,
        /// Which request of the stream.
        request_ordinal: Int,
        /// The server's id of the request.
        request_id: String,
        /// Tokens generated by then.
        observed_completion_tokens: Int,
        /// `warmup` or `measurement`.
        phase: String,
    }
}
