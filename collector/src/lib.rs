//! The program `tokscope`, as a library so that its parts can be tested.

pub mod cell;
pub mod cli;
pub mod clock;
pub mod event;
pub mod load;
pub mod plan;
pub mod prompt;
pub mod scrape;
pub mod simulator;
pub mod target;
