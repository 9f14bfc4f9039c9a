//! `tokscope serve`: the page with a list of report files, on this machine.

use super::exit::Exit;
use crate::host::{Host, Library};
use crate::ui::say;
use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;

/// Show report files in the browser.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Report files, or folders of them.
    #[arg(required = true, value_name = "FILE-OR-FOLDER")]
    paths: Vec<PathBuf>,
    /// Port; 0 takes a free one.
    #[arg(long, default_value_t = 8321)]
    port: u16,
}

/// Serves until Ctrl-C.
pub async fn serve(args: &ServeArgs) -> anyhow::Result<Exit> {
    let library = Library::new(args.paths.clone())
        .map_err(|missing| anyhow::anyhow!("{}: no such file or folder: check the path", missing.display()))?;
    let host = Host::listen(IpAddr::from([127, 0, 0, 1]), args.port).await?;
    let n = library.entries().len();
    // None of them was opened yet: what each is, the page says.
    let files = match n {
        0 => "no file of reports yet".to_owned(),
        1 => "1 file".to_owned(),
        n => format!("{n} files"),
    };
    say(&format!("{files} at {}  (Ctrl-C ends it)", host.url()));
    host.serve(library, interrupted()).await?;
    Ok(Exit::Ok)
}

/// Over when the user or the system asks to end.
pub async fn interrupted() {
    let ctrl_c = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        let terminate = async {
            match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
                Ok(mut signal) => {
                    signal.recv().await;
                }
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! { _ = ctrl_c => {}, () = terminate => {} }
    }
    #[cfg(not(unix))]
    let _ = ctrl_c.await;
}
