//! What `run` and `plan` are asked to measure: the options, and their check before anything is sent.

use crate::load::schedule::MOST_REQUESTS;
use crate::plan::{parse_concurrency, parse_contexts};
use crate::prompt::Dataset;
use crate::run::{Arrivals, BurstOptions, PrefillMetric, PrefillOptions, PromptMode, RunOptions};
use crate::target::TargetOptions;
use clap::Args;
use std::path::PathBuf;

/// What makes no sense with prompts of one's own: their lengths are what they are, and none is known before.
const MADE_PROMPTS: [&str; 7] =
    ["contexts", "prompts", "standalone_prefill", "prefill_only", "prefill_contexts", "prefill_duration", "prefill_metric"];

/// The options of `run` and `plan`.
#[derive(Args, Debug)]
pub struct MeasureArgs {
    /// Host name, address or URL of the server.
    #[arg(long, default_value = "localhost", help_heading = "Server")]
    host: String,
    /// Port of the server [default: 5000, or the URL's].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..), help_heading = "Server")]
    port: Option<u16>,
    /// Key to send; else TOKSCOPE_API_KEY, else VLLM_API_KEY.
    #[arg(long, value_name = "KEY", help_heading = "Server")]
    api_key: Option<String>,
    /// Model to ask for [default: the first that the server lists].
    #[arg(long, help_heading = "Server")]
    model: Option<String>,
    /// Wait so long for a server that is still loading.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, allow_negative_numbers = true, value_parser = seconds, help_heading = "Server")]
    wait_ready: f64,
    /// Tokens that the KV cache holds [default: as the server says].
    #[arg(long, value_name = "TOKENS", help_heading = "Server")]
    kv_budget: Option<u64>,
    /// The same, by its other name; --kv-budget wins.
    #[arg(long, value_name = "TOKENS", help_heading = "Server")]
    max_total_tokens: Option<u64>,
    /// Context-parallel size: multiplies the KV budget that the server says.
    #[arg(long, value_name = "N", env = "LLM_BENCH_DCP_SIZE", hide_env_values = true, help_heading = "Server")]
    dcp_size: Option<u32>,
    /// PEM file of authorities to trust besides the usual ones.
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    ca_cert: Option<PathBuf>,

    /// Levels of concurrency.
    #[arg(long, value_name = "LIST", allow_negative_numbers = true, default_value = "1,2,4,8,16,32,64,128", help_heading = "Matrix")]
    concurrency: String,
    /// Context lengths in tokens, as in 0,16k,1m.
    #[arg(long, value_name = "LIST", allow_negative_numbers = true, default_value = "0,16k,32k,64k,128k", help_heading = "Matrix")]
    contexts: String,
    /// Length of each cell's window.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, allow_negative_numbers = true, value_parser = seconds_above_zero, help_heading = "Matrix")]
    duration: f64,
    /// Output limit a request.
    #[arg(long, value_name = "TOKENS", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Matrix")]
    max_tokens: u32,
    /// Temperature to send [default: the server's own].
    #[arg(long, allow_negative_numbers = true, value_parser = not_negative, help_heading = "Matrix")]
    temperature: Option<f64>,
    /// Let the model end its answers itself.
    #[arg(long, help_heading = "Matrix")]
    respect_eos: bool,
    /// Measure the matrix so often, there and back in turn; with 3 and more the page gives intervals.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Matrix")]
    repeat: u32,
    /// Measure a finite number of requests in each cell, and no window.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Matrix")]
    request_count: u32,
    /// Requests before them, thrown away.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Matrix")]
    warmup_request_count: u32,
    /// Acceptance length to which steps a second are projected; 0 is none.
    #[arg(long, value_name = "LENGTH", default_value_t = 0.0, allow_negative_numbers = true, value_parser = not_negative, help_heading = "Matrix")]
    accept_len_ref: f64,
    /// Write numbers of limited cells without a mark, for scripts that read the flag; the verdict stays.
    #[arg(long, help_heading = "Matrix")]
    show_capacity_limited_values: bool,

    /// How the prompts of a cell relate: one context and an ending each, a context each, or all the same.
    #[arg(long, value_enum, default_value_t, help_heading = "Prompts")]
    prompts: PromptMode,
    /// Prompts of one's own, one a line: {"prompt": "..."} or {"messages": [...]}, and "max_tokens" if wanted. There are
    /// no contexts and no prefill then.
    #[arg(long, value_name = "FILE.jsonl", conflicts_with_all = MADE_PROMPTS, help_heading = "Prompts")]
    dataset: Option<PathBuf>,
    /// Seed of the prompts' text and of the open loop's schedule.
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, help_heading = "Prompts")]
    seed: u64,

    /// After the matrix, measure it with finite requests as well.
    #[arg(long, help_heading = "Bursts and open loop")]
    run_burst: bool,
    /// Requests of each burst [default: by stream].
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, help_heading = "Bursts and open loop")]
    burst_request_count: u32,
    /// Requests before each burst, thrown away [default: one a stream].
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, help_heading = "Bursts and open loop")]
    burst_warmup_request_count: u32,
    /// Requests of a burst for each stream [default: 5].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Bursts and open loop")]
    burst_requests_per_concurrency: Option<u32>,
    /// Requests a second that are sent whatever the server does; each rate a cell for each context.
    #[arg(long, value_name = "LIST", allow_negative_numbers = true, help_heading = "Bursts and open loop")]
    request_rate: Option<String>,
    /// How the gaps between them are made [default: poisson].
    #[arg(long, value_enum, help_heading = "Bursts and open loop")]
    arrivals: Option<Arrivals>,
    /// Most of them that may be under way [default: 1024].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), help_heading = "Bursts and open loop")]
    max_in_flight: Option<u32>,

    /// Leave prefill out of the report.
    #[arg(long, help_heading = "Prefill")]
    skip_prefill: bool,
    /// Measure prefill in a phase of its own, each request cold.
    #[arg(long, conflicts_with = "skip_prefill", help_heading = "Prefill")]
    standalone_prefill: bool,
    /// Only that phase.
    #[arg(long, conflicts_with_all = ["skip_prefill", "run_burst", "request_count", "request_rate"], help_heading = "Prefill")]
    prefill_only: bool,
    /// Contexts of prefill besides the matrix's, or those of its own phase [default: 8k,64k,128k, as far as they fit].
    #[arg(long, value_name = "LIST", allow_negative_numbers = true, help_heading = "Prefill")]
    prefill_contexts: Option<String>,
    /// Seconds for each context in its own phase [default: 10].
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds, help_heading = "Prefill")]
    prefill_duration: Option<f64>,
    /// Which number is a row's headline.
    #[arg(long, value_enum, ignore_case = true, default_value_t, help_heading = "Prefill")]
    prefill_metric: PrefillMetric,

    /// Seconds of hidden decode before the matrix; 0 is none.
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, allow_negative_numbers = true, value_parser = seconds, help_heading = "Care")]
    decode_warmup_seconds: f64,
    /// Longest wait for steady streams; 0 is 60 s, 120 s from 64k, 180 s from 128k.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, allow_negative_numbers = true, value_parser = seconds, help_heading = "Care")]
    cell_warmup_timeout_seconds: f64,
    /// Answers that repeat themselves make a cell invalid (the default).
    #[arg(long, overrides_with = "no_loop_detection", hide_short_help = true, help_heading = "Care")]
    loop_detection: bool,
    /// Let answers repeat themselves.
    #[arg(long, overrides_with = "loop_detection", help_heading = "Care")]
    no_loop_detection: bool,
    /// Do not measure the client itself before the cells (about a second a level of concurrency).
    #[arg(long, help_heading = "Care")]
    no_calibration: bool,
    /// What each cell's sample of whole requests, arrival by arrival, may take in the report; 0 is none.
    #[arg(long, value_name = "KB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(..=65_536), help_heading = "Care")]
    arrivals_kb: u32,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && (0.0..=86_400.0).contains(&value) => Ok(value),
        _ => Err("give seconds, from 0 to 86400".to_owned()),
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0).ok_or_else(|| "give a number, from 0".to_owned())
}

fn seconds_above_zero(text: &str) -> Result<f64, String> {
    seconds(text).ok().filter(|value| *value >= 0.5).ok_or_else(|| "give seconds, from 0.5 to 86400".to_owned())
}

/// `--request-rate`: numbers above zero, without duplicates.
fn rates(list: &str) -> Result<Vec<f64>, String> {
    let mut rates: Vec<f64> = Vec::new();
    for item in list.split(',').map(str::trim) {
        let rate = item.parse().ok().filter(|rate: &f64| rate.is_finite() && (0.001..=1e6).contains(rate));
        let rate = rate.ok_or_else(|| format!("cannot read '{item}'; write requests a second as 0.5,2,10"))?;
        if rates.contains(&rate) {
            return Err(format!("{item} is listed twice; remove one"));
        }
        rates.push(rate);
    }
    Ok(rates)
}

impl MeasureArgs {
    /// The options, checked.
    ///
    /// # Errors
    /// A sentence that names the option.
    pub fn options(&self) -> Result<RunOptions, String> {
        let only_with = |given: bool, option: &str, needs: &str| if given { Err(format!("{option} needs {needs}")) } else { Ok(()) };
        only_with(self.warmup_request_count > 0 && self.request_count == 0, "--warmup-request-count", "--request-count")?;
        only_with(self.burst_request_count > 0 && !self.run_burst, "--burst-request-count", "--run-burst")?;
        only_with(self.burst_warmup_request_count > 0 && !self.run_burst, "--burst-warmup-request-count", "--run-burst")?;
        only_with(self.burst_requests_per_concurrency.is_some() && !self.run_burst, "--burst-requests-per-concurrency", "--run-burst")?;
        only_with(self.arrivals.is_some() && self.request_rate.is_none(), "--arrivals", "--request-rate")?;
        only_with(self.max_in_flight.is_some() && self.request_rate.is_none(), "--max-in-flight", "--request-rate")?;
        let own_phase = self.standalone_prefill || self.prefill_only;
        only_with(self.prefill_duration.is_some() && !own_phase, "--prefill-duration", "--standalone-prefill or --prefill-only")?;
        let is_empty = |text: &str| text.trim().is_empty();
        for (empty, option) in [(is_empty(&self.host), "--host"), (self.model.as_deref().is_some_and(is_empty), "--model")] {
            if empty {
                return Err(format!("{option} is empty; give one, or leave the option out"));
            }
        }
        let rates = self.request_rate.as_deref().map_or(Ok(Vec::new()), rates).map_err(|error| format!("--request-rate: {error}"))?;
        if let Some(rate) = rates.iter().find(|rate| **rate * self.duration > f64::from(MOST_REQUESTS)) {
            return Err(format!("--request-rate: {rate} requests a second for {} s are more than {MOST_REQUESTS}", self.duration));
        }
        let dataset = self.dataset.as_deref().map(Dataset::read).transpose().map_err(|error| error.to_string())?;
        let asked = self.prefill_contexts.as_deref().unwrap_or("8k,64k,128k");
        let no_prefill = dataset.is_some() || asked.trim().is_empty();
        let prefill_contexts = if no_prefill { Ok(Vec::new()) } else { parse_contexts(asked) };
        let contexts = if dataset.is_some() { Ok(vec![0]) } else { parse_contexts(&self.contexts) };
        Ok(RunOptions {
            target: TargetOptions {
                host: self.host.clone(),
                port: self.port,
                api_key: self.api_key.clone(),
                model: self.model.clone(),
                kv_budget_tokens: self.kv_budget.or(self.max_total_tokens).filter(|tokens| *tokens > 0),
                dcp_size: self.dcp_size,
                ca_cert: self.ca_cert.clone(),
                wait_ready_s: self.wait_ready,
            },
            concurrency: parse_concurrency(&self.concurrency).map_err(|error| format!("--concurrency: {error}"))?,
            contexts: contexts.map_err(|error| format!("--contexts: {error}"))?,
            duration_s: self.duration,
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            respect_eos: self.respect_eos,
            prefill: PrefillOptions {
                skip: self.skip_prefill || dataset.is_some(),
                standalone: own_phase,
                only: self.prefill_only,
                contexts: prefill_contexts.map_err(|error| format!("--prefill-contexts: {error}"))?,
                named: self.prefill_contexts.is_some(),
                duration_s: self.prefill_duration.unwrap_or(10.0),
                metric: self.prefill_metric,
            },
            burst: BurstOptions {
                request_count: self.request_count,
                warmup_request_count: self.warmup_request_count,
                run: self.run_burst && self.request_count == 0,
                count: self.burst_request_count,
                warmup_count: self.burst_warmup_request_count,
                per_stream: self.burst_requests_per_concurrency.unwrap_or(5),
            },
            rates,
            arrivals: self.arrivals.unwrap_or_default(),
            most_in_flight: self.max_in_flight.unwrap_or(1024),
            repeat: self.repeat,
            decode_warmup_s: self.decode_warmup_seconds,
            cell_warmup_timeout_s: self.cell_warmup_timeout_seconds,
            loop_guard: !self.no_loop_detection,
            show_capacity_limited: self.show_capacity_limited_values,
            accept_len_ref: self.accept_len_ref.max(0.0),
            prompts: self.prompts,
            dataset,
            seed: self.seed,
            calibrate: !self.no_calibration,
            arrivals_kb: self.arrivals_kb,
        })
    }
}
