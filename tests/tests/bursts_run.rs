//! Bursts and the open loop of a whole run against a simulated server, beside what the server knows to be true.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use tokscope_tests::program::{Running, get, tokscope};

/// Runs it; the report, and the true requests by id.
fn run(folder: &Path, simulator: &[&str], args: &[&str]) -> (Value, HashMap<String, Value>, String) {
    let server = Running::start(folder, &[&["simulate", "--port", "0"], simulator].concat());
    let port = server.port().to_string();
    let fixed = [
        "run",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--output",
        "report.json",
        "--no-calibration",
        "--duration",
        "3",
        "--skip-prefill",
        "--decode-warmup-seconds",
        "1",
    ];
    let out = tokscope(folder, &[&fixed, args].concat());
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(0), "{text}");
    let report = serde_json::from_slice(&std::fs::read(folder.join("report.json")).unwrap()).unwrap();
    let truth = get(server.port(), "/simulator/truth");
    let by_id = truth["requests"].as_array().unwrap().iter();
    let by_id = by_id.map(|request| (request["id"].as_str().unwrap().trim_start_matches("chatcmpl-").to_owned(), request.clone()));
    (report, by_id.collect(), text)
}

fn sum(request: &Value) -> u64 {
    request["tokens"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum()
}

/// The true requests of a cell, each of which the server has to know.
fn of_cell<'a>(cell: &Value, truth: &'a HashMap<String, Value>) -> Vec<&'a Value> {
    let ids = cell["tokscope"]["series"]["requests"]["id"].as_array().unwrap();
    ids.iter().map(|id| truth.get(id.as_str().unwrap()).unwrap_or_else(|| panic!("the server doesn't know {id}"))).collect()
}

#[test]
fn bursts_and_schedules_send_and_count_to_the_request_and_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--concurrency", "1,4", "--contexts", "0,2k", "--max-tokens", "60", "--run-burst", "--request-rate", "2,15"];
    let (report, truth, text) = run(dir.path(), &["--spec-accept", "0.8,0.6"], &args);
    let mut ours: Vec<String> = Vec::new();
    assert_eq!(report["results"].as_array().unwrap().len(), 4);
    let bursts = report["burst_results"].as_array().unwrap();
    assert_eq!(bursts.len(), 4);
    for cell in bursts {
        let (c, requests) = (cell["concurrency"].as_u64().unwrap(), of_cell(cell, &truth));
        assert_eq!((requests.len() as u64, cell["num_completed"].as_u64()), (5 * c, Some(5 * c)));
        assert_eq!(cell["request_count_target"], 5 * c);
        let handed: u64 = requests.iter().map(|request| sum(request)).sum();
        assert_eq!(cell["client_output_tokens"].as_u64(), Some(handed), "to the token");
        assert_eq!((&cell["benchmark_mode"], &cell["aggregate_source"]), (&"burst-e2e".into(), &"openai_completed_usage".into()));
        // From the first request's arrival to the last token, as the server saw it: the client's window holds both.
        let first = requests.iter().map(|r| r["received_ns"].as_u64().unwrap()).min().unwrap();
        let last = requests.iter().flat_map(|r| r["handed_ns"].as_array().unwrap()).map(|ns| ns.as_u64().unwrap()).max().unwrap();
        let (true_s, measured_s) = ((last - first) as f64 / 1e9, cell["measurement_seconds"].as_f64().unwrap());
        println!("C={c} ctx={}: {measured_s:.4} s measured, {true_s:.4} true", cell["context_tokens"]);
        assert!((measured_s / true_s - 1.0).abs() < 0.05, "{measured_s} s measured, {true_s} true");
        let level = &report["burst_summary_table"][cell["context_tokens"].to_string()][c.to_string()];
        assert_eq!(level, &cell["aggregate_tps"]);
        let line = format!("measure start C={c} ctx={} request-count={}", if cell["context_tokens"] == 0 { "0" } else { "2k" }, 5 * c);
        assert!(text.contains(&line), "{line}");
    }
    let rates = report["tokscope"]["open_loop"].as_array().unwrap();
    assert_eq!(rates.len(), 4);
    let origin_ns = report["tokscope"]["client"]["origin_ns"].as_u64().unwrap();
    for (cell, asked) in rates.iter().zip([2.0, 15.0, 2.0, 15.0]) {
        let own = &cell["tokscope"];
        let (open, requests) = (&own["open_loop"], of_cell(cell, &truth));
        let scheduled = (asked * 3.0) as u64;
        for key in ["scheduled", "sent", "finished"] {
            assert_eq!(open[key].as_u64(), Some(scheduled), "{key} at {asked}");
        }
        assert_eq!(requests.len() as u64, scheduled);
        let edge = |name: &str| origin_ns + own["window"][name].as_u64().unwrap() * 1_000;
        let (from, to) = (edge("start_us"), edge("end_us"));
        let at = |request: &&Value| {
            let at = request["handed_ns"].as_array().unwrap().iter().map(|ns| ns.as_u64().unwrap());
            let tokens = request["tokens"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap());
            at.zip(tokens).filter(|(at, _)| (from..to).contains(at)).map(|(_, n)| n).sum::<u64>()
        };
        let handed: u64 = requests.iter().map(at).sum();
        let counted = cell["client_output_tokens"].as_u64().unwrap();
        assert!(counted.abs_diff(handed) <= 3 * requests.len() as u64, "{counted} counted, {handed} handed over");
        // All came to the server inside the schedule, in the order in which they were due.
        let mut received: Vec<u64> = requests.iter().map(|r| r["received_ns"].as_u64().unwrap()).collect();
        received.sort_unstable();
        let due = own["series"]["requests"]["due_us"].as_array().unwrap();
        let mut due: Vec<u64> = due.iter().map(|us| origin_ns + us.as_u64().unwrap() * 1_000).collect();
        due.sort_unstable();
        assert!(due.iter().zip(&received).all(|(due, received)| received >= due), "nothing comes before it is due");
        let mut late: Vec<u64> = due.iter().zip(&received).map(|(due, received)| received - due).collect();
        late.sort_unstable();
        println!("{asked}/s: {scheduled} requests, late at the server by {:.2} ms (p50)", late[late.len() / 2] as f64 / 1e6);
        let gap_ns = (1e9 / asked) as u64;
        assert!(late[late.len() / 2] < gap_ns / 4, "{late:?}");
        ours.push(own["verdict"].to_string());
    }
    println!("{ours:?}");
}

#[test]
fn a_matrix_of_finite_requests_has_the_predecessors_shape() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--concurrency", "1,8", "--contexts", "0", "--max-tokens", "40", "--request-count", "6", "--warmup-request-count", "2"];
    let (report, truth, _) = run(dir.path(), &[], &args);
    let metadata = &report["metadata"];
    assert_eq!((&metadata["decode_mode"], &metadata["primary_decode_layer"]), (&"request-count".into(), &"burst_e2e_decode".into()));
    let cells = report["results"].as_array().unwrap();
    assert_eq!((cells.len(), report["burst_results"].as_array().unwrap().len()), (2, 0));
    for cell in cells {
        assert_eq!((of_cell(cell, &truth).len(), &cell["benchmark_mode"]), (6, &"request-count".into()));
        assert_eq!(cell["ready_reason"], "request_count=6, warmup_request_count=2");
        assert_eq!((&cell["underfilled"], &cell["warmup_duration"]), (&false.into(), &0.0.into()));
        assert_eq!((&cell["wall_time"], &cell["measurement_wall_seconds"]), (&cell["measurement_seconds"], &cell["measurement_seconds"]));
    }
    let methods = &report["methodology"];
    assert_eq!((&methods["burst_e2e_decode"]["present"], &methods["sustained_decode"]["present"]), (&true.into(), &false.into()));
    assert_eq!(methods["burst_e2e_decode"]["status"], "present");
}

#[test]
fn a_rate_without_end_is_refused_before_anything_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let out = tokscope(dir.path(), &["run", "--request-rate", "1000000", "--duration", "60"]);
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(text.contains("--request-rate: 1000000 requests a second for 60 s are more than 1000000"), "{text}");
}
