//! A TCP server that answers as told, byte for byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What to do with a connection after a request was read.
#[derive(Clone)]
pub(crate) enum Do {
    Send(Vec<u8>),
    Sleep(u64),
    /// Keep the connection open and do nothing more.
    Hang,
    /// Close without reading what was sent meanwhile.
    CloseUnread,
    /// Look every millisecond until it is true.
    When(Arc<dyn Fn() -> bool + Send + Sync>),
}

pub(crate) fn send(text: impl AsRef<[u8]>) -> Do {
    Do::Send(text.as_ref().to_vec())
}

/// A server; it ends with the test's runtime.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) requests: Arc<AtomicUsize>,
}

impl Server {
    /// `answer` gets the request line (`GET /x HTTP/1.1`) and the request's number from 0. After
    /// its steps the connection waits for another request if `keep`, else it closes.
    pub(crate) async fn start(keep: bool, answer: impl Fn(&str, usize) -> Vec<Do> + Send + Sync + 'static) -> Self {
        Self::start_reading(keep, move |line, _, n| answer(line, n)).await
    }

    /// The same; `answer` gets the request's body as well.
    pub(crate) async fn start_reading(keep: bool, answer: impl Fn(&str, &[u8], usize) -> Vec<Do> + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), keep, answer)
    }

    /// The same, on an address that the test chose.
    pub(crate) fn on(listener: TcpListener, keep: bool, answer: impl Fn(&str, &[u8], usize) -> Vec<Do> + Send + Sync + 'static) -> Self {
        let addr = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(AtomicUsize::new(0));
        let (opened, asked) = (Arc::clone(&connections), Arc::clone(&requests));
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                opened.fetch_add(1, Ordering::SeqCst);
                let (answer, asked) = (Arc::clone(&answer), Arc::clone(&asked));
                tokio::spawn(async move {
                    while let Some((line, body)) = read_request(&mut socket).await {
                        let n = asked.fetch_add(1, Ordering::SeqCst);
                        for step in answer(&line, &body, n) {
                            match step {
                                Do::Send(bytes) => {
                                    if socket.write_all(&bytes).await.is_err() {
                                        return;
                                    }
                                }
                                Do::Sleep(ms) => {
                                    tokio::time::sleep(Duration::from_millis(ms)).await;
                                }
                                Do::CloseUnread => return,
                                Do::When(is_so) => {
                                    while !is_so() {
                                        tokio::time::sleep(Duration::from_millis(1)).await;
                                    }
                                }
                                Do::Hang => std::future::pending().await,
                            }
                        }
                        if !keep {
                            return;
                        }
                    }
                });
            }
        });
        Self { addr, connections, requests }
    }
}

/// Reads a request; its first line and its body.
async fn read_request(socket: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 16_384];
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length =
                head.lines().find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0);
            if bytes.len() >= end + 4 + length {
                let line = head.lines().next().unwrap_or_default().to_owned();
                return Some((line, bytes.split_off(end + 4)));
            }
        }
        let n = socket.read(&mut piece).await.ok()?;
        if n == 0 {
            return None;
        }
        bytes.extend_from_slice(&piece[..n]);
    }
}

/// A whole answer with a length.
pub(crate) fn whole(status: &str, content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

pub(crate) const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Text as one HTTP chunk.
pub(crate) fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// An event with content and, where told, usage.
pub(crate) fn event(content: &str, usage: Option<u32>) -> String {
    let usage = usage.map_or_else(String::new, |n| format!(",\"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":{n}}}"));
    chunk(&format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}}}}]{usage}}}\n\n"))
}

pub(crate) fn finish() -> String {
    chunk("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n")
}

pub(crate) const DONE: &str = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
