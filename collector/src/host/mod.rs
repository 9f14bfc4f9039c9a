//! The small host: the page as built, a list of report files, and the files. It reads nothing else and changes
//! nothing; on loopback unless told otherwise.

mod library;
mod routes;

pub use library::{Library, reports_in};

use std::net::{IpAddr, SocketAddr};
use tokio::net::TcpListener;

/// For answers under way when the host ends. A client that never finishes its request can't hold it longer.
const GRACE: std::time::Duration = std::time::Duration::from_secs(1);

/// Why there is no host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The port is taken.
    #[error("port {port} on {ip} is taken by another program: choose another with --port, or 0 for a free one")]
    Taken {
        /// Address.
        ip: IpAddr,
        /// Port.
        port: u16,
    },
    /// Another reason not to listen.
    #[error("can't listen on {addr}: {source}")]
    Listen {
        /// Address and port.
        addr: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// It stopped by itself.
    #[error("the host stopped: {0}")]
    Stopped(std::io::Error),
}

/// A host that listens and doesn't answer yet.
#[derive(Debug)]
pub struct Host {
    listener: TcpListener,
    addr: SocketAddr,
}

impl Host {
    /// Takes a port; 0 takes a free one.
    ///
    /// # Errors
    /// The port is taken or the address isn't this machine's.
    pub async fn listen(ip: IpAddr, port: u16) -> Result<Self, HostError> {
        let addr = SocketAddr::new(ip, port);
        let listener = TcpListener::bind(addr).await.map_err(|source| match source.kind() {
            std::io::ErrorKind::AddrInUse => HostError::Taken { ip, port },
            _ => HostError::Listen { addr, source },
        })?;
        let addr = listener.local_addr().map_err(|source| HostError::Listen { addr, source })?;
        Ok(Host { listener, addr })
    }

    /// Address of the page, with a slash at its end.
    pub fn url(&self) -> String {
        format!("http://{}/", self.addr)
    }

    /// Address of the page with the library's first report open.
    pub fn url_of(&self, library: &Library) -> String {
        let first = library.entries().into_iter().next();
        first.map_or_else(|| self.url(), |entry| format!("{}#open=api/reports/{}", self.url(), routes::encoded(&entry.name)))
    }

    /// Answers until `until` is over.
    ///
    /// # Errors
    /// The socket broke.
    pub async fn serve(self, library: Library, until: impl Future<Output = ()> + Send + 'static) -> Result<(), HostError> {
        let app = routes::router(library, self.addr);
        let (tell, told) = tokio::sync::oneshot::channel();
        let over = async move {
            until.await;
            // The other side waits as long as this function runs.
            let _ = tell.send(());
        };
        let grace = async {
            let _ = told.await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            served = axum::serve(self.listener, app).with_graceful_shutdown(over) => served.map_err(HostError::Stopped),
            () = grace => Ok(()),
        }
    }
}
