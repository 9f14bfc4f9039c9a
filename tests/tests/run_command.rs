//! `tokscope run` and `demo` as processes against a simulated server: reports, truth, bad input, Ctrl-C.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use serde_json::Value;
use std::collections::HashMap;
use std::net::TcpListener;
use std::path::Path;
use tokscope_shared::import;
use tokscope_shared::report::json_schema;
use tokscope_tests::program::{Running, get, simulator, tokscope};

/// Runs a matrix; gives the report as JSON, what was printed and the exit code.
fn run(folder: &Path, port: u16, args: &[&str]) -> (Value, String, i32) {
    let port = port.to_string();
    let fixed = [
        "run",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--output",
        "report.json",
        "--decode-warmup-seconds",
        "1",
        "--prefill-contexts",
        "8k",
    ];
    let out = tokscope(folder, &[&fixed, args].concat());
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let report = std::fs::read(folder.join("report.json")).map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap());
    (report, text, out.status.code().unwrap())
}

#[test]
fn prefill_alone_is_a_success_and_what_has_no_room_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&[]);
    let args = ["run", "--host", "127.0.0.1", "--port", &server.port().to_string(), "--prefill-only", "--prefill-duration", "1"];
    let out = tokscope(dir.path(), &[&args[..], &["--prefill-contexts", "1k,300k", "--output", "report.json"]].concat());
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{text}");
    let report: Value = serde_json::from_slice(&std::fs::read(dir.path().join("report.json")).unwrap()).unwrap();
    assert!(report["prefill"]["1024"]["tok_per_sec"].as_f64().unwrap() > 0.0, "{}", report["prefill"]);
    let left = report["tokscope"]["left_out"].as_array().unwrap();
    assert_eq!((left.len(), left[0]["layer"].as_str(), left[0]["context_tokens"].as_u64()), (1, Some("prefill"), Some(300 * 1024)));
    assert!(text.contains("a prefill of 300k leaves no room"), "{text}");
    let log = report["event_log"].to_string();
    assert!(!log.contains("decode concurrency="), "nothing is said of a matrix that nobody asked for: {log}");
}

/// What the simulator handed over between two instants, and its times to first token by request.
struct Truth(Value);

impl Truth {
    fn tokens(&self, from_ns: u64, to_ns: u64) -> u64 {
        let requests = self.0["requests"].as_array().unwrap().iter();
        let of_request = |request: &Value| {
            let at = request["handed_ns"].as_array().unwrap().iter().map(|ns| ns.as_u64().unwrap());
            let tokens = request["tokens"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap());
            at.zip(tokens).filter(|(at, _)| (from_ns..to_ns).contains(at)).map(|(_, n)| n).sum::<u64>()
        };
        requests.map(of_request).sum()
    }

    /// By request: until the first token was handed over, and until it was due.
    fn ttft_us(&self) -> HashMap<String, (f64, f64)> {
        let requests = self.0["requests"].as_array().unwrap().iter();
        requests
            .filter_map(|request| {
                let first = request["handed_ns"].as_array()?.first()?.as_u64()?;
                let handed = (first - request["received_ns"].as_u64()?) as f64 / 1e3;
                let due = handed - request["late_ns"].as_array()?.first()?.as_f64()? / 1e3;
                Some((request["id"].as_str()?.trim_start_matches("chatcmpl-").to_owned(), (handed, due)))
            })
            .collect()
    }
}

/// Prints each cell beside the truth and holds it to the bounds.
fn compare_with_truth(report: &Value, truth: &Truth) {
    let origin_ns = report["tokscope"]["client"]["origin_ns"].as_u64().unwrap();
    let true_ttft = truth.ttft_us();
    let late = |q: &str| truth.0["late_ns"][q].as_u64().unwrap_or(0) as f64 / 1e6;
    println!("simulator late by {:.2} ms (p50), {:.2} (p99), {:.2} (max)", late("p50"), late("p99"), late("max"));
    for cell in report["results"].as_array().unwrap() {
        let own = &cell["tokscope"];
        let edge = |name: &str| origin_ns + own["window"][name].as_u64().unwrap() * 1000;
        let handed = truth.tokens(edge("start_us"), edge("end_us"));
        let counted = cell["client_output_tokens"].as_u64().unwrap();
        let streams = cell["concurrency"].as_u64().unwrap();
        let requests = &own["series"]["requests"];
        let column = |name: &str| requests[name].as_array().unwrap().clone();
        let chunk = (1..=4)
            .rev()
            .find(|n| truth.0["requests"].as_array().unwrap().iter().any(|r| r["tokens"].as_array().unwrap().contains(&(*n).into())));
        let allowed = (0.005 * handed as f64).max(chunk.unwrap_or(1) as f64 * streams as f64);
        let mut off: Vec<f64> = column("id")
            .iter()
            .zip(column("sent_us").iter().zip(&column("first_token_us")))
            .filter_map(|(id, (sent, first))| {
                let (measured, (handed, due)) = (first.as_f64()? - sent.as_f64()?, true_ttft.get(id.as_str()?)?);
                // It was sent before it was received, and nothing is handed over before it is due.
                assert!(measured > due - 10.0, "a first token after {measured} µs that was due after {due}");
                Some(measured - handed)
            })
            .collect();
        off.sort_by(f64::total_cmp);
        let p50 = off[off.len() / 2];
        println!(
            "C={streams} ctx={}: {counted} counted, {handed} handed over; TTFT off by {:.2} ms (p50 of {}); verdict {}",
            cell["context_tokens"],
            p50 / 1e3,
            off.len(),
            own["verdict"],
        );
        assert!(handed > 0 && (counted as f64 - handed as f64).abs() <= allowed, "{counted} counted, {handed} handed over");
        let rate = cell["aggregate_tps"].as_f64().unwrap();
        let seconds = (edge("end_us") - edge("start_us")) as f64 / 1e9;
        assert!((rate / (counted as f64 / seconds) - 1.0).abs() < 1e-9);
    }
}

#[test]
fn a_run_counts_what_the_server_handed_over_with_one_token_a_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&[]);
    let args = ["--concurrency", "1,4,16", "--contexts", "0", "--duration", "3", "--max-tokens", "500"];
    let (report, text, code) = run(dir.path(), server.port(), &args);
    assert_eq!(code, 0, "{text}");
    assert_eq!(report["results"].as_array().unwrap().len(), 3);
    compare_with_truth(&report, &Truth(get(server.port(), "/simulator/truth")));
}

#[test]
fn a_run_counts_what_the_server_handed_over_with_several_tokens_a_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&["--spec-accept", "0.85,0.65,0.45"]);
    let args = ["--concurrency", "1,4,16", "--contexts", "8k", "--duration", "3", "--max-tokens", "2000"];
    let (report, text, code) = run(dir.path(), server.port(), &args);
    assert_eq!(code, 0, "{text}");
    compare_with_truth(&report, &Truth(get(server.port(), "/simulator/truth")));
    for cell in report["results"].as_array().unwrap() {
        // 1 + 0.85 + 0.65 + 0.45, by the server's own counters.
        let length = cell["server_spec_accept_length"].as_f64().unwrap();
        assert!((2.6..3.3).contains(&length), "{length}");
        let steps = cell["server_steps_per_s"].as_f64().unwrap();
        let rate = cell["aggregate_tps"].as_f64().unwrap();
        assert!((rate / steps / cell["server_accept_len_effective"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    }
    assert_eq!(report["prefill"]["8192"]["method"], "integrated_scout");
}

#[test]
fn a_server_that_reports_usage_only_at_the_end_gives_the_right_rate_too() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&["--flavour", "proxy", "--spec-accept", "0.85,0.65,0.45"]);
    let args = ["--concurrency", "4", "--contexts", "0", "--duration", "4", "--max-tokens", "150"];
    let (report, text, code) = run(dir.path(), server.port(), &args);
    assert_eq!(code, 0, "{text}");
    let cell = &report["results"][0];
    assert_eq!(cell["aggregate_source"], "openai_final_usage_spread");
    assert_eq!(report["metadata"]["engine"], "openai_proxy");
    assert_eq!(cell["avg_running_reqs"], Value::Null, "no metrics, no number");
    let truth = Truth(get(server.port(), "/simulator/truth"));
    let origin_ns = report["tokscope"]["client"]["origin_ns"].as_u64().unwrap();
    let edge = |name: &str| origin_ns + cell["tokscope"]["window"][name].as_u64().unwrap() * 1000;
    let (counted, handed) = (cell["client_output_tokens"].as_f64().unwrap(), truth.tokens(edge("start_us"), edge("end_us")) as f64);
    println!("{counted} counted, {handed} handed over");
    assert!((counted / handed - 1.0).abs() < 0.03, "{counted} counted, {handed} handed over");
}

#[test]
fn sglang_is_recognised_and_measured() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&["--flavour", "sglang"]);
    let (report, text, code) =
        run(dir.path(), server.port(), &["--concurrency", "2", "--contexts", "0", "--duration", "2", "--max-tokens", "500"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(report["metadata"]["engine"], "sglang");
    assert_eq!(report["tokscope"]["server"]["engine"], "sglang");
    compare_with_truth(&report, &Truth(get(server.port(), "/simulator/truth")));
}

#[test]
fn a_report_is_what_its_schema_says_and_what_scripts_of_the_predecessor_read() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&["--kv-tokens", "16384", "--max-context", "16384", "--prefix-cache", "false"]);
    let args = ["--concurrency", "1,4", "--contexts", "0,4k,20k", "--duration", "1", "--max-tokens", "300"];
    let (report, text, code) = run(dir.path(), server.port(), &args);
    assert_eq!(code, 0, "{text}");
    let validator = jsonschema::validator_for(&json_schema()).unwrap();
    let errors: Vec<String> = validator.iter_errors(&report).map(|error| format!("{}: {error}", error.instance_path)).collect();
    assert!(errors.is_empty(), "{errors:?}");
    // Without the keys that only later readers know, the shape of the seed is there, key by key.
    let seed: Value =
        serde_json::from_slice(&std::fs::read(tokscope_tests::checkout().join("shared/tests/fixtures/seed.json")).unwrap()).unwrap();
    for section in ["", "/metadata", "/results/0", "/results/0/request_samples/0", "/methodology"] {
        let keys = |value: &Value| value.pointer(section).unwrap().as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let missing: Vec<String> = keys(&seed).into_iter().filter(|key| !keys(&report).contains(key)).collect();
        assert!(missing.is_empty(), "{section}: {missing:?}");
    }
    assert_eq!(report["summary_table"]["0"]["1"], report["results"][0]["aggregate_tps"]);
    let left = |key: &str| report["tokscope"]["left_out"].as_array().unwrap().iter().map(|left| left[key].clone()).collect::<Vec<_>>();
    assert_eq!(left("code"), ["context-limit", "kv-budget", "context-limit"]);
    assert_eq!(left("concurrency"), [1, 4, 4]);
    let said: Vec<&str> = text.lines().filter(|line| line.contains("left out: C=")).collect();
    assert_eq!(said.len(), 2, "a line a reason: {text}");
    assert!(said.iter().any(|line| line.contains("left out: C=1, 4 at 20k: context 20k and 64 tokens")), "{text}");
    // 4 × (4096 + 300) tokens of 16384, in blocks of 128.
    let missing = left("missing_tokens")[1].as_i64().unwrap();
    assert!((missing - (4 * 35 * 128 - 16384)).abs() <= 4 * 128, "{missing}");
    assert_eq!(report["results"].as_array().unwrap().len(), 3);
    assert_eq!(report["tokscope"]["status"], "complete");
    let log: Vec<&str> = report["event_log"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert!(log[0].ends_with(" benchmark start engine=vllm"), "{log:?}");
    assert!(log.iter().any(|line| line.contains(" cell done C=1 ctx=4k ")), "{log:?}");
    // The file opens as ours and is equal to itself when rewritten.
    let bytes = std::fs::read(dir.path().join("report.json")).unwrap();
    let opened = import::open(&bytes).unwrap();
    assert!(opened.report.is_ours() && opened.findings == tokscope_shared::field::Findings::default());
    assert_eq!(opened.report.to_json().into_bytes(), bytes);
}

#[test]
fn ctrl_c_leaves_a_valid_partial_report() {
    leaves_a_valid_partial_report("INT");
}

#[test]
fn a_terminal_that_goes_leaves_one_too() {
    leaves_a_valid_partial_report("HUP");
}

fn leaves_a_valid_partial_report(signal: &str) {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&[]);
    let port = server.port().to_string();
    let args = [
        "run",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--concurrency",
        "1,2",
        "--contexts",
        "0",
        "--duration",
        "60",
        "--output",
        "part.json",
    ];
    // Whoever started the tests may have had the signal ignored.
    let mut child = std::process::Command::new("env")
        .arg("--default-signal=HUP")
        .arg(tokscope_tests::program::program())
        .args(args)
        .current_dir(dir.path())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    assert!(lines.any(|line| line.unwrap().contains(" ready C=1 ctx=0 ")), "the window opened");
    std::thread::spawn(move || lines.for_each(drop));
    std::thread::sleep(std::time::Duration::from_secs(2));
    std::process::Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let report: Value = serde_json::from_slice(&std::fs::read(dir.path().join("part.json")).unwrap()).unwrap();
    assert_eq!(report["tokscope"]["status"], "interrupted");
    let cell = &report["results"][0];
    assert_eq!(cell["tokscope"]["verdict"], "limited");
    assert!(cell["tokscope"]["reasons"].as_array().unwrap().iter().any(|reason| reason["code"] == "interrupted"));
    assert!((1.0..30.0).contains(&cell["measurement_seconds"].as_f64().unwrap()));
    assert!(dir.path().join("part.json.resume.json").is_file(), "the run can be gone on with");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing half written is left");
}

/// A server that answers everything alike.
fn answering(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

#[test]
fn servers_that_are_none_are_one_sentence_and_exit_1() {
    let dir = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let html = answering("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n<html><body>hello</body></html>");
    let bare = answering("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{\"object\":\"list\",\"data\":[]}");
    let broken = answering("HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n\r\nupstream is gone");
    for port in [free, html, bare, broken] {
        let port = port.to_string();
        let out = tokscope(dir.path(), &["run", "--host", "127.0.0.1", "--port", &port, "--contexts", "0", "--concurrency", "1"]);
        let err = String::from_utf8(out.stderr).unwrap();
        println!("{err}");
        assert_eq!(out.status.code(), Some(1), "{err}");
        let lines: Vec<&str> = err.lines().collect();
        assert!(lines.len() == 1 && lines[0].starts_with("tokscope: ") && lines[0].contains(&port), "{err}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is written");
    }
}

#[test]
fn wrong_usage_is_exit_2_before_anything_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("taken.json"), "mine").unwrap();
    let cases: [(&[&str], &str); 19] = [
        (&["--output", "taken.json"], "there is a file of that name"),
        (&["--output", "."], "that is a folder"),
        (&["--output", "no/such/folder/x.json"], "nothing can be written to no/such/folder: No such file"),
        (&["--concurrency", "1,0"], "--concurrency: "),
        (&["--concurrency", "1,1"], "--concurrency: 1 is listed twice"),
        (&["--contexts", "16q"], "--contexts: cannot read '16q'"),
        (&["--duration", "0"], "--duration"),
        (&["--max-tokens", "0"], "--max-tokens"),
        (&["--concurrency", "-1"], "--concurrency: "),
        (&["--contexts", "-5"], "--contexts: "),
        (&["--seed", "-1"], "'--seed <SEED>'"),
        (&["--model", ""], "--model is empty"),
        (&["--dataset", "/dev/zero"], "--dataset /dev/zero is no ordinary file"),
        (&["--ca-cert", "nowhere.pem"], "--ca-cert nowhere.pem: "),
        (&["--arrivals", "constant"], "--arrivals needs --request-rate"),
        (&["--max-in-flight", "8"], "--max-in-flight needs --request-rate"),
        (&["--burst-requests-per-concurrency", "2"], "--burst-requests-per-concurrency needs --run-burst"),
        (&["--prefill-duration", "5"], "--prefill-duration needs --standalone-prefill or --prefill-only"),
        (&["--port", "65536"], "--port"),
    ];
    for (args, expected) in cases {
        // No server is there: a run that got as far would fail with 1.
        let out = tokscope(dir.path(), &[&["run", "--host", "127.0.0.1", "--port", "9"], args].concat());
        let err = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(expected), "{args:?}: {err}");
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("taken.json")).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn taken_ports_are_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.json"), "{}").unwrap();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    let commands: [&[&str]; 3] = [&["serve", "a.json", "--port", &port], &["simulate", "--port", &port], &["demo", "--port", &port]];
    for args in commands {
        let out = tokscope(dir.path(), args);
        let err = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{args:?}: {err}");
        assert!(err.lines().count() == 1 && err.contains("is taken by another program"), "{args:?}: {err}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn the_host_lists_and_gives_reports_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a b.json"), "{\"x\": 1}").unwrap();
    std::fs::write(dir.path().join("secret.txt"), "no").unwrap();
    let host = Running::start(dir.path(), &["serve", ".", "--port", "0"]);
    let port = host.port();
    let list = get(port, "/api/reports");
    assert_eq!(list["reports"], serde_json::json!([{ "name": "a b.json", "size": 8, "url": "api/reports/a%20b.json" }]));
    assert_eq!(get(port, "/api/reports/a%20b.json")["x"], 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let status = |path: &str, name: &str| {
        let request = reqwest::Client::new().get(format!("http://127.0.0.1:{port}{path}")).header("host", name);
        runtime.block_on(async { request.send().await.unwrap().status().as_u16() })
    };
    for path in ["/api/reports/secret.txt", "/api/reports/..%2Fsecret.txt", "/secret.txt", "/api/reports/%2e%2e%2fa%20b.json"] {
        assert_eq!(status(path, "localhost"), 404, "{path}");
    }
    assert_eq!(status("/api/reports", "evil.example"), 403);
    std::fs::write(dir.path().join("new.json"), "{}").unwrap();
    assert_eq!(get(port, "/api/reports")["reports"].as_array().unwrap().len(), 2, "new files appear by themselves");
    host.signal("INT");
    assert_eq!(host.wait(), 0);
}

#[test]
fn a_key_that_a_server_repeats_is_shown_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let echo =
        "HTTP/1.1 500 Oops\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\nIncorrect API key provided: sk-SECRET123 \u{1b}[31m";
    let port = answering(echo).to_string();
    let args = ["run", "--host", "127.0.0.1", "--port", &port, "--contexts", "0", "--concurrency", "1", "--api-key", "sk-SECRET123"];
    let out = tokscope(dir.path(), &args);
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(err.contains("Incorrect API key provided: ***") && !err.contains("SECRET") && !err.contains('\u{1b}'), "{err}");
    // Where the answer is cut in the middle of the key, no part of it is left.
    let long = format!("HTTP/1.1 500 Oops\r\nconnection: close\r\n\r\n{} sk-SECRET123", "x".repeat(110));
    let port = answering(long.leak()).to_string();
    let args = ["run", "--host", "127.0.0.1", "--port", &port, "--contexts", "0", "--concurrency", "1", "--api-key", "sk-SECRET123"];
    let err = String::from_utf8(tokscope(dir.path(), &args).stderr).unwrap();
    assert!(err.contains("xxx") && !err.contains("sk-"), "{err}");
    for host in ["http://user:p4?ss/w0rd@localhost:1", "http://user:p4ss/w0rd@localhost:1", "http:/user:p4ss/w0rd@localhost:1?key=s3cret"] {
        let out = tokscope(dir.path(), &["run", "--host", host, "--contexts", "0", "--concurrency", "1"]);
        let err = String::from_utf8(out.stderr).unwrap();
        assert!(!err.is_empty() && !err.contains("w0rd") && !err.contains("p4") && !err.contains("s3cret"), "{err}");
    }
}

/// A server that lists a model and streams a token every 20 ms, with a pause of 1.5 s after every hundred.
fn pausing() -> u16 {
    use std::io::{BufRead, BufReader, Read, Write};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = |stream: std::net::TcpStream| -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut out = stream;
        let (mut line, mut length, mut path) = (String::new(), 0, String::new());
        while reader.read_line(&mut line)? > 2 {
            if path.is_empty() {
                path = line.split(' ').nth(1).unwrap_or_default().to_owned();
            }
            if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = n.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        let mut body = String::new();
        reader.take(length).read_to_string(&mut body)?;
        match path.as_str() {
            "/v1/models" => out.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"data\":[{\"id\":\"m\"}]}")?,
            "/v1/chat/completions" if body.contains("\"stream\":true") => {
                out.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
                for n in 1.. {
                    let usage = format!("\"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":{n}}}");
                    writeln!(out, "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"x\"}}}}],{usage}}}\n")?;
                    std::thread::sleep(std::time::Duration::from_millis(if n % 100 == 0 { 1500 } else { 20 }));
                }
            }
            _ => out.write_all(b"HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n")?,
        }
        Ok(())
    };
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that goes away ends its answer.
            std::thread::spawn(move || answer(stream.unwrap()));
        }
    });
    port
}

#[test]
fn a_stream_that_stands_still_is_seen_in_the_verdict_and_in_every_second() {
    let dir = tempfile::tempdir().unwrap();
    let (report, text, code) = run(
        dir.path(),
        pausing(),
        &["--concurrency", "1", "--contexts", "0", "--duration", "6", "--cell-warmup-timeout-seconds", "4", "--skip-prefill"],
    );
    assert_eq!(code, 0, "{text}");
    let cell = &report["results"][0];
    let codes: Vec<&str> = cell["tokscope"]["reasons"].as_array().unwrap().iter().map(|reason| reason["code"].as_str().unwrap()).collect();
    assert!(cell["tokscope"]["verdict"] == "limited" && codes.contains(&"stalled"), "{codes:?}");
    let seconds: Vec<u64> = cell["tokscope"]["series"]["tokens_per_s"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!(seconds.len(), 6);
    let (least, most) = (seconds.iter().min().unwrap(), seconds.iter().max().unwrap());
    assert!(least * 2 < *most, "{seconds:?}");
}

#[test]
fn a_run_in_which_nothing_fits_is_exit_3() {
    let dir = tempfile::tempdir().unwrap();
    let server = simulator(&["--max-context", "8192", "--kv-tokens", "65536"]);
    let (report, text, code) = run(dir.path(), server.port(), &["--concurrency", "1", "--contexts", "1m"]);
    assert_eq!((code, &report), (3, &Value::Null), "{text}");
    assert!(text.contains("nothing is left to measure"), "{text}");
}

#[test]
fn a_host_ends_although_a_client_never_finishes_its_request() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.json"), "{}").unwrap();
    let host = Running::start(dir.path(), &["serve", "a.json", "--port", "0"]);
    let mut client = std::net::TcpStream::connect(("127.0.0.1", host.port())).unwrap();
    std::io::Write::write_all(&mut client, b"GET / HTTP/1.1\r\nHost: localhost\r\nX:").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    host.signal("INT");
    assert_eq!(host.wait(), 0);
}
