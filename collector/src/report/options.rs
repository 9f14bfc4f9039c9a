//! The options of a run as they took effect: `tokscope.options`.

use crate::run::RunOptions;
use crate::target::Target;

/// The options that decide what is measured, as they took effect.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Options {
    /// `--host` without credentials.
    pub host: String,
    /// `--port`.
    pub port: Option<u16>,
    /// The model measured.
    pub model: String,
    /// Levels of concurrency.
    pub concurrency: Vec<u32>,
    /// Context lengths in tokens.
    pub contexts: Vec<u32>,
    /// Seconds of a window.
    pub duration: f64,
    /// Output limit a request.
    pub max_tokens: u32,
    /// Temperature sent; none leaves it to the server.
    pub temperature: Option<f64>,
    /// Whether the end-of-sequence token ends a generation.
    pub respect_eos: bool,
    /// How often the matrix is measured.
    pub repeat: u32,
    /// Requests of each cell of the matrix; 0: it is a window.
    pub request_count: u32,
    /// Requests before them.
    pub warmup_request_count: u32,
    /// Whether bursts follow.
    pub run_burst: bool,
    /// Requests of a burst; 0: by stream.
    pub burst_request_count: u32,
    /// Requests before a burst; 0: one a stream.
    pub burst_warmup_request_count: u32,
    /// Requests of a burst for each stream.
    pub burst_requests_per_concurrency: u32,
    /// Rates of the open loop, requests a second.
    pub request_rate: Vec<f64>,
    /// How its gaps are made.
    pub arrivals: &'static str,
    /// Most of its requests under way.
    pub max_in_flight: u32,
    /// Where prefill is measured.
    pub prefill_mode: &'static str,
    /// Whether prefill has a phase of its own.
    pub standalone_prefill: bool,
    /// Whether that is all.
    pub prefill_only: bool,
    /// Whether prefill rows are left out.
    pub skip_prefill: bool,
    /// Its contexts besides those of the matrix.
    pub prefill_contexts: Vec<u32>,
    /// Seconds of each context in its own phase.
    pub prefill_duration: f64,
    /// Its headline.
    pub prefill_metric: &'static str,
    /// Token budget given.
    pub kv_budget: Option<u64>,
    /// Context-parallel size given.
    pub dcp_size: Option<u32>,
    /// Seconds of hidden decode before the matrix.
    pub decode_warmup_seconds: f64,
    /// Limit of a cell's warm-up in seconds; 0 is automatic.
    pub cell_warmup_timeout_seconds: f64,
    /// Whether answers that repeat themselves make a cell invalid.
    pub loop_detection: bool,
    /// Whether numbers of limited cells are to be shown bare.
    pub show_capacity_limited_values: bool,
    /// Reference acceptance length; 0 is none.
    pub accept_len_ref: f64,
    /// How prompts relate: `shared`, `distinct`, `identical` or `dataset`.
    pub prompts: &'static str,
    /// The file of prompts.
    pub dataset: Option<String>,
    /// SHA-256 of its bytes.
    pub dataset_sha256: Option<String>,
    /// Seed of the prompts' text.
    pub seed: u64,
    /// Whether the client was measured before.
    pub calibrate: bool,
    /// What each cell's sample of arrivals may take, kB.
    pub arrivals_kb: u32,
}

impl Options {
    /// Of a run against this server.
    #[must_use]
    pub fn of(options: &RunOptions, target: &Target) -> Self {
        Self::asked(options, target.display(), &target.model)
    }

    /// Of a run against a server of this address and model.
    #[must_use]
    pub fn asked(options: &RunOptions, display: &str, model: &str) -> Self {
        Self {
            host: display.to_owned(),
            port: options.target.port,
            model: model.to_owned(),
            concurrency: options.concurrency.clone(),
            contexts: options.contexts.clone(),
            duration: options.duration_s,
            max_tokens: options.max_tokens,
            temperature: options.temperature,
            respect_eos: options.respect_eos,
            repeat: options.repeat,
            request_count: options.burst.request_count,
            warmup_request_count: options.burst.warmup_request_count,
            run_burst: options.burst.run,
            burst_request_count: options.burst.count,
            burst_warmup_request_count: options.burst.warmup_count,
            burst_requests_per_concurrency: options.burst.per_stream,
            request_rate: options.rates.clone(),
            arrivals: options.arrivals.as_str(),
            max_in_flight: options.most_in_flight,
            prefill_mode: options.prefill.mode(),
            standalone_prefill: options.prefill.standalone,
            prefill_only: options.prefill.only,
            skip_prefill: options.prefill.skip,
            prefill_contexts: options.prefill.contexts.clone(),
            prefill_duration: options.prefill.duration_s,
            prefill_metric: options.prefill.metric.as_str(),
            kv_budget: options.target.kv_budget_tokens,
            dcp_size: options.target.dcp_size,
            decode_warmup_seconds: options.decode_warmup_s,
            cell_warmup_timeout_seconds: options.cell_warmup_timeout_s,
            loop_detection: options.loop_guard,
            show_capacity_limited_values: options.show_capacity_limited,
            accept_len_ref: options.accept_len_ref,
            prompts: options.prompts(),
            dataset: options.dataset.as_ref().map(|dataset| dataset.file().display().to_string()),
            dataset_sha256: options.dataset.as_ref().map(|dataset| dataset.sha256().to_owned()),
            seed: options.seed,
            calibrate: options.calibrate,
            arrivals_kb: options.arrivals_kb,
        }
    }
}
