//! The load: connections, streams, and the exact record of what arrived when. It runs on threads
//! of its own, and knows nothing of cells, scrapes or reports.

mod alarm;
mod answer;
pub mod body;
pub mod chunk;
pub mod endpoint;
mod event;
pub mod files;
pub mod head;
pub mod health;
mod json;
mod pace;
pub mod progress;
pub mod record;
mod repeat;
pub mod request;
pub mod schedule;
mod socket;
pub mod sse;
pub mod stop;
mod stream;
pub mod text;
mod threads;
pub mod tick;
pub mod tokens;

pub use pace::Pace;
pub use stream::LoadLimits;
pub use threads::{Load, Streams, StreamsOptions};
