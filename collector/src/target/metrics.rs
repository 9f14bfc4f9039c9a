//! The first look at `/metrics`: where it is, whether it can be read, and if not why, in few seconds whatever answers.

use reqwest::Url;

use super::detect::Answers;
use super::http::{self, Answer};
use super::{Address, Engine, METRICS_PROBE_LIMIT, MetricsAccess, PROBE_LIMIT, TargetError};

/// What was found: the address that answered, and the text or why there is none.
pub(super) struct Probe {
    pub(super) url: String,
    pub(super) text: Result<String, String>,
    /// Nothing came in time, so that it is worth another question if the engine is one that has metrics.
    pub(super) silent: bool,
}

/// Asks once, and once more where the same server points to (LiteLLM: `/metrics` to `/metrics/`).
pub(super) async fn probe(client: &reqwest::Client, address: &Address) -> Probe {
    let url = address.url("/metrics");
    let first = http::get(client, &url, METRICS_PROBE_LIMIT).await;
    let moved = first.as_ref().ok().and_then(|answer| same_server(address, &url, answer));
    let (url, answer) = match moved {
        Some(there) => {
            let second = http::get(client, &there, METRICS_PROBE_LIMIT).await;
            (there, second)
        }
        None => (url, first),
    };
    let silent = matches!(answer, Err(TargetError::NoAnswer { .. }));
    Probe { url, text: read(answer), silent }
}

/// A busy engine may need longer than a stranger is given.
pub(super) async fn again(client: &reqwest::Client, probe: Probe) -> Probe {
    let answer = http::get(client, &probe.url, PROBE_LIMIT).await;
    Probe { text: read(answer), silent: false, ..probe }
}

/// Where a redirection points to, if that is the same server: always by our own scheme and port, so that a key never
/// goes elsewhere. A server behind TLS that knows nothing of it names `http` and no port.
fn same_server(address: &Address, asked: &str, answer: &Answer) -> Option<String> {
    if !(300..400).contains(&answer.status) {
        return None;
    }
    let there = Url::parse(asked).ok()?.join(answer.location.as_deref()?).ok()?;
    let same = there.host_str() == Some(address.host()) && there.port().is_none_or(|port| port == address.port());
    let query = there.query().map_or_else(String::new, |query| format!("?{query}"));
    let there = address.url_of_path(&format!("{}{query}", there.path()));
    (same && there != asked).then_some(there)
}

fn read(answer: Result<Answer, TargetError>) -> Result<String, String> {
    match answer {
        Ok(a) if !a.is_ok() => Err(match a.location {
            Some(to) => format!("/metrics answers with HTTP {} and points to {to}", a.status),
            None => format!("/metrics answers with HTTP {}", a.status),
        }),
        Ok(a) if a.looks_like_html() => Err("/metrics answers with a web page".to_owned()),
        Ok(a) => Ok(a.text().into_owned()),
        Err(TargetError::NoAnswer { seconds, .. }) => Err(format!("/metrics did not answer within {seconds} s")),
        Err(e) => Err(format!("/metrics can't be read: {e}")),
    }
}

/// Whether the engine's metrics are in it; if not, with what makes it tell them.
pub(super) fn access(engine: Engine, answers: &Answers) -> MetricsAccess {
    let reason = match (&answers.metrics, engine) {
        (Err(reason), _) => reason.clone(),
        (Ok(_), Engine::OpenaiProxy) => "/metrics has no metrics of vLLM, SGLang or llama.cpp".to_owned(),
        (Ok(_), _) if answers.metrics_of(engine).is_some() => return MetricsAccess::Available,
        (Ok(_), engine) => format!("/metrics has no metrics of {}", engine.name()),
    };
    let advice = match engine {
        Engine::Vllm => "; it tells them unless started with --disable-log-stats",
        Engine::Sglang => "; it tells them if started with --enable-metrics",
        Engine::LlamaCpp => "; it tells them if started with --metrics",
        Engine::OpenaiProxy => "",
    };
    MetricsAccess::Unavailable { reason: format!("{reason}{advice}") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_redirection_is_followed_on_the_same_server_only_and_by_our_own_scheme() {
        let https: Address = "https://h/base".parse().unwrap();
        let there = |address: &Address, location: &str, status: u16| {
            let answer = Answer { status, location: Some(location.to_owned()), content_type: String::new(), body: Vec::new() };
            same_server(address, &address.url("/metrics"), &answer)
        };
        let wanted = Some("https://h:443/base/metrics/".to_owned());
        for location in ["/base/metrics/", "https://h/base/metrics/", "http://h/base/metrics/", "metrics/"] {
            assert_eq!(there(&https, location, 307), wanted, "{location}");
        }
        for location in ["https://other/metrics/", "http://h:9090/metrics", "/base/metrics", "https://h.evil/metrics/"] {
            assert_eq!(there(&https, location, 307), None, "{location}");
        }
        assert_eq!(there(&https, "/base/metrics/", 200), None);
    }
}
