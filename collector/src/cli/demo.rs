//! `tokscope demo`: the whole way once, against a simulated server whose truth is known.

use super::exit::Exit;
use super::run::{Keeping, measure, usage};
use crate::host::{Host, Library};
use crate::output::Output;
use crate::run::RunOptions;
use crate::simulator::{self, Settings};
use crate::target::TargetOptions;
use crate::truth;
use crate::ui::say;
use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;

/// Measure a simulated server and show the report: no GPU and no model needed.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: as of run; ending the page with Ctrl-C is 0.")]
pub struct DemoArgs {
    /// The report [default: benchmark_results.json, or -2, -3 ... where taken].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file when the report is finished.
    #[arg(long)]
    overwrite: bool,
    /// End after the report.
    #[arg(long)]
    no_serve: bool,
    /// Port of the page; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// A server with speculative decoding and room for all that the demo asks.
fn server() -> Settings {
    Settings { spec_accept: vec![0.85, 0.65, 0.45], ..Settings::default() }
}

fn options(port: u16) -> RunOptions {
    RunOptions {
        target: TargetOptions { host: "127.0.0.1".into(), port: Some(port), ..TargetOptions::default() },
        concurrency: vec![1, 4, 16],
        contexts: vec![0, 16 * 1024],
        duration_s: 3.0,
        max_tokens: 2048,
        repeat: 1,
        loop_guard: true,
        seed: 1,
        calibrate: true,
        arrivals_kb: 64,
        ..RunOptions::default()
    }
}

/// Runs the demo.
pub async fn demo(args: &DemoArgs) -> anyhow::Result<Exit> {
    let output = match Output::claim(args.output.as_deref(), args.overwrite) {
        Ok(output) => output,
        Err(error) => return Ok(usage(&error.to_string())),
    };
    // The port of the page is taken before anything is measured, not missed after it.
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let host = if args.no_serve { None } else { Some(Host::listen(loopback, args.port).await?) };
    let simulator = simulator::start(server(), (loopback, 0).into())?;
    let done = measure(&options(simulator.addr().port()), &output, None, Keeping::None).await?;
    if let Ok(known) = simulator.truth(0).await {
        say(&format!("\nbeside what the simulator knows to be true\n{}", truth::table(&done.report, &known).text().trim_end()));
        say(&truth::lateness(&known));
    }
    simulator.stop().await;
    say(&format!("\nreport: {}", done.path.display()));
    let Some(host) = host else { return Ok(done.exit) };
    if done.exit == Exit::Interrupted {
        return Ok(done.exit);
    }
    let library = Library::new(vec![done.path.clone()]).map_err(|path| anyhow::anyhow!("{}: the report is gone", path.display()))?;
    say(&format!("page: {}  (Ctrl-C ends it)", host.url_of(&library)));
    host.serve(library, super::serve::interrupted()).await?;
    Ok(Exit::Ok)
}
