//! `prefill`: how fast prompts were read, a row a context length.

use super::hardware::Hardware;
use crate::field::{Int, Num, section};

section! {
    /// One context length.
    pub struct PrefillRow {
        /// Seconds to the first token.
        @always ttft_seconds: Num,
        /// Seconds of prefill.
        @always prefill_seconds: Num,
        /// Prompt tokens a second.
        @always tok_per_sec: Num,
        /// Seconds to the first token at the client.
        @always client_ttft_seconds: Num,
        /// Prompt tokens a second at the client.
        @always client_tok_per_sec: Num,
        /// Prompt tokens.
        @always prompt_tokens: Int,
        /// Requests behind the row.
        @always samples: Int,
        /// `integrated_scout`, `scout_only`, `client` or `prometheus`.
        @always method: String,
        /// What the server's counters say.
        @always server_validation: ServerValidation,
        /// The machine meanwhile.
        @always hardware_summary: Hardware,
    }

    /// Prefill as the server's counters saw it.
    pub struct ServerValidation {
        /// Which counters were used; empty where none were.
        @always method: String,
        /// Prompt tokens a second.
        @always tok_per_sec: Num,
        /// Seconds of prefill.
        @always prefill_seconds: Num,
        /// Prompt tokens computed.
        @always prompt_tokens: Int,
        /// Prompt tokens of the request.
        @always request_prompt_tokens: Int,
        /// Prompt tokens taken from the prefix cache.
        @always cached_tokens: Int,
        /// Which counter gave the tokens.
        @always token_source: String,
        /// Requests behind the values.
        @always samples: Int,
        /// Why there are no values.
        @always invalid_reason: String,
    }
}
