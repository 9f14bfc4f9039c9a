//! One TCP (or TLS) connection that carries one request after the other, with nothing between the
//! socket and us that could wait or retry unseen. It stamps nothing and reads no body.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::body::Framing;
use super::request::PreparedRequest;
use crate::target::{Address, Scheme};

/// One read takes at most this much: far more than a step of any server brings.
const READ_BUFFER: usize = 64 << 10;
const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 128;

/// Why there is no connection, or no answer on it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The name has no address.
    #[error("{host} has no address ({reason})")]
    Unresolved {
        /// Name asked for.
        host: String,
        /// The resolver's words.
        reason: String,
    },
    /// No connection to any of its addresses.
    #[error("no connection to {address} ({reason})")]
    Connect {
        /// The last address tried.
        address: String,
        /// Why not.
        reason: String,
    },
    /// TLS failed.
    #[error("no TLS with {host} ({reason})")]
    Tls {
        /// Name it should be for.
        host: String,
        /// Why not.
        reason: String,
    },
    /// The connection broke.
    #[error("the connection broke ({0})")]
    Broken(#[from] io::Error),
    /// It closed before the answer began.
    #[error("the server closed the connection before it answered")]
    ClosedEarly,
    /// What came is no HTTP.
    #[error("the answer is not HTTP/1.1 ({0})")]
    NotHttp(String),
    /// The head never ends.
    #[error("the answer's headers are longer than {} kB", MAX_HEAD >> 10)]
    EndlessHead,
}

/// Where connections go: resolved once.
#[derive(Clone)]
pub struct Endpoint {
    addresses: Vec<SocketAddr>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({:?})", self.addresses)
    }
}

impl Endpoint {
    /// Resolves the name, finds out which of its addresses answers (a `localhost` may be IPv4 or
    /// IPv6 only) and keeps to that one.
    ///
    /// # Errors
    /// A name without address, or none that takes a connection within `limit`.
    pub async fn resolve(address: &Address, limit: Duration) -> Result<Self, ConnectionError> {
        let host = address.host().trim_start_matches('[').trim_end_matches(']');
        let unresolved = |reason: String| ConnectionError::Unresolved { host: host.to_owned(), reason };
        let found = tokio::net::lookup_host((host, address.port())).await;
        let addresses: Vec<_> = found.map_err(|e| unresolved(e.to_string()))?.collect();
        if addresses.is_empty() {
            return Err(unresolved("the list is empty".into()));
        }
        let tls = match address.scheme() {
            Scheme::Http => None,
            Scheme::Https => {
                let name = ServerName::try_from(host.to_owned());
                let name = name.map_err(|e| unresolved(e.to_string()))?;
                Some((connector(), name))
            }
        };
        let mut endpoint = Self { addresses, tls };
        let tried = endpoint.connect(limit).await?;
        endpoint.addresses = vec![tried.address()];
        Ok(endpoint)
    }

    /// The address that was chosen.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.addresses.first().copied()
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// No address takes one within `limit`, or TLS fails.
    pub async fn connect(&self, limit: Duration) -> Result<Connection, ConnectionError> {
        let mut last = None;
        for &address in &self.addresses {
            let failed = |reason: String| ConnectionError::Connect { address: address.to_string(), reason };
            match tokio::time::timeout(limit, self.connect_to(address)).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(ConnectionError::Broken(e))) => last = Some(failed(e.to_string())),
                Ok(Err(other)) => last = Some(other),
                Err(_) => {
                    let seconds = limit.as_secs_f64();
                    last = Some(failed(format!("no answer within {seconds} s")));
                }
            }
        }
        Err(last.unwrap_or(ConnectionError::ClosedEarly))
    }

    async fn connect_to(&self, address: SocketAddr) -> Result<Connection, ConnectionError> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let stream: Box<dyn Duplex> = match &self.tls {
            None => Box::new(tcp),
            Some((connector, name)) => {
                let tls = connector.connect(name.clone(), tcp).await;
                Box::new(tls.map_err(|e| ConnectionError::Tls { host: name.to_str().into_owned(), reason: e.to_string() })?)
            }
        };
        Ok(Connection { stream, address, buffer: vec![0; READ_BUFFER].into_boxed_slice(), start: 0, end: 0, used: false })
    }
}

fn connector() -> TlsConnector {
    let roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsConnector::from(Arc::new(config))
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The head of an answer.
#[derive(Debug)]
pub struct AnswerHead {
    /// Status.
    pub status: u16,
    /// `content-type`, or empty.
    pub content_type: String,
    /// How the body ends.
    pub framing: Framing,
    /// Whether the server will take another request on this connection.
    pub keep_alive: bool,
}

/// An open connection.
pub struct Connection {
    stream: Box<dyn Duplex>,
    address: SocketAddr,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    used: bool,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({})", self.address)
    }
}

impl Connection {
    /// Where it goes.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it has carried a request before.
    #[must_use]
    pub fn was_used(&self) -> bool {
        self.used
    }

    /// Itself, if it can take a request now: the server has neither closed it nor sent anything
    /// unasked.
    pub async fn if_fresh(mut self) -> Option<Self> {
        if self.start != self.end {
            return None;
        }
        let mut byte = [0];
        let quiet = std::future::poll_fn(|cx| {
            let mut into = ReadBuf::new(&mut byte);
            let read = Pin::new(&mut self.stream).poll_read(cx, &mut into);
            Poll::Ready(read.is_pending())
        })
        .await;
        quiet.then_some(self)
    }

    /// Writes a whole request.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn send(&mut self, request: &PreparedRequest) -> io::Result<()> {
        self.used = true;
        let mut parts = [IoSlice::new(&request.head), IoSlice::new(&request.shared), IoSlice::new(&request.tail)];
        let mut parts = &mut parts[..];
        while parts.iter().any(|p| !p.is_empty()) {
            let n = self.stream.write_vectored(parts).await?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut parts, n);
        }
        self.stream.flush().await
    }

    /// Reads what is there, after waiting until something is. 0 means the server has closed.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn fill(&mut self) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let n = self.stream.read(&mut self.buffer[self.end..]).await?;
        self.end += n;
        Ok(n)
    }

    /// What was read and not yet consumed.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Drops the first `n` pending bytes.
    pub fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
    }

    /// The answer's head, if all of it is pending; consumes it. Interim answers (1xx) are passed over.
    ///
    /// # Errors
    /// What is pending is no HTTP, or too long.
    pub fn take_head(&mut self) -> Result<Option<AnswerHead>, ConnectionError> {
        loop {
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut parsed = httparse::Response::new(&mut headers);
            let status = parsed.parse(self.pending()).map_err(|e| ConnectionError::NotHttp(e.to_string()))?;
            let httparse::Status::Complete(length) = status else {
                let full = self.pending().len() >= MAX_HEAD.min(READ_BUFFER);
                return if full { Err(ConnectionError::EndlessHead) } else { Ok(None) };
            };
            let head = read_head(&parsed)?;
            self.consume(length);
            if !(100..200).contains(&head.status) {
                return Ok(Some(head));
            }
        }
    }
}

fn read_head(parsed: &httparse::Response<'_, '_>) -> Result<AnswerHead, ConnectionError> {
    let header = |name: &str| {
        let found = parsed.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name))?;
        Some(String::from_utf8_lossy(found.value).trim().to_ascii_lowercase())
    };
    let status = parsed.code.unwrap_or_default();
    let chunked = header("transfer-encoding").is_some_and(|v| v.ends_with("chunked"));
    let framing = match header("content-length") {
        _ if chunked => Framing::chunked(),
        _ if status == 204 || status == 304 => Framing::Length(0),
        Some(text) => Framing::Length(text.parse().map_err(|_| ConnectionError::NotHttp("content-length is no number".into()))?),
        None => Framing::UntilClose,
    };
    let connection = header("connection").unwrap_or_default();
    let http_1_1 = parsed.version == Some(1);
    Ok(AnswerHead {
        status,
        content_type: header("content-type").unwrap_or_default(),
        keep_alive: framing != Framing::UntilClose && !connection.contains("close") && (http_1_1 || connection.contains("keep-alive")),
        framing,
    })
}
