//! `tokscope calibrate`: how far off is the client itself, on this machine?

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::exit::Exit;
use super::run::usage;
use crate::calibrate::{CalibrateError, CalibrateOptions, Calibration, calibrate, step_us};
use crate::load::files::raise_open_files;
use crate::load::health::Lateness;
use crate::load::stop::Stop;
use crate::plan::parse_concurrency;
use crate::ui::say;
use tokscope_shared::render::Table;

/// Measure the client itself: against a built-in server on this machine whose true times are known.
#[derive(Args, Debug)]
#[command(after_help = "A line is exact where the tokens of the window are within 0.1 % or a chunk a stream, TTFT is within 0.5 ms \
                        (median) and 2 ms (p99) and the time by token within 0.1 and 1 ms; from 512 streams on within 0.5 % and \
                        10 ms. A line during which the built-in server itself was late by more than that is measured again.\n\n\
                        Exit codes: 0 exact; 1 it could not be measured; 2 wrong usage; 3 a line is not exact.")]
pub struct CalibrateArgs {
    /// Streams at once.
    #[arg(long, value_name = "LIST", default_value = "1,16,64,256")]
    concurrency: String,
    /// Tokens in a chunk.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,3", value_parser = clap::value_parser!(u32).range(1..=64))]
    tokens_per_chunk: Vec<u32>,
    /// Length of each window.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Time of a step [default: 20, and 40 from 512 streams on].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=1000))]
    step_ms: Option<u64>,
    /// How often a line may be measured again because the built-in server was late.
    #[arg(long, value_name = "N", default_value_t = 4)]
    again: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// How far off a line may be: tokens as a share, and microseconds.
#[derive(Clone, Copy)]
struct Bounds {
    tokens: f64,
    ttft_p50: u64,
    ttft_p99: u64,
    itl_p50: u64,
    itl_p99: u64,
    /// Beyond this the server was no reference.
    server_late: u64,
}

impl Bounds {
    fn at(concurrency: u32) -> Self {
        if concurrency < 512 {
            Self { tokens: 0.001, ttft_p50: 500, ttft_p99: 2_000, itl_p50: 100, itl_p99: 1_000, server_late: 10_000 }
        } else {
            Self { tokens: 0.005, ttft_p50: 5_000, ttft_p99: 10_000, itl_p50: 1_000, itl_p99: 10_000, server_late: 20_000 }
        }
    }

    fn hold(&self, c: &Calibration) -> bool {
        let chunk_a_stream = f64::from(c.concurrency) * f64::from(c.tokens_per_chunk);
        let within = |off: Option<Lateness>, p50: u64, p99: u64| off.is_some_and(|off| off.p50_us <= p50 && off.p99_us <= p99);
        c.tokens > 0
            && c.tokens_off.unsigned_abs() as f64 <= chunk_a_stream.max(self.tokens * c.tokens as f64)
            && within(c.ttft_off, self.ttft_p50, self.ttft_p99)
            && within(c.itl_off, self.itl_p50, self.itl_p99)
    }
}

struct Line {
    measured: Calibration,
    tries: u32,
    exact: bool,
}

/// Runs it.
///
/// # Errors
/// The client could not be measured.
pub async fn run(args: &CalibrateArgs) -> anyhow::Result<Exit> {
    let levels = match parse_concurrency(&args.concurrency) {
        Ok(levels) => levels,
        Err(error) => return Ok(usage(&error.to_string())),
    };
    // Both ends of each connection are in this process.
    raise_open_files(levels.iter().copied().max().unwrap_or(1).saturating_mul(2))?;
    let total = levels.len() * args.tokens_per_chunk.len();
    let mut lines = Vec::new();
    for &concurrency in &levels {
        for &tokens_per_chunk in &args.tokens_per_chunk {
            if !args.json {
                let left = Duration::from_secs((total - lines.len()) as u64 * (args.seconds + 1));
                eprintln!("C={concurrency}, {tokens_per_chunk} a chunk ({} of {total}, about {} s left)", lines.len() + 1, left.as_secs());
            }
            lines.push(line(args, concurrency, tokens_per_chunk).await?);
        }
    }
    if args.json {
        say(&serde_json::to_string_pretty(&lines.iter().map(as_json).collect::<Vec<_>>())?);
    } else {
        say(table(&lines).text().trim_end());
    }
    Ok(if lines.iter().all(|line| line.exact) { Exit::Ok } else { Exit::Invalid })
}

async fn line(args: &CalibrateArgs, concurrency: u32, tokens_per_chunk: u32) -> Result<Line, CalibrateError> {
    let bounds = Bounds::at(concurrency);
    let step_us = args.step_ms.map_or(step_us(concurrency), |ms| ms * 1_000);
    let options = CalibrateOptions { concurrency, tokens_per_chunk, step_us, window_us: args.seconds * 1_000_000 };
    let mut tries = 0;
    loop {
        tries += 1;
        let measured = calibrate(&options, Stop::never()).await?;
        let late = measured.server_late_p99_us.is_none_or(|late| late > bounds.server_late);
        if !late || tries > args.again {
            return Ok(Line { exact: bounds.hold(&measured), measured, tries });
        }
    }
}

fn table(lines: &[Line]) -> Table {
    let head = [
        "C",
        "tok/chunk",
        "tokens",
        "off",
        "TTFT off p50, ms",
        "p99",
        "n",
        "ITL off p50, ms",
        "p99",
        "n",
        "server late p99, ms",
        "tick late p99, ms",
        "tries",
        "",
    ];
    let ms = |us: Option<u64>| us.map_or_else(|| "—".to_owned(), |us| format!("{:.3}", us as f64 / 1e3));
    let rows = lines.iter().map(|Line { measured: c, tries, exact }| {
        let (ttft, itl) = (c.ttft_off, c.itl_off);
        vec![
            c.concurrency.to_string(),
            c.tokens_per_chunk.to_string(),
            c.tokens.to_string(),
            format!("{:+}", c.tokens_off),
            ms(ttft.map(|l| l.p50_us)),
            ms(ttft.map(|l| l.p99_us)),
            ttft.map_or(0, |l| l.n).to_string(),
            ms(itl.map(|l| l.p50_us)),
            ms(itl.map(|l| l.p99_us)),
            itl.map_or(0, |l| l.n).to_string(),
            ms(c.server_late_p99_us),
            ms(c.tick_late_p99_us),
            tries.to_string(),
            if *exact { "exact" } else { "off" }.to_owned(),
        ]
    });
    Table { head: head.map(str::to_owned).to_vec(), rows: rows.collect() }
}

fn as_json(line: &Line) -> serde_json::Value {
    let c = &line.measured;
    let late = |l: Option<Lateness>| l.map(|l| json!({ "n": l.n, "p50_us": l.p50_us, "p99_us": l.p99_us, "max_us": l.max_us }));
    json!({
        "concurrency": c.concurrency,
        "tokens_per_chunk": c.tokens_per_chunk,
        "tokens": c.tokens,
        "tokens_off": c.tokens_off,
        "ttft_off": late(c.ttft_off),
        "itl_off": late(c.itl_off),
        "server_late_p99_us": c.server_late_p99_us,
        "tick_late_p99_us": c.tick_late_p99_us,
        "tries": line.tries,
        "exact": line.exact,
    })
}
