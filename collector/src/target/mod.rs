//! Which server is this, and what can it do: address, credentials, engine, version, models, limits
//! with their sources, and whether its metrics can be read. It measures nothing.

mod accepted;
mod address;
mod credentials;
mod detect;
mod error;
mod http;
mod knowledge;
mod llama_cpp;
mod metrics;
mod negotiate;
mod proxy;
mod refusal;
mod roots;
mod sglang;
mod vllm;
mod wait;

use std::time::Duration;

pub use accepted::{Accepted, UsageOption};
pub use address::{Address, Scheme};
pub use credentials::Credentials;
pub(crate) use detect::thousands;
pub use error::TargetError;
pub(crate) use http::{body_of, root_cause};
pub use knowledge::Knowledge;
pub use roots::TrustedRoots;

/// Which engine answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp's server.
    LlamaCpp,
    /// Anything else that speaks the API, known by nothing more.
    OpenaiProxy,
}

impl Engine {
    /// The engine as the report writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::LlamaCpp => "llama_cpp",
            Self::OpenaiProxy => "openai_proxy",
        }
    }

    /// The engine's name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
            Self::LlamaCpp => "llama.cpp",
            Self::OpenaiProxy => "OpenAI-compatible proxy",
        }
    }
}

/// Where to find a server and how to ask it. `Debug` shows neither key nor password.
#[derive(Clone, Default)]
pub struct TargetOptions {
    /// `--host`: a host name, an address or a URL with or without a base path. Empty: `localhost`.
    pub host: String,
    /// `--port`.
    pub port: Option<u16>,
    /// `--api-key`; else `TOKSCOPE_API_KEY`, else `VLLM_API_KEY`.
    pub api_key: Option<String>,
    /// `--model`; else the first one the server lists.
    pub model: Option<String>,
    /// `--kv-budget` or `--max-total-tokens`: overrides what the server says.
    pub kv_budget_tokens: Option<u64>,
    /// `--dcp-size`, else `LLM_BENCH_DCP_SIZE`: multiplies the KV budget read from the server.
    pub dcp_size: Option<u32>,
    /// `--ca-cert`: a PEM file of authorities to trust besides the usual ones.
    pub ca_cert: Option<std::path::PathBuf>,
    /// `--wait-ready`: seconds to wait for a server that is not there yet or still loads; 0 is not at all.
    pub wait_ready_s: f64,
}

impl std::fmt::Debug for TargetOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TargetOptions")
            .field("host", &address::without_credentials(&self.host))
            .field("port", &self.port)
            .field("api_key", &self.api_key.as_ref().map(|_| "..."))
            .field("model", &self.model)
            .field("kv_budget_tokens", &self.kv_budget_tokens)
            .field("dcp_size", &self.dcp_size)
            .field("ca_cert", &self.ca_cert)
            .field("wait_ready_s", &self.wait_ready_s)
            .finish()
    }
}

/// A limit, with where it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// `max_model_len`, `kv_budget_tokens`, `kv_block_tokens`, `max_running_requests`, and of a data-parallel server
    /// `data_parallel_engines` and `kv_budget_tokens_per_engine`.
    pub name: &'static str,
    /// Its value; tokens, requests or engines.
    pub value: u64,
    /// Where it was read, e.g. `/v1/models max_model_len`.
    pub source: String,
}

/// Whether the server's metrics can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAccess {
    /// At `/metrics`.
    Available,
    /// Not, with the reason in words.
    Unavailable {
        /// Why.
        reason: String,
    },
}

/// How prompts can be counted without sending them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokenize {
    /// `POST /tokenize {model, messages}` gives a count with the template in it.
    Chat,
    /// Not at all: a probe's usage has to tell.
    Unavailable,
}

/// A server, as far as it told about itself.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it is.
    pub address: Address,
    /// How to authenticate. Its `Debug` shows nothing of it.
    pub credentials: Credentials,
    /// Which engine.
    pub engine: Engine,
    /// What the engine was recognised by, e.g. `/version and vllm: metrics`.
    pub engine_source: String,
    /// The engine's version, if it tells.
    pub version: Option<String>,
    /// Ids of the models it lists.
    pub models: Vec<String>,
    /// The model to be measured.
    pub model: String,
    /// Limits, each with its source.
    pub limits: Vec<Limit>,
    /// Whether its metrics can be read.
    pub metrics: MetricsAccess,
    /// Where they are: `/metrics`, or where that points to on the same server.
    pub metrics_url: String,
    /// How the engine is known.
    pub knowledge: Knowledge,
    /// How prompts can be counted.
    pub tokenize: Tokenize,
    /// What it takes of the options that not every server knows.
    pub accepted: Accepted,
    /// Facts for the event log's start-up block, in the predecessor's words where it has them;
    /// without the `startup ` in front.
    pub startup_lines: Vec<String>,
    /// Doubts that came up, each a sentence.
    pub warnings: Vec<String>,
    /// Authorities trusted besides the usual ones.
    pub roots: TrustedRoots,
    /// For every call but those on a token's path; each has a connection of its own.
    pub client: reqwest::Client,
    /// For scrapes, so many and so regular that they keep theirs.
    pub scrape_client: reqwest::Client,
}

impl Target {
    /// Asks the server what it is. Where it is to be waited for, `progress` hears what for and for how long.
    ///
    /// # Errors
    /// An address that is none, a server that can't be reached, is not ready in time or does not speak the API, one
    /// without models or without the model asked for.
    pub async fn detect(options: &TargetOptions, progress: &mut (dyn FnMut(&str) + Send)) -> Result<Self, TargetError> {
        detect::detect(options, progress).await
    }

    /// The model's context limit, tokens.
    #[must_use]
    pub fn max_model_len(&self) -> Option<u64> {
        self.limit("max_model_len")
    }

    /// Tokens the KV cache holds.
    #[must_use]
    pub fn kv_budget_tokens(&self) -> Option<u64> {
        self.limit("kv_budget_tokens")
    }

    /// Tokens of the KV cache each engine of a data-parallel server holds, the smallest: no request can use more.
    #[must_use]
    pub fn kv_budget_per_engine(&self) -> Option<u64> {
        self.limit("kv_budget_tokens_per_engine")
    }

    /// Tokens of a block of the KV cache: what is needed is rounded up to whole ones.
    #[must_use]
    pub fn kv_block_tokens(&self) -> Option<u64> {
        self.limit("kv_block_tokens")
    }

    /// Engines of a data-parallel server, where it has several.
    #[must_use]
    pub fn data_parallel_engines(&self) -> Option<u64> {
        self.limit("data_parallel_engines")
    }

    /// Requests the server runs at once.
    #[must_use]
    pub fn max_running(&self) -> Option<u64> {
        self.limit("max_running_requests")
    }

    /// Why metrics can't be read; `None` if they can.
    #[must_use]
    pub fn metrics_warning(&self) -> Option<&str> {
        match &self.metrics {
            MetricsAccess::Available => None,
            MetricsAccess::Unavailable { reason } => Some(reason),
        }
    }

    /// What `metadata.server` says: the `--host` text if it is a URL (without credentials), else
    /// `host:port`.
    #[must_use]
    pub fn display(&self) -> &str {
        self.address.display()
    }

    fn limit(&self, name: &str) -> Option<u64> {
        let limit = self.limits.iter().find(|l| l.name == name)?;
        Some(limit.value)
    }
}

/// How long the list of models may take.
const ASK_LIMIT: Duration = Duration::from_secs(10);
/// How long each question that tells engines apart may take; they are asked at once.
const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// How long `/metrics` may take when it is first tried.
const METRICS_PROBE_LIMIT: Duration = Duration::from_secs(2);
