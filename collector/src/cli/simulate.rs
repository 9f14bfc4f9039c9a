//! `tokscope simulate`: an inference server whose timing is known, until Ctrl-C.

use std::net::{IpAddr, SocketAddr};

use crate::simulator::{self, Settings};

/// Options of `tokscope simulate`.
#[derive(Clone, Debug, clap::Args)]
pub struct SimulateArgs {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 5000)]
    pub port: u16,
    /// What it pretends to be
    #[command(flatten)]
    pub settings: Settings,
}

/// Runs the simulator until Ctrl-C.
///
/// # Errors
/// Bad settings, or an address that can't be listened on.
pub async fn simulate(args: SimulateArgs) -> anyhow::Result<()> {
    let running = simulator::start(args.settings, SocketAddr::new(args.host, args.port))?;
    let settings = running.settings();
    println!(
        "{} pretends to be {} serving {} (what it knows to be true: {}/simulator/truth; Ctrl-C ends it)",
        running.url(),
        settings.flavour.name(),
        settings.model,
        running.url(),
    );
    tokio::signal::ctrl_c().await?;
    running.stop().await;
    Ok(())
}
