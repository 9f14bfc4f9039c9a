//! `tokscope run`: measure a server and write one report.

use super::exit::Exit;
use crate::clock::Clock;
use crate::event::Events;
use crate::load::stop::stop_pair;
use crate::output::{Output, OutputError};
use crate::plan::{parse_concurrency, parse_contexts};
use crate::report::{self, Status};
use crate::run::{RunError, RunOptions, run};
use crate::secrets::Secrets;
use crate::target::{TargetError, TargetOptions};
use crate::ui::{Listener, complain, print_summary, say};
use clap::Args;
use std::path::PathBuf;
use tokio::sync::mpsc;
use tokscope_shared::field::Findings;
use tokscope_shared::verdict::review;

/// Measure a server: the sustained-decode matrix of contexts by concurrency.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 measured; 1 the server can't be measured; 2 wrong usage or an output path that can't be \
                        written; 3 a cell is invalid or nothing was measured; 130 interrupted, with the partial report written.")]
pub struct RunArgs {
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
    /// Tokens that the KV cache holds [default: as the server says].
    #[arg(long, value_name = "TOKENS", help_heading = "Server")]
    kv_budget: Option<u64>,
    /// The same, by its other name; --kv-budget wins.
    #[arg(long, value_name = "TOKENS", help_heading = "Server")]
    max_total_tokens: Option<u64>,
    /// Context-parallel size: multiplies the KV budget that the server says.
    #[arg(long, value_name = "N", help_heading = "Server")]
    dcp_size: Option<u32>,
    /// Wait so long for a server that is not there yet or still loads; 0 is not at all.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, allow_negative_numbers = true, value_parser = seconds, help_heading = "Server")]
    wait_ready: f64,

    /// PEM file of authorities to trust besides the usual ones.
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    ca_cert: Option<PathBuf>,

    /// Levels of concurrency.
    #[arg(long, value_name = "LIST", default_value = "1,2,4,8,16,32,64,128", help_heading = "Matrix")]
    concurrency: String,
    /// Context lengths in tokens, as in 0,16k,1m.
    #[arg(long, value_name = "LIST", default_value = "0,16k,32k,64k,128k", help_heading = "Matrix")]
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
    /// Leave prefill out of the report.
    #[arg(long, help_heading = "Matrix")]
    skip_prefill: bool,
    /// Longest wait for steady streams; 0 is 60 s, 120 s from 64k, 180 s from 128k.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, allow_negative_numbers = true, value_parser = seconds, help_heading = "Matrix")]
    cell_warmup_timeout_seconds: f64,
    /// Acceptance length to which steps a second are projected; 0 is none.
    #[arg(long, value_name = "LENGTH", default_value_t = 0.0, allow_negative_numbers = true, value_parser = not_negative, help_heading = "Matrix")]
    accept_len_ref: f64,
    /// Seed of the prompts' text.
    #[arg(long, default_value_t = 1, help_heading = "Matrix")]
    seed: u64,

    /// Do not measure the client itself before the cells (about a second a level of concurrency).
    #[arg(long, help_heading = "Client")]
    no_calibration: bool,
    /// What each cell's sample of whole requests, arrival by arrival, may take in the report; 0 is none.
    #[arg(long, value_name = "KB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(..=65_536), help_heading = "Client")]
    arrivals_kb: u32,

    /// The report [default: benchmark_results.json, or -2, -3 ... where taken].
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace the file when the report is finished.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
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

impl RunArgs {
    /// The options, checked.
    ///
    /// # Errors
    /// A sentence that names the option.
    fn options(&self) -> Result<RunOptions, String> {
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
            contexts: parse_contexts(&self.contexts).map_err(|error| format!("--contexts: {error}"))?,
            duration_s: self.duration,
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            respect_eos: self.respect_eos,
            skip_prefill: self.skip_prefill,
            cell_warmup_timeout_s: self.cell_warmup_timeout_seconds,
            accept_len_ref: self.accept_len_ref.max(0.0),
            seed: self.seed,
            calibrate: !self.no_calibration,
            arrivals_kb: self.arrivals_kb,
        })
    }
}

/// Measures and writes the report.
pub async fn run_command(args: &RunArgs) -> anyhow::Result<Exit> {
    let options = match args.options() {
        Ok(options) => options,
        Err(text) => return Ok(usage(&text)),
    };
    let output = match Output::claim(args.output.as_deref(), args.overwrite) {
        Ok(output) => output,
        Err(error) => return Ok(usage(&error.to_string())),
    };
    let done = match measure(&options, &output).await {
        Ok(done) => done,
        Err(error) => return because(error),
    };
    say(&format!("report: {}", done.path.display()));
    Ok(done.exit)
}

/// The exit code of a run that left no report; the reason is said.
fn because(error: anyhow::Error) -> anyhow::Result<Exit> {
    let exit = match error.downcast_ref::<RunError>() {
        Some(RunError::Target(TargetError::BadAddress { .. } | TargetError::Client { .. })) => Exit::Usage,
        Some(RunError::NothingFits(_)) => Exit::Invalid,
        Some(RunError::Stopped) => Exit::Interrupted,
        _ => return Err(error),
    };
    complain(&format!("tokscope: {error}"));
    Ok(exit)
}

/// Says what was wrong with the command line.
pub fn usage(text: &str) -> Exit {
    complain(&format!("tokscope: {text}"));
    Exit::Usage
}

/// A measurement is worth more than its place: where that fails, the report goes to the temporary folder.
fn rescue(error: OutputError, text: &str, run_id: &str) -> Result<PathBuf, OutputError> {
    let other = std::env::temp_dir().join(format!("tokscope-{run_id}.json"));
    let Ok(place) = Output::claim(Some(&other), true) else { return Err(error) };
    let path = place.write(text, true)?;
    complain(&format!("tokscope: {error}; it is in {} instead", path.display()));
    Ok(path)
}

/// A run that left a report.
#[derive(Debug)]
pub struct Done {
    /// The report's file.
    pub path: PathBuf,
    /// The report.
    pub report: tokscope_shared::report::Report,
    /// What the run's exit code says.
    pub exit: Exit,
}

/// Runs, shows how it goes, writes the report and prints its tables. The first Ctrl-C ends the run and keeps
/// what there is, the second one ends the program.
pub async fn measure(options: &RunOptions, output: &Output) -> anyhow::Result<Done> {
    let secrets = Secrets::of(&options.target.host, options.target.api_key.as_deref(), |name| std::env::var(name).ok());
    secrets.hide_from_terminal();
    let clock = Clock::start();
    let (sender, receiver) = mpsc::unbounded_channel();
    let events = Events::new(clock, sender);
    let listener = Listener::start(clock, receiver);
    let (stopper, stop) = stop_pair();
    let watch = tokio::spawn(async move {
        super::serve::interrupted().await;
        complain("tokscope: stopping; what was measured is kept (once more to quit at once)");
        stopper.stop();
        super::serve::interrupted().await;
        std::process::exit(130);
    });
    let outcome = run(options, clock, &events, stop).await;
    drop(events);
    let heard = listener.events().await;
    let mut record = outcome?;
    record.events = heard;
    let mut report = report::assemble(&record);
    secrets.scrub_report(&mut report);
    let text = report.to_json();
    let (path, placed) = match output.write(&text, record.status == Status::Complete) {
        Ok(path) => (path, true),
        Err(error) => (rescue(error, &text, &record.run_id)?, false),
    };
    watch.abort();
    let review = review(&report, &Findings::default());
    print_summary(&report, &review);
    let exit = match record.status {
        _ if !placed => Exit::Failed,
        Status::Interrupted => Exit::Interrupted,
        Status::Failed => Exit::Failed,
        _ if review.any_invalid() || review.cells.is_empty() => Exit::Invalid,
        _ => Exit::Ok,
    };
    Ok(Done { path, report, exit })
}
