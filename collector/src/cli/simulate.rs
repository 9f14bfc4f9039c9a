//! `tokscope simulate`: an inference server whose timing is known, until Ctrl-C.

use std::net::{IpAddr, SocketAddr};

use crate::load::files::raise_open_files;
use crate::simulator::{self, Settings};
use crate::ui::say;

/// Be an inference server whose true timing is known.
#[derive(Clone, Debug, clap::Args)]
pub struct SimulateArgs {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 5000)]
    pub port: u16,
    /// Run on this CPU only, counted from 0
    #[arg(long, value_name = "CPU", hide_short_help = true)]
    pub pin: Option<usize>,
    /// What it pretends to be
    #[command(flatten)]
    pub settings: Settings,
}

/// Runs the simulator until Ctrl-C.
///
/// # Errors
/// Bad settings, or an address that can't be listened on.
pub async fn simulate(args: SimulateArgs) -> anyhow::Result<()> {
    if let Some(cpu) = args.pin {
        // The simulator's threads are this one's children.
        simulator::pin_thread(cpu)?;
    }
    // Best effort: with too few, connections wait.
    let _ = raise_open_files(args.settings.slots.saturating_mul(2));
    let running = simulator::start(args.settings, SocketAddr::new(args.host, args.port))?;
    let settings = running.settings();
    say(&format!(
        "{} pretends to be {} serving {} (what it knows to be true: {}/simulator/truth; Ctrl-C ends it)",
        running.url(),
        settings.flavour.name(),
        settings.model,
        running.url(),
    ));
    super::serve::interrupted().await;
    running.stop().await;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, Parser as _};

    /// Stands for the program.
    #[derive(clap::Parser)]
    #[command(about = "the program")]
    struct Program {
        #[command(flatten)]
        args: SimulateArgs,
    }

    fn parse(options: &[&str]) -> Result<SimulateArgs, clap::Error> {
        let options = ["tokscope"].iter().chain(options);
        Program::try_parse_from(options).map(|program| program.args)
    }

    #[test]
    fn without_options_the_settings_are_the_default() {
        let settings = parse(&[]).unwrap().settings;
        assert_eq!(format!("{settings:?}"), format!("{:?}", Settings::default()));
    }

    #[test]
    fn the_options_do_not_change_what_the_program_says_of_itself() {
        let about = Program::command().get_about().map(ToString::to_string);
        assert_eq!(about.as_deref(), Some("the program"));
    }

    #[test]
    fn options_reach_the_settings() {
        let args = parse(&[
            "--flavour",
            "sglang",
            "--spec-accept",
            "0.75,0.5,0.3",
            "--prefix-cache",
            "false",
            "--slots",
            "4",
            "--port",
            "0",
            "--model-name",
            "m",
        ]);
        let SimulateArgs { port, settings, .. } = args.unwrap();
        assert_eq!((port, settings.slots, settings.model.as_str()), (0, 4, "m"));
        assert_eq!(settings.flavour, simulator::Flavour::Sglang);
        assert_eq!(settings.spec_accept, [0.75, 0.5, 0.3]);
        assert!(!settings.prefix_cache);
        assert!(parse(&["--flavour", "tgi"]).is_err());
    }

    #[test]
    fn quirks_reach_the_settings_and_impossible_ones_are_named() {
        let args = parse(&[
            "--flavour",
            "llama-cpp",
            "--refuse",
            "ignore-eos,continuous-usage,stream-options,temperature,large-max-tokens",
            "--metrics",
            "bad-gateway",
            "--speed-up",
            "3,20",
            "--abort-lag-ms",
            "250",
            "--serial",
        ]);
        let settings = args.unwrap().settings;
        assert_eq!((settings.flavour, settings.quirks.refuse.len()), (simulator::Flavour::LlamaCpp, 5));
        assert_eq!((settings.quirks.metrics, settings.quirks.abort_lag_ms), (simulator::MetricsAnswer::BadGateway, Some(250)));
        assert_eq!(settings.quirks.speed_up, Some(simulator::SpeedUp { factor: 3.0, requests: 20 }));
        assert!(settings.quirks.serial && !settings.quirks.repeat_text);
        for (option, value) in [("--speed-up", "0.5,3"), ("--refuse", "everything"), ("--metrics", "nice"), ("--metrics-version", "v2")] {
            assert!(parse(&[option, value]).unwrap_err().to_string().contains(option));
        }
    }

    #[tokio::test]
    async fn a_taken_port_ends_it_with_a_sentence() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port().to_string();
        let error = simulate(parse(&["--port", &port]).unwrap()).await.unwrap_err();
        assert!(error.to_string().contains(&port));
    }
}
