//! What files are, made from the specification: each shape and each way of being no report.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use serde_json::{Value, json};
use tokscope_shared::field::Field;
use tokscope_shared::import::{self, OpenError};
use tokscope_shared::metric::{self, Reading, Sentinel};
use tokscope_shared::report::Report;
use tokscope_shared::verdict::{Review, Verdict, review};

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn opened(name: &str) -> (Report, Review) {
    let opened = import::open(&fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let review = review(&opened.report, &opened.findings);
    (opened.report, review)
}

fn codes(review: &Review, cell: usize) -> Vec<&str> {
    review.cells[cell].reasons.iter().map(|reason| reason.code.as_str()).collect()
}

#[test]
fn every_shape_opens_says_what_it_is_and_survives() {
    let expected = [
        ("unversioned.json", "decode report", "2 cells: 2 suspect"),
        ("v0.3.json", "decode report", "1 cell, suspect"),
        ("v0.4.json", "decode report", "2 cells: 1 valid, 1 limited"),
        ("v0.6.json", "decode report", "3 cells: 1 valid, 2 invalid"),
        ("prefill-only.json", "prefill report", "no decode cells"),
        ("interrupted.json", "decode report", "1 cell, valid"),
        ("sanitised.json", "decode report", "1 cell, valid"),
        ("profile.json", "profile report", "no decode cells"),
        ("diagnostics-only.json", "diagnostics report", "no decode cells"),
        ("comparison.json", "comparison of two profile reports", "no decode cells"),
    ];
    for (name, kind, sentence) in expected {
        let (report, review) = opened(name);
        assert_eq!((report.kind(), review.sentence().as_str()), (kind, sentence), "{name}");
        let original: Value = serde_json::from_slice(&fixture(name)).unwrap();
        let again: Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(again, original, "{name}");
        let odd = import::open(&fixture(name)).unwrap().findings.odd;
        assert!(odd.is_empty(), "{name}: {odd:?}");
    }
}

#[test]
fn the_four_ways_of_no_value_stay_apart() {
    let cell = |rate: Option<Value>| {
        let mut cell = json!({ "concurrency": 1, "context_tokens": 0 });
        if let Some(rate) = rate {
            cell["aggregate_tps"] = rate;
        }
        let file = json!({ "metadata": { "model": "m" }, "results": [cell] }).to_string();
        let report = import::open(file.as_bytes()).unwrap().report;
        metric::rate(report.cells().next().unwrap())
    };
    assert_eq!(cell(None), Reading::Absent);
    assert_eq!(cell(Some(Value::Null)), Reading::Null);
    assert_eq!(cell(Some(json!(0.0))), Reading::Zero);
    assert_eq!(cell(Some(json!(0))), Reading::Zero);
    assert_eq!(cell(Some(json!(-1))), Reading::Sentinel(Sentinel::KvBudget));
    assert_eq!(cell(Some(json!(-2))), Reading::Sentinel(Sentinel::Skipped));
    assert_eq!(cell(Some(json!(-3.0))), Reading::Sentinel(Sentinel::Repetition));
    assert_eq!(cell(Some(json!(-4.0))), Reading::Sentinel(Sentinel::StreamFailed));
    assert_eq!(cell(Some(json!(-7))), Reading::Sentinel(Sentinel::Unknown));
    assert_eq!(cell(Some(json!(12.5))), Reading::Value(12.5));
    assert_eq!(cell(Some(json!("fast"))), Reading::Null);
}

#[test]
fn invalid_cells_of_later_versions_say_why() {
    let (_, review) = opened("v0.6.json");
    assert_eq!(codes(&review, 1), ["repetition"]);
    assert_eq!(codes(&review, 2), ["stream-failed"]);
    assert_eq!(review.cells[2].reasons[0].text, "ReadTimeout");
}

#[test]
fn an_interrupted_report_is_marked() {
    let (_, review) = opened("interrupted.json");
    let doubts: Vec<&str> = review.doubts.iter().map(|doubt| doubt.code).collect();
    assert_eq!(doubts, ["interrupted", "cells-missing"]);
    assert!(review.doubts[1].text.contains("C=4 at 0"), "{}", review.doubts[1].text);
}

#[test]
fn bare_nan_and_infinity_count_as_not_measured() {
    let (report, review) = opened("nan.json");
    let cell = report.cells().next().unwrap();
    assert_eq!(cell.ttft_avg, Field::Null);
    assert_eq!(cell.server_utilization, Field::Null);
    assert!(review.doubts.iter().any(|doubt| doubt.code == "non-finite" && doubt.text.starts_with("2 numbers")));
    assert!(!report.to_json().contains("NaN"));
    // Inside a text the word is a word.
    let (report, _) = {
        let text = r#"{"metadata": {"model": "NaN \" Infinity", "temperature": -NaN}, "results": []}"#;
        (import::open(text.as_bytes()).unwrap(), ())
    };
    assert_eq!((report.report.identity().model.as_deref(), report.findings.non_finite), (Some("NaN \" Infinity"), 1));
}

#[test]
fn values_of_another_kind_are_kept_reported_and_not_counted() {
    let text = r#"{"metadata": {"model": 7, "concurrency_levels": "1,2"}, "results": [null, 3, {"concurrency": 1, "aggregate_tps": [1]}]}"#;
    let opened = import::open(text.as_bytes()).unwrap();
    let review = review(&opened.report, &opened.findings);
    assert_eq!(serde_json::from_str::<Value>(&opened.report.to_json()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    assert_eq!(opened.findings.odd, ["/metadata/model", "/metadata/concurrency_levels", "/results/1", "/results/2/aggregate_tps"]);
    assert!(review.doubts.iter().any(|doubt| doubt.code == "odd-values"));
    assert_eq!(review.cells[0].verdict, Verdict::Invalid);
}

#[test]
fn other_encodings_are_read() {
    let text = String::from_utf8(fixture("v0.4.json")).unwrap();
    let plain = import::open(text.as_bytes()).unwrap();
    let mut marked = b"\xef\xbb\xbf".to_vec();
    marked.extend(text.as_bytes());
    assert_eq!(import::open(&marked).unwrap(), plain);
    for (mark, bytes) in [([0xff, 0xfe], u16::to_le_bytes as fn(u16) -> [u8; 2]), ([0xfe, 0xff], u16::to_be_bytes)] {
        let mut wide = mark.to_vec();
        wide.extend(text.encode_utf16().flat_map(bytes));
        assert_eq!(import::open(&wide).unwrap(), plain);
    }
}

#[test]
fn what_is_no_report_is_named() {
    let reason = |bytes: &[u8]| import::open(bytes).unwrap_err().to_string();
    assert!(reason(b"").starts_with("the file is empty"));
    assert!(reason(b" \n ").starts_with("the file is empty"));
    assert!(reason(b"\x1f\x8b\x08\x00rest").starts_with("not a text file: byte 1 "), "{}", reason(b"\x1f\x8b\x08\x00rest"));
    assert_eq!(reason(b"{}"), "JSON, but no report: an empty object (a report has `metadata` and `results`)");
    assert!(reason(b"[1, 2]").contains("a list of 2"));
    assert!(reason(b"\"x\"").contains("a text"));
    assert!(reason(br#"{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}"#).contains("an object with a, b, c, d, …"));
    assert!(reason(b"<html><body>502</body></html>").starts_with("line 1, column 1: expected value"));
    assert!(reason(b"{\"metadata\": {\n\"model\": oops}}").starts_with("line 2, column 10: "));
    assert!(reason(b"{\"metadata\": {\n\"model\": \"m\"").contains("the file ends too early"));
    assert!(reason("[".repeat(100_000).as_bytes()).contains("nested more than 127 deep"));
    assert!(reason(b"\xff\xfe{\0}").starts_with("not a text file"), "a file cut inside of a character");
    assert!(reason(&fixture("checkpoint.json")).starts_with("a checkpoint of an unfinished run (2 cells)"));
    assert!(OpenError::Checkpoint { cells: 1 }.to_string().contains("(1 cell),"));
    assert!(reason(br#"{"tokscope": {"schema": 99}, "metadata": {"model": "m"}, "results": []}"#).contains("schema 99"));
}

#[test]
fn an_error_behind_a_replaced_number_is_placed_as_in_the_file() {
    let text = "{\"a\": NaN, \"b\": Infinity, \"c\": oops}";
    let at = text.find("oops").unwrap() + 1;
    let OpenError::Syntax { line, column, .. } = import::open(text.as_bytes()).unwrap_err() else { panic!("a syntax error") };
    assert_eq!((line, column), (1, at));
}

#[test]
fn files_of_other_tools_are_recognised() {
    let expected = [
        ("aiperf.json", "AIPerf"),
        ("guidellm.json", "GuideLLM"),
        ("inference_perf.json", "inference-perf"),
        ("llama_bench.jsonl", "llama-bench"),
        ("llama_benchy.json", "llama-benchy"),
        ("sglang_bench_serving.jsonl", "SGLang bench_serving"),
        ("vllm_bench_serve.json", "vllm bench serve"),
    ];
    for (name, tool) in expected {
        match import::open(&fixture(&format!("other/{name}"))) {
            Err(OpenError::Foreign(foreign)) => assert_eq!(foreign.tool, tool, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let _ = import::open(&bytes);
    }

    #[test]
    fn no_damaged_report_panics_and_none_loses_keys(at in 0usize..4000, byte: u8) {
        let mut bytes = fixture("v0.6.json");
        let at = at % bytes.len();
        bytes[at] = byte;
        if let (Ok(opened), Ok(original)) = (import::open(&bytes), serde_json::from_slice::<Value>(&bytes)) {
            proptest::prop_assert_eq!(serde_json::from_str::<Value>(&opened.report.to_json()).unwrap(), original);
            review(&opened.report, &opened.findings);
        }
    }
}
