//! Keys and passwords that a run was given: a server that repeats them gets them into no file and onto no screen.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tokscope_tests::program::command;

const KEY: &str = "sk-Zq7VtR2mXw9";
const PASSWORD: &str = "Pw4yTn8kLc6";

/// How a server refuses, and in what it repeats the header it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Echo {
    /// Every question: 401.
    Unauthorized,
    /// Every generation: 404.
    NotFound,
    /// Every stream, after some tokens of the window: an error event.
    InStream,
    /// The model's name, and the metrics' redirect.
    Everywhere,
}

fn answer(stream: &TcpStream, echo: Echo, served: &AtomicUsize) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut head) = (String::new(), String::new());
    while reader.read_line(&mut line)? > 2 {
        head.push_str(&line);
        line.clear();
    }
    let header = |name: &str| {
        head.lines().find_map(|line| line.to_ascii_lowercase().starts_with(name).then(|| line[name.len()..].trim().to_owned()))
    };
    let length = header("content-length:").and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut body = String::new();
    reader.take(length).read_to_string(&mut body)?;
    // As a server would that means well: the header, and what it decodes to.
    let sent = header("authorization:").unwrap_or_default();
    let decoded = sent.strip_prefix("Basic ").and_then(|text| STANDARD.decode(text).ok()).and_then(|bytes| String::from_utf8(bytes).ok());
    let said = format!("who is {sent} {}", decoded.unwrap_or_default());
    served.fetch_add(usize::from(said.contains(KEY) || said.contains(PASSWORD)), Ordering::Relaxed);
    let mut out = stream;
    let mut say = |status: &str, text: &str| {
        write!(out, "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\nx-seen: {sent}\r\n\r\n{text}")
    };
    let path = head.split(' ').nth(1).unwrap_or_default();
    match (path, echo) {
        (_, Echo::Unauthorized) => say("401 Unauthorized", &format!("{{\"error\":{{\"message\":\"{said}\"}}}}")),
        ("/v1/models", Echo::Everywhere) => say("200 OK", &format!("{{\"data\":[{{\"id\":\"m {said}\"}}]}}")),
        ("/v1/models", _) => say("200 OK", "{\"data\":[{\"id\":\"m\"}]}"),
        ("/v1/chat/completions", Echo::NotFound) => say("404 Not Found", &format!("{{\"error\":{{\"message\":\"no model for {said}\"}}}}")),
        ("/v1/chat/completions", _) if body.contains("\"stream\":true") => {
            out.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
            for n in 1..=150 {
                let usage = format!("\"usage\":{{\"prompt_tokens\":60,\"completion_tokens\":{n}}}");
                writeln!(out, "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"x\"}}}}],{usage}}}\n")?;
                std::thread::sleep(Duration::from_millis(20));
            }
            writeln!(out, "data: {{\"error\":{{\"message\":\"{said}\"}}}}\n")
        }
        ("/v1/chat/completions", _) => say("200 OK", "{\"usage\":{\"prompt_tokens\":60,\"completion_tokens\":1},\"choices\":[]}"),
        ("/metrics", Echo::Everywhere) => write!(out, "HTTP/1.1 302 Found\r\nlocation: http://{said}/\r\nconnection: close\r\n\r\n"),
        _ => say("404 Not Found", &said),
    }
}

/// A server that refuses so; its port, and how often it was told the secret.
fn server(echo: Echo) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let count = Arc::clone(&count);
            // A client that goes away ends its answer.
            std::thread::spawn(move || answer(&stream.unwrap(), echo, &count));
        }
    });
    (port, served)
}

/// All that a run leaves: files and what was printed; the checkpoint is left as well, as the run is stopped in its second
/// cell.
fn all_that_is_left(folder: &Path, host: &str, port: u16, given: &[&str], in_environment: bool) -> String {
    let port = port.to_string();
    let fixed = ["run", "--port", &port, "--concurrency", "1,2", "--contexts", "0", "--no-calibration", "--output", "r.json"];
    let limits = ["--duration", "3", "--cell-warmup-timeout-seconds", "2", "--decode-warmup-seconds", "1"];
    let mut run = command(folder, &[&fixed[..], &limits, &["--host", host], given].concat());
    if in_environment {
        run.env("VLLM_API_KEY", KEY);
    }
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let err = BufReader::new(child.stderr.take().unwrap());
    let mut all = String::new();
    for line in err.lines() {
        let line = line.unwrap();
        if line.contains("cell start C=2") {
            let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
            assert!(sent.unwrap().success());
        }
        all += &line;
        all.push('\n');
    }
    child.stdout.take().unwrap().read_to_string(&mut all).unwrap();
    assert_ne!(child.wait().unwrap().code(), Some(0), "{all}");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        all += &format!("\n== {}\n{}", path.display(), std::fs::read_to_string(&path).unwrap());
    }
    all
}

#[test]
fn no_secret_is_in_report_checkpoint_or_on_the_terminal_whatever_the_server_says() {
    std::thread::scope(|scope| {
        for echo in [Echo::Unauthorized, Echo::NotFound, Echo::InStream, Echo::Everywhere] {
            scope.spawn(move || no_secret_is_left(echo, "127.0.0.1", &["--api-key", KEY], false));
            scope.spawn(move || no_secret_is_left(echo, "127.0.0.1", &[], true));
            scope.spawn(move || no_secret_is_left(echo, &format!("http://somebody:{PASSWORD}@127.0.0.1"), &[], false));
        }
    });
}

fn no_secret_is_left(echo: Echo, host: &str, given: &[&str], in_environment: bool) {
    let basic = STANDARD.encode(format!("somebody:{PASSWORD}"));
    let dir = tempfile::tempdir().unwrap();
    let (port, served) = server(echo);
    let url = if host.contains("://") { format!("{host}:{port}") } else { host.to_owned() };
    let all = all_that_is_left(dir.path(), &url, port, given, in_environment);
    let what = format!("{echo:?}, {host}, {given:?}, environment {in_environment}");
    assert!(served.load(Ordering::Relaxed) > 0, "{what}: the server was told, and repeated it");
    for secret in [KEY, PASSWORD, &basic] {
        let at = all.find(secret);
        assert!(at.is_none(), "{what}: {:?}", at.map(|at| &all[at.saturating_sub(200)..(at + 60).min(all.len())]));
    }
    // A refusal that is cut shows no part of it either.
    assert!(!all.contains(&KEY[..8]) && !all.contains(&PASSWORD[..7]), "{what}");
    let repeats = if echo == Echo::Unauthorized { "tokscope: " } else { "who is" };
    assert!(all.contains(repeats), "{what}: the rest of what it said is there: {all}");
    if matches!(echo, Echo::InStream | Echo::Everywhere) {
        assert!(all.contains("r.json\n") && all.contains("r.json.resume.json\n"), "{what}: both files were looked at: {all}");
    }
}
