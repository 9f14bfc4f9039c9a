//! `request_samples[]`: one request as the client saw it.

use crate::field::{Int, Num, section};

section! {
    /// One request. In reports of the predecessor 0.0 stands for "not measured".
    pub struct RequestSample {
        /// Seconds from sending to the first text.
        @always ttft: Num,
        /// Seconds from the first to the second chunk with text.
        @always time_to_second_token: Num,
        /// Seconds from sending to the last text; only of finished requests.
        @always latency: Num,
        /// Seconds a token after the first.
        @always inter_token_latency_avg: Num,
        /// Mean seconds between chunks with text.
        @always chunk_inter_token_latency_avg: Num,
        /// Prompt tokens as the server counted them.
        @always input_tokens: Int,
        /// Tokens generated in the whole request.
        @always output_tokens: Int,
        /// Tokens a second after the first.
        @always output_tps_per_user: Num,
        /// Tokens a second over the whole request; only of finished ones.
        @always e2e_output_tps_per_user: Num,
        /// Whether the stream reached its end.
        @always completed: bool,
    }
}
