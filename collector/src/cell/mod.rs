//! One sustained-decode cell: idle, scout, streams, ready, window, drain. It measures and judges
//! nothing.

pub mod measurement;
mod ready;
mod run;

pub use measurement::{CellMeasurement, FailurePhase, IdleWait, Scout, Warmup, Window};
pub use run::{Bench, CellOptions};
