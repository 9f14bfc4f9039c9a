//! One cell: idle, scout, streams, ready, window, drain. It measures and judges
//! nothing.

mod isolation;
mod loops;
pub mod measurement;
mod phases;
mod ready;
mod run;

pub use isolation::Isolation;
pub use measurement::{CellMeasurement, Drain, FailurePhase, IdleWait, LoopFinding, Loops, Scout, Warmup, Window};
pub use run::{Bench, CellOptions};
