//! The reader of a chat stream (framing, events, JSON) from outside: against a plain reading of the same bytes,
//! whatever the reads split them into, and what it costs.
#![allow(clippy::unwrap_used, clippy::panic)]

use tokscope_collector::load;

mod differential;
mod generated;
#[allow(dead_code, reason = "some of it is for the benchmarks")]
mod ordinary;
mod recorded;
mod reference;
mod speed;
