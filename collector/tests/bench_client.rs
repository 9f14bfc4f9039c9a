//! The benchmark of the client, run short: all figures are there and nothing is lost. How good they are is for
//! people to read, in release and on a quiet machine.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Command;

use serde_json::Value;

fn bench(args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_tokscope")).arg("bench-client").args(args).output().unwrap()
}

fn positive(value: &Value) -> bool {
    ["median", "min", "max"].iter().all(|key| value[key].as_f64().is_some_and(|v| v > 0.0))
}

#[test]
fn a_short_run_loses_nothing_and_has_all_figures() {
    let out = bench(&["--seconds", "0.4", "--rounds", "2", "--concurrency", "8", "--firehose-streams", "2", "--json"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["nothing_lost"], true);
    let paced = &report["paced"][0];
    // Two rounds of 0.2 s are ten steps each.
    assert_eq!((&paced["streams"], &paced["tokens"]), (&8.into(), &160.into()));
    for key in ["ours_cpu_s_per_mtok", "bare_cpu_s_per_mtok"] {
        assert!(positive(&paced[key]), "{key}: {paced}");
    }
    assert!(paced["simulator_late_ns"]["p99"].is_u64());
    // A client that parses cannot cost less than half of one that only reads.
    assert!(paced["ours_over_bare"].as_f64().unwrap() > 0.5, "{paced}");
    match report["python"].as_str() {
        Some(_) => assert!(positive(&paced["python_cpu_s_per_mtok"]) && paced["python_library"].is_string(), "{paced}"),
        None => assert!(report["python_missing"].as_str().unwrap().contains("python3")),
    }
    let modes: Vec<_> = report["firehose"].as_array().unwrap().iter().map(|f| f["mode"].as_str().unwrap()).collect();
    assert_eq!(modes, ["blocks", "events"]);
    for firehose in report["firehose"].as_array().unwrap() {
        for client in ["ours", "bare"] {
            for key in ["tokens_s", "mb_s", "busy_share", "tokens_busy_s", "mb_busy_s", "cpu_us_per_event"] {
                assert!(positive(&firehose[client][key]), "{client} {key}: {firehose}");
            }
            // At least an answer of 50 000 tokens a stream and round.
            assert!(firehose[client]["tokens"].as_u64().unwrap() >= 200_000);
        }
        assert!(firehose["client_is_the_limit"].is_boolean());
    }
}

#[test]
fn without_json_it_is_tables_and_lines_of_progress() {
    let out = bench(&["--seconds", "0.2", "--rounds", "1", "--concurrency", "2,3", "--firehose-streams", "0"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let (text, progress) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    for row in ["2 ours", "2 bare", "3 ours", "3 bare"] {
        assert!(text.lines().any(|line| line.starts_with(row)), "{row} in {text}");
    }
    assert!(text.contains("nothing lost") && !text.contains("firehose"), "{text}");
    assert!(progress.contains("paced, 3 streams, round 1 of 1: our client (about "), "{progress}");
}

#[test]
fn a_missing_python_is_said_and_the_rest_measured() {
    let out = Command::new(env!("CARGO_BIN_EXE_tokscope"))
        .args(["bench-client", "--seconds", "0.2", "--rounds", "1", "--concurrency", "2", "--firehose-streams", "0"])
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success() && text.contains("no Python client: python3 does not start"), "{text}");
    assert!(!text.contains("2 python"));
}

#[test]
fn nonsense_is_refused_in_words() {
    for args in [["--seconds", "0"], ["--seconds", "nan"], ["--rounds", "0"], ["--concurrency", "x"], ["--step-ms", "0"]] {
        assert_eq!(bench(&args).status.code(), Some(2), "{args:?}");
    }
}
