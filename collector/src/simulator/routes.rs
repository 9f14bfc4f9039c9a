//! The endpoints: which path answers what, for each imitated server, and the life of a connection.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use std::time::Duration;
use tokio::sync::oneshot;

use super::chunks::Answer;
use super::driver::{Command, Start};
use super::engine::Arrival;
use super::http::{self, Connection, ReadError, Request, Response};
use super::model::{Flavour, Settings};
use super::quirks::MetricsAnswer;
use super::truth::Truth;
use super::{clock, gate, llama_cpp, metrics, openai, tokens};

/// Requests up to this long are read where they come in: less work than handing them to another thread.
const SHORT_BODY_BYTES: usize = 32 << 10;
/// Room for an answer's headers, and afterwards for its events.
const HEAD_ROOM_BYTES: usize = 1 << 10;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) settings: Settings,
    pub(crate) commands: Sender<Command>,
    pub(crate) started_s: f64,
    /// The same on the monotonic clock.
    pub(crate) started_ns: u64,
    /// Chat requests that were answered without tokens, by status.
    pub(crate) rejected: Mutex<BTreeMap<u16, u64>>,
    /// What llama.cpp's last scrape saw.
    pub(crate) scraped: Mutex<metrics::Scraped>,
    /// Chat requests so far, also those that were rejected.
    pub(crate) asked: AtomicU64,
    /// Chat requests being answered.
    pub(crate) in_flight: AtomicUsize,
    pub(crate) next_key: AtomicU64,
    /// Held by the one long request whose prompt is being split into tokens.
    pub(crate) reading: tokio::sync::Mutex<()>,
}

/// A chat request that is being answered.
struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `/metrics` of [`MetricsAnswer::Slow`].
const SLOW: Duration = Duration::from_secs(30);

/// The driver has ended; so will the connections.
#[derive(Debug)]
pub(crate) struct Stopped;

impl Server {
    /// Asks the driver and waits for its answer.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Stopped> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).map_err(|_| Stopped)?;
        answer.await.map_err(|_| Stopped)
    }

    pub(crate) async fn truth(&self, since_ns: u64) -> Result<Truth, Stopped> {
        let records = self.ask(|reply| Command::Records(since_ns, reply)).await?;
        // A long truth takes a while, in which requests are to be read.
        let mut truth = tokio::task::spawn_blocking(|| Truth::from(records)).await.map_err(|_| Stopped)?;
        truth.rejected = self.rejected().clone();
        Ok(truth)
    }

    /// Nothing can go wrong while it is held.
    fn rejected(&self) -> std::sync::MutexGuard<'_, BTreeMap<u16, u64>> {
        self.rejected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a chat request without tokens, and counts that.
    async fn reject(&self, connection: &Connection, response: &Response, keep_alive: bool) -> Result<(), ReadError> {
        *self.rejected().entry(response.status).or_default() += 1;
        self.reply(connection, response, keep_alive).await
    }

    /// The status of a failure that has nothing to do with the request.
    fn trouble(&self, others: usize) -> Option<u16> {
        let quirks = &self.settings.quirks;
        let draw = tokens::mix(self.settings.seed ^ tokens::mix(self.asked.fetch_add(1, Ordering::Relaxed) ^ 0xfa11));
        if quirks.rate_limit.is_some_and(|limit| others >= limit) {
            return Some(429);
        }
        // The upper 53 bits are a number from 0 to 1.
        ((draw >> 11) as f64 / (1_u64 << 53) as f64 <= quirks.fail_share && quirks.fail_share > 0.0).then_some(500)
    }

    fn up_s(&self) -> f64 {
        clock::now_ns().saturating_sub(self.started_ns) as f64 / 1e9
    }

    /// Answers the requests of a connection until it ends.
    pub(crate) async fn serve(self: Arc<Self>, mut connection: Connection) {
        loop {
            let request = match connection.read_request().await {
                Ok(request) => request,
                Err(ReadError::Closed) => return,
                Err(error) => {
                    let (status, text) = match error {
                        ReadError::TooLarge => (413, "Request body too large."),
                        _ => (400, "Invalid HTTP request received."),
                    };
                    let response = Response::text(status, "text/plain; charset=utf-8", text.to_owned());
                    // Nobody may be there any more to read why.
                    let _ = self.reply(&connection, &response, false).await;
                    return;
                }
            };
            let keep_alive = request.keep_alive;
            let is_chat = request.path == "/v1/chat/completions" && request.method == "POST";
            let done = if let Some(response) = gate::stop(&self.settings, &request, self.up_s()) {
                match is_chat {
                    true => self.reject(&connection, &response, keep_alive).await,
                    false => self.reply(&connection, &response, keep_alive).await,
                }
            } else if is_chat {
                self.chat(&mut connection, request).await
            } else {
                match self.route(&request).await {
                    Ok(response) => self.reply(&connection, &response, keep_alive).await,
                    Err(Stopped) => return,
                }
            };
            if done.is_err() || !keep_alive {
                return;
            }
        }
    }

    async fn reply(&self, connection: &Connection, response: &Response, keep_alive: bool) -> Result<(), ReadError> {
        let mut out = Vec::with_capacity(response.body.len() + 512);
        response.write(&mut out, self.settings.flavour, keep_alive);
        connection.write_all(&out).await
    }

    /// A chat request goes to the driver, which answers it; meanwhile the connection is watched.
    async fn chat(self: &Arc<Self>, connection: &mut Connection, request: Request) -> Result<(), ReadError> {
        let settings = &self.settings;
        let others = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let _in_flight = InFlight(&self.in_flight);
        if let Some(status) = self.trouble(others) {
            return self.reject(connection, &gate::trouble(settings.flavour, status), request.keep_alive).await;
        }
        let body = request.body;
        let read = if body.len() <= SHORT_BODY_BYTES {
            openai::read_chat(&body, settings)
        } else {
            // A long prompt takes a while to split into tokens, and would keep this thread from others: that is
            // done elsewhere, one after the other, so that it takes one core at most.
            let _turn = self.reading.lock().await;
            let server = Arc::clone(self);
            let read = tokio::task::spawn_blocking(move || openai::read_chat(&body, &server.settings)).await;
            read.map_err(|_| ReadError::Closed)?
        };
        let mut chat = match read {
            Ok(chat) => chat,
            Err(refusal) => {
                let response = refusal.response(settings.flavour);
                return self.reject(connection, &response, request.keep_alive).await;
            }
        };
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        if chat.stream && key % 2 == 1 {
            chat.prompt.tokens = chat.prompt.tokens.saturating_add(settings.quirks.template_adds);
        }
        let given = chat.rid.clone().filter(|_| settings.flavour == Flavour::Sglang).or(request.request_id);
        let suffix = given.unwrap_or_else(|| format!("{:016x}", tokens::mix(settings.seed ^ tokens::mix(key ^ 0x1d))));
        let id = match settings.flavour {
            Flavour::Sglang => suffix,
            Flavour::Vllm | Flavour::LlamaCpp | Flavour::Proxy => format!("chatcmpl-{suffix}"),
        };
        let answer = Answer::new(settings, &chat, &id, key, request.keep_alive);
        let mut head = Vec::with_capacity(HEAD_ROOM_BYTES);
        answer.head(&mut head);
        // The headers go out from here; the clock's thread has enough to do.
        let sent = connection.write_now(&head)?;
        head.drain(..sent);
        let (done, mut finished) = oneshot::channel();
        let start = Start {
            id,
            stream: chat.stream,
            received_by_kernel: request.received.by_kernel,
            unsent: head,
            arrival: Arrival {
                key,
                received_ns: request.received.ns,
                prompt: chat.prompt,
                max_output: chat.max_output,
                ignore_eos: chat.ignore_eos,
            },
            answer,
            socket: connection.socket(),
            done,
        };
        self.commands.send(Command::Start(Box::new(start))).map_err(|_| ReadError::Closed)?;
        loop {
            let may_read = connection.unread_bytes() < http::AHEAD_BYTES;
            tokio::select! {
                result = &mut finished => return result.map_err(|_| ReadError::Closed),
                read = connection.fill(), if may_read => {
                    if let Err(error) = read {
                        // The driver may be gone already, and then so is the request.
                        let _ = self.commands.send(Command::Cancel(key));
                        return Err(error);
                    }
                }
            }
        }
    }

    async fn route(&self, request: &Request) -> Result<Response, Stopped> {
        let settings = &self.settings;
        let flavour = settings.flavour;
        let not_found = || match flavour {
            Flavour::LlamaCpp => {
                Response::json(404, &json!({"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}))
            }
            _ => Response::json(404, &json!({"detail": "Not Found"})),
        };
        let allow = match request.path.as_str() {
            "/v1/chat/completions" | "/simulator/reset" => "POST",
            "/tokenize" if flavour != Flavour::Proxy => "POST",
            "/v1/models" | "/health" | "/simulator/truth" => "GET",
            "/props" | "/slots" | "/models" if flavour == Flavour::LlamaCpp => "GET",
            "/apply-template" if flavour == Flavour::LlamaCpp => "POST",
            "/version" | "/ping" if flavour == Flavour::Vllm => "GET",
            "/get_server_info" if flavour == Flavour::Sglang => "GET",
            "/metrics" => "GET",
            "/metrics/" if flavour == Flavour::Proxy => "GET",
            "/abort_request" if flavour == Flavour::Sglang => "POST",
            "/health/liveliness" if flavour == Flavour::Proxy => "GET",
            _ => return Ok(not_found()),
        };
        if request.method != allow {
            if flavour == Flavour::LlamaCpp {
                return Ok(not_found());
            }
            let mut response = Response::json(405, &json!({"detail": "Method Not Allowed"}));
            response.extra.push(format!("allow: {allow}"));
            return Ok(response);
        }
        Ok(match request.path.as_str() {
            "/v1/models" | "/models" => self.models(),
            "/health" if flavour == Flavour::LlamaCpp => Response::json(200, &json!({"status": "ok"})),
            "/props" => Response::json(200, &llama_cpp::props(settings)),
            "/slots" => Response::json(200, &llama_cpp::slots(settings, &self.ask(Command::Snapshot).await?.occupied)),
            "/apply-template" => match llama_cpp::apply_template(&request.body) {
                Ok(prompt) => Response::json(200, &prompt),
                Err(refusal) => refusal.response(flavour),
            },
            "/version" => Response::json(200, &json!({"version": "0.32.0"})),
            "/health/liveliness" => Response::json(200, &"I'm alive!"),
            "/get_server_info" => self.server_info(),
            "/tokenize" => match tokenized(&request.body, settings) {
                Ok(tokens) => Response::json(200, &tokens),
                Err(refusal) => refusal.response(flavour),
            },
            "/abort_request" => {
                let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
                let rid = body["rid"].as_str().unwrap_or_default().to_owned();
                self.ask(|reply| Command::Abort(rid, reply)).await?;
                Response::empty(200)
            }
            "/metrics" | "/metrics/" => {
                if let Some(response) = self.broken_metrics(&request.path).await {
                    return Ok(response);
                }
                let snapshot = self.ask(Command::Snapshot).await?;
                let scraped = *self.scraped.lock().unwrap_or_else(PoisonError::into_inner);
                if flavour == Flavour::LlamaCpp {
                    let (page, now) = metrics::llama_cpp(&snapshot, scraped);
                    *self.scraped.lock().unwrap_or_else(PoisonError::into_inner) = now;
                    let mut response = Response::text(200, "text/plain; version=0.0.4", page);
                    response.extra.push(format!("Process-Start-Time-Unix: {}", self.started_s as u64));
                    return Ok(response);
                }
                let page = metrics::page(settings, &snapshot, self.started_s);
                Response::text(200, "text/plain; version=1.0.0; charset=utf-8", page)
            }
            "/simulator/truth" => match since_ns(&request.query) {
                Ok(since_ns) => {
                    let truth = self.truth(since_ns).await?;
                    tokio::task::spawn_blocking(move || Response::json(200, &truth)).await.map_err(|_| Stopped)?
                }
                Err(message) => Response::json(400, &json!({"detail": message})),
            },
            "/simulator/reset" => {
                self.ask(Command::Reset).await?;
                self.rejected().clear();
                Response::empty(200)
            }
            // /health and /ping
            _ => Response::empty(200),
        })
    }

    /// What `/metrics` answers where that isn't a page of metrics.
    async fn broken_metrics(&self, path: &str) -> Option<Response> {
        let page = |status, title: &str| {
            let text = format!("<!DOCTYPE html>\n<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>\n");
            Some(Response::text(status, "text/html; charset=utf-8", text))
        };
        match self.settings.quirks.metrics {
            MetricsAnswer::Missing => return Some(Response::json(404, &json!({"detail": "Not Found"}))),
            MetricsAnswer::BadGateway => return page(502, "502 Bad Gateway"),
            MetricsAnswer::Html => return page(200, "Sign in"),
            MetricsAnswer::Slow => tokio::time::sleep(SLOW).await,
            MetricsAnswer::Ok => {}
        }
        let mut moved = Response::empty(307);
        moved.extra.push("location: /metrics/".to_owned());
        (self.settings.flavour == Flavour::Proxy && path == "/metrics").then_some(moved)
    }

    fn models(&self) -> Response {
        let settings = &self.settings;
        let (id, created) = (&settings.model, self.started_s as u64);
        Response::json(
            200,
            &match settings.flavour {
                Flavour::Vllm => json!({"object": "list", "data": [{
                    "id": id, "object": "model", "created": created, "owned_by": "vllm", "root": id,
                    "parent": null, "max_model_len": settings.max_context,
                    "permission": [{
                        "id": "modelperm-5151515151515151", "object": "model_permission",
                        "created": created, "allow_create_engine": false, "allow_sampling": true,
                        "allow_logprobs": true, "allow_search_indices": false, "allow_view": true,
                        "allow_fine_tuning": false, "organization": "*", "group": null,
                        "is_blocking": false,
                    }],
                }]}),
                Flavour::Sglang => json!({"object": "list", "data": [{
                    "id": id, "object": "model", "created": created, "owned_by": "sglang",
                    "root": id, "parent": null, "max_model_len": settings.max_context,
                }]}),
                Flavour::LlamaCpp => llama_cpp::models(settings, created),
                Flavour::Proxy => json!({"data": [{
                    "id": id, "object": "model", "created": created, "owned_by": "openai",
                }], "object": "list"}),
            },
        )
    }

    fn server_info(&self) -> Response {
        let settings = &self.settings;
        Response::json(
            200,
            &json!({
                "model_path": settings.model,
                "served_model_name": settings.model,
                "context_length": settings.max_context,
                "max_running_requests": settings.slots,
                "max_total_num_tokens": settings.kv_blocks() * settings.block_tokens,
                "page_size": settings.block_tokens,
                "disable_radix_cache": !settings.prefix_cache,
                "enable_metrics": true,
                "version": "0.5.6",
            }),
        )
    }
}

fn tokenized(body: &[u8], settings: &Settings) -> Result<serde_json::Value, openai::Refusal> {
    match settings.flavour {
        Flavour::LlamaCpp => llama_cpp::tokenize(body),
        _ => openai::tokenize(body, settings),
    }
}

/// Reads `since_ns=N`; without it, everything.
fn since_ns(query: &str) -> Result<u64, String> {
    let mut values = query.split('&').filter_map(|pair| pair.strip_prefix("since_ns="));
    match values.next() {
        None => Ok(0),
        Some(text) => text.parse().map_err(|_| format!("since_ns={text} is not a number; give nanoseconds of CLOCK_MONOTONIC")),
    }
}
