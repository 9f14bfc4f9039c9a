//! What a request has to pass before its path is looked at: is the model loaded, does the key fit. Each server
//! guards its own paths and says it in its own words.

use base64::Engine as _;
use serde_json::json;

use super::http::{Request, Response};
use super::model::{Flavour, Settings};

/// What the server answers instead of what was asked; `None` lets the request in. The simulator's own paths are
/// always open.
pub(crate) fn stop(settings: &Settings, request: &Request, up_s: f64) -> Option<Response> {
    if request.path.starts_with("/simulator/") {
        return None;
    }
    if up_s < settings.quirks.loading_s {
        return Some(loading(settings.flavour));
    }
    let key = settings.quirks.api_key.as_deref()?;
    let has_it = request.authorization.as_deref().is_some_and(|given| fits(given, key));
    (guards(settings.flavour, &request.path) && !has_it).then(|| unauthorized(settings.flavour))
}

fn fits(given: &str, key: &str) -> bool {
    let (scheme, rest) = given.split_once(' ').unwrap_or((given, ""));
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return rest == key;
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(rest);
    scheme.eq_ignore_ascii_case("basic") && key.contains(':') && decoded.is_ok_and(|bytes| bytes == key.as_bytes())
}

/// vLLM guards what begins with `/v1`; the others leave a few paths open.
fn guards(flavour: Flavour, path: &str) -> bool {
    match flavour {
        Flavour::Vllm => path.starts_with("/v1"),
        Flavour::Sglang => !path.starts_with("/health") && !path.starts_with("/metrics"),
        Flavour::LlamaCpp => !matches!(path, "/health" | "/models" | "/v1/models"),
        Flavour::Proxy => !path.starts_with("/health"),
    }
}

fn unauthorized(flavour: Flavour) -> Response {
    let body = match flavour {
        Flavour::Vllm | Flavour::Sglang => json!({"error": "Unauthorized"}),
        Flavour::LlamaCpp => json!({"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}}),
        Flavour::Proxy => json!({"error": {"message": "Authentication Error, the key is missing or wrong", "type": "auth_error",
                                           "param": "None", "code": "401"}}),
    };
    Response::json(401, &body)
}

fn loading(flavour: Flavour) -> Response {
    let body = match flavour {
        Flavour::Vllm | Flavour::Sglang => json!({"error": {"message": "The model is not ready yet.", "type": "ServiceUnavailableError",
                                                            "param": null, "code": 503}}),
        Flavour::LlamaCpp => json!({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}),
        Flavour::Proxy => json!({"error": {"message": "litellm.ServiceUnavailableError: no healthy deployment", "type": null,
                                           "param": null, "code": "503"}}),
    };
    Response::json(503, &body)
}

/// A failure that has nothing to do with the request: 429 or 500.
pub(crate) fn trouble(flavour: Flavour, status: u16) -> Response {
    let (message, kind) = match status {
        429 => ("Too many requests in flight; try again later.", "RateLimitError"),
        _ => ("Something went wrong in the engine.", "InternalServerError"),
    };
    let code = if flavour == Flavour::Proxy { json!(status.to_string()) } else { json!(status) };
    let mut response = Response::json(status, &json!({"error": {"message": message, "type": kind, "param": null, "code": code}}));
    if status == 429 {
        response.extra.push("retry-after: 1".to_owned());
    }
    response
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::quirks::Quirks;
    use super::*;

    fn settings(flavour: Flavour, quirks: Quirks) -> Settings {
        Settings { flavour, quirks, ..Settings::default() }
    }

    fn status(settings: &Settings, path: &str, authorization: Option<&str>, up_s: f64) -> Option<u16> {
        let request = Request { path: path.to_owned(), authorization: authorization.map(str::to_owned), ..Request::default() };
        stop(settings, &request, up_s).map(|response| response.status)
    }

    #[test]
    fn without_quirks_everything_passes() {
        assert_eq!(status(&Settings::default(), "/v1/models", None, 0.0), None);
    }

    #[test]
    fn a_key_is_demanded_where_the_server_guards() {
        let key = || Quirks { api_key: Some("ann:secret".to_owned()), ..Quirks::default() };
        let basic = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode("ann:secret"));
        for flavour in [Flavour::Vllm, Flavour::Sglang, Flavour::Proxy] {
            let settings = settings(flavour, key());
            for wrong in [None, Some("Bearer nope"), Some("Bearer"), Some("Basic bm9wZQ=="), Some("ann:secret")] {
                assert_eq!(status(&settings, "/v1/models", wrong, 0.0), Some(401), "{flavour:?} {wrong:?}");
            }
            for right in ["Bearer ann:secret", "bearer ann:secret", &basic] {
                assert_eq!(status(&settings, "/v1/models", Some(right), 0.0), None, "{flavour:?} {right}");
            }
            assert_eq!(status(&settings, "/health", None, 0.0), None);
            assert_eq!(status(&settings, "/simulator/truth", None, 0.0), None);
        }
        assert_eq!(status(&settings(Flavour::Vllm, key()), "/metrics", None, 0.0), None);
        assert_eq!(status(&settings(Flavour::LlamaCpp, key()), "/v1/models", None, 0.0), None);
        assert_eq!(status(&settings(Flavour::LlamaCpp, key()), "/v1/chat/completions", None, 0.0), Some(401));
        assert_eq!(status(&settings(Flavour::Proxy, key()), "/metrics", None, 0.0), Some(401));
    }

    #[test]
    fn while_it_loads_all_but_the_truth_is_503() {
        let loading = settings(Flavour::Vllm, Quirks { loading_s: 2.0, ..Quirks::default() });
        assert_eq!(status(&loading, "/v1/models", None, 1.9), Some(503));
        assert_eq!(status(&loading, "/health", None, 1.9), Some(503));
        assert_eq!(status(&loading, "/simulator/truth", None, 1.9), None);
        assert_eq!(status(&loading, "/v1/models", None, 2.0), None);
    }
}
