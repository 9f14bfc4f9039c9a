//! A headless Chromium for one test: started, driven over WebDriver and ended here. What the page should
//! show is the tests' business.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use fantoccini::Client;
use serde_json::{Map, Value, json};

use crate::driver::{Processes, find_program};
use crate::webdriver::{ChromeCommand, connector};

/// Run in the page: makes files of names and base64 contents, and drags them over and onto the window.
const DROP_SCRIPT: &str = include_str!("drop.js");

/// Flags under which Chromium runs without a display, as root, and asks nothing of the network for itself.
const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
];

/// How often a condition in the page is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Why the browser could not be started or driven.
#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    /// A program is not installed.
    #[error("none of {names} is on PATH; `tests/run.sh --install` installs it, or on Debian `apt-get install {package}`")]
    NotInstalled {
        /// The names it may have.
        names: String,
        /// Debian's package.
        package: &'static str,
    },
    /// A program did not start.
    #[error("{program} did not start: {reason}; start it by hand to see why")]
    NotStarted {
        /// Its path.
        program: PathBuf,
        /// What was seen instead.
        reason: String,
    },
    /// The session could not be opened.
    #[error("Chromium could not be started: {0}; look whether its version fits chromedriver's")]
    Session(Box<fantoccini::error::NewSessionError>),
    /// A command failed, or a script threw.
    #[error("the browser refused a command: {0}")]
    Command(Box<fantoccini::error::CmdError>),
    /// What came back has another shape than expected.
    #[error("the browser answered {0} with something unexpected: {1}")]
    Answer(&'static str, String),
    /// A condition did not come true.
    #[error("`{condition}` was not true within {seconds} s; the page shows: {text}")]
    NotTrue {
        /// The JavaScript expression.
        condition: String,
        /// How long it was waited for.
        seconds: u64,
        /// The page's visible text.
        text: String,
    },
    /// A file to drop or to write could not be read or written.
    #[error("{path} can't be read or written: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl From<fantoccini::error::NewSessionError> for BrowserError {
    fn from(error: fantoccini::error::NewSessionError) -> Self {
        Self::Session(Box::new(error))
    }
}

impl From<fantoccini::error::CmdError> for BrowserError {
    fn from(error: fantoccini::error::CmdError) -> Self {
        Self::Command(Box::new(error))
    }
}

/// Light or dark, as the system would ask of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

impl fmt::Display for Scheme {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Light => "light",
            Self::Dark => "dark",
        })
    }
}

/// A file for the page: a name, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageFile {
    /// The name the page sees.
    pub name: String,
    /// The content.
    pub bytes: Vec<u8>,
}

impl PageFile {
    /// A file of a name and a content.
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), bytes: bytes.into() }
    }

    /// The file at `path`, under its own name.
    ///
    /// # Errors
    /// Where it can't be read.
    pub fn read(path: &Path) -> Result<Self, BrowserError> {
        let bytes = std::fs::read(path).map_err(|source| BrowserError::File { path: path.to_owned(), source })?;
        let name = path.file_name().unwrap_or(OsStr::new("unnamed"));
        Ok(Self::new(name.to_string_lossy(), bytes))
    }
}

/// A running Chromium with one empty tab and a profile of its own. Browser and driver end when it is
/// dropped.
#[derive(Debug)]
pub struct Browser {
    client: Client,
    processes: Processes,
}

impl Browser {
    /// Starts chromedriver on a free port and Chromium under it.
    ///
    /// # Errors
    /// Where one of the two is not installed (the message says what to install) or does not start.
    pub async fn start() -> Result<Self, BrowserError> {
        let chromium =
            find_program("TOKSCOPE_CHROMIUM", &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"], "chromium")?;
        let mut processes = Processes::start(&find_program("TOKSCOPE_CHROMEDRIVER", &["chromedriver"], "chromium-driver")?)?;
        let profile = format!("--user-data-dir={}", processes.profile.path().display());
        let flags: Vec<&str> = FLAGS.iter().copied().chain([profile.as_str()]).collect();
        let mut wanted = Map::new();
        wanted.insert(String::from("goog:chromeOptions"), json!({"binary": chromium, "args": flags}));
        // The console, and every request the page makes, to whomever.
        wanted.insert(String::from("goog:loggingPrefs"), json!({"browser": "ALL", "performance": "ALL"}));
        let client = Client::with_capabilities_and_connector(&format!("http://127.0.0.1:{}", processes.port), &wanted, connector()).await?;
        processes.session = client.session_id().await?;
        processes.chromium = client.capabilities().and_then(|given| given.get("goog:processID")).and_then(Value::as_u64);
        let browser = Self { client, processes };
        // What the empty tab did on its own is not the page's doing.
        browser.open("about:blank").await?;
        browser.log("browser").await?;
        browser.log("performance").await?;
        Ok(browser)
    }

    /// The WebDriver client, for what has no method here: clicks, keys, elements.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Opens `url` and waits until its document is loaded.
    ///
    /// # Errors
    /// Where it can't be loaded.
    pub async fn open(&self, url: &str) -> Result<(), BrowserError> {
        Ok(self.client.goto(url).await?)
    }

    /// Runs `script`, the body of a function, in the page and gives what it returns.
    ///
    /// # Errors
    /// Where it throws.
    pub async fn run(&self, script: &str) -> Result<Value, BrowserError> {
        Ok(self.client.execute(script, Vec::new()).await?)
    }

    /// Waits until `condition`, a JavaScript expression, is true.
    ///
    /// # Errors
    /// Where it throws, or is not true within `limit`; the message holds the page's text.
    pub async fn wait_until(&self, condition: &str, limit: Duration) -> Result<(), BrowserError> {
        let began = Instant::now();
        let script = format!("return Boolean({condition});");
        while self.run(&script).await? != Value::Bool(true) {
            if began.elapsed() > limit {
                return Err(BrowserError::NotTrue { condition: condition.to_owned(), seconds: limit.as_secs(), text: self.text().await? });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// The text that the page shows.
    ///
    /// # Errors
    /// Where the browser fails.
    pub async fn text(&self) -> Result<String, BrowserError> {
        let text = self.run("return document.body.innerText;").await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Drags the files over the middle of the window and drops them there. Whatever element lies there
    /// gets the events, and they bubble, as with a hand.
    ///
    /// # Errors
    /// Where the script throws.
    pub async fn drop_files(&self, files: &[PageFile]) -> Result<(), BrowserError> {
        let files: Vec<Value> = files.iter().map(|file| json!({"name": file.name, "content": BASE64.encode(&file.bytes)})).collect();
        self.client.execute(DROP_SCRIPT, vec![json!(files)]).await?;
        Ok(())
    }

    /// Everything at level SEVERE in the console since the last call: uncaught exceptions,
    /// `console.error`, and loads that failed.
    ///
    /// # Errors
    /// Where the browser fails.
    pub async fn console_errors(&self) -> Result<Vec<String>, BrowserError> {
        let entries = self.log("browser").await?;
        Ok(entries
            .iter()
            .filter(|entry| entry["level"] == "SEVERE")
            .map(|entry| entry["message"].as_str().unwrap_or_default().to_owned())
            .collect())
    }

    /// The address of every request the page has made since the last call, to whatever host, with
    /// `data:` and `blob:` left out.
    ///
    /// # Errors
    /// Where the browser fails.
    pub async fn requests(&self) -> Result<Vec<String>, BrowserError> {
        let mut urls = Vec::new();
        for entry in self.log("performance").await? {
            let text = entry["message"].as_str().unwrap_or_default();
            let event: Value = serde_json::from_str(text).map_err(|error| BrowserError::Answer("performance log", error.to_string()))?;
            let message = &event["message"];
            if message["method"] == "Network.requestWillBeSent"
                && let Some(url) = message["params"]["request"]["url"].as_str()
                && !url.starts_with("data:")
                && !url.starts_with("blob:")
            {
                urls.push(url.to_owned());
            }
        }
        Ok(urls)
    }

    /// Gives the page a window of this size, in CSS pixels, and this colour scheme.
    ///
    /// # Errors
    /// Where the browser fails.
    pub async fn set_view(&self, width: u32, height: u32, scheme: Scheme) -> Result<(), BrowserError> {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", size).await?;
        let features = json!([{"name": "prefers-color-scheme", "value": scheme.to_string()}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features})).await?;
        Ok(())
    }

    /// A PNG of the whole page, also of what lies below the window's edge, in the current view.
    ///
    /// # Errors
    /// Where the browser fails.
    pub async fn screenshot(&self) -> Result<Vec<u8>, BrowserError> {
        let options = json!({"format": "png", "captureBeyondViewport": true});
        let answer = self.devtools("Page.captureScreenshot", options).await?;
        BASE64
            .decode(answer["data"].as_str().unwrap_or_default())
            .map_err(|error| BrowserError::Answer("Page.captureScreenshot", error.to_string()))
    }

    /// Writes [`Self::screenshot`] to `path`, and makes the folder where it is missing.
    ///
    /// # Errors
    /// Where the browser fails or the file can't be written.
    pub async fn save_screenshot(&self, path: &Path) -> Result<(), BrowserError> {
        let png = self.screenshot().await?;
        let write = || {
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            std::fs::write(path, &png)
        };
        write().map_err(|source| BrowserError::File { path: path.to_owned(), source })
    }

    /// Sends a command of the DevTools protocol and gives its result.
    ///
    /// # Errors
    /// Where the browser refuses it.
    pub async fn devtools(&self, command: &str, parameters: Value) -> Result<Value, BrowserError> {
        let body = json!({"cmd": command, "params": parameters});
        let sent = ChromeCommand::new("goog/cdp/execute", &body);
        Ok(self.client.issue_cmd(sent).await?)
    }

    async fn log(&self, kind: &str) -> Result<Vec<Value>, BrowserError> {
        let sent = ChromeCommand::new("se/log", &json!({"type": kind}));
        match self.client.issue_cmd(sent).await? {
            Value::Array(entries) => Ok(entries),
            other => Err(BrowserError::Answer("se/log", other.to_string())),
        }
    }

    /// The process ids of the driver and, where the driver told it, of Chromium.
    #[must_use]
    pub fn process_ids(&self) -> (u32, Option<u64>) {
        (self.processes.driver.id(), self.processes.chromium)
    }
}
