//! `tokscope run`: measure a server and write one report.

use super::exit::Exit;
use super::interrupt;
use super::measure_args::MeasureArgs;
use crate::checkpoint::{Checkpoint, Found, ResumeError, find};
use crate::clock::Clock;
use crate::event::{Events, Log};
use crate::load::stop::{Stop, stop_pair};
use crate::output::{Output, OutputError};
use crate::report::{self, RunRecord, Status};
use crate::run::{Kept, RunError, RunOptions, run};
use crate::secrets::Secrets;
use crate::target::TargetError;
use crate::ui::{Listener, complain, print_summary, say};
use clap::Args;
use std::path::PathBuf;
use tokio::sync::mpsc;
use tokscope_shared::field::Findings;
use tokscope_shared::report::Report;
use tokscope_shared::verdict::{Review, review};

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
    /// Go on with the run whose checkpoint is beside the report, or the only one in this folder that fits. The options,
    /// the server and its model have to be the same.
    #[arg(long, help_heading = "Output")]
    resume: bool,
    /// Begin anew; wins over --resume.
    #[arg(long, help_heading = "Output")]
    no_resume: bool,
}

/// Measures and writes the report.
pub async fn run_command(args: &RunArgs) -> anyhow::Result<Exit> {
    let options = match args.measure.options() {
        Ok(options) => options,
        Err(text) => return Ok(usage(&text)),
    };
    let found = if args.resume && !args.no_resume {
        match find(args.output.as_deref(), &options) {
            Ok(found) => Some(found),
            Err(error @ ResumeError::Damaged { .. }) => return Err(error.into()),
            Err(error) => return Ok(usage(&error.to_string())),
        }
    } else {
        None
    };
    let output = match &found {
        Some(found) => Output::go_on(found.report.clone(), &found.earlier.run_id, args.overwrite),
        None => Output::claim(args.output.as_deref(), args.overwrite),
    };
    let output = match output {
        Ok(output) => output,
        Err(error) => return Ok(usage(&error.to_string())),
    };
    let checkpoint = if args.overwrite || args.no_resume || found.is_some() { Keeping::Replaced } else { Keeping::New };
    let done = match measure(&options, &output, found, checkpoint).await {
        Ok(done) => done,
        Err(error) => return stopped_or_failed(error),
    };
    say(&format!("report: {}", done.path.display()));
    Ok(done.exit)
}

/// The exit code of a run that left no report; the reason is said.
pub fn stopped_or_failed(error: anyhow::Error) -> anyhow::Result<Exit> {
    let exit = match error.downcast_ref::<RunError>() {
        Some(RunError::Target(TargetError::BadAddress { .. } | TargetError::Client { .. } | TargetError::BadRoots { .. })) => Exit::Usage,
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
    let path = match place.write(text, true) {
        Ok(path) => path,
        Err(second) => {
            complain(&format!("tokscope: {second}"));
            return Err(error);
        }
    };
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

/// What becomes of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// There is none: nobody could go on with the run.
    None,
    /// There is none yet.
    New,
    /// What is there is replaced.
    Replaced,
}

/// Runs, shows how it goes, writes the report and prints its tables. See [`interrupt`] for what Ctrl-C does.
pub async fn measure(options: &RunOptions, output: &Output, found: Option<Found>, keeping: Keeping) -> anyhow::Result<Done> {
    let secrets = Secrets::of(&options.target.host, options.target.api_key.as_deref(), |name| std::env::var(name).ok());
    secrets.hide_from_terminal();
    let (clock, log, earlier) = match found {
        Some(Found { clock, events, earlier, .. }) => (clock, Log::after(events), Some(earlier)),
        None => (Clock::start(), Log::default(), None),
    };
    let (sender, receiver) = mpsc::unbounded_channel();
    let events = Events::logged(clock, sender, log.clone());
    let listener = Listener::start(clock, receiver);
    let checkpoint = (keeping != Keeping::None)
        .then(|| Checkpoint::new(output.checkpoint(), keeping == Keeping::Replaced, secrets.clone(), log.clone()));
    let (stopper, stop) = stop_pair();
    let asked = interrupt::listen(stopper);
    let kept = {
        let (checkpoint, events) = (checkpoint.clone(), events.clone());
        Kept::new(earlier, move |record| {
            if let Some(checkpoint) = &checkpoint {
                checkpoint.keep(record, &events);
            }
        })
    };
    let outcome = run_or_let_go(options, clock, &events, stop, &kept).await;
    let record = kept.take();
    drop(kept);
    if let Err(error) = outcome {
        drop(events);
        listener.ended().await;
        checkpoint.iter().for_each(Checkpoint::remove_if_empty);
        return Err(error.into());
    }
    let Some(mut record) = record else { return Err(RunError::Stopped.into()) };
    if record.status != Status::Complete {
        checkpoint.iter().for_each(|checkpoint| checkpoint.keep(&record, &events));
    }
    drop(events);
    listener.ended().await;
    record.events = log.entries();
    let done = finish(&record, output, checkpoint.as_ref(), &secrets)?;
    drop(asked);
    Ok(done)
}

/// Runs until the end, or until nobody is to be waited for.
async fn run_or_let_go(options: &RunOptions, clock: Clock, events: &Events, mut stop: Stop, kept: &Kept) -> Result<(), RunError> {
    let mut running = Box::pin(run(options, clock, events, stop.clone(), kept));
    tokio::select! {
        outcome = &mut running => outcome,
        () = stop.at_once() => {
            // It would wait for its threads if it were dropped, and they may wait for a server.
            std::mem::forget(running);
            Ok(())
        }
    }
}

/// Whether there is a number: of a cell, or of prefill where that was all that was wanted.
fn measured_something(report: &Report, review: &Review) -> bool {
    let only_prefill = report.metadata.get().is_some_and(|meta| meta.prefill_only.yes());
    if only_prefill { report.prefill.entries().any(|(_, row)| row.tok_per_sec.f64().is_some()) } else { !review.cells.is_empty() }
}

/// Writes the report, takes the checkpoint away where it isn't needed any more, and says how it went.
fn finish(record: &RunRecord, output: &Output, checkpoint: Option<&Checkpoint>, secrets: &Secrets) -> anyhow::Result<Done> {
    let mut report = report::assemble(record);
    secrets.scrub_report(&mut report);
    let text = report.to_json();
    let complete = record.status == Status::Complete;
    let written = output.write(&text, complete);
    let placed = written.is_ok();
    let written = written.or_else(|error| rescue(error, &text, &record.run_id));
    if complete && placed {
        output.remove_partial(&record.run_id);
        checkpoint.into_iter().for_each(Checkpoint::remove);
    }
    let review = review(&report, &Findings::default());
    // What was measured is seen, also where it is in no file.
    print_summary(&report, &review);
    if let Some(checkpoint) = checkpoint.filter(|checkpoint| checkpoint.is_kept()) {
        let behind = if checkpoint.is_behind() { ", without what came after it could last be written" } else { "" };
        say(&format!("\nnot finished: go on with the same options and --resume (checkpoint: {}{behind})", checkpoint.path().display()));
    }
    let path = written?;
    let exit = match record.status {
        _ if !placed => Exit::Failed,
        Status::Interrupted => Exit::Interrupted,
        Status::Failed => Exit::Failed,
        _ if review.any_invalid() || !measured_something(&report, &review) => Exit::Invalid,
        _ => Exit::Ok,
    };
    Ok(Done { path, report, exit })
}
