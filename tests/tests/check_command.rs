//! `tokscope check` as a process: lines, exit codes, JSON.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use tokscope_tests::program::tokscope;

fn fixtures() -> PathBuf {
    tokscope_tests::checkout().join("shared/tests/fixtures")
}

/// Standard output, standard error and exit code.
fn check(folder: &Path, args: &[&str]) -> (String, String, i32) {
    let out = tokscope(folder, &[&["check"], args].concat());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(out.stdout), text(out.stderr), out.status.code().unwrap())
}

#[test]
fn a_line_says_what_a_file_is_and_what_to_think_of_it() {
    let (out, _, code) = check(&fixtures(), &["seed.json"]);
    assert_eq!((out.lines().count(), code), (1, 0));
    let start = "seed.json: decode report, llm_decode_bench 0.4.29, GLM-5.3-Flash-EXL3-4bpw, vLLM 0.1.dev20111+g7f1e92bec.d20260827: \
                 3 of 3 cells valid; ";
    assert!(out.starts_with(start), "{out}");
    assert!(out.contains("hint (no-prefix-caching) C=1 at 32k, C=1 at 64k: e.g. the first token took 5.4 s at 32k"), "{out}");
}

#[test]
fn output_that_is_lost_is_a_failure_and_a_closed_pipe_is_none() {
    let mut check = tokscope_tests::program::command(&fixtures(), &["check", "seed.json"]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let out = check.stdout(full).stderr(std::process::Stdio::piped()).output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{err}");
    assert!(err.starts_with("tokscope: standard output can't be written: ") && err.lines().count() == 1, "{err}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = check.stdout(writer).output().unwrap();
    assert_eq!((out.status.code(), out.stderr.len()), (Some(0), 0));
}

#[test]
fn invalid_cells_are_3_unreadable_files_are_1_and_1_wins() {
    assert_eq!(check(&fixtures(), &["v0.4.json"]).2, 0);
    assert_eq!(check(&fixtures(), &["v0.6.json", "seed.json"]).2, 3);
    let (out, _, code) = check(&fixtures(), &["v0.6.json", "checkpoint.json", "seed.json"]);
    assert_eq!((code, out.lines().count()), (1, 3));
    assert!(out.lines().nth(1).unwrap().starts_with("checkpoint.json: a checkpoint of an unfinished run (2 cells)"));
    assert_eq!(check(&fixtures(), &["prefill-only.json"]).2, 0, "no decode cells is nothing to complain of");
}

#[test]
fn a_folder_stands_for_the_reports_in_it_and_its_checkpoints_are_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("all/below")).unwrap();
    for (from, to) in
        [("seed.json", "b.json"), ("v0.4.json", "a.json"), ("checkpoint.json", "b.json.resume.json"), ("seed.json", "below/c.json")]
    {
        std::fs::copy(fixtures().join(from), dir.path().join("all").join(to)).unwrap();
    }
    std::fs::write(dir.path().join("all/notes.txt"), "no report").unwrap();
    let names = |out: &str| out.lines().map(|line| line.split(": ").next().unwrap().to_owned()).collect::<Vec<_>>();
    let (out, err, code) = check(dir.path(), &["all"]);
    assert_eq!((names(&out), code), (vec!["all/a.json".to_owned(), "all/b.json".to_owned()], 0), "{out}{err}");
    let (out, _, _) = check(dir.path(), &["all/b.json", "all/"]);
    assert_eq!(names(&out), ["all/b.json", "all/a.json"], "each once: {out}");
    // A checkpoint that is named is told of.
    let (out, _, code) = check(dir.path(), &["all", "all/b.json.resume.json"]);
    assert_eq!((out.lines().count(), code), (3, 1), "{out}");
    let (out, _, _) = check(dir.path(), &["all", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap().as_array().unwrap().len(), 2);
}

#[test]
fn bad_files_are_one_sentence_with_place_and_reason() {
    let dir = tempfile::tempdir().unwrap();
    let seed = std::fs::read(fixtures().join("seed.json")).unwrap();
    std::fs::write(dir.path().join("cut.json"), &seed[..seed.len() / 2]).unwrap();
    std::fs::write(dir.path().join("empty.json"), "").unwrap();
    std::fs::write(dir.path().join("page.json"), "<html>502 Bad Gateway</html>").unwrap();
    std::fs::write(dir.path().join("other.json"), r#"{"name": "x", "version": 1}"#).unwrap();
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    let line = |name: &str| {
        let (out, err, code) = check(dir.path(), &[name]);
        assert_eq!((code, out.lines().count(), err.as_str()), (1, 1, ""), "{name}: {out}{err}");
        out
    };
    let cut = line("cut.json");
    let place: Vec<&str> = cut.split(':').collect();
    assert!(place[1].parse::<usize>().unwrap() > 100 && place[2].parse::<usize>().unwrap() >= 1, "{cut}");
    assert!(cut.contains("not JSON: EOF while parsing") && cut.contains("the file ends too early"), "{cut}");
    assert!(line("empty.json").starts_with("empty.json: the file is empty"));
    assert!(line("page.json").starts_with("page.json:1:1: not JSON: expected value"));
    assert!(line("other.json").starts_with("other.json: JSON, but no report: an object with name, version"));
    assert!(line("folder").starts_with("folder: a folder without reports: "));
    assert!(line("missing.json").starts_with("missing.json: no such file"));
    let (_, err, code) = check(dir.path(), &[]);
    assert_eq!(code, 2);
    assert!(err.contains("<FILE-OR-FOLDER>"), "{err}");
}

#[test]
fn files_of_other_tools_are_named_and_refused() {
    let (out, _, code) = check(&fixtures().join("other"), &["aiperf.json", "llama_bench.jsonl"]);
    assert_eq!(code, 1);
    assert!(out.contains("aiperf.json: a report of AIPerf, with 96 requests at request level: Tokscope doesn't read those yet"), "{out}");
    assert!(out.contains("llama_bench.jsonl: a report of llama-bench"), "{out}");
}

#[test]
fn machines_get_json() {
    let (out, _, code) = check(&fixtures(), &["--json", "v0.6.json", "nan.json", "other/aiperf.json", "missing.json"]);
    assert_eq!(code, 1);
    let list: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(list[0]["counts"], serde_json::json!({ "valid": 1, "suspect": 0, "limited": 0, "invalid": 2 }));
    assert_eq!(list[0]["cells"][1]["verdict"], "invalid");
    assert_eq!(list[0]["cells"][1]["reasons"][0]["code"], "repetition");
    assert_eq!(list[0]["cells"][1]["aggregate_tps"], Value::Null, "a sentinel is no number");
    assert_eq!(list[1]["doubts"][0]["code"], "non-finite");
    assert_eq!((&list[2]["error"], &list[2]["tool"]), (&"other-tool".into(), &"AIPerf".into()));
    assert_eq!(list[3]["readable"], false);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = std::process::Command::new(tokscope_tests::program::program())
        .args(["check", "--json", "seed.json"])
        .current_dir(fixtures())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), String::from_utf8(out.stderr).unwrap().as_str()), (Some(0), ""));
}

#[test]
fn each_rate_stands_with_its_context_and_the_length_of_its_answers() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(fixtures().join("seed.json")).unwrap();
    let mut report: Value = serde_json::from_str(&text).unwrap();
    report["metadata"]["max_tokens"] = 1234.into();
    let mut burst = report["results"][1].clone();
    burst["request_count_target"] = 5.into();
    report["burst_results"] = Value::Array(vec![burst.clone()]);
    let open_loop = burst;
    report["tokscope"] = serde_json::json!({ "repeats": [{ "cell": report["results"][1] }], "open_loop": [open_loop] });
    std::fs::write(dir.path().join("a.json"), report.to_string()).unwrap();
    let (out, err, _) = check(dir.path(), &["--tables", "a.json"]);
    let blocks: Vec<Vec<&str>> = out.split("\n\n").map(|block| block.lines().collect()).collect();
    for title in ["Sustained decode, tok/s", "Bursts, tok/s", "Open loop", "Repeats, tok/s"] {
        let of_title = blocks.iter().find(|block| block[0].contains(title));
        let block = of_title.unwrap_or_else(|| panic!("no {title}: {out}{err}"));
        assert!(block[0].split(title).nth(1).unwrap().contains("· answers up to 1234 tokens"), "{out}");
        assert!(out.contains("; 1 burst cell, valid;"), "one is no number of cells: {out}");
        assert!(block[1].contains("context") && block.iter().any(|line| line.contains("32k ")), "{title}: {out}");
    }
}
