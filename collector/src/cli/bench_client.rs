//! `tokscope bench-client`: what our own client costs, beside a bare reader and a Python client. The measuring
//! is in [`crate::bench`].

use std::io::IsTerminal as _;

use clap::Args;

use super::exit::Exit;
use crate::bench::{self, BenchOptions};
use crate::ui::{complain, say, span};

/// Measure this client itself, beside a bare socket reader and a Python client.
#[derive(Args, Debug)]
#[command(after_help = "CPU times are those of the client's own thread, from before its first request to the end of the last answer, per \
                  million tokens that the simulator sent; what the kernel does for the sender, connecting and the report are in none \
                  of them. A figure is the median of the rounds, with the lowest and the highest.")]
pub struct BenchClientArgs {
    /// Seconds for each client in each setting, over all rounds.
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// Rounds these are split into, in each of which the clients take turns.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Streams at once in the paced part, each a setting; 0 leaves it out.
    #[arg(long, value_delimiter = ',', default_value = "64,256", value_parser = clap::value_parser!(u32).range(0..=20_000))]
    concurrency: Vec<u32>,
    /// Streams at once of the firehose; 0 leaves it out.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(0..=64))]
    firehose_streams: u32,
    /// Length of a step in the paced part, in ms.
    #[arg(long, default_value_t = 20.0, value_parser = step)]
    step_ms: f64,
    /// Tokens of each event in the paced part.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    chunk_tokens: u32,
    /// Tokens of each answer in the paced part; 0 makes them as long as a round.
    #[arg(long, default_value_t = 0, hide_short_help = true)]
    answer_tokens: u32,
    /// Let client and simulator run on any CPU.
    #[arg(long, hide_short_help = true)]
    no_pin: bool,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
}

fn number(text: &str, from: f64, to: f64) -> Result<f64, String> {
    text.parse().ok().filter(|value| (from..=to).contains(value)).ok_or_else(|| format!("give a number from {from} to {to}"))
}

fn seconds(text: &str) -> Result<f64, String> {
    number(text, 0.1, 3600.0)
}

fn step(text: &str) -> Result<f64, String> {
    number(text, 1.0, 10_000.0)
}

/// Runs it and prints the figures.
pub async fn bench_client(args: &BenchClientArgs) -> anyhow::Result<Exit> {
    let options = BenchOptions {
        program: std::env::current_exe()?,
        seconds: args.seconds,
        rounds: args.rounds,
        concurrency: args.concurrency.iter().copied().filter(|streams| *streams > 0).collect(),
        firehose_streams: args.firehose_streams,
        step_ms: args.step_ms,
        chunk_tokens: args.chunk_tokens,
        answer_tokens: args.answer_tokens,
        pin: !args.no_pin,
    };
    let terminal = std::io::stderr().is_terminal();
    let mut tell = |what: &str, left_s: f64| {
        // In a pipe the lines would be of no use among others.
        if terminal || !args.json {
            complain(&format!("{what} (about {} left)", span(left_s)));
        }
    };
    let measuring = bench::run(&options, &mut tell);
    let report = tokio::select! {
        report = measuring => report?,
        () = super::serve::interrupted() => return Ok(Exit::Interrupted),
    };
    if args.json {
        say(&serde_json::to_string_pretty(&report)?);
    } else {
        for line in report.text().lines() {
            say(line);
        }
    }
    Ok(Exit::Ok)
}
