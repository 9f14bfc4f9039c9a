//! Finds and reads the checkpoint that a run goes on from.

use super::{At, Head, Signature, VERSION};
use crate::clock::Clock;
use crate::event::Logged;
use crate::output::{checkpoint_of, is_in_use, report_of};
use crate::report::Status;
use crate::run::{Earlier, MeasuredCell, RunOptions};
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tokscope_shared::field::{Json, Reader};
use tokscope_shared::report::cell::Cell;
use tokscope_shared::report::own::RunSeries;

/// Why there is nothing to go on from.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// No file where it should be.
    #[error("--resume: there is no checkpoint {0}: that run is finished, or never began; leave --resume out to begin one")]
    NoSuch(PathBuf),
    /// No checkpoint in the folder.
    #[error("--resume: there is no checkpoint in this folder: name the report with --output, or leave --resume out to begin a run")]
    Nothing,
    /// Checkpoints, none of which fits.
    #[error("--resume: no checkpoint in this folder is of this run: {}", .0.join("; "))]
    NoneFits(Vec<String>),
    /// More than one that fits.
    #[error("--resume: several checkpoints fit; name the report of one with --output: {}", .0.join(", "))]
    Several(Vec<String>),
    /// One with other options.
    #[error("--resume: {} is of another run: {}", .path.display(), .differences.join("; "))]
    Differs {
        /// The checkpoint.
        path: PathBuf,
        /// Each difference in words.
        differences: Vec<String>,
    },
    /// Its run still goes on.
    #[error("--resume: another tokscope is measuring into {0}; wait for its end, or end it")]
    InUse(PathBuf),
    /// One that can't be read.
    #[error("--resume: {} can't be used: {reason}; remove it to begin anew", .path.display())]
    Damaged {
        /// The checkpoint.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// A checkpoint that fits.
#[derive(Debug)]
pub struct Found {
    /// The report it belongs to.
    pub report: PathBuf,
    /// What was measured.
    pub earlier: Earlier,
    /// What happened.
    pub events: Vec<Logged>,
    /// The run's clock, going on.
    pub clock: Clock,
}

/// The checkpoint of the report named, or the one in this folder that fits.
///
/// # Errors
/// There is none, or not just one, or it is of another run.
pub fn find(report: Option<&Path>, options: &RunOptions) -> Result<Found, ResumeError> {
    let asked = Signature::asked(options);
    let Some(report) = report else { return the_one_here(&asked) };
    let report = report.canonicalize().unwrap_or_else(|_| report.to_owned());
    let path = checkpoint_of(&report);
    if path.exists() && !path.is_file() {
        return Err(ResumeError::Damaged { path, reason: "it is no ordinary file".to_owned() });
    }
    if !path.is_file() {
        return Err(ResumeError::NoSuch(path));
    }
    if is_in_use(&path) {
        return Err(ResumeError::InUse(report));
    }
    let found = read(&path)?;
    let differences = asked.differences(&found.earlier.signature);
    if differences.is_empty() { Ok(found) } else { Err(ResumeError::Differs { path, differences }) }
}

fn the_one_here(asked: &Signature) -> Result<Found, ResumeError> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(".")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(PathBuf::from(entry.ok()?.file_name())))
        .filter(|path| report_of(path).is_some() && path.is_file())
        .collect();
    paths.sort();
    let (mut fit, mut others) = (Vec::new(), Vec::new());
    for path in paths {
        if is_in_use(&path) {
            others.push(format!("{} (another tokscope is measuring into it)", path.display()));
            continue;
        }
        match read(&path) {
            Err(ResumeError::Damaged { path, reason }) => others.push(format!("{} ({reason})", path.display())),
            Err(error) => return Err(error),
            Ok(found) => match asked.differences(&found.earlier.signature) {
                none if none.is_empty() => fit.push((path, found)),
                some => others.push(format!("{} ({})", path.display(), some.join("; "))),
            },
        }
    }
    match (fit.len(), others.is_empty()) {
        (0, true) => Err(ResumeError::Nothing),
        (0, false) => Err(ResumeError::NoneFits(others)),
        (1, _) => fit.pop().map(|(_, found)| found).ok_or(ResumeError::Nothing),
        _ => Err(ResumeError::Several(fit.iter().filter_map(|(path, _)| Some(report_of(path)?.display().to_string())).collect())),
    }
}

fn read(path: &Path) -> Result<Found, ResumeError> {
    let damaged = |reason: String| ResumeError::Damaged { path: path.to_owned(), reason };
    let bytes = std::fs::read(path).map_err(|error| damaged(error.to_string()))?;
    let mut map: Map<String, Value> = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    match map.get("tokscope_checkpoint").and_then(Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => return Err(damaged(format!("it is of shape {version}, and this version of Tokscope knows {VERSION}"))),
        None => return Err(damaged("it is no checkpoint of Tokscope".to_owned())),
    }
    let (cells, series) = (map.remove("results"), map.remove("series"));
    let head: Head = serde_json::from_value(Value::Object(map)).map_err(|error| damaged(error.to_string()))?;
    let started: Timestamp = head.started.parse().map_err(|_| damaged("the time of its start is none".to_owned()))?;
    let mut cells = cells_of(cells).ok_or_else(|| damaged("a cell in it is none".to_owned()))?;
    only_finished(&mut cells, head.status == Status::Failed.as_str());
    let orders: BTreeSet<usize> = cells.iter().map(|cell| cell.order).collect();
    let mut stretches = head.segments;
    stretches.iter_mut().for_each(|stretch| stretch.cells.retain(|order| orders.contains(order)));
    let least_us = head.events.last().map_or(0, |event| event.t_us + 1);
    let origin_ns = stretches.last().map_or(0, |stretch| stretch.origin_ns);
    let report = report_of(path).ok_or_else(|| damaged("it has another file's name".to_owned()))?;
    let earlier = Earlier {
        signature: head.signature,
        run_id: head.run_id,
        stretches,
        calibration: head.calibration,
        decode_warmup_context: head.decode_warmup_context,
        dataset_used: head.dataset_used,
        prefill: head.prefill_results,
        cells,
        skipped: head.skipped.iter().filter_map(At::place).collect(),
        series: series.and_then(|series| RunSeries::read(series, &mut Reader::default()).ok()).unwrap_or_default(),
    };
    Ok(Found { report, earlier, events: head.events, clock: Clock::go_on(started, origin_ns, least_us) })
}

fn cells_of(cells: Option<Value>) -> Option<Vec<MeasuredCell>> {
    let Some(Value::Array(cells)) = cells else { return None };
    let read = |mut cell: Value| {
        let at: At = serde_json::from_value(cell["at"].take()).ok()?;
        let place = at.place()?;
        let order = usize::try_from(cell["order"].as_u64()?).ok()?;
        let cell = Cell::read(cell["cell"].take(), &mut Reader::default()).ok()?;
        Some(MeasuredCell { layer: place.layer, per_s: place.per_s, repeat: place.repeat, order, cell })
    };
    cells.into_iter().map(read).collect()
}

/// Cells that were interrupted are measured again, and so are the last ones of a run whose server was gone.
fn only_finished(cells: &mut Vec<MeasuredCell>, server_gone: bool) {
    let failed = |cell: &MeasuredCell| cell.cell.failure_reason.str().is_some_and(|text| !text.is_empty());
    while server_gone && cells.last().is_some_and(failed) {
        cells.pop();
    }
    let interrupted = |cell: &MeasuredCell| {
        let own = cell.cell.tokscope.get();
        own.is_some_and(|own| own.reasons.items().any(|reason| reason.code.str() == Some("interrupted")))
    };
    cells.retain(|cell| !interrupted(cell));
}
