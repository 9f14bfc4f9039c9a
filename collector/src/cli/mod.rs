//! The command line: a file a subcommand. Parsing, exit codes and printing; the work is done elsewhere.

pub mod bench_client;
pub mod calibrate;
pub mod check;
pub mod demo;
pub mod exit;
pub mod interrupt;
pub mod measure_args;
pub mod plan;
pub mod run;
pub mod serve;
pub mod simulate;

use crate::ui::{complain, is_output_lost};
use clap::{Parser, Subcommand};
use exit::Exit;

/// Measures how fast a large language model is served, and shows it.
#[derive(Parser, Debug)]
#[command(
    name = "tokscope",
    version,
    about,
    max_term_width = 100,
    arg_required_else_help = true,
    infer_long_args = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Demo(demo::DemoArgs),
    Run(run::RunArgs),
    Plan(plan::PlanArgs),
    Check(check::CheckArgs),
    Calibrate(calibrate::CalibrateArgs),
    Serve(serve::ServeArgs),
    Simulate(simulate::SimulateArgs),
    BenchClient(bench_client::BenchClientArgs),
}

/// Does what the command line says. What went well and was told to nobody has failed.
pub fn run(cli: &Cli) -> Exit {
    let exit = run_command(&cli.command);
    if exit == Exit::Ok && is_output_lost() { Exit::Failed } else { exit }
}

fn run_command(command: &Command) -> Exit {
    let outcome = match command {
        Command::Demo(args) => blocking(demo::demo(args)),
        Command::Run(args) => blocking(run::run_command(args)),
        Command::Plan(args) => blocking(plan::plan_command(args)),
        Command::Calibrate(args) => blocking(calibrate::run(args)),
        Command::Check(args) => return check::check(args),
        Command::Serve(args) => blocking(serve::serve(args)),
        Command::BenchClient(args) => blocking(bench_client::bench_client(args)),
        Command::Simulate(args) => blocking(async { simulate::simulate(args.clone()).await.map(|()| Exit::Ok) }),
    };
    outcome.unwrap_or_else(|error| {
        complain(&format!("tokscope: {error}"));
        // A setting that describes no server is wrong usage.
        let setting = matches!(error.downcast_ref(), Some(crate::simulator::SimulatorError::Setting { .. }));
        if setting { Exit::Usage } else { Exit::Failed }
    })
}

fn blocking(work: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // What still runs belongs to something that was given up.
    runtime.shutdown_background();
    done
}
