//! The simulator as a process of its own, and what it says it sent.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::BenchError;
use crate::load::request::{PreparedRequest, RequestHead, RequestSource};
use crate::simulator::{End, Firehose, Lateness, Truth};
use crate::target::{Address, Credentials};

/// How it sends.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// In steps.
    Paced { streams: u32, step_ms: f64, chunk_tokens: u32 },
    /// As fast as it is taken.
    Firehose(Firehose),
}

impl Shape {
    fn options(&self) -> Vec<String> {
        let mut options: Vec<String> =
            ["--max-context", "8000000", "--kv-tokens", "2000000000", "--prefix-cache", "false"].map(String::from).into();
        let mut add = |name: &str, value: String| options.extend([name.to_owned(), value]);
        match self {
            Self::Paced { streams, step_ms, chunk_tokens } => {
                add("--step-base-us", (step_ms * 1e3).to_string());
                add("--step-per-sequence-us", "0".to_owned());
                add("--step-per-context-token-ns", "0".to_owned());
                // All streams are to be in the same first step, however long their requests take to be read.
                add("--prefill-tok-s", "1e9".to_owned());
                add("--request-overhead-us", (50_000 + 100 * streams).to_string());
                add("--slots", streams.to_string());
                if *chunk_tokens > 1 {
                    add("--spec-accept", vec!["1"; *chunk_tokens as usize - 1].join(","));
                }
            }
            Self::Firehose(mode) => add("--firehose", super::report::mode_name(*mode).to_owned()),
        }
        options
    }
}

/// What it says it sent since it was last told to forget.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) tokens: u64,
    /// Writes that ended tokens; in a firehose not known.
    pub(super) chunks: u64,
    pub(super) by_id: HashMap<String, u32>,
    pub(super) late: Lateness,
    pub(super) taken_late: Lateness,
}

/// The running process; ends when dropped.
#[derive(Debug)]
pub(super) struct Server {
    url: String,
    pub(super) address: Address,
    http: reqwest::Client,
    _child: Child,
    /// Kept open: else what the process says later would end it.
    _says: BufReader<ChildStdout>,
}

impl Server {
    pub(super) async fn start(program: &Path, shape: &Shape, cpu: Option<usize>) -> Result<Self, BenchError> {
        let failed = |reason: String| BenchError::Simulator { program: program.display().to_string(), reason };
        let mut command = Command::new(program);
        command.args(["simulate", "--port", "0"]).args(shape.options());
        if let Some(cpu) = cpu {
            command.args(["--pin", &cpu.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let Some(stdout) = child.stdout.take() else {
            return Err(failed("its output can't be read".to_owned()));
        };
        let mut says = BufReader::new(stdout);
        let mut line = String::new();
        says.read_line(&mut line).await.map_err(|error| failed(error.to_string()))?;
        let url = line.split_whitespace().next().unwrap_or_default().to_owned();
        let address: Address = url.parse().map_err(|_| failed(format!("it said {line:?} instead of its address")))?;
        let http = reqwest::Client::builder().no_proxy().build().map_err(|error| failed(error.to_string()))?;
        Ok(Self { url, address, http, _child: child, _says: says })
    }

    fn no_account(&self, reason: impl std::fmt::Display) -> BenchError {
        BenchError::Truth { url: self.url.clone(), reason: reason.to_string() }
    }

    pub(super) async fn forget(&self) -> Result<(), BenchError> {
        let answer = self.http.post(format!("{}/simulator/reset", self.url)).send().await;
        answer.and_then(reqwest::Response::error_for_status).map_err(|error| self.no_account(error))?;
        Ok(())
    }

    pub(super) async fn sent(&self) -> Result<Sent, BenchError> {
        let answer = self.http.get(format!("{}/simulator/truth", self.url)).send().await.map_err(|error| self.no_account(error))?;
        let truth: Truth = answer.json().await.map_err(|error| self.no_account(error))?;
        if truth.forgotten_requests > 0 {
            return Err(self.no_account("it had to forget some requests: fewer seconds would do"));
        }
        let ended = truth.requests.iter().filter(|request| request.end == End::Length);
        let by_id: HashMap<String, u32> = ended.map(|r| (r.id.trim_start_matches("chatcmpl-").to_owned(), r.tokens.iter().sum())).collect();
        Ok(Sent {
            tokens: by_id.values().map(|tokens| u64::from(*tokens)).sum(),
            chunks: truth.requests.iter().map(|request| request.tokens.len() as u64).sum(),
            by_id,
            late: truth.late_ns,
            taken_late: truth.taken_late_ns,
        })
    }
}

/// The requests of a job; all clients send these.
pub(super) struct Requests {
    head: RequestHead,
    body: bytes::Bytes,
    number: u32,
}

impl Requests {
    pub(super) fn new(server: &Server, job: super::Job) -> Self {
        let body = serde_json::json!({
            "model": "simulated-8b", "messages": [{"role": "user", "content": "Tell a long story."}],
            "max_tokens": job.max_tokens, "ignore_eos": true, "stream": true,
            "stream_options": {"include_usage": true, "continuous_usage_stats": true},
        });
        Self {
            head: RequestHead::post(&server.address, &Credentials::none(), "/v1/chat/completions"),
            body: body.to_string().into_bytes().into(),
            number: job.number,
        }
    }

    /// As one piece.
    pub(super) fn bytes(&self, stream: u32, ordinal: u32) -> Vec<u8> {
        let request = self.prepare(stream, ordinal);
        [&request.head[..], &request.shared, &request.tail].concat()
    }
}

impl RequestSource for Requests {
    fn prepare(&self, stream: u32, ordinal: u32) -> PreparedRequest {
        self.head.with_body(format!("bench-{}-{stream}-{ordinal}", self.number), self.body.clone(), Vec::new())
    }
}
