//! The load: connections, streams, and the exact record of what arrived when. It runs on threads
//! of its own, and knows nothing of cells, scrapes or reports.

mod answer;
pub mod body;
pub mod chunk;
pub mod endpoint;
pub mod files;
pub mod head;
pub mod health;
pub mod progress;
pub mod record;
pub mod request;
mod socket;
pub mod sse;
pub mod stop;
mod stream;
mod threads;
pub mod tick;
pub mod tokens;

pub use stream::LoadLimits;
pub use threads::{Load, Streams, StreamsOptions};
