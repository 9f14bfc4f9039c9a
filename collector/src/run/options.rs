//! What to measure, as asked for.

use crate::plan::{BurstCount, Layers};
pub use crate::prefill::PrefillMetric;
use crate::prompt::Dataset;
pub use crate::prompt::PromptMode;
use crate::target::TargetOptions;

/// How the gaps of the open loop are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Arrivals {
    /// Drawn at random, as from many independent users.
    #[default]
    Poisson,
    /// All the same.
    Constant,
}

impl Arrivals {
    /// As the report writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Poisson => "poisson",
            Self::Constant => "constant",
        }
    }
}

/// What is measured of prefill.
#[derive(Clone, Debug, Default)]
pub struct PrefillOptions {
    /// No rows at all.
    pub skip: bool,
    /// A phase of its own, cold, before the matrix.
    pub standalone: bool,
    /// Nothing but that phase.
    pub only: bool,
    /// Contexts besides those of the matrix; of the phase of its own, its contexts.
    pub contexts: Vec<u32>,
    /// Whether those were named by the user, who is then told which of them don't fit.
    pub named: bool,
    /// Seconds of each context in that phase.
    pub duration_s: f64,
    /// The headline.
    pub metric: PrefillMetric,
}

impl PrefillOptions {
    /// `metadata.prefill_mode`.
    #[must_use]
    pub fn mode(&self) -> &'static str {
        match (self.skip, self.standalone) {
            (true, _) => "skipped",
            (false, true) => "standalone_cold",
            (false, false) => "integrated_decode_scout",
        }
    }
}

/// Finite requests: as the matrix itself, or after it.
#[derive(Clone, Copy, Debug, Default)]
pub struct BurstOptions {
    /// `--request-count`: the matrix is finite, with so many requests a cell; 0: it isn't.
    pub request_count: u32,
    /// `--warmup-request-count`.
    pub warmup_request_count: u32,
    /// `--run-burst`: a finite matrix after the sustained one.
    pub run: bool,
    /// `--burst-request-count`; 0: by stream.
    pub count: u32,
    /// `--burst-warmup-request-count`; 0: one a stream.
    pub warmup_count: u32,
    /// `--burst-requests-per-concurrency`.
    pub per_stream: u32,
}

/// What to measure, as asked for.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The server.
    pub target: TargetOptions,
    /// Levels of concurrency, in the order asked for.
    pub concurrency: Vec<u32>,
    /// Context lengths in tokens, in the order asked for.
    pub contexts: Vec<u32>,
    /// Seconds of a window.
    pub duration_s: f64,
    /// Output limit a request.
    pub max_tokens: u32,
    /// Temperature to send.
    pub temperature: Option<f64>,
    /// Whether the end-of-sequence token may end a generation.
    pub respect_eos: bool,
    /// Prefill.
    pub prefill: PrefillOptions,
    /// Finite requests.
    pub burst: BurstOptions,
    /// Rates of the open loop, requests a second.
    pub rates: Vec<f64>,
    /// How its gaps are made.
    pub arrivals: Arrivals,
    /// Most of its requests that may be under way.
    pub most_in_flight: u32,
    /// How often the matrix is measured.
    pub repeat: u32,
    /// Seconds of the hidden decode before the matrix; 0 is none.
    pub decode_warmup_s: f64,
    /// Limit of a cell's warm-up in seconds; 0 is automatic.
    pub cell_warmup_timeout_s: f64,
    /// Whether answers that repeat themselves make a cell invalid.
    pub loop_guard: bool,
    /// Whether page and terminal show numbers of limited cells; kept in the report only.
    pub show_capacity_limited: bool,
    /// Reference acceptance length; 0 is none.
    pub accept_len_ref: f64,
    /// How prompts relate.
    pub prompts: PromptMode,
    /// Prompts of one's own, in place of made ones; the only context is then 0.
    pub dataset: Option<Dataset>,
    /// Seed of the prompts' text and of the schedule.
    pub seed: u64,
    /// Whether the client itself is measured before the cells.
    pub calibrate: bool,
    /// What each cell's sample of arrivals may take in the report, kB.
    pub arrivals_kb: u32,
}

impl RunOptions {
    /// How prompts relate, as the report writes it.
    #[must_use]
    pub fn prompts(&self) -> &'static str {
        if self.dataset.is_some() { "dataset" } else { self.prompts.as_str() }
    }

    /// The contexts of the matrix; none where prefill is all that is wanted.
    #[must_use]
    pub fn matrix_contexts(&self) -> &[u32] {
        if self.prefill.only { &[] } else { &self.contexts }
    }

    /// What is measured at each place of the matrix.
    #[must_use]
    pub fn layers(&self) -> Layers {
        let primary = self.burst.request_count > 0;
        let burst = if primary {
            Some(BurstCount { count: self.burst.request_count, per_stream: 1, warmup: Some(self.burst.warmup_request_count) })
        } else {
            let warmup = Some(self.burst.warmup_count).filter(|n| *n > 0);
            self.burst.run.then_some(BurstCount { count: self.burst.count, per_stream: self.burst.per_stream, warmup })
        };
        let wanted = !self.prefill.only;
        Layers {
            sustained: wanted && !primary,
            burst: burst.filter(|_| wanted),
            rates: if wanted { self.rates.clone() } else { Vec::new() },
            poisson: self.arrivals == Arrivals::Poisson,
            most_in_flight: self.most_in_flight,
        }
    }
}
