//! Faults that only a whole process shows: exit codes, names of files, limits of the system, a client held back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokscope_tests::program::{Running, command, program, tokscope};

/// A server that lists a model, and answers every generation with HTTP 500.
fn always_500() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = |stream: TcpStream| -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut line, mut head) = (String::new(), String::new());
        while reader.read_line(&mut line)? > 2 {
            head.push_str(&line.to_ascii_lowercase());
            line.clear();
        }
        let length = head.split("content-length:").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok()).unwrap_or(0);
        reader.take(length).read_to_end(&mut Vec::new())?;
        let text = match head.split(' ').nth(1).unwrap_or_default() {
            "/v1/models" => "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"data\":[{\"id\":\"m\"}]}",
            "/v1/chat/completions" => "HTTP/1.1 500 Oops\r\nconnection: close\r\n\r\nout of order",
            _ => "HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n",
        };
        (&stream).write_all(text.as_bytes())
    };
    std::thread::spawn(move || listener.incoming().for_each(|stream| answer(stream.unwrap()).unwrap_or_default()));
    port.to_string()
}

fn report(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// A matrix of one cell without a context.
fn one_cell<'a>(port: &'a str, concurrency: &'a str) -> Vec<&'a str> {
    let fixed = ["run", "--host", "127.0.0.1", "--contexts", "0", "--no-calibration", "--port", port, "--concurrency", concurrency];
    fixed.to_vec()
}

#[test]
fn a_run_in_which_every_request_fails_is_no_success() {
    let dir = tempfile::tempdir().unwrap();
    let port = always_500();
    let out = tokscope(dir.path(), &[&one_cell(&port, "2")[..], &["--output", "a.json"]].concat());
    let printed = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(3), "{printed}");
    assert!(printed.contains("invalid") && printed.contains("HTTP 500: out of order"), "{printed}");
    let report = report(&dir.path().join("a.json"));
    let cell = &report["results"][0];
    assert_eq!(cell["aggregate_tps"], Value::Null, "no zero");
    assert_eq!(cell["failure_reason"], "http: HTTP 500: out of order");
    assert_eq!((&cell["tokscope"]["verdict"], &cell["num_errors"], &cell["num_completed"]), (&"invalid".into(), &2.into(), &0.into()));
    assert_eq!(report["tokscope"]["status"], "complete", "every cell was tried");
}

#[test]
fn a_run_never_writes_over_another_ones_report() {
    let dir = tempfile::tempdir().unwrap();
    let port = always_500();
    let (first, second) = (dir.path().join("benchmark_results.json"), dir.path().join("benchmark_results-2.json"));
    assert_eq!(tokscope(dir.path(), &one_cell(&port, "1")).status.code(), Some(3));
    let before = std::fs::read(&first).unwrap();
    let out = tokscope(dir.path(), &one_cell(&port, "1"));
    assert_eq!(std::fs::read(&first).unwrap(), before);
    assert!(String::from_utf8_lossy(&out.stdout).contains("report: benchmark_results-2.json"), "{out:?}");
    assert_ne!(report(&first)["tokscope"]["run_id"], report(&second)["tokscope"]["run_id"]);
    let out = tokscope(dir.path(), &[&one_cell(&port, "1")[..], &["--output", "benchmark_results.json"]].concat());
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    assert_eq!(std::fs::read(&first).unwrap(), before);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn a_run_that_needs_more_open_files_than_it_may_have_is_refused_with_the_number() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(Path::new("."), &["simulate", "--port", "0", "--slots", "512"]);
    let port = server.port().to_string();
    let limited = Command::new("sh")
        .args(["-c", "ulimit -n 200; exec \"$0\" \"$@\""])
        .arg(program())
        .args([&one_cell(&port, "512")[..], &["--duration", "1", "--max-tokens", "100", "--cell-warmup-timeout-seconds", "1"]].concat())
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&limited.stderr);
    assert_eq!(limited.status.code(), Some(1), "{err}");
    assert!(err.contains("512 streams need 576 open files, this process may have 200"), "{err}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was measured");
}

#[test]
fn a_client_that_is_held_back_says_by_how_much_and_that_it_was_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(Path::new("."), &["simulate", "--port", "0"]);
    let port = server.port().to_string();
    let mut child = command(dir.path(), &[&one_cell(&port, "8")[..], &["--duration", "2", "--output", "a.json"]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(" ready C=8 ctx=0 ")), "the window opened");
    std::thread::spawn(move || lines.for_each(drop));
    let signal = |name: &str| {
        let _ = Command::new("kill").args([name, &child.id().to_string()]).status();
    };
    // It runs for 10 of every 100 ms, as on a machine that is far too busy.
    for _ in 0..30 {
        signal("-STOP");
        std::thread::sleep(Duration::from_millis(90));
        signal("-CONT");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let report = report(&dir.path().join("a.json"));
    let own = &report["results"][0]["tokscope"];
    let at = |name: &str| own["client"][name].as_u64().unwrap();
    let late = ["tick_late_p50_us", "tick_late_p99_us", "tick_late_max_us"].map(at);
    assert!(late.is_sorted() && late[1] >= 60_000, "held back for 90 ms again and again: {late:?}");
    let reasons: Vec<&str> = own["reasons"].as_array().unwrap().iter().map(|reason| reason["code"].as_str().unwrap()).collect();
    assert!(reasons.contains(&"client-limited"), "{reasons:?}");
    assert_eq!(own["verdict"], "limited");
}

#[test]
fn what_is_mistyped_is_refused_with_the_nearest_name_before_anything_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let heard = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&heard);
    std::thread::spawn(move || {
        // Each is closed at once.
        listener.incoming().for_each(|_| _ = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
    });
    let server = ["--host", "127.0.0.1", "--port", &port];
    let cases: [(&[&str], &str); 6] = [
        (&["run", "--concurency", "4"], "--concurrency"),
        (&["run", "--contexts", "0", "--max-token-s", "5"], "--max-tokens"),
        (&["run", "--respct-eos"], "--respect-eos"),
        (&["plan", "--concurency=4"], "--concurrency"),
        (&["run", "--prompts", "shraed"], "shared"),
        (&["calibrte"], "calibrate"),
    ];
    for (args, nearest) in cases {
        let out = tokscope(dir.path(), &[args, &server].concat());
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(&format!("'{nearest}'")), "{args:?}: {err}");
    }
    assert_eq!(heard.load(std::sync::atomic::Ordering::SeqCst), 0, "nobody was asked anything");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "and nothing was written");
}
