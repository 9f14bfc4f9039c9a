//! The Python client under measurement: a process that tells what it used itself.

use std::process::{Command, Stdio};

use serde::Deserialize;

use super::server::Server;
use super::{Job, Used, on_cpu};

const SCRIPT: &str = include_str!("../../../tests/bench/asyncio_client.py");
/// It may fall behind the server, so that it takes longer than the others; not endlessly.
const LIMIT_S: &str = "300";

/// What the script prints.
#[derive(Deserialize)]
struct Printed {
    /// What reads HTTP in it.
    library: String,
    tokens: u64,
    cpu_s: f64,
    span_s: f64,
}

/// Its version, or why there is none.
pub(super) async fn version() -> Result<String, String> {
    let found = on_cpu(None, || run_python(&["--version"])).await?;
    Ok(found.trim().to_owned())
}

pub(super) async fn run(server: &Server, job: Job) -> Result<Used, String> {
    let port = server.address.port().to_string();
    let numbers = [job.streams, job.requests, job.max_tokens].map(|number| number.to_string());
    let prefix = format!("bench-{}", job.number);
    let printed = on_cpu(job.cpu, move || {
        let [streams, requests, max_tokens] = &numbers;
        run_python(&["-c", SCRIPT, &port, streams, requests, max_tokens, &prefix, LIMIT_S])
    });
    let printed = printed.await?;
    let used: Printed = serde_json::from_str(&printed).map_err(|_| format!("it printed {printed:?}"))?;
    Ok(Used {
        cpu_us: (used.cpu_s * 1e6) as u64,
        span_us: (used.span_s * 1e6) as u64,
        counted: Some(used.tokens),
        library: Some(used.library),
        ..Used::default()
    })
}

fn run_python(args: &[&str]) -> Result<String, String> {
    let mut command = Command::new("python3");
    let out = command.args(args).stdin(Stdio::null()).output().map_err(|error| format!("python3 does not start ({error})"))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&out.stderr);
    let last = words.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no word of it");
    Err(format!("python3 ended with {} ({last})", out.status))
}
