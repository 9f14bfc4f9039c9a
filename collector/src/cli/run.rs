//! `tokscope run`: measure a server and write one report.

use super::exit::Exit;
use super::measure_args::MeasureArgs;
use crate::clock::Clock;
use crate::event::Events;
use crate::load::stop::stop_pair;
use crate::output::{Output, OutputError};
use crate::report::{self, Status};
use crate::run::{Kept, RunError, RunOptions, run};
use crate::secrets::Secrets;
use crate::target::TargetError;
use crate::ui::{Listener, complain, print_summary, say};
use clap::Args;
use std::path::PathBuf;
use tokio::sync::mpsc;
use tokscope_shared::field::Findings;
use tokscope_shared::verdict::review;

/// Measure a server: decode over contexts and concurrency, prefill, bursts, and by rate.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 measured; 1 the server can't be measured; 2 wrong usage or an output path that can't be \
                        written; 3 a cell is invalid or nothing was measured; 130 interrupted, with the partial report written.")]
pub struct RunArgs {
    #[command(flatten)]
    measure: MeasureArgs,
    /// The report [default: benchmark_results.json, or -2, -3 ... where taken].
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace the file when the report is finished.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
}

/// Measures and writes the report.
pub async fn run_command(args: &RunArgs) -> anyhow::Result<Exit> {
    let options = match args.measure.options() {
        Ok(options) => options,
        Err(text) => return Ok(usage(&text)),
    };
    let output = match Output::claim(args.output.as_deref(), args.overwrite) {
        Ok(output) => output,
        Err(error) => return Ok(usage(&error.to_string())),
    };
    let done = match measure(&options, &output).await {
        Ok(done) => done,
        Err(error) => return stopped_or_failed(error),
    };
    say(&format!("report: {}", done.path.display()));
    Ok(done.exit)
}

/// The exit code of a run that left no report; the reason is said.
pub fn stopped_or_failed(error: anyhow::Error) -> anyhow::Result<Exit> {
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
    let kept = Kept::default();
    let outcome = run(options, clock, &events, stop, &kept).await;
    drop(events);
    let heard = listener.events().await;
    outcome?;
    let Some(mut record) = kept.take() else { return Err(RunError::Stopped.into()) };
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
