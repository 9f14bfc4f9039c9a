//! Our own client under measurement: one load thread, used as a run uses it.

use std::sync::Arc;
use std::time::Duration;

use super::server::{Requests, Server};
use super::{Job, Used, on_cpu};
use crate::clock::Clock;
use crate::load::endpoint::Endpoint;
use crate::load::record::Outcome;
use crate::load::request::RequestSource;
use crate::load::{Load, LoadLimits, StreamsOptions};
use crate::target::TrustedRoots;

/// For connecting, and for the threads' end.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) async fn run(server: &Server, job: Job) -> Result<Used, String> {
    let endpoint = Endpoint::resolve(&server.address, &TrustedRoots::default(), PATIENCE).await.map_err(|error| error.to_string())?;
    let load = on_cpu(job.cpu, || Load::start(Clock::start(), 1).map_err(|error| format!("no load thread could be had ({error})"))).await?;
    let source: Arc<dyn RequestSource> = Arc::new(Requests::new(server, job));
    let options = StreamsOptions {
        count: job.streams,
        max_requests: Some(job.requests),
        limits: LoadLimits::default(),
        max_tokens: job.max_tokens,
        text: None,
    };
    let streams = load.open(&Arc::new(endpoint), &source, &options).await;
    streams.start();
    streams.ended().await;
    let (records, health) = streams.join(PATIENCE).await;
    let requests = records.iter().flat_map(|record| &record.requests);
    if let Some(bad) = requests.clone().find(|request| request.outcome != Outcome::Finished) {
        let words = bad.error.as_deref().unwrap_or("no reason known");
        return Err(format!("request {} ended as {} ({words})", bad.id, bad.outcome.as_str()));
    }
    let by_id: Vec<_> = requests.map(|request| (request.id.clone(), request.usage_tokens.unwrap_or(0))).collect();
    Ok(Used {
        cpu_us: health.load_cpu_us,
        tick_us: health.tick_cpu_us,
        span_us: health.span_us,
        bytes: health.body_bytes,
        counted: Some(by_id.iter().map(|(_, tokens)| u64::from(*tokens)).sum()),
        by_id,
        library: None,
    })
}
