//! What a run has measured so far, for whoever has to write it down: also when the run is cut off, and when it goes on
//! later in another process.

use super::RunError;
use crate::calibrate::Calibration;
use crate::checkpoint::Signature;
use crate::clock::rfc3339;
use crate::plan::{Layer, Place, PlannedCell};
use crate::prefill::PrefillRow;
use crate::report::RunRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokscope_shared::report::cell::Cell;
use tokscope_shared::report::own::RunSeries;

/// A cell with its place in the run.
#[derive(Clone, Debug)]
pub struct MeasuredCell {
    /// Which part of the matrix.
    pub layer: Layer,
    /// Requests a second, of the open loop.
    pub per_s: Option<f64>,
    /// Which repeat of it, from 1.
    pub repeat: u32,
    /// Place in the order of execution, from 0.
    pub order: usize,
    /// The cell.
    pub cell: Cell,
}

impl MeasuredCell {
    /// Where it stands in the matrix.
    #[must_use]
    pub fn place(&self) -> Place {
        let count = |n: Option<i64>| n.and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        Place {
            layer: self.layer,
            context_tokens: count(self.cell.context_tokens.i64()),
            concurrency: count(self.cell.concurrency.i64()),
            per_s: self.per_s,
            repeat: self.repeat,
        }
    }
}

/// A stretch of the run in one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// Begin, RFC 3339.
    pub started: String,
    /// End, or when this was last written down; RFC 3339.
    pub ended: String,
    /// Twelve letters that its prompts carry; empty before there are prompts.
    pub run_id: String,
    /// Origin of the run's clock in it.
    pub origin_ns: i64,
    /// Cells measured in it, by their order.
    pub cells: Vec<usize>,
}

/// What earlier stretches of a run left.
#[derive(Debug, Default)]
pub struct Earlier {
    /// What was measured, and of whom.
    pub signature: Signature,
    /// The run's own id.
    pub run_id: String,
    /// The stretches.
    pub stretches: Vec<Stretch>,
    /// The client's own error.
    pub calibration: Vec<Calibration>,
    /// The context of the hidden decode.
    pub decode_warmup_context: Option<u32>,
    /// How many of the user's own prompts were taken.
    pub dataset_used: usize,
    /// Rows of prefill.
    pub prefill: Vec<PrefillRow>,
    /// Cells that are finished.
    pub cells: Vec<MeasuredCell>,
    /// Cells that were skipped.
    pub skipped: Vec<Place>,
    /// The server's metrics meanwhile.
    pub series: RunSeries,
}

/// Called whenever there is something new to keep, with all there is by then.
type AfterChange = Box<dyn Fn(&RunRecord) + Send + Sync>;

#[derive(Default)]
struct Inner {
    record: Mutex<Option<RunRecord>>,
    earlier: Mutex<Option<Earlier>>,
    after_change: Option<AfterChange>,
}

/// What a run has measured so far.
#[derive(Clone, Default)]
pub struct Kept(Arc<Inner>);

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kept(..)")
    }
}

impl Kept {
    /// Nothing yet, or what earlier stretches left. `after_change` is called once the server is known, then with the
    /// plan, and after each cell, each row of prefill, each skip and the client's own calibration.
    pub fn new(earlier: Option<Earlier>, after_change: impl Fn(&RunRecord) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { record: Mutex::default(), earlier: Mutex::new(earlier), after_change: Some(Box::new(after_change)) }))
    }

    /// Begins with a record without measurements, to which those of earlier stretches are added.
    ///
    /// # Errors
    /// Those were made with other options, on another server, or with another model.
    pub(super) fn begin(&self, mut record: RunRecord) -> Result<(), RunError> {
        let earlier = self.0.earlier.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(earlier) = earlier {
            let differences = Signature::of(&record).differences(&earlier.signature);
            if !differences.is_empty() {
                return Err(RunError::Differs(differences));
            }
            record.run_id = earlier.run_id;
            record.stretches = earlier.stretches;
            record.calibration = earlier.calibration;
            record.decode_warmup_context = earlier.decode_warmup_context;
            record.prefill = earlier.prefill;
            record.dataset.iter_mut().for_each(|dataset| dataset.used = earlier.dataset_used);
            record.cells = earlier.cells;
            record.skipped = earlier.skipped;
            record.earlier_series = earlier.series;
        }
        let now = rfc3339(&record.clock.wall_now());
        let origin_ns = record.clock.origin_ns();
        record.stretches.push(Stretch { started: now.clone(), ended: now, origin_ns, ..Stretch::default() });
        *self.lock() = Some(record);
        self.changed();
        Ok(())
    }

    /// The prompts are made, with this id in them; of the first stretch it is the run's own.
    pub(super) fn prompts_made(&self, run_id: &str) {
        self.with(|record| {
            if record.run_id.is_empty() {
                run_id.clone_into(&mut record.run_id);
            }
            if let Some(stretch) = record.stretches.last_mut() {
                run_id.clone_into(&mut stretch.run_id);
            }
        });
    }

    /// Whether this cell need not be measured: it was, or the user skipped it.
    pub(super) fn is_done(&self, planned: &PlannedCell) -> bool {
        let place = planned.place();
        self.with(|record| record.skipped.contains(&place) || record.cells.iter().any(|cell| cell.place() == place))
    }

    /// The contexts whose prefill is known.
    pub(super) fn prefilled(&self) -> BTreeSet<u32> {
        self.with(|record| record.prefill.iter().map(|row| row.context_tokens).collect())
    }

    /// Changes or reads the record. Before there is one nothing is changed and the default is read. What is new in
    /// it is told to whoever wants to know.
    pub(super) fn with<T: Default>(&self, work: impl FnOnce(&mut RunRecord) -> T) -> T {
        let mut record = self.lock();
        let Some(record) = record.as_mut() else { return T::default() };
        let size = |record: &RunRecord| [record.prefill.len(), record.skipped.len(), record.planned.len(), record.calibration.len()];
        let before = size(record);
        let done = work(record);
        if size(record) != before {
            self.tell(record);
        }
        done
    }

    /// Adds a cell, and says so to whoever wants to know.
    pub(super) fn add_cell(&self, cell: MeasuredCell, address: &str) {
        self.with(|record| {
            record.server.address = Some(address.to_owned());
            if let Some(stretch) = record.stretches.last_mut() {
                stretch.cells.push(cell.order);
            }
            record.cells.push(cell);
        });
        self.changed();
    }

    /// Adds a row of prefill; one that was skipped is none.
    pub(super) fn add_prefill(&self, row: PrefillRow) {
        if !row.skipped {
            self.with(|record| record.prefill.push(row));
        }
    }

    /// Takes what there is; `None` where the server was never known.
    #[must_use]
    pub fn take(&self) -> Option<RunRecord> {
        let mut record = self.lock().take()?;
        close_stretch(&mut record);
        Some(record)
    }

    fn changed(&self) {
        if let Some(record) = self.lock().as_mut() {
            self.tell(record);
        }
    }

    fn tell(&self, record: &mut RunRecord) {
        close_stretch(record);
        if let Some(after_change) = &self.0.after_change {
            after_change(record);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<RunRecord>> {
        self.0.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stretch of this process lasted until now, at least.
fn close_stretch(record: &mut RunRecord) {
    let now = rfc3339(&record.clock.wall_now());
    if let Some(stretch) = record.stretches.last_mut() {
        stretch.ended = now;
    }
}
