//! The measuring core over sockets: recorded answers, servers that misbehave, and the simulator,
//! whose truth is known.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cells;
mod detect;
mod faults;
mod negotiate;
mod prefill;
mod server;
mod streams;
mod tls;
mod transcripts;
mod truth;
