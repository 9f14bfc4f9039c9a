//! One cell: idle, scout, then by its kind of load streams, ready, window; or a number of requests; or a schedule of
//! them. It measures and judges nothing.

pub mod measurement;
mod open_loop;
mod phases;
mod ready;
mod requests;
mod run;

pub use measurement::{CellMeasurement, FailurePhase, IdleWait, OpenLoop, Scout, Warmup, Window};
pub use run::{Bench, CellOptions};
