//! What the client says of itself when it is disturbed, and what it takes: `tokscope run` as a process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokscope_tests::program::{Running, program};

const PACED: [&str; 6] = ["--step-base-us", "20000", "--step-per-sequence-us", "0", "--step-per-context-token-ns", "0"];

fn start(folder: &Path, port: u16, args: &[&str]) -> Child {
    let port = port.to_string();
    let fixed = ["run", "--host", "127.0.0.1", "--port", &port, "--contexts", "0", "--output", "report.json", "--overwrite"];
    let mut command = Command::new(program());
    command.args(fixed).args(args).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    // It may have ended meanwhile.
    let _ = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).stderr(Stdio::null()).status();
}

/// Codes of the only cell's reasons.
fn reasons(folder: &Path) -> Vec<String> {
    let report: Value = serde_json::from_slice(&std::fs::read(folder.join("report.json")).unwrap()).unwrap();
    let own = &report["results"][0]["tokscope"];
    println!("{} {}", own["client"]["tick_late_p99_us"], own["reasons"]);
    own["reasons"].as_array().unwrap().iter().map(|reason| reason["code"].as_str().unwrap().to_owned()).collect()
}

/// Measures 64 streams, stopped for 90 of every 100 ms or not; the reasons.
fn measured(stopped: bool) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(Path::new("."), &[&["simulate", "--port", "0"][..], &PACED].concat());
    let args = ["--concurrency", "64", "--duration", "1", "--cell-warmup-timeout-seconds", "6"];
    let nothing_before = ["--no-calibration", "--skip-prefill", "--decode-warmup-seconds", "0"];
    let mut child = start(folder.path(), server.port(), &[&args[..], &nothing_before].concat());
    while child.try_wait().unwrap().is_none() {
        if stopped {
            signal(&child, "STOP");
        }
        std::thread::sleep(Duration::from_millis(90));
        if stopped {
            signal(&child, "CONT");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    reasons(folder.path())
}

#[test]
fn a_client_that_is_stopped_most_of_the_time_says_so() {
    assert!(measured(true).contains(&"client-limited".to_owned()));
}

#[test]
#[ignore = "minutes, and the second half needs a quiet machine: run it by name, in release"]
fn a_stopped_client_says_so_in_twenty_of_twenty_runs_and_an_undisturbed_one_in_none() {
    let limited = |stopped| (0..20).filter(|_| measured(stopped).contains(&"client-limited".to_owned())).count();
    let (stopped, undisturbed) = (limited(true), limited(false));
    println!("client-limited: stopped {stopped} of 20, undisturbed {undisturbed} of 20");
    assert_eq!((stopped, undisturbed), (20, 0));
}

/// Most memory that the client had, kB, and the arrivals it kept.
fn memory_of(streams: &str, seconds: &str) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let slow = [
        "--step-base-us",
        "40000",
        "--step-per-sequence-us",
        "0",
        "--step-per-context-token-ns",
        "0",
        "--slots",
        streams,
        "--kv-tokens",
        "4194304",
    ];
    let server = Running::start(Path::new("."), &[&["simulate", "--port", "0"][..], &slow].concat());
    let args = ["--concurrency", streams, "--duration", seconds, "--max-tokens", "2048", "--no-calibration"];
    let mut child = start(folder.path(), server.port(), &args);
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        most = most.max(line.trim().trim_end_matches(" kB").parse().unwrap_or(0));
        std::thread::sleep(Duration::from_millis(20));
    }
    let report: Value = serde_json::from_slice(&std::fs::read(folder.path().join("report.json")).unwrap()).unwrap();
    let events = report["results"][0]["tokscope"]["client"]["events_received"].as_u64().unwrap();
    println!("{streams} streams, {events} arrivals: {} MB at most", most / 1024);
    (most, events)
}

#[test]
fn a_thousand_streams_take_little_memory() {
    let (kb, events) = memory_of("1024", "1");
    assert!(events > 50_000, "{events}");
    assert!(kb < 150 << 10, "{kb} kB");
}

#[test]
#[ignore = "a minute and a half: run it by name"]
fn a_thousand_streams_of_2048_tokens_take_less_than_300_mb() {
    let (kb, events) = memory_of("1024", "84");
    assert!(events >= 1024 * 2048, "{events}");
    assert!(kb < 300 << 10, "{kb} kB");
}
