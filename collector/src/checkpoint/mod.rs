//! The checkpoint of a run: everything it needs to go on in another process, on disk after every cell. A report is
//! made from the same record; this is the record's own form.

mod find;
mod signature;
mod write;

pub use find::{Found, ResumeError, find};
pub use signature::Signature;
pub use write::Checkpoint;

use crate::calibrate::Calibration;
use crate::event::Logged;
use crate::plan::{Layer, Place};
use crate::prefill::PrefillRow;
use crate::run::Stretch;
use serde::{Deserialize, Serialize};

/// Version of the checkpoint's shape. One of another shape is refused: a run is not worth guessing at.
const VERSION: u32 = 1;

/// All but the cells and the series, which are kept as the report has them.
#[derive(Serialize, Deserialize)]
struct Head {
    tokscope_checkpoint: u32,
    signature: Signature,
    run_id: String,
    /// RFC 3339.
    started: String,
    status: String,
    segments: Vec<Stretch>,
    calibration: Vec<Calibration>,
    decode_warmup_context: Option<u32>,
    /// How many of the user's own prompts were taken.
    #[serde(default)]
    dataset_used: usize,
    left_out: Vec<NotPlanned>,
    skipped: Vec<At>,
    events: Vec<Logged>,
    prefill_results: Vec<PrefillRow>,
}

/// A cell that was left out by the plan. For people: the plan is made anew.
#[derive(Serialize, Deserialize)]
struct NotPlanned {
    layer: String,
    context_tokens: u32,
    concurrency: u32,
    code: String,
    text: String,
}

/// A place in the matrix.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct At {
    layer: String,
    context_tokens: u32,
    concurrency: u32,
    per_s: Option<f64>,
    repeat: u32,
}

impl From<Place> for At {
    fn from(place: Place) -> Self {
        let Place { layer, context_tokens, concurrency, per_s, repeat } = place;
        Self { layer: layer.as_str().to_owned(), context_tokens, concurrency, per_s, repeat }
    }
}

impl At {
    fn place(&self) -> Option<Place> {
        let Self { context_tokens, concurrency, per_s, repeat, .. } = *self;
        Some(Place { layer: Layer::from_name(&self.layer)?, context_tokens, concurrency, per_s, repeat })
    }
}
