//! The host's answers: page, list, files. Everything else is 404.

use super::library::Library;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use include_dir::{Dir, include_dir};
use serde_json::json;
use std::net::SocketAddr;

/// The page as built.
static PAGE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../dist");
/// Where the page learns that it has a host.
const MARK: &str = "<!--host-->";
const HOST: &str = r#"<meta name="tokscope-host" content="api/reports">"#;
/// The page needs its own script, wasm and styles, and asks nobody else.
const POLICY: &str = "default-src 'none'; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; \
                      img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn router(library: Library, addr: SocketAddr) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/health", get(|| async { "ok\n" }))
        .route("/api/reports", get(list))
        .route("/api/reports/{name}", get(report))
        .route("/{file}", get(asset))
        .layer(middleware::from_fn_with_state(addr, guard))
        .with_state(library)
}

/// Refuses requests that a page of another host made by a name that it had pointed at this machine, and sets
/// the headers that every answer has.
async fn guard(State(addr): State<SocketAddr>, request: Request, next: Next) -> Response {
    let named = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if addr.ip().is_loopback() && !is_loopback(named) {
        return (StatusCode::FORBIDDEN, "this host answers to localhost only\n").into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Whether a Host header names this machine: `localhost` or a loopback address, with or without a port.
fn is_loopback(host: &str) -> bool {
    if host.parse::<SocketAddr>().is_ok_and(|addr| addr.ip().is_loopback()) {
        return true;
    }
    let name = host.rsplit_once(':').map_or(host, |(name, port)| if port.parse::<u16>().is_ok() { name } else { host });
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

async fn index() -> Response {
    match PAGE.get_file("index.html").and_then(|file| file.contents_utf8()) {
        Some(text) => ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], text.replacen(MARK, HOST, 1)).into_response(),
        None => (StatusCode::NOT_FOUND, "this build of tokscope carries no page: build dist/ and tokscope again\n").into_response(),
    }
}

async fn asset(Path(name): Path<String>) -> Response {
    let kind = match name.rsplit('.').next() {
        Some("html") => return index().await,
        Some("js") => "text/javascript; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("css") => "text/css; charset=utf-8",
        _ => return not_found(),
    };
    match PAGE.get_file(&name) {
        Some(file) => ([(header::CONTENT_TYPE, kind)], file.contents()).into_response(),
        None => not_found(),
    }
}

async fn list(State(library): State<Library>) -> Response {
    let entries = tokio::task::spawn_blocking(move || library.entries()).await.unwrap_or_default();
    let reports: Vec<_> = entries
        .iter()
        .map(|entry| json!({ "name": entry.name, "size": entry.size, "url": format!("api/reports/{}", encoded(&entry.name)) }))
        .collect();
    Json(json!({ "reports": reports })).into_response()
}

async fn report(State(library): State<Library>, Path(name): Path<String>) -> Response {
    let read = tokio::task::spawn_blocking(move || std::fs::read(library.path(&name)?).ok()).await;
    match read {
        Ok(Some(bytes)) => ([(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        _ => not_found(),
    }
}

fn not_found() -> Response {
    (StatusCode::NOT_FOUND, "not here\n").into_response()
}

/// A name as one segment of an address.
pub(super) fn encoded(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte.into());
        } else {
            out += &format!("%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for host in ["localhost", "LOCALHOST:8321", "127.0.0.1", "127.0.0.1:80", "[::1]:80", "[::1]", "127.8.9.1:1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "evil.example", "evil.example:8321", "localhost.evil.example", "10.0.0.1:80", "127.0.0.1.evil.example"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn names_become_one_segment() {
        assert_eq!(encoded("a b/ü%.json"), "a%20b%2F%C3%BC%25.json");
    }
}
