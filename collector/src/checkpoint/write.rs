//! Writes the checkpoint: whole or not at all, and on the disk before the next cell begins.

use super::{At, Head, NotPlanned, VERSION};
use crate::clock::rfc3339;
use crate::event::{Event, Events, Log};
use crate::output::replace_for_good;
use crate::report::{self, RunRecord};
use crate::run::MeasuredCell;
use crate::secrets::Secrets;
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokscope_shared::field::{Json, Leaf};

/// A checkpoint that is written again and again. Copies are the same one.
#[derive(Clone, Debug)]
pub struct Checkpoint(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    secrets: Secrets,
    log: Log,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The file there is this run's.
    ours: bool,
    /// It was said that it can't be written.
    complained: bool,
    /// Cells as they were written before: they don't change.
    cells: Vec<String>,
    /// It was written by this process.
    written: bool,
    /// There is something in it that would be missed.
    worth: bool,
    /// What came last is not in it: it could not be written.
    behind: bool,
    /// The file as written last: its lock says that this run goes on.
    held: Option<File>,
}

impl Checkpoint {
    /// At this path. `ours`: what is there now may be replaced.
    #[must_use]
    pub fn new(path: PathBuf, ours: bool, secrets: Secrets, log: Log) -> Self {
        Self(Arc::new(Inner { path, secrets, log, state: Mutex::new(State { ours, ..State::default() }) }))
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Writes all there is. Where that fails, it is said once and the run goes on.
    pub fn keep(&self, record: &RunRecord, events: &Events) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = !state.ours && self.0.path.exists();
        let written = if taken { Err(std::io::Error::from(std::io::ErrorKind::AlreadyExists)) } else { self.write(record, &mut state) };
        match written {
            Ok(file) => {
                (state.ours, state.written, state.behind, state.held) = (true, true, false, Some(file));
                state.worth = !(record.cells.is_empty() && record.prefill.is_empty() && record.stretches.len() < 2);
            }
            Err(error) if !state.complained => {
                (state.complained, state.behind) = (true, true);
                let path = self.0.path.display();
                events.emit(Event::LateWarning(format!("the checkpoint {path} can't be written ({error}): the run goes on without one")));
            }
            Err(_) => state.behind = true,
        }
    }

    /// The run is finished, or nothing was measured: there is nothing to go on with.
    pub fn remove(&self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.ours {
            // It may be gone, with its folder.
            let _ = std::fs::remove_file(&self.0.path);
            state.ours = false;
        }
    }

    /// The same, but only where it was written and nothing was measured in any stretch.
    pub fn remove_if_empty(&self) {
        let empty = {
            let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.written && !state.worth
        };
        if empty {
            self.remove();
        }
    }

    /// Whether it is on the disk.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).ours && self.0.path.is_file()
    }

    /// Whether what was measured last could not be written to it.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).behind
    }

    fn write(&self, record: &RunRecord, state: &mut State) -> std::io::Result<File> {
        for cell in record.cells.iter().skip(state.cells.len()) {
            state.cells.push(self.scrubbed(cell_of(cell)).to_string());
        }
        let head = self.scrubbed(serde_json::to_value(self.head(record))?).to_string();
        let series = report::series(record).write();
        let open = head.strip_suffix('}').unwrap_or(&head);
        let text = format!("{open},\"series\":{series},\"results\":[{}]}}\n", state.cells.join(","));
        replace_for_good(&self.0.path, &text)
    }

    fn head(&self, record: &RunRecord) -> Head {
        let left_out = record.left_out.iter().map(|left| NotPlanned {
            layer: left.layer.to_owned(),
            context_tokens: left.context_tokens,
            concurrency: left.concurrency,
            code: left.code.as_str().to_owned(),
            text: left.text.clone(),
        });
        Head {
            tokscope_checkpoint: VERSION,
            signature: super::Signature::of(record),
            run_id: record.run_id.clone(),
            started: rfc3339(&record.clock.started()),
            status: record.status.as_str().to_owned(),
            segments: record.stretches.clone(),
            calibration: record.calibration.clone(),
            decode_warmup_context: record.decode_warmup_context,
            dataset_used: record.dataset.as_ref().map_or(0, |dataset| dataset.used),
            left_out: left_out.collect(),
            skipped: record.skipped.iter().copied().map(At::from).collect(),
            events: self.0.log.entries(),
            prefill_results: record.prefill.clone(),
        }
    }

    fn scrubbed(&self, mut value: Value) -> Value {
        value.each_leaf("", &mut |_, leaf| {
            if let Leaf::Text(text) = leaf {
                *text = self.0.secrets.scrub(text);
            }
        });
        value
    }
}

fn cell_of(cell: &MeasuredCell) -> Value {
    json!({ "at": At::from(cell.place()), "order": cell.order, "cell": cell.cell.write() })
}
