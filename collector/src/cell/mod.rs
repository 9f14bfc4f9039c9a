//! One cell: idle, scout, then by its kind of load streams, ready, window; or a number of requests; or a schedule of
//! them; and at last the drain. It measures and judges nothing.

mod isolation;
mod loops;
pub mod measurement;
mod open_loop;
mod phases;
mod ready;
mod requests;
mod run;

pub use isolation::Isolation;
pub use measurement::{CellMeasurement, Drain, FailurePhase, IdleWait, LoopFinding, Loops, OpenLoop, Scout, Warmup, Window};
pub use run::{Bench, CellOptions};
