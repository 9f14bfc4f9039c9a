//! Where connections go: the name is resolved once, and of its addresses the first that answers is kept. It opens
//! no connection that carries a request.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};

use crate::target::{Address, Scheme, TrustedRoots};

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
}

/// Where connections go.
#[derive(Clone)]
pub struct Endpoint {
    address: SocketAddr,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({})", self.address)
    }
}

impl Endpoint {
    /// Resolves the name, finds out which of its addresses answers (a `localhost` may be IPv4 or
    /// IPv6 only) and keeps to that one.
    ///
    /// # Errors
    /// A name without address, or none that takes a connection within `limit`.
    pub async fn resolve(address: &Address, roots: &TrustedRoots, limit: Duration) -> Result<Self, ConnectionError> {
        let host = address.host().trim_start_matches('[').trim_end_matches(']');
        let unresolved = |reason: String| ConnectionError::Unresolved { host: host.to_owned(), reason };
        let tls = match address.scheme() {
            Scheme::Http => None,
            Scheme::Https => {
                let name = ServerName::try_from(host.to_owned()).map_err(|e| unresolved(e.to_string()))?;
                Some((Arc::new(config(roots)), name))
            }
        };
        let found = tokio::net::lookup_host((host, address.port())).await;
        let addresses: Vec<_> = found.map_err(|e| unresolved(e.to_string()))?.collect();
        let mut last = unresolved("the list is empty".into());
        for address in addresses {
            let failed = |reason: String| ConnectionError::Connect { address: address.to_string(), reason };
            match tokio::time::timeout(limit, tokio::net::TcpStream::connect(address)).await {
                Ok(Ok(_)) => return Ok(Self { address, tls }),
                Ok(Err(e)) => last = failed(e.to_string()),
                Err(_) => last = failed(format!("no answer within {} s", limit.as_secs_f64())),
            }
        }
        Err(last)
    }

    /// The address that was chosen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether connections speak TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(super) fn tls(&self) -> Option<&(Arc<ClientConfig>, ServerName<'static>)> {
        self.tls.as_ref()
    }
}

fn config(roots: &TrustedRoots) -> ClientConfig {
    let mut store = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    // What is no certificate was refused when the file was read.
    store.add_parsable_certificates(roots.certificates().iter().cloned());
    let mut config = ClientConfig::builder().with_root_certificates(store).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}
