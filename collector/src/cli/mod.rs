//! The command line: a file a subcommand. Parsing, exit codes and printing; the work is done elsewhere.

pub mod check;
pub mod exit;

use clap::{Parser, Subcommand};
use exit::Exit;

/// Measures how fast a large language model is served, and shows it.
#[derive(Parser, Debug)]
#[command(name = "tokscope", version, about, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Check(check::CheckArgs),
}

/// Does what the command line says.
pub fn run(cli: &Cli) -> Exit {
    match &cli.command {
        Command::Check(args) => check::check(args),
    }
}
