//! The Tokscope report and everything computed from it. No I/O, no clock: it builds for the program and for
//! the page alike.

pub mod chart;
pub mod field;
mod histogram;
pub mod import;
pub mod matrix;
pub mod metric;
pub mod plot;
pub mod render;
pub mod report;
pub mod stats;
pub mod verdict;
