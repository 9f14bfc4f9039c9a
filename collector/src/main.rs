//! The program `tokscope`.

use clap::Parser;
use tokscope_collector::cli;

fn main() -> std::process::ExitCode {
    cli::run(&cli::Cli::parse()).into()
}
