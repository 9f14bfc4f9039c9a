//! What a run has measured so far, for whoever has to write it down: also when the run is cut off.

use crate::plan::Layer;
use crate::prefill::PrefillRow;
use crate::report::RunRecord;
use std::sync::{Arc, Mutex, PoisonError};
use tokscope_shared::report::cell::Cell;

/// A cell with its place in the run.
#[derive(Clone, Debug)]
pub struct MeasuredCell {
    /// Which part of the matrix.
    pub layer: Layer,
    /// Which repeat of it, from 1.
    pub repeat: u32,
    /// Place in the order of execution, from 0.
    pub order: usize,
    /// The cell.
    pub cell: Cell,
}

/// Called after each cell, with what there is by then.
type AfterCell = Box<dyn Fn(&RunRecord) + Send + Sync>;

#[derive(Default)]
struct Inner {
    record: Mutex<Option<RunRecord>>,
    after_cell: Option<AfterCell>,
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
    /// Nothing yet; `after_cell` is called after each cell.
    pub fn new(after_cell: impl Fn(&RunRecord) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { record: Mutex::default(), after_cell: Some(Box::new(after_cell)) }))
    }

    /// Begins with a record without measurements.
    pub(super) fn begin(&self, record: RunRecord) {
        *self.0.record.lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
    }

    /// Changes or reads the record. Before there is one nothing is changed and the default is read.
    pub(super) fn with<T: Default>(&self, work: impl FnOnce(&mut RunRecord) -> T) -> T {
        let mut record = self.0.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.as_mut().map(work).unwrap_or_default()
    }

    /// Adds a cell, and says so to whoever wants to know.
    pub(super) fn add_cell(&self, cell: MeasuredCell, address: &str) {
        let mut record = self.0.record.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(record) = record.as_mut() else { return };
        record.server.address = Some(address.to_owned());
        record.cells.push(cell);
        if let Some(after_cell) = &self.0.after_cell {
            after_cell(record);
        }
    }

    /// Adds a row of prefill.
    pub(super) fn add_prefill(&self, row: PrefillRow) {
        let mut record = self.0.record.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(record) = record.as_mut() else { return };
        record.prefill.push(row);
        if let Some(after_cell) = &self.0.after_cell {
            after_cell(record);
        }
    }

    /// Takes what there is; `None` where the server was never known.
    #[must_use]
    pub fn take(&self) -> Option<RunRecord> {
        self.0.record.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
