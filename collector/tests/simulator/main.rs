//! The simulator over real sockets, read by a client that knows nothing but bytes.
#![allow(clippy::unwrap_used, missing_docs)]

mod basics;
mod client;
mod engines;
mod llama_cpp;
mod quirks;
mod strict;
