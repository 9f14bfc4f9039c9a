//! What chromedriver offers beyond the WebDriver standard, in the shape that fantoccini sends.

use fantoccini::wd::WebDriverCompatibleCommand;
use http::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::Value;
use url::{ParseError, Url};

/// A POST to an address below the session's own.
#[derive(Debug)]
pub(crate) struct ChromeCommand {
    path: &'static str,
    body: String,
}

impl ChromeCommand {
    pub(crate) fn new(path: &'static str, body: &Value) -> Self {
        Self { path, body: body.to_string() }
    }
}

impl WebDriverCompatibleCommand for ChromeCommand {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _url: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.clone()))
    }
}

/// Plain HTTP: the driver is on this machine.
pub(crate) fn connector() -> HttpConnector {
    HttpConnector::new()
}
