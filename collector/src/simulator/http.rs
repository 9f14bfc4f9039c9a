//! HTTP/1.1 by hand, so that every byte's way to the socket is known: reading requests (httparse
//! for the heads) and putting responses into bytes. What is answered is not decided here.

use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::clock;
use super::model::Flavour;
use crate::kernel_time::{self, RealClock};

/// Largest head of a request.
const HEAD_BYTES: usize = 64 << 10;
/// Largest body.
const BODY_BYTES: usize = 256 << 20;
/// What the kernel is asked to hold of an answer.
const SEND_BUFFER_BYTES: usize = 128 << 10;
/// How much may wait unread behind a request that is being answered.
pub(crate) const AHEAD_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) request_id: Option<String>,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Vec<u8>,
    pub(crate) received: Receipt,
    pub(crate) keep_alive: bool,
}

/// When a request's last byte was there, in monotonic nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Receipt {
    pub(crate) ns: u64,
    /// The kernel says so; else it was read then, and may have come earlier.
    pub(crate) by_kernel: bool,
}

/// Why there is no request.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The client closed or broke the connection.
    Closed,
    /// Not HTTP; to be answered with 400 and a close.
    Invalid,
    /// To be answered with 413 and a close.
    TooLarge,
}

/// A client's connection. The socket is shared with the driver, which writes the answers that have
/// tokens in them; all else is written from here, never both at once.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Arc<TcpStream>,
    unread: Vec<u8>,
    scratch: Box<[u8]>,
    last_read: Receipt,
    /// The two clocks as they stood at the last stamp.
    real_clock: RealClock,
}

fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

struct Head {
    request: Request,
    bytes: usize,
    length: usize,
    chunked: bool,
    expects_continue: bool,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        // Left to itself, the kernel would take megabytes for a client that reads nothing, and call
        // that handed over.
        rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES)?;
        Ok(Self {
            stream: Arc::new(stream),
            unread: Vec::new(),
            scratch: vec![0; 64 << 10].into_boxed_slice(),
            last_read: Receipt::default(),
            real_clock: RealClock::read(),
        })
    }

    pub(crate) fn socket(&self) -> Arc<TcpStream> {
        Arc::clone(&self.stream)
    }

    pub(crate) fn unread_bytes(&self) -> usize {
        self.unread.len()
    }

    /// Reads what is there. Cancel-safe.
    pub(crate) async fn fill(&mut self) -> Result<(), ReadError> {
        loop {
            self.stream.readable().await.map_err(|_| ReadError::Closed)?;
            let (stream, scratch) = (&self.stream, &mut self.scratch);
            match stream.try_io(Interest::READABLE, || kernel_time::receive(stream.as_fd(), scratch)) {
                Ok(got) if got.bytes == 0 => return Err(ReadError::Closed),
                Ok(got) => {
                    self.last_read = self.receipt(got.real_ns);
                    self.unread.extend_from_slice(&self.scratch[..got.bytes]);
                    return Ok(());
                }
                Err(error) if is_passing(&error) => {}
                Err(_) => return Err(ReadError::Closed),
            }
        }
    }

    /// When what was just read had come.
    fn receipt(&mut self, real_ns: Option<i64>) -> Receipt {
        let read_ns = clock::now_ns();
        let clock = RealClock::read();
        // Was the realtime clock set since the last stamp, this one may be of before or after that.
        let stepped = std::mem::replace(&mut self.real_clock, clock).stepped(&clock).is_some();
        let stamp = real_ns.filter(|_| !stepped).and_then(|real_ns| clock.monotonic_ns(real_ns));
        match stamp {
            Some(ns) => Receipt { ns: ns.min(read_ns), by_kernel: true },
            None => Receipt { ns: read_ns, by_kernel: false },
        }
    }

    /// Gives the kernel what it takes now, and says how much that was.
    pub(crate) fn write_now(&self, bytes: &[u8]) -> Result<usize, ReadError> {
        match send(&self.stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => Ok(count),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(_) => Err(ReadError::Closed),
        }
    }

    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> Result<(), ReadError> {
        while !bytes.is_empty() {
            self.stream.writable().await.map_err(|_| ReadError::Closed)?;
            match self.stream.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_passing(&error) => {}
                Err(_) => return Err(ReadError::Closed),
            }
        }
        Ok(())
    }

    /// The next request, whole.
    pub(crate) async fn read_request(&mut self) -> Result<Request, ReadError> {
        let head = loop {
            if let Some(head) = parse_head(&self.unread)? {
                break head;
            }
            if self.unread.len() > HEAD_BYTES {
                return Err(ReadError::Invalid);
            }
            self.fill().await?;
        };
        self.unread.drain(..head.bytes);
        let mut request = head.request;
        if head.length > BODY_BYTES {
            return Err(ReadError::TooLarge);
        }
        if head.expects_continue && self.unread.is_empty() {
            self.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        if head.chunked {
            request.body = self.read_chunked().await?;
        } else {
            self.unread.reserve(head.length.saturating_sub(self.unread.len()));
            while self.unread.len() < head.length {
                self.fill().await?;
            }
            let rest = self.unread.split_off(head.length);
            request.body = std::mem::replace(&mut self.unread, rest);
        }
        request.received = self.last_read;
        Ok(request)
    }

    async fn read_chunked(&mut self) -> Result<Vec<u8>, ReadError> {
        let mut body = Vec::new();
        let mut at = 0;
        loop {
            match httparse::parse_chunk_size(&self.unread[at..]) {
                Ok(httparse::Status::Complete((line, size))) => {
                    let size = usize::try_from(size).map_err(|_| ReadError::TooLarge)?;
                    if size > BODY_BYTES - body.len() {
                        return Err(ReadError::TooLarge);
                    }
                    at += line;
                    if size == 0 {
                        self.skip_trailers(at).await?;
                        return Ok(body);
                    }
                    while self.unread.len() < at + size + 2 {
                        self.fill().await?;
                    }
                    let chunk = &self.unread[at..at + size + 2];
                    let Some(data) = chunk.strip_suffix(b"\r\n") else {
                        return Err(ReadError::Invalid);
                    };
                    body.extend_from_slice(data);
                    // What is read is dropped now and then, not for each of many small chunks.
                    at += size + 2;
                    if at > HEAD_BYTES {
                        self.unread.drain(..at);
                        at = 0;
                    }
                }
                Ok(httparse::Status::Partial) if self.unread.len() - at < 1024 => {
                    self.fill().await?;
                }
                _ => return Err(ReadError::Invalid),
            }
        }
    }

    async fn skip_trailers(&mut self, mut at: usize) -> Result<(), ReadError> {
        loop {
            let rest = &self.unread[at..];
            if let Some(line) = rest.iter().position(|byte| *byte == b'\n') {
                at += line + 1;
                if line <= 1 {
                    self.unread.drain(..at);
                    return Ok(());
                }
            } else if rest.len() > HEAD_BYTES {
                return Err(ReadError::Invalid);
            } else {
                self.fill().await?;
            }
        }
    }
}

fn parse_head(bytes: &[u8]) -> Result<Option<Head>, ReadError> {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(ReadError::Invalid),
    };
    let header = |name: &str| {
        let found = parsed.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
        found.map(|h| String::from_utf8_lossy(h.value).trim().to_owned())
    };
    let says = |name: &str, token: &str| header(name).is_some_and(|value| value.to_ascii_lowercase().contains(token));
    let body_bytes = match header("content-length") {
        None => 0,
        Some(value) => value.parse().map_err(|_| ReadError::Invalid)?,
    };
    let target = parsed.path.unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let request = Request {
        method: parsed.method.unwrap_or("GET").to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        request_id: header("x-request-id").filter(|id| !id.is_empty()),
        authorization: header("authorization"),
        body: Vec::new(),
        received: Receipt::default(),
        keep_alive: match parsed.version {
            Some(1) => !says("connection", "close"),
            _ => says("connection", "keep-alive"),
        },
    };
    Ok(Some(Head {
        request,
        bytes: length,
        length: body_bytes,
        chunked: says("transfer-encoding", "chunked"),
        expects_continue: says("expect", "100-continue"),
    }))
}

const JSON: &str = "application/json";

/// A response in one piece.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) content_type: Option<&'static str>,
    /// Headers besides length and type, each `name: value`.
    pub(crate) extra: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn json(status: u16, body: &impl serde::Serialize) -> Self {
        Self {
            status,
            content_type: Some(JSON),
            extra: Vec::new(),
            // Our own values always serialize; an empty body would be seen at once.
            body: serde_json::to_vec(body).unwrap_or_default(),
        }
    }

    pub(crate) fn text(status: u16, content_type: &'static str, body: String) -> Self {
        Self { status, content_type: Some(content_type), extra: Vec::new(), body: body.into_bytes() }
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self { status, content_type: None, extra: Vec::new(), body: Vec::new() }
    }

    /// Appends the whole response.
    pub(crate) fn write(&self, out: &mut Vec<u8>, flavour: Flavour, keep_alive: bool) {
        let mut head = start(self.status, flavour);
        for line in &self.extra {
            head += line;
            head += "\r\n";
        }
        let (length, content_type) = (self.body.len(), self.content_type);
        if flavour == Flavour::LlamaCpp {
            // Of all it answers, as recorded, only JSON has a character set.
            let charset = if content_type == Some(JSON) { "; charset=utf-8" } else { "" };
            if let Some(content_type) = content_type {
                head += &format!("Content-Type: {content_type}{charset}\r\n");
            }
            head += &format!("Content-Length: {length}\r\n");
        } else {
            head += &format!("content-length: {length}\r\n");
            if let Some(content_type) = content_type {
                head += &format!("content-type: {content_type}\r\n");
            }
        }
        finish(out, &head, flavour, keep_alive);
        out.extend_from_slice(&self.body);
    }
}

fn start(status: u16, flavour: Flavour) -> String {
    let reason = match status {
        200 => "OK",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    };
    let server = match flavour {
        Flavour::LlamaCpp => return format!("HTTP/1.1 {status} {reason}\r\nServer: llama.cpp\r\nAccess-Control-Allow-Origin: \r\n"),
        Flavour::Vllm | Flavour::Sglang => "server: uvicorn\r\n",
        Flavour::Proxy => "",
    };
    let date = clock::http_date();
    format!("HTTP/1.1 {status} {reason}\r\ndate: {date}\r\n{server}")
}

fn finish(out: &mut Vec<u8>, head: &str, flavour: Flavour, keep_alive: bool) {
    out.extend_from_slice(head.as_bytes());
    let rest: &[u8] = match (flavour, keep_alive) {
        (Flavour::LlamaCpp, true) => b"Keep-Alive: timeout=5, max=100\r\n",
        (Flavour::LlamaCpp, false) => b"Connection: close\r\n",
        (_, true) => b"vary: Origin\r\n",
        (_, false) => b"vary: Origin\r\nconnection: close\r\n",
    };
    out.extend_from_slice(rest);
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of a stream of server-sent events.
pub(crate) fn stream_head(out: &mut Vec<u8>, flavour: Flavour, keep_alive: bool) {
    let mut head = start(200, flavour);
    head += match flavour {
        Flavour::LlamaCpp => "X-Accel-Buffering: no\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n",
        _ => "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n",
    };
    finish(out, &head, flavour, keep_alive);
}

/// Appends one chunk.
pub(crate) fn chunk(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// Appends one chunk of what `write` appends, without a copy of it.
pub(crate) fn chunk_of(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    // Nearly every event has 256 to 4095 bytes; for others the length is moved in afterwards.
    const USUAL: &[u8] = b"000\r\n";
    let at = out.len();
    out.extend_from_slice(USUAL);
    write(out);
    let length = out.len() - at - USUAL.len();
    if (0x100..0x1000).contains(&length) {
        for (place, shift) in out[at..at + 3].iter_mut().zip([8, 4, 0]) {
            *place = b"0123456789abcdef"[length >> shift & 15];
        }
    } else {
        let _ = out.splice(at..at + USUAL.len(), format!("{length:x}\r\n").into_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the end of the chunks.
pub(crate) fn last_chunk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}
