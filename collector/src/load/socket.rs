//! One TCP (or TLS) connection that never waits: it carries one request after the other, with nothing between the
//! kernel and us that could wait or retry unseen. It parses nothing.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, connect, recv, socket_with, sockopt};
use rustls::ClientConnection;

use super::endpoint::{ConnectionError, Endpoint};
use super::request::PreparedRequest;
use crate::kernel_time::{self, Received};

/// A connection, open or on its way there.
pub(super) struct Socket {
    tcp: TcpStream,
    address: SocketAddr,
    tls: Option<Box<Tls>>,
    connected: bool,
    /// Whether it has carried a request before.
    pub(super) used: bool,
    /// Why the kernel doesn't stamp what comes in, if it doesn't.
    pub(super) unstamped: Option<String>,
}

struct Tls {
    session: ClientConnection,
    host: String,
}

impl Socket {
    /// Begins to connect.
    pub(super) fn open(endpoint: &Endpoint) -> Result<Self, ConnectionError> {
        let address = endpoint.address();
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let failed = |e: Errno| ConnectionError::Connect { address: address.to_string(), reason: io::Error::from(e).to_string() };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(failed)?;
        sockopt::set_tcp_nodelay(&socket, true).map_err(failed)?;
        let (tls, unstamped) = match endpoint.tls() {
            None => (None, kernel_time::enable(&socket).err().map(|e| format!("the system stamps no socket ({e})"))),
            Some((config, name)) => {
                let host = name.to_str().into_owned();
                let session = ClientConnection::new(Arc::clone(config), name.clone());
                let session = session.map_err(|e| ConnectionError::Tls { host: host.clone(), reason: e.to_string() })?;
                (Some(Box::new(Tls { session, host })), Some("with TLS a stamp belongs to a record and not to a chunk".to_owned()))
            }
        };
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(e) => return Err(failed(e)),
        }
        Ok(Self { tcp: socket.into(), address, tls, connected: false, used: false, unstamped })
    }

    /// Where it goes.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Gets on with connecting; whether it is open now.
    pub(super) fn advance(&mut self) -> Result<bool, ConnectionError> {
        if !self.connected {
            let failed = |reason: String| ConnectionError::Connect { address: self.address.to_string(), reason };
            if let Some(e) = self.tcp.take_error()? {
                return Err(failed(e.to_string()));
            }
            match self.tcp.peer_addr() {
                Ok(_) => self.connected = true,
                Err(e) if e.kind() == io::ErrorKind::NotConnected => return Ok(false),
                Err(e) => return Err(failed(e.to_string())),
            }
        }
        let Some(tls) = &mut self.tls else { return Ok(true) };
        let failed = |reason: String| ConnectionError::Tls { host: tls.host.clone(), reason };
        loop {
            match tls.session.complete_io(&mut self.tcp) {
                Ok(_) if tls.session.is_handshaking() => {}
                Ok(_) => return Ok(true),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(!tls.session.is_handshaking()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(e.to_string())),
            }
        }
    }

    /// Whether it can take a request now: the server has neither closed it nor sent anything unasked.
    pub(super) fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        match self.tls {
            None => matches!(recv(&self.tcp, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT), Err(Errno::AGAIN)),
            // Only what is inside of TLS counts: a session ticket says nothing.
            Some(_) => self.read(&mut byte).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock),
        }
    }

    /// Writes what the kernel takes of the request from `done` bytes on; whether that was the rest.
    pub(super) fn write(&mut self, request: &PreparedRequest, done: &mut usize) -> io::Result<bool> {
        self.used = true;
        loop {
            let mut parts = [IoSlice::new(&request.head), IoSlice::new(&request.shared), IoSlice::new(&request.tail)];
            let mut left = &mut parts[..];
            IoSlice::advance_slices(&mut left, *done);
            if left.iter().all(|part| part.is_empty()) {
                return self.flush();
            }
            if !self.flush()? {
                return Ok(false);
            }
            let written = match &mut self.tls {
                None => (&self.tcp).write_vectored(left),
                Some(tls) => tls.session.writer().write_vectored(left),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => *done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
    }

    /// Hands the kernel what TLS holds back; whether nothing is left.
    fn flush(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        while tls.session.wants_write() {
            match tls.session.write_tls(&mut self.tcp) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Reads what is there; 0 bytes where the server has closed.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<Received> {
        let Some(tls) = &mut self.tls else {
            return kernel_time::receive(self.tcp.as_fd(), into);
        };
        loop {
            match tls.session.reader().read(into) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // A connection that ends without TLS's own end is ended by TCP all the same.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(Received { bytes: 0, real_ns: None }),
                read => return read.map(|bytes| Received { bytes, real_ns: None }),
            }
            match tls.session.read_tls(&mut self.tcp) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            tls.session.process_new_packets().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        }
    }

    /// Whether a read that didn't fill its buffer has taken all that was there.
    pub(super) fn short_read_is_all(&self) -> bool {
        self.tls.is_none()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}
