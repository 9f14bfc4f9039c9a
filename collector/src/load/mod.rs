//! The load: connections, streams, and the exact record of what arrived when. It runs on threads
//! of its own, and knows nothing of cells, scrapes or reports.

pub mod body;
pub mod chunk;
pub mod connection;
mod event;
pub mod files;
pub mod health;
mod json;
pub mod progress;
mod reader;
pub mod record;
mod repeat;
pub mod request;
mod runtime;
pub mod sse;
pub mod stop;
mod ticker;
pub mod tokens;
mod worker;

pub use runtime::{Load, Streams, StreamsOptions};
pub use worker::LoadLimits;
