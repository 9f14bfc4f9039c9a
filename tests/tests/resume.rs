//! Runs that are cut off, by whatever: killed, interrupted, left by their server or their disk. What was measured is
//! kept, and `--resume` goes on from it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokscope_shared::import::{self, OpenError};
use tokscope_tests::program::{Running, command, get, program, simulator, tokscope};

/// For a line that has to come, and for an end that has to.
const LIMIT: Duration = Duration::from_secs(90);

/// A run under way, whose lines on standard error are looked at.
struct Run {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Run {
    fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (to, lines) = channel();
        let err = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || err.lines().map_while(Result::ok).all(|line| to.send(line).is_ok()));
        Run { child, lines, seen: Vec::new() }
    }

    fn of(folder: &Path, args: &[&str]) -> Self {
        let mut command = command(folder, args);
        command.stdout(Stdio::null());
        Self::start(command)
    }

    /// Waits for a line with this in it; false where the run ends without it.
    fn reaches(&mut self, text: &str) -> bool {
        let until = Instant::now() + LIMIT;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let found = line.contains(text);
                    self.seen.push(line);
                    if found {
                        return true;
                    }
                }
                Err(_) => return false,
            }
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Whether it is still there after a while.
    fn lives(&mut self, for_a: Duration) -> bool {
        std::thread::sleep(for_a);
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end; the exit code, none where it was killed.
    fn end(mut self, limit: Duration) -> (Option<i32>, Vec<String>) {
        let until = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "no end within {limit:?}: {:?}", self.seen);
            std::thread::sleep(Duration::from_millis(10));
        };
        self.seen.extend(self.lines.iter());
        (status.code(), std::mem::take(&mut self.seen))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // It has usually ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A run of small cells.
fn args<'a>(port: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let fixed = ["run", "--host", "127.0.0.1", "--port", port, "--duration", "1", "--max-tokens", "300", "--output", "r.json"];
    [&fixed, more].concat()
}

/// Numbers that are the same for the same seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Every path of keys that the report has; places in lists don't count, and what differs from run to run neither.
fn shape(report: &Value) -> BTreeSet<String> {
    fn walk(value: &Value, path: &str, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| walk(value, &format!("{path}/{key}"), into)),
            Value::Array(items) => items.iter().filter(|item| item.is_object()).for_each(|item| walk(item, &format!("{path}/*"), into)),
            _ => {}
        }
        into.insert(path.to_owned());
    }
    let mut found = BTreeSet::new();
    walk(report, "", &mut found);
    let differs = ["/segments/*", "/events/*", "/reasons/*"];
    found.retain(|path| !differs.iter().any(|part| path.contains(part)));
    found
}

/// The cells: part of the matrix, context, concurrency, and how often.
fn cells(report: &Value) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for part in ["results", "burst_results"] {
        for cell in report[part].as_array().unwrap() {
            *found.entry(format!("{part} {} {}", cell["context_tokens"], cell["concurrency"])).or_default() += 1;
        }
    }
    found
}

/// By the requests that the server saw: no cell that was finished in one stretch was asked for in a later one, and each
/// cell was finished in just one.
fn measured_once(report: &Value, truth: &Value, cells: usize) {
    let own = &report["tokscope"];
    let mut asked: BTreeSet<(String, usize)> = BTreeSet::new();
    for request in truth["requests"].as_array().unwrap() {
        let id = request["id"].as_str().unwrap().trim_start_matches("chatcmpl-");
        let mut parts = id.split('-');
        if let (Some(run), Some(Ok(order))) = (parts.next(), parts.next().map(str::parse)) {
            asked.insert((run.to_owned(), order));
        }
    }
    assert!(!asked.is_empty(), "the server knows the requests by their ids");
    let segments = own["segments"].as_array().unwrap();
    let of =
        |segment: &Value| -> Vec<usize> { segment["cells"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect() };
    let mut finished: Vec<usize> = segments.iter().flat_map(of).collect();
    for (at, segment) in segments.iter().enumerate() {
        for order in of(segment) {
            assert!(asked.contains(&(segment["run_id"].as_str().unwrap().to_owned(), order)), "cell {order} was measured by nobody");
            for later in &segments[at + 1..] {
                let again = (later["run_id"].as_str().unwrap().to_owned(), order);
                assert!(!asked.contains(&again), "cell {order} was finished, and measured again: {segments:?}");
            }
        }
    }
    finished.sort_unstable();
    assert_eq!(finished, (0..cells).collect::<Vec<_>>(), "{segments:?}");
    let ids: BTreeSet<&str> = segments.iter().map(|segment| segment["run_id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), segments.len(), "no stretch finds another one's prompts in a cache");
}

/// A part of a run in which it is killed.
struct Phase {
    name: &'static str,
    args: &'static [&'static str],
    cells: usize,
    /// It has begun with the n-th line that has this in it.
    begins: (usize, &'static str),
    /// It lasts about as long, milliseconds.
    lasts_ms: u64,
}

const SMALL: &[&str] = &["--concurrency", "1", "--contexts", "0,2k", "--no-calibration"];
const PHASES: [Phase; 7] = [
    Phase {
        name: "calibration",
        args: &["--concurrency", "1,2", "--contexts", "0"],
        cells: 2,
        begins: (1, "token targeting"),
        lasts_ms: 3_500,
    },
    Phase { name: "prompts", args: SMALL, cells: 2, begins: (1, "benchmark start"), lasts_ms: 150 },
    Phase {
        name: "prefill",
        args: &["--concurrency", "1", "--contexts", "16k,0", "--no-calibration"],
        cells: 2,
        begins: (1, "cell start C=1 ctx=16k"),
        lasts_ms: 900,
    },
    Phase { name: "warm-up", args: SMALL, cells: 2, begins: (2, "cell start "), lasts_ms: 3_000 },
    Phase { name: "window", args: SMALL, cells: 2, begins: (2, " ready "), lasts_ms: 1_000 },
    Phase { name: "drain", args: SMALL, cells: 2, begins: (1, "cell done "), lasts_ms: 300 },
    Phase {
        name: "burst",
        args: &["--concurrency", "1", "--contexts", "0,2k", "--no-calibration", "--run-burst", "--burst-request-count", "4"],
        cells: 4,
        begins: (3, "cell start "),
        lasts_ms: 6_000,
    },
];

/// Kills a run in this phase, after a while drawn by chance, and goes on with it until it is finished; `unbroken` is a
/// report of the same run in one go.
fn killed_once(phase: &Phase, unbroken: &Value, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&[]);
    let port = server.port().to_string();
    let args = args(&port, phase.args);
    let wait_ms = Draw(seed).below(phase.lasts_ms);
    let mut run = Run::of(dir.path(), &args);
    for _ in 0..phase.begins.0 {
        assert!(run.reaches(phase.begins.1), "{}: {:?}", phase.name, run.seen);
    }
    std::thread::sleep(Duration::from_millis(wait_ms));
    run.signal("KILL");
    let what = format!("{} after {wait_ms} ms (seed {seed})", phase.name);
    assert_eq!(run.end(LIMIT).0, None, "{what}");
    // Where the server wasn't known yet there is nothing to go on from, and nothing in the way either.
    let resumable = dir.path().join("r.json.resume.json").is_file();
    let more: &[&str] = if resumable { &["--resume"] } else { &[] };
    let out = tokscope(dir.path(), &[&args[..], more].concat());
    assert_eq!(out.status.code(), Some(0), "{what}: {}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(names(dir.path()), ["r.json"], "{what}");
    let report = read(&dir.path().join("r.json"));
    assert_eq!(report["tokscope"]["status"], "complete");
    assert_eq!(cells(&report), cells(unbroken), "{what}");
    let (ours, theirs) = (shape(&report), shape(unbroken));
    let apart: Vec<&String> = ours.symmetric_difference(&theirs).collect();
    assert!(apart.is_empty(), "{what}: {apart:?}");
    if resumable {
        measured_once(&report, &get(server.port(), "/simulator/truth"), phase.cells);
    }
    println!("{what}: {}", if resumable { "gone on with" } else { "begun anew" });
}

fn unbroken(phase: &Phase) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&[]);
    let out = tokscope(dir.path(), &args(&server.port().to_string(), phase.args));
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    read(&dir.path().join("r.json"))
}

/// Twenty times, four at once.
fn killed_twenty_times(name: &str) {
    let phase = PHASES.iter().find(|phase| phase.name == name).unwrap();
    let whole = &unbroken(phase);
    std::thread::scope(|scope| {
        for first in 0..4 {
            scope.spawn(move || (0..5).for_each(|turn| killed_once(phase, whole, 1_000 + 5 * first + turn)));
        }
    });
}

macro_rules! twenty {
    ($($test:ident: $phase:literal,)*) => {$(
        #[test]
        #[ignore = "takes a minute or two: cargo test -p tokscope-tests --test resume -- --ignored twenty --test-threads 1"]
        fn $test() {
            killed_twenty_times($phase);
        }
    )*};
}

twenty! {
    twenty_kills_in_the_calibration: "calibration",
    twenty_kills_while_prompts_are_made: "prompts",
    twenty_kills_in_a_prefill: "prefill",
    twenty_kills_in_a_warm_up: "warm-up",
    twenty_kills_in_a_window: "window",
    twenty_kills_after_a_cell: "drain",
    twenty_kills_in_the_bursts: "burst",
}

#[test]
fn a_run_that_is_killed_again_and_again_measures_each_cell_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&[]);
    let port = server.port().to_string();
    let args = args(&port, &["--concurrency", "1,2", "--contexts", "0,2k", "--no-calibration"]);
    let (mut draw, mut first, mut kills) = (Draw(7), true, 0);
    loop {
        let more: &[&str] = if first { &[] } else { &["--resume"] };
        let mut run = Run::of(dir.path(), &[&args[..], more].concat());
        assert!(run.reaches("benchmark start"), "{:?}", run.seen);
        if kills < 4 {
            // Long enough for a cell or two, or short enough for none.
            std::thread::sleep(Duration::from_millis(500 + draw.below(7_000)));
            run.signal("KILL");
        }
        first &= !dir.path().join("r.json.resume.json").is_file();
        let (code, seen) = run.end(LIMIT);
        match code {
            None => kills += 1,
            Some(code) => {
                assert_eq!(code, 0, "{seen:?}");
                break;
            }
        }
        let checkpoint = std::fs::read(dir.path().join("r.json.resume.json")).unwrap();
        assert!(matches!(import::open(&checkpoint), Err(OpenError::Checkpoint { .. })), "every reader knows what it is");
    }
    assert!(kills > 0);
    assert_eq!(names(dir.path()), ["r.json"]);
    let report = read(&dir.path().join("r.json"));
    let own = &report["tokscope"];
    assert_eq!((&own["status"], own["segments"].as_array().unwrap().len()), (&"complete".into(), kills + 1));
    measured_once(&report, &get(server.port(), "/simulator/truth"), 4);
    assert_eq!(own["run_id"], own["segments"][0]["run_id"]);
    // The clock went on: no event is before the one above it, and each window is inside its own stretch.
    let times: Vec<u64> = own["events"].as_array().unwrap().iter().map(|event| event["t_us"].as_u64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let starts = report["event_log"].as_array().unwrap().iter().filter(|line| line.as_str().unwrap().contains("benchmark start")).count();
    assert_eq!(starts, kills + 1, "the log of every stretch is there");
    let mut windows: Vec<u64> =
        report["results"].as_array().unwrap().iter().map(|cell| cell["tokscope"]["window"]["start_us"].as_u64().unwrap()).collect();
    windows.dedup();
    assert!(windows.is_sorted() && windows.len() == 4, "{windows:?}");
}

#[test]
fn a_run_goes_on_only_with_the_same_options_server_and_model() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&[]);
    let (port, other) = (server.port().to_string(), simulator(&["--model-name", "another"]));
    let matrix = ["--concurrency", "1", "--contexts", "0,1k", "--no-calibration"];
    let first = args(&port, &matrix);
    let mut run = Run::of(dir.path(), &first);
    assert!(run.reaches(" ready C=1 ctx=1k "), "{:?}", run.seen);
    run.signal("TERM");
    assert_eq!(run.end(LIMIT).0, Some(130));
    assert_eq!(names(dir.path()), ["r.json", "r.json.resume.json"]);
    assert_eq!(read(&dir.path().join("r.json"))["tokscope"]["status"], "interrupted");
    let before = std::fs::read(dir.path().join("r.json.resume.json")).unwrap();

    let refused = |args: &[&str], code: i32, words: &[&str]| {
        let out = tokscope(dir.path(), args);
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
        assert!(words.iter().all(|word| err.contains(word)), "{args:?}: {err}");
        assert_eq!(std::fs::read(dir.path().join("r.json.resume.json")).unwrap(), before, "{args:?}");
    };
    let with = |more: &[&'static str]| [&first[..], more].concat();
    refused(&first, 2, &["isn't finished", "--resume"]);
    refused(&with(&["--resume", "--no-resume"]), 2, &["isn't finished"]);
    refused(
        &with(&["--resume", "--seed", "7", "--kv-budget", "9000"]),
        2,
        &["--seed is 7 now and was", "--kv-budget is 9000 now and was not given"],
    );
    refused(&with(&["--resume", "--model", "another"]), 2, &["--model is another now and was simulated-8b"]);
    let port_of_other = other.port().to_string();
    let mut elsewhere = with(&["--resume"]);
    elsewhere[4] = &port_of_other;
    refused(&elsewhere, 2, &["--port is"]);
    // A server that changed behind its address is seen when it is asked.
    drop(server);
    let changed = Running::start(Path::new("."), &["simulate", "--port", &port, "--max-context", "65536"]);
    refused(&with(&["--resume"]), 1, &["the server's max_model_len is 65536 now and was 131072"]);
    drop(changed);
    let changed = Running::start(Path::new("."), &["simulate", "--port", &port, "--model-name", "another"]);
    refused(&with(&["--resume"]), 1, &["--model is another now and was simulated-8b"]);
    drop(changed);

    let _again = Running::start(Path::new("."), &["simulate", "--port", &port]);
    // Without a name, the one that fits is taken; two that fit are not chosen from.
    let unnamed: Vec<&str> = [&first[..first.len() - matrix.len() - 2], &matrix, &["--resume"]].concat();
    std::fs::copy(dir.path().join("r.json.resume.json"), dir.path().join("s.json.resume.json")).unwrap();
    refused(&unnamed, 2, &["several", "r.json", "s.json"]);
    std::fs::write(dir.path().join("s.json.resume.json"), "{\"tokscope_checkpoint\": 1, \"sign").unwrap();
    let out = tokscope(dir.path(), &unnamed);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    std::fs::remove_file(dir.path().join("s.json.resume.json")).unwrap();
    assert_eq!(names(dir.path()), ["r.json"]);
    let report = read(&dir.path().join("r.json"));
    assert_eq!(report["tokscope"]["status"], "complete");
    let verdicts: Vec<&Value> = report["results"].as_array().unwrap().iter().map(|cell| &cell["failure_reason"]).collect();
    assert_eq!(verdicts, ["", ""], "the cell that was cut was measured again");
    assert_eq!(report["tokscope"]["segments"][1]["cells"], serde_json::json!([1]));

    let out = tokscope(dir.path(), &unnamed);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("there is no checkpoint in this folder"), "{out:?}");
    let out = tokscope(dir.path(), &with(&["--resume"]));
    assert!(out.status.code() == Some(2) && String::from_utf8_lossy(&out.stderr).contains("there is no checkpoint"), "{out:?}");
}

#[test]
fn what_was_measured_before_an_early_end_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&[]);
    let port = server.port().to_string();
    let mut run =
        Run::of(dir.path(), &args(&port, &["--concurrency", "1", "--contexts", "2k,4k", "--prefill-contexts", "", "--no-calibration"]));
    assert!(run.reaches("cell start C=1 ctx=4k"), "{:?}", run.seen);
    let rows = |list: &Value| list.as_array().unwrap().len();
    let checkpoint = read(&dir.path().join("r.json.resume.json"));
    assert_eq!((rows(&checkpoint["results"]), rows(&checkpoint["prefill_results"])), (1, 2), "it is on the disk before the next cell");
    run.signal("INT");
    assert_eq!(run.end(LIMIT).0, Some(130));
    let report = read(&dir.path().join("r.json"));
    assert_eq!(report["prefill"]["2048"]["method"], "integrated_scout");
    assert!(report["results"][0]["aggregate_tps"].as_f64().unwrap() > 0.0);
    let left = &report["tokscope"]["left_out"];
    assert_eq!((rows(left), &left[0]["code"], &left[0]["context_tokens"]), (1, &"not-reached".into(), &4096.into()));
}

/// A server for one cell without a context: then it takes no connection any more, and none is refused.
fn that_stops_listening() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at: SocketAddr = listener.local_addr().unwrap();
    let streaming = Arc::new(AtomicBool::new(false));
    let answer = move |stream: TcpStream, streaming: &AtomicBool| -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut line, mut head) = (String::new(), String::new());
        while reader.read_line(&mut line)? > 2 {
            head.push_str(&line.to_ascii_lowercase());
            line.clear();
        }
        let length = head.split("content-length:").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok()).unwrap_or(0);
        let mut body = String::new();
        reader.take(length).read_to_string(&mut body)?;
        let mut out = &stream;
        match head.split(' ').nth(1).unwrap_or_default() {
            "/v1/models" => out.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"data\":[{\"id\":\"m\"}]}"),
            "/v1/chat/completions" if body.contains("\"stream\":true") => {
                // What comes before the cells is asked for few tokens, or by another client than the cells' own.
                let few = (1..=64).any(|n| body.contains(&format!("\"max_tokens\":{n},")) || body.contains(&format!("\"max_tokens\":{n}}}")));
                if few || !head.contains("accept: text/event-stream") {
                    let text = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n";
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
                    return out.write_all(format!("{head}{text}").as_bytes());
                }
                streaming.store(true, Ordering::Release);
                out.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
                for n in 1.. {
                    let usage = format!("\"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":{n}}}");
                    writeln!(out, "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"x\"}}}}],{usage}}}\n")?;
                    std::thread::sleep(Duration::from_millis(20));
                }
                Ok(())
            }
            "/v1/chat/completions" => out.write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{\"usage\":{\"prompt_tokens\":60,\"completion_tokens\":1},\"choices\":[]}",
            ),
            _ => out.write_all(b"HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n"),
        }
    };
    std::thread::spawn(move || {
        while !streaming.load(Ordering::Acquire) {
            let stream = listener.accept().unwrap().0;
            let seen = Arc::clone(&streaming);
            std::thread::spawn(move || answer(stream, &seen));
            std::thread::sleep(Duration::from_millis(50));
        }
        // What isn't accepted stays in the queue until that is full, and then the next one hangs.
        let mut queue = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&at, Duration::from_millis(100)) {
            queue.push(stream);
        }
        std::thread::sleep(Duration::from_secs(300));
        drop((listener, queue));
    });
    at.port().to_string()
}

#[test]
fn a_second_ctrl_c_waits_for_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let port = that_stops_listening();
    let mut run = Run::of(
        dir.path(),
        &args(
            &port,
            &[
                "--concurrency",
                "1,2",
                "--contexts",
                "0",
                "--no-calibration",
                "--cell-warmup-timeout-seconds",
                "2",
                "--decode-warmup-seconds",
                "0",
                "--skip-prefill",
            ],
        ),
    );
    assert!(run.reaches("cell start C=2 "), "{:?}", run.seen);
    run.signal("INT");
    assert!(run.lives(Duration::from_secs(2)), "it waits for a connection");
    run.signal("INT");
    let (code, seen) = run.end(Duration::from_secs(10));
    assert_eq!(code, Some(130), "{seen:?}");
    let report = read(&dir.path().join("r.json"));
    assert_eq!(report["tokscope"]["status"], "interrupted");
    assert_eq!(report["results"].as_array().unwrap().len(), 1, "the cell that was finished");
    assert_eq!(report["tokscope"]["left_out"][0]["code"], "not-reached");
    assert!(dir.path().join("r.json.resume.json").is_file());
}

#[test]
fn a_third_ctrl_c_quits_whatever_is_done_then() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&[]);
    let port = server.port().to_string();
    // Nobody reads what it prints, and the pipe is full.
    let (_unread, mut full) = std::io::pipe().unwrap();
    full.write_all(&[b'.'; 65_536]).unwrap();
    let mut command = command(dir.path(), &args(&port, &["--concurrency", "1,2", "--contexts", "0", "--no-calibration"]));
    command.stdout(full);
    let mut run = Run::start(command);
    assert!(run.reaches(" ready C=2 "), "{:?}", run.seen);
    run.signal("INT");
    assert!(run.reaches("stopping; what was measured is kept"));
    assert!(run.lives(Duration::from_secs(2)), "it can't print its tables");
    run.signal("INT");
    assert!(run.reaches("stopping at once"));
    assert!(run.lives(Duration::from_millis(500)));
    run.signal("INT");
    assert_eq!(run.end(Duration::from_secs(10)).0, Some(130));
    assert_eq!(names(dir.path()), ["r.json", "r.json.resume.json"], "both whole, and nothing else");
    for name in ["r.json", "r.json.resume.json"] {
        read(&dir.path().join(name));
    }
}

#[test]
fn a_server_that_dies_leaves_a_report_that_says_what_is_missing_and_a_run_to_go_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&[]);
    let port = server.port().to_string();
    let args = args(&port, &["--concurrency", "1,2,3,4", "--contexts", "0", "--no-calibration"]);
    let mut run = Run::of(dir.path(), &args);
    assert!(run.reaches(" cell done C=1 "), "{:?}", run.seen);
    drop(server);
    let (code, seen) = run.end(LIMIT);
    assert_eq!(code, Some(1), "{seen:?}");
    let report = read(&dir.path().join("r.json"));
    assert_eq!(report["tokscope"]["status"], "failed");
    let left = report["tokscope"]["left_out"].as_array().unwrap();
    assert!(!left.is_empty() && left.iter().all(|left| left["code"] == "server-gone"), "{left:?}");
    assert_eq!(left.last().unwrap()["concurrency"], 4);
    assert_eq!(left.len() + report["results"].as_array().unwrap().len(), 4, "every cell is there or missing with a reason");
    let _again = Running::start(Path::new("."), &["simulate", "--port", &port]);
    let out = tokscope(dir.path(), &[&args[..], &["--resume"]].concat());
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let report = read(&dir.path().join("r.json"));
    assert_eq!(report["tokscope"]["left_out"], serde_json::json!([]));
    assert_eq!(report["tokscope"]["segments"][0]["cells"], serde_json::json!([0]));
    assert!(
        report["results"].as_array().unwrap().iter().all(|cell| cell["aggregate_tps"].as_f64().is_some()),
        "none of the dead ones is left"
    );
}

#[test]
fn a_server_that_dies_in_the_last_cell_leaves_that_cell_to_be_measured() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&[]);
    let port = server.port().to_string();
    let args = args(&port, &["--concurrency", "1,2", "--contexts", "0", "--no-calibration"]);
    let mut run = Run::of(dir.path(), &args);
    assert!(run.reaches(" ready C=2 "), "{:?}", run.seen);
    drop(server);
    let (code, seen) = run.end(LIMIT);
    assert_eq!(code, Some(1), "{seen:?}");
    assert!(seen.iter().any(|line| line.contains("the server can't be reached any more: the run ends after 2 of 2 cells")), "{seen:?}");
    assert_eq!(names(dir.path()), ["r.json", "r.json.resume.json"]);
    let _again = Running::start(Path::new("."), &["simulate", "--port", &port]);
    let out = tokscope(dir.path(), &[&args[..], &["--resume"]].concat());
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let report = read(&dir.path().join("r.json"));
    assert_eq!(report["tokscope"]["segments"][1]["cells"], serde_json::json!([1]), "only the second was measured again");
    assert!(report["results"].as_array().unwrap().iter().all(|cell| cell["aggregate_tps"].as_f64().is_some()));
    assert_eq!(names(dir.path()), ["r.json"]);
}

#[test]
fn a_server_that_was_started_anew_between_cells_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&[]);
    let port = server.port().to_string();
    let mut run = Run::of(dir.path(), &args(&port, &["--concurrency", "1,2", "--contexts", "0", "--no-calibration"]));
    assert!(run.reaches(" cell done C=1 "), "{:?}", run.seen);
    drop(server);
    let _again = Running::start(Path::new("."), &["simulate", "--port", &port]);
    let (_, seen) = run.end(LIMIT);
    let said = seen.iter().filter(|line| line.contains("WARNING: the server's count of tokens went back")).count();
    assert_eq!(said, 1, "{seen:?}");
}

#[test]
fn a_run_that_still_goes_on_is_neither_gone_on_with_nor_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&[]);
    let port = server.port().to_string();
    let args = args(&port, &["--concurrency", "1,2", "--contexts", "0", "--no-calibration"]);
    let mut run = Run::of(dir.path(), &args);
    assert!(run.reaches(" ready C=1 "), "{:?}", run.seen);
    let unnamed: Vec<&str> = args.iter().copied().filter(|arg| !["--output", "r.json"].contains(arg)).collect();
    for more in
        [&args[..], &[&args[..], &["--resume"]].concat(), &[&args[..], &["--overwrite"]].concat(), &[&unnamed[..], &["--resume"]].concat()]
    {
        let out = tokscope(dir.path(), more);
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{more:?}: {err}");
        assert!(err.contains("another tokscope is measuring into"), "{more:?}: {err}");
    }
    let (code, seen) = run.end(LIMIT);
    assert_eq!(code, Some(0), "{seen:?}");
    assert_eq!(names(dir.path()), ["r.json"]);
    assert_eq!(read(&dir.path().join("r.json"))["results"].as_array().unwrap().len(), 2);
}

#[test]
fn a_folder_that_vanished_is_said_once_and_the_report_goes_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, elsewhere) = (dir.path().join("here"), dir.path().join("elsewhere"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    let server = simulator(&[]);
    let port = server.port().to_string();
    let output = folder.join("r.json");
    let mut args = args(&port, &["--concurrency", "1,2", "--contexts", "0,1k", "--no-calibration"]);
    let at = args.iter().position(|arg| *arg == "r.json").unwrap();
    args[at] = output.to_str().unwrap();
    let mut command = command(dir.path(), &args);
    command.stdout(Stdio::null()).env("TMPDIR", &elsewhere);
    let mut run = Run::start(command);
    assert!(run.reaches(" ready C=1 ctx=0 "), "{:?}", run.seen);
    std::fs::remove_dir_all(&folder).unwrap();
    let (code, seen) = run.end(LIMIT);
    assert_eq!(code, Some(1), "{seen:?}");
    assert_eq!(seen.iter().filter(|line| line.contains("the checkpoint ")).count(), 1, "{seen:?}");
    let found = names(&elsewhere);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(seen.iter().any(|line| line.contains(&found[0])), "it says where: {seen:?}");
    assert_eq!(read(&elsewhere.join(&found[0]))["results"].as_array().unwrap().len(), 4);
}

#[test]
fn a_disk_that_is_full_leaves_nothing_half_written() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&[]);
    let port = server.port().to_string();
    // Room for the checkpoint of the beginning, not for one with a cell, and for no report.
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -f 20; exec \"$0\" \"$@\""])
        .arg(program())
        .args(args(&port, &["--concurrency", "1,2", "--contexts", "0", "--no-calibration"]))
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let (code, seen) = Run::start(limited).end(LIMIT);
    assert_eq!(code, Some(1), "{seen:?}");
    assert_eq!(seen.iter().filter(|line| line.contains("the checkpoint ")).count(), 1, "{seen:?}");
    assert!(seen.iter().any(|line| line.contains(" cell done C=2 ")), "the run went on: {seen:?}");
    for place in ["r.json: ", "tokscope-"] {
        let unwritten = |line: &String| line.contains("the report could not be written to") && line.contains(place);
        assert!(seen.iter().any(unwritten), "{place} is named: {seen:?}");
    }
    assert_eq!(names(dir.path()), ["r.json.resume.json"]);
    assert_eq!(read(&dir.path().join("r.json.resume.json"))["results"], serde_json::json!([]), "whole, as it was when there was room");
}

/// A run at a terminal of its own, whose keys are pressed here.
fn at_a_terminal(folder: &Path, port: &str, more: &[&str]) -> Child {
    static QUOTED: OnceLock<String> = OnceLock::new();
    let program = QUOTED.get_or_init(|| format!("'{}'", program().display()));
    let line = format!("{program} {} ; code=$? ; stty -a ; exit $code", args(port, more).join(" "));
    Command::new("script")
        .args(["-qefc", &line, "/dev/null"])
        .current_dir(folder)
        .env_remove("VLLM_API_KEY")
        .env_remove("TOKSCOPE_API_KEY")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script (of util-linux) is there")
}

/// Waits for a word on the terminal; everything before it is thrown away.
fn shows(out: &mut impl std::io::Read, word: &str) {
    let (mut seen, mut byte) = (Vec::new(), [0]);
    while !String::from_utf8_lossy(&seen).contains(word) {
        assert_eq!(out.read(&mut byte).unwrap(), 1, "{word}: {}", String::from_utf8_lossy(&seen));
        seen.push(byte[0]);
    }
}

#[test]
fn on_a_terminal_s_skips_a_cell_and_q_ends_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&[]);
    let port = server.port().to_string();
    let mut child = at_a_terminal(dir.path(), &port, &["--concurrency", "1,2,3", "--contexts", "0", "--no-calibration"]);
    let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    shows(&mut screen, "[1/3]");
    shows(&mut screen, "tok/s");
    keys.write_all(b"s").unwrap();
    shows(&mut screen, "cell skipped C=1");
    shows(&mut screen, "cell done C=2");
    shows(&mut screen, "C=3 ctx=0  warming up");
    keys.write_all(b"q").unwrap();
    let mut rest = String::new();
    screen.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    // The terminal echoes again, and reads by line.
    assert!(rest.contains(" echo ") && rest.contains(" icanon ") && !rest.contains("-icanon"), "{rest}");
    let report = read(&dir.path().join("r.json"));
    let own = &report["tokscope"];
    assert_eq!(own["status"], "interrupted");
    let left: Vec<(&Value, &Value)> =
        own["left_out"].as_array().unwrap().iter().map(|left| (&left["code"], &left["concurrency"])).collect();
    assert_eq!(left, [(&"skipped".into(), &1.into()), (&"not-reached".into(), &3.into())]);
    assert_eq!(report["results"].as_array().unwrap().len(), 1, "the skip did not outlast its cell");
    // What was skipped stays skipped.
    let out = tokscope(
        dir.path(),
        &[&args(&port, &["--concurrency", "1,2,3", "--contexts", "0", "--no-calibration"])[..], &["--resume"]].concat(),
    );
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let report = read(&dir.path().join("r.json"));
    assert_eq!(report["results"].as_array().unwrap().len(), 2);
    assert_eq!(report["tokscope"]["left_out"][0]["code"], "skipped");
}
