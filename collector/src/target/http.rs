//! Questions to a server before anything is measured: one GET each, no redirects, no proxy (the load goes
//! straight to the server as well), and errors in words.

use std::error::Error as _;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use super::credentials::Credentials;
use super::error::TargetError;
use super::roots::TrustedRoots;

/// More than any list of models; what is longer is something else.
const MAX_BODY: usize = 16 << 20;

/// An answer, whatever its status.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) location: Option<String>,
    pub(super) content_type: String,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(super) fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }

    pub(super) fn looks_like_html(&self) -> bool {
        let start = self.body.trim_ascii_start();
        self.content_type.contains("html") || start.first() == Some(&b'<')
    }

    /// The first words of an error answer, as ` (...)`; nothing of a web page.
    pub(super) fn excerpt(&self) -> String {
        if self.looks_like_html() {
            return " and a web page".to_owned();
        }
        in_brackets(&self.text())
    }

    /// The body as JSON, if it is a success and JSON.
    pub(super) fn json(&self) -> Option<serde_json::Value> {
        if !self.is_ok() {
            return None;
        }
        serde_json::from_slice(&self.body).ok()
    }
}

/// The first words of a text, without secrets, as ` (...)`; empty where there are none.
pub(super) fn in_brackets(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let short = crate::secrets::beginning(&words.join(" "), 160);
    if short.is_empty() { short } else { format!(" ({short})") }
}

/// A client for everything but the load. Without `keep` each call has a connection of its own: a server may close a
/// kept one just when the next call goes out, and such a call would fail though the server can answer it.
pub(super) fn client(roots: &TrustedRoots, credentials: &Credentials, keep: bool) -> Result<reqwest::Client, TargetError> {
    let mut headers = HeaderMap::new();
    if let Some(value) = credentials.header() {
        let mut value = HeaderValue::from_str(value).map_err(|e| TargetError::Client { reason: e.to_string() })?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let builder = reqwest::Client::builder()
        .default_headers(headers)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("tokscope/", env!("CARGO_PKG_VERSION")))
        .tcp_nodelay(true)
        .pool_max_idle_per_host(usize::from(keep))
        .no_proxy();
    let bad = |e: reqwest::Error| TargetError::Client { reason: e.to_string() };
    let certificates = roots.certificates().iter().map(|der| reqwest::Certificate::from_der(der).map_err(bad));
    let certificates = certificates.collect::<Result<Vec<_>, _>>()?;
    certificates.into_iter().fold(builder, reqwest::ClientBuilder::add_root_certificate).build().map_err(bad)
}

/// One GET.
pub(super) async fn get(client: &reqwest::Client, url: &str, limit: Duration) -> Result<Answer, TargetError> {
    let wrap = |e: reqwest::Error| explain(&e, url, limit);
    let mut response = client.get(url).timeout(limit).send().await.map_err(wrap)?;
    let header = |name| {
        let value = response.headers().get(name)?.to_str().ok()?;
        Some(value.to_owned())
    };
    let mut answer = Answer {
        status: response.status().as_u16(),
        location: header("location"),
        content_type: header("content-type").unwrap_or_default(),
        body: Vec::new(),
    };
    while let Some(chunk) = response.chunk().await.map_err(wrap)? {
        if answer.body.len() + chunk.len() > MAX_BODY {
            return Err(TargetError::NotJson { url: url.to_owned(), reason: format!("more than {} MB", MAX_BODY >> 20) });
        }
        answer.body.extend_from_slice(&chunk);
    }
    Ok(answer)
}

/// The body of an answer of which no more than 16 MB are taken.
///
/// # Errors
/// What went wrong, in words.
pub(crate) async fn body_of(mut answer: reqwest::Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| root_cause(&error))? {
        if body.len() + chunk.len() > MAX_BODY {
            return Err(format!("its answer has more than {} MB", MAX_BODY >> 20));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// What a failed call means to the user.
pub(super) fn explain(e: &reqwest::Error, url: &str, limit: Duration) -> TargetError {
    let url = url.to_owned();
    let root = root_cause(e);
    if e.is_timeout() {
        let seconds = limit.as_secs();
        return TargetError::NoAnswer { url, seconds };
    }
    if e.is_connect() {
        let mut cause = e.source();
        let mut refused = false;
        while let Some(inner) = cause {
            let io = inner.downcast_ref::<std::io::Error>();
            refused |= io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused);
            cause = inner.source();
        }
        if refused {
            return TargetError::Refused { url };
        }
        let chain = format!("{e:?}");
        if chain.contains("dns error") {
            return TargetError::Unresolved { url, reason: root };
        }
    }
    TargetError::NotHttp { url, reason: root }
}

/// The innermost words of an error: the outer ones repeat the address.
pub(crate) fn root_cause(e: &dyn std::error::Error) -> String {
    let mut cause = e;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
