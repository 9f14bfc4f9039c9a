//! The list of models, and the wait for it: a server that still loads refuses connections, answers with 503, lists no
//! model yet, or (llama.cpp) lists its model and is not ready to use it.

use std::time::Duration;

use serde_json::Value;

use super::http::{self, Answer};
use super::{ASK_LIMIT, Address, METRICS_PROBE_LIMIT, TargetError};
use crate::clock::Clock;

/// Between two questions.
const PAUSE_US: u64 = 1_000_000;
/// Between two words about the same reason.
const TELL_US: u64 = 10_000_000;

/// What the list says, and the ids in it.
pub(super) type Models = (Value, Vec<String>);

/// Asks until the server is ready, `wait_s` seconds at most; 0 asks once. `tell` hears what is waited for.
pub(super) async fn models(
    client: &reqwest::Client,
    address: &Address,
    wait_s: f64,
    tell: &mut (dyn FnMut(&str) + Send),
) -> Result<Models, TargetError> {
    let clock = Clock::start();
    // A negative or absurd number of seconds becomes none or a very long time.
    let wait_us = (wait_s.max(0.0) * 1e6) as u64;
    let mut told: Option<(String, u64)> = None;
    loop {
        let left = Duration::from_micros(wait_us.saturating_sub(clock.now_us()));
        let limit = if wait_us == 0 { ASK_LIMIT } else { left.clamp(Duration::from_secs(1), ASK_LIMIT) };
        let error = match ready(client, address, limit).await {
            Ok(models) => return Ok(models),
            Err(error) => error,
        };
        if wait_us == 0 || !error.may_pass() {
            return Err(error);
        }
        let now_us = clock.now_us();
        let left_us = wait_us.saturating_sub(now_us);
        if left_us == 0 {
            return Err(TargetError::NotReady { seconds: wait_us / 1_000_000, reason: Box::new(error) });
        }
        let reason = error.to_string();
        if told.as_ref().is_none_or(|(before, at)| *before != reason || now_us - at >= TELL_US) {
            tell(&format!("waiting for the server, {} s left: {reason}", left_us.div_ceil(1_000_000)));
            told = Some((reason, now_us));
        }
        tokio::time::sleep(Duration::from_micros(PAUSE_US.min(left_us))).await;
    }
}

async fn ready(client: &reqwest::Client, address: &Address, limit: Duration) -> Result<Models, TargetError> {
    let url = address.url("/v1/models");
    let answer = http::get(client, &url, limit).await?;
    let models = read(&answer, &url)?;
    // Only of engines known to answer it at no cost: LiteLLM sends a generation to every model it has.
    let owner = models.0["data"][0]["owned_by"].as_str();
    if matches!(owner, Some("vllm" | "sglang" | "llamacpp")) {
        let url = address.url("/health");
        let health = http::get(client, &url, METRICS_PROBE_LIMIT.min(limit)).await;
        if health.is_ok_and(|answer| answer.status == 503) {
            return Err(TargetError::Loading { url });
        }
    }
    Ok(models)
}

fn read(answer: &Answer, url: &str) -> Result<Models, TargetError> {
    let url = || url.to_owned();
    match answer.status {
        200..=299 => {}
        status @ (401 | 403) => return Err(TargetError::Unauthorized { url: url(), status }),
        300..=399 => {
            let location = answer.location.clone();
            return Err(TargetError::Redirect { url: url(), location: location.unwrap_or_else(|| "an address it does not name".into()) });
        }
        status => {
            let detail = answer.excerpt();
            return Err(TargetError::Status { url: url(), status, detail });
        }
    }
    if answer.looks_like_html() {
        return Err(TargetError::Html { url: url() });
    }
    let not_json = |reason: String| TargetError::NotJson { url: url(), reason };
    let json: Value = serde_json::from_slice(&answer.body).map_err(|e| not_json(e.to_string()))?;
    let Some(list) = json["data"].as_array() else {
        return Err(not_json("it has no list named data".into()));
    };
    let ids: Vec<String> = list.iter().filter_map(|m| m["id"].as_str().map(str::to_owned)).collect();
    if ids.is_empty() {
        return Err(TargetError::NoModels { url: url() });
    }
    Ok((json, ids))
}
