//! The program `tokscope`.
fn main() {}
