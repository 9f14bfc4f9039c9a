//! The load: connections, streams, and the exact record of what arrived when. It knows nothing of
//! cells, scrapes or reports.

pub mod health;
pub mod record;
pub mod tokens;
