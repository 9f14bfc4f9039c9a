//! The program `tokscope`, as a library so that its parts can be tested.

pub mod bench;
pub mod calibrate;
pub mod cell;
pub mod checkpoint;
pub mod cli;
pub mod clock;
pub mod event;
pub mod host;
pub mod kernel_time;
pub mod load;
pub mod output;
pub mod plan;
pub mod prefill;
pub mod prompt;
pub mod repetition;
pub mod report;
pub mod run;
pub mod scrape;
pub mod secrets;
pub mod simulator;
pub mod target;
pub mod truth;
pub mod ui;
