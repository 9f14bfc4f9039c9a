//! The program `tokscope` as a process: built once, started with arguments, its output kept.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use serde_json::Value;

/// Path of the program, built in the profile of the tests. `cargo test` of this package alone doesn't build it.
///
/// # Panics
/// It can't be built.
#[must_use]
pub fn program() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "-p", "tokscope-collector", "--bin", "tokscope"]).current_dir(crate::checkout());
        // Tests lie in target/PROFILE/deps, the program in target/PROFILE.
        let test = std::env::current_exe().unwrap_or_default();
        let folder = test.parent().and_then(Path::parent).unwrap_or(Path::new(".")).to_owned();
        if folder.ends_with("release") {
            build.arg("--release");
        }
        let built = build.status();
        assert!(built.is_ok_and(|status| status.success()), "the program could not be built");
        folder.join("tokscope")
    })
}

/// No run of an ordinary test takes longer; one that does is stuck.
const LONGEST_RUN: Duration = Duration::from_secs(300);

/// Runs it to its end in `folder`.
///
/// # Panics
/// It can't be started, or is stuck.
#[must_use]
pub fn tokscope(folder: &Path, args: &[&str]) -> Output {
    tokscope_within(LONGEST_RUN, folder, args)
}

/// The same, where it may take so long.
///
/// # Panics
/// It can't be started, or is stuck.
#[must_use]
pub fn tokscope_within(longest: Duration, folder: &Path, args: &[&str]) -> Output {
    let mut command = command(folder, args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    #[expect(clippy::expect_used, reason = "a program that was just built and can't be started ends the test")]
    let child = child.expect("the program starts");
    let (pid, (over, end)) = (child.id().to_string(), mpsc::channel::<()>());
    let watch = std::thread::spawn(move || {
        let stuck = end.recv_timeout(longest) == Err(mpsc::RecvTimeoutError::Timeout);
        stuck && Command::new("kill").args(["-KILL", &pid]).status().is_ok()
    });
    let output = child.wait_with_output();
    drop(over);
    assert!(!watch.join().unwrap_or(false), "{args:?} was stuck, and ended after {} s", longest.as_secs());
    #[expect(clippy::expect_used, reason = "a program that was started and can't be read ends the test")]
    output.expect("its output can be read")
}

/// It, ready to be started in `folder`, without a key from the environment.
#[must_use]
pub fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(args).current_dir(folder).stdin(Stdio::null()).env_remove("TOKSCOPE_API_KEY").env_remove("VLLM_API_KEY");
    command
}

/// A program that goes on until it is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// The first line it printed.
    pub first_line: String,
}

impl Running {
    /// Starts it and waits for its first line.
    ///
    /// # Panics
    /// It can't be started or ends without a line.
    #[must_use]
    pub fn start(folder: &Path, args: &[&str]) -> Self {
        let child = command(folder, args).stdout(Stdio::piped()).spawn();
        #[expect(clippy::expect_used, reason = "a program that was just built and can't be started ends the test")]
        let mut child = child.expect("the program starts");
        let mut first_line = String::new();
        if let Some(out) = child.stdout.take() {
            let mut out = BufReader::new(out);
            let read = out.read_line(&mut first_line);
            assert!(read.is_ok_and(|n| n > 0), "{args:?} ended without a line");
            // The pipe is read on, so that the program never waits for it.
            std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        }
        Running { child, first_line }
    }

    /// The first address with a port in its first line.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn port(&self) -> u16 {
        let after = self.first_line.split("http://127.0.0.1:").nth(1).unwrap_or_default();
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        let port = digits.parse().ok();
        #[expect(clippy::expect_used, reason = "a program without a port ends the test")]
        port.expect("a port in the first line")
    }

    /// Sends a signal, as in `INT`.
    ///
    /// # Panics
    /// It can't be sent.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "SIG{name} could not be sent");
    }

    /// Waits for its end; gives the exit code.
    ///
    /// # Panics
    /// It was ended by a signal.
    #[must_use]
    pub fn wait(mut self) -> i32 {
        let code = self.child.wait().ok().and_then(|status| status.code());
        #[expect(clippy::expect_used, reason = "a program that was killed ends the test")]
        code.expect("an exit code")
    }
}

/// A simulated server with these options.
///
/// # Panics
/// It can't be started.
#[must_use]
pub fn simulator(args: &[&str]) -> Running {
    Running::start(Path::new("."), &[&["simulate", "--port", "0"], args].concat())
}

/// The JSON that a server on this machine answers with.
///
/// # Panics
/// It answers with anything else, or not at all.
#[must_use]
#[expect(clippy::expect_used, reason = "a server that was just started and doesn't answer ends the test")]
pub fn get(port: u16, path: &str) -> Value {
    let url = format!("http://127.0.0.1:{port}{path}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { reqwest::get(&url).await.expect("an answer").json().await.expect("JSON") })
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
