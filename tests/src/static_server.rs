//! A host for static files on loopback, as plain as a static host is: it serves a folder under a path and
//! remembers what it was asked for. It knows nothing of the page.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The most that a request's head may take; longer ones are cut off.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// A running host. It stops when it is dropped.
#[derive(Debug)]
pub struct StaticServer {
    address: SocketAddr,
    prefix: String,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl StaticServer {
    /// Serves the files of `folder` under `prefix`, a path such as `/some/where/`, on a free port. It runs
    /// on the tokio runtime of the caller.
    ///
    /// # Errors
    /// Where no port can be had.
    pub async fn start(folder: &Path, prefix: &str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let prefix = format!("/{}/", prefix.trim_matches('/')).replace("//", "/");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (folder, under, seen) = (folder.to_owned(), prefix.clone(), Arc::clone(&requests));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (folder, under, seen) = (folder.clone(), under.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    // A browser that hangs up early is no fault of the page.
                    let _ = answer(stream, &folder, &under, &seen).await;
                });
            }
        });
        Ok(Self { address, prefix, requests, task })
    }

    /// The address of the folder's `index.html`, ending with a slash.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, self.prefix)
    }

    /// Every path that was asked for, with the query, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for StaticServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: TcpStream, folder: &Path, prefix: &str, seen: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut head = Vec::new();
    let mut part = [0; 4096];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let read = stream.read(&mut part).await?;
        if read == 0 || head.len() > MAX_HEAD_BYTES {
            return Ok(());
        }
        head.extend_from_slice(part.get(..read).unwrap_or_default());
    }
    let head = String::from_utf8_lossy(&head);
    let mut words = head.split_ascii_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    seen.lock().unwrap_or_else(PoisonError::into_inner).push(target.to_owned());
    let file = (method == "GET").then(|| file_of(target, folder, prefix)).flatten();
    let (status, kind, body) = match file {
        Some(path) => match tokio::fs::read(&path).await {
            Ok(bytes) => ("200 OK", content_type(&path), bytes),
            Err(_) => not_found(),
        },
        None => not_found(),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await
}

fn not_found() -> (&'static str, &'static str, Vec<u8>) {
    ("404 Not Found", "text/plain", b"not found\n".to_vec())
}

/// The file that a request's target means, where it is one of the folder's own.
fn file_of(target: &str, folder: &Path, prefix: &str) -> Option<PathBuf> {
    let path = target.split(['?', '#']).next()?;
    let name = match path.strip_prefix(prefix)? {
        "" => "index.html",
        name => name,
    };
    let plain = name.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && !part.contains(['%', '\\']));
    plain.then(|| folder.join(name))
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("wasm") => "application/wasm",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_folder_under_the_prefix_are_found() {
        let found = |target: &str| file_of(target, Path::new("/d"), "/a/b/");
        assert_eq!(found("/a/b/"), Some(PathBuf::from("/d/index.html")));
        assert_eq!(found("/a/b/x.js?v=1"), Some(PathBuf::from("/d/x.js")));
        for foreign in ["/", "/a/", "/x.js", "/a/b/../c", "/a/b/%2e%2e/c", "/a/b//etc"] {
            assert_eq!(found(foreign), None, "{foreign}");
        }
    }
}
