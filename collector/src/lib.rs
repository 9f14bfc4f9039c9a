//! The program `tokscope`, as a library so that its parts can be tested.

pub mod cli;
