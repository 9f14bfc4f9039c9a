//! The processes behind a browser: chromedriver and the Chromium it starts. Driving them is `browser`'s
//! business.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::browser::BrowserError;

/// How long the driver may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The two processes and the profile's folder. Dropping it ends them, also after a failed start.
#[derive(Debug)]
pub(crate) struct Processes {
    pub(crate) driver: Child,
    pub(crate) port: u16,
    /// The WebDriver session, once there is one.
    pub(crate) session: Option<String>,
    /// Chromium's process id, once it is known.
    pub(crate) chromium: Option<u64>,
    pub(crate) profile: TempDir,
}

impl Processes {
    /// Starts the driver `program` on a free port.
    pub(crate) fn start(program: &Path) -> Result<Self, BrowserError> {
        let failed = |reason: String| BrowserError::NotStarted { program: program.to_owned(), reason };
        let profile = TempDir::with_prefix("tokscope-browser-").map_err(|error| failed(format!("no folder for its profile: {error}")))?;
        let mut driver = Command::new(program)
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let stdout = driver.stdout.take();
        let mut processes = Self { driver, port: 0, session: None, chromium: None, profile };
        // The driver prints its port; the rest is read on so that it never waits for a full pipe.
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout?).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
            Some(())
        });
        let began = Instant::now();
        let mut seen = String::new();
        while let Ok(line) = receive.recv_timeout(START_TIMEOUT.saturating_sub(began.elapsed())) {
            if let Some(port) = started_port(&line) {
                processes.port = port;
                return Ok(processes);
            }
            seen.push_str(&line);
            seen.push(' ');
        }
        Err(failed(format!("it named no port, but said: {seen}")))
    }

    /// Asks the driver to close the session, which ends Chromium. By hand and blocking, since it must
    /// also work while a test's runtime is being torn down.
    fn close_session(&self) -> std::io::Result<()> {
        let Some(session) = &self.session else {
            return Ok(());
        };
        let limit = Some(Duration::from_secs(10));
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(limit)?;
        stream.set_write_timeout(limit)?;
        write!(
            stream,
            "DELETE /session/{session} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            self.port
        )?;
        let mut first = [0; 1];
        stream.read_exact(&mut first)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let closed = self.close_session();
        if let (Err(_), Some(chromium)) = (closed, self.chromium) {
            let _ = Command::new("kill").args(["-9", &chromium.to_string()]).status();
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The port in chromedriver's "... was started successfully on port N."
fn started_port(line: &str) -> Option<u16> {
    let (_, port) = line.split_once("started successfully on port ")?;
    port.trim_end_matches('.').trim().parse().ok()
}

/// The path in `variable`, or the first of `names` on PATH; `package` is told where there is none.
pub(crate) fn find_program(variable: &str, names: &[&str], package: &'static str) -> Result<PathBuf, BrowserError> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(PathBuf::from(path));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    names
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
        .ok_or_else(|| BrowserError::NotInstalled { names: names.join(", "), package })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_the_drivers_line() {
        let line = "ChromeDriver was started successfully on port 40421.";
        assert_eq!(started_port(line), Some(40421));
        assert_eq!(started_port("Starting ChromeDriver 156 on port 0"), None);
    }

    #[test]
    fn a_missing_browser_is_named_with_what_to_install() {
        let error = find_program("TOKSCOPE_NO_SUCH", &["no-such-browser"], "chromium");
        let text = error.map_err(|error| error.to_string());
        assert!(matches!(&text, Err(text) if text.contains("no-such-browser") && text.contains("apt-get install chromium")), "{text:?}");
    }
}
