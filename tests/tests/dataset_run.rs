//! Prompts of one's own, and made ones that turn out otherwise: what is sent, what is said of it, and what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Output, Stdio};
use tokscope_tests::program::{Running, command, get, tokscope};

/// Output limit of every second line; of the others the run's own.
const SHORT: u64 = 5;
const LONG: u64 = 40;

/// A file of so many prompts, each 8 words longer than the one before; every second one has an output limit of its own.
fn write_prompts(folder: &Path, lines: usize) {
    let line = |n: usize| {
        let limit = if n % 2 == 1 { format!(",\"max_tokens\":{SHORT}") } else { String::new() };
        format!("{{\"prompt\":\"{}\"{limit}}}\n", "word ".repeat(8 * n + 8).trim_end())
    };
    std::fs::write(folder.join("own.jsonl"), (0..lines).map(line).collect::<String>()).unwrap();
}

fn args<'a>(port: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let fixed = ["run", "--host", "127.0.0.1", "--port", port, "--output", "report.json", "--no-calibration", "--duration", "1"];
    [&fixed, &["--decode-warmup-seconds", "0"][..], more].concat()
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

fn report(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("report.json")).unwrap()).unwrap()
}

/// All requests that the server knows, by the id that the client gave them.
fn truth(port: u16) -> HashMap<String, Value> {
    let truth = get(port, "/simulator/truth");
    let requests = truth["requests"].as_array().unwrap().iter();
    requests.map(|request| (request["id"].as_str().unwrap().trim_start_matches("chatcmpl-").to_owned(), request.clone())).collect()
}

fn cells(report: &Value) -> Vec<&Value> {
    let lists = [&report["results"], &report["burst_results"], &report["tokscope"]["open_loop"]];
    lists.into_iter().flat_map(|list| list.as_array().unwrap()).collect()
}

/// Ids of a cell's requests.
fn ids(cell: &Value) -> Vec<String> {
    let ids = cell["tokscope"]["series"]["requests"]["id"].as_array().unwrap();
    ids.iter().map(|id| id.as_str().unwrap().to_owned()).collect()
}

/// Prompt lengths of all cells' requests, with how often each came; of this file each line has its own.
fn lengths(report: &Value, truth: &HashMap<String, Value>) -> BTreeMap<u64, usize> {
    let mut lengths = BTreeMap::new();
    for id in cells(report).into_iter().flat_map(ids) {
        *lengths.entry(truth[&id]["prompt_tokens"].as_u64().unwrap()).or_default() += 1;
    }
    lengths
}

fn warnings(report: &Value, of: &str) -> usize {
    let events = report["tokscope"]["events"].as_array().unwrap().iter();
    events.filter(|event| event["kind"] == "warning" && event["text"].as_str().unwrap().contains(of)).count()
}

#[test]
fn each_request_of_each_layer_takes_the_next_prompt_of_the_file_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), 200);
    let server = Running::start(dir.path(), &["simulate", "--port", "0", "--prompt-tokens-details"]);
    let (port, limit) = (server.port().to_string(), LONG.to_string());
    let more = ["--concurrency", "1,3", "--dataset", "own.jsonl", "--max-tokens", &limit, "--run-burst", "--request-rate", "6"];
    let out = tokscope(dir.path(), &args(&port, &more));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    let (report, truth) = (report(dir.path()), truth(server.port()));
    assert_eq!(cells(&report).len(), 5, "two sustained, two bursts, one open loop");
    for cell in cells(&report) {
        let prompt = &cell["tokscope"]["prompt"];
        assert_eq!((&prompt["mode"], &prompt["counted_by"]), (&"dataset".into(), &"usage".into()));
        assert_eq!([&prompt["target_tokens"], &prompt["tokens"], &prompt["scout_ttft_s"]], [&Value::Null; 3], "{prompt}");
        // Of a request that was cut early the server has told nothing yet.
        let told = cell["tokscope"]["series"]["requests"]["prompt_tokens"].as_array().unwrap();
        let known = ids(cell).into_iter().zip(told).filter(|(_, told)| !told.is_null());
        let tokens: Vec<u64> = known.map(|(id, _)| truth[&id]["prompt_tokens"].as_u64().unwrap()).collect();
        let mean = tokens.iter().sum::<u64>() as f64 / tokens.len() as f64;
        assert_eq!(prompt["counted"], tokens.len());
        assert_eq!(prompt["tokens_min"].as_u64(), tokens.iter().min().copied());
        assert_eq!(prompt["tokens_max"].as_u64(), tokens.iter().max().copied());
        assert!((prompt["tokens_mean"].as_f64().unwrap() - mean).abs() < 1e-6, "{prompt}");
        assert!(!cell["tokscope"]["reasons"].to_string().contains("prompt-length"), "own prompts have no length to miss");
    }
    // None came twice, and none was passed over but those that went before the bursts.
    let lengths = lengths(&report, &truth);
    assert!(lengths.values().all(|times| *times == 1), "{lengths:?}");
    let (shortest, longest) = (*lengths.keys().next().unwrap(), *lengths.keys().next_back().unwrap());
    let used = report["tokscope"]["dataset"]["used"].as_u64().unwrap();
    assert_eq!(used, lengths.len() as u64 + 1 + 3, "a request a stream goes before each burst");
    assert!((longest - shortest) / 8 <= used && used < 200, "{used} sent");
    // Lines count from 0: those with an odd number have a limit of their own.
    for id in cells(&report).into_iter().flat_map(ids) {
        let line = (truth[&id]["prompt_tokens"].as_u64().unwrap() - shortest) / 8;
        let tokens: u64 = truth[&id]["tokens"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
        assert!(tokens <= if line % 2 == 1 { SHORT } else { LONG }, "line {line}: {tokens} tokens");
    }
    let burst = &report["burst_results"][1];
    let longest = burst["tokscope"]["series"]["requests"]["tokens"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).max();
    assert_eq!(longest, Some(LONG), "without a limit of its own a line has the run's");
    // Nothing that only made prompts need.
    assert_eq!((&report["metadata"]["prefill_mode"], &report["metadata"]["context_lengths"]), (&"skipped".into(), &serde_json::json!([0])));
    assert_eq!(report["prefill"], serde_json::json!({}));
    assert_eq!(report["tokscope"]["server"]["prefix_cache"], Value::Null);
    let known: Vec<String> = cells(&report).into_iter().flat_map(ids).collect();
    let others = truth.iter().filter(|(id, _)| !known.contains(id));
    let longest_other = others.map(|(_, request)| request["prompt_tokens"].as_u64().unwrap()).max().unwrap();
    assert!(longest_other < 2_000, "neither scout nor probe of the prefix cache: {longest_other}");
    let dataset = &report["tokscope"]["dataset"];
    assert_eq!((&dataset["file"], &dataset["prompts"]), (&"own.jsonl".into(), &200.into()));
    assert_eq!(report["tokscope"]["options"]["dataset_sha256"], dataset["sha256"]);
    assert_eq!(report["tokscope"]["options"]["prompts"], "dataset");
    assert_eq!(warnings(&report, "--dataset"), 0);
}

#[test]
fn prompts_that_come_again_are_said() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), 3);
    let server = Running::start(dir.path(), &["simulate", "--port", "0"]);
    let port = server.port().to_string();
    let more = ["--concurrency", "2", "--dataset", "own.jsonl", "--max-tokens", "8", "--request-count", "6", "--skip-prefill"];
    let out = tokscope(dir.path(), &args(&port, &more));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    let (report, truth) = (report(dir.path()), truth(server.port()));
    assert_eq!(lengths(&report, &truth).values().copied().collect::<Vec<_>>(), [2, 2, 2]);
    assert_eq!(report["tokscope"]["dataset"]["used"], 6);
    assert_eq!(warnings(&report, "the 3 prompts of --dataset were gone through 2.0 times"), 1, "{}", text(&out));
    assert!(text(&out).contains("the 3 prompts of --dataset were gone through 2.0 times"), "{}", text(&out));
}

#[test]
fn what_makes_no_sense_with_own_prompts_is_refused_before_anything_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), 2);
    std::fs::write(dir.path().join("bad.jsonl"), "{\"prompt\":\"a\"}\n{\"promt\":\"b\"}\n").unwrap();
    std::fs::write(dir.path().join("empty.jsonl"), "\n").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let cases: [(&str, &[&str], &[&str]); 10] = [
        ("own.jsonl", &["--contexts", "0"], &["--contexts", "--dataset"]),
        ("own.jsonl", &["--prompts", "shared"], &["--prompts", "--dataset"]),
        ("own.jsonl", &["--standalone-prefill"], &["--standalone-prefill", "--dataset"]),
        ("own.jsonl", &["--prefill-only"], &["--prefill-only", "--dataset"]),
        ("own.jsonl", &["--prefill-contexts", "8k"], &["--prefill-contexts", "--dataset"]),
        ("own.jsonl", &["--prefill-duration", "3"], &["--prefill-duration", "--dataset"]),
        ("own.jsonl", &["--prefill-metric", "auto"], &["--prefill-metric", "--dataset"]),
        ("bad.jsonl", &[], &["--dataset bad.jsonl, line 2: neither \"prompt\" nor \"messages\" is there, but \"promt\""]),
        ("empty.jsonl", &[], &["--dataset empty.jsonl: there is no prompt in it"]),
        ("missing.jsonl", &[], &["--dataset missing.jsonl: "]),
    ];
    for (file, more, wanted) in cases {
        for command in ["run", "plan"] {
            let fixed = [command, "--host", "127.0.0.1", "--port", &port, "--dataset", file];
            let out = tokscope(dir.path(), &[&fixed, more].concat());
            let said = text(&out);
            assert_eq!(out.status.code(), Some(2), "{command} {file} {more:?}: {said}");
            assert!(wanted.iter().all(|wanted| said.contains(wanted)), "{said}");
        }
    }
    assert!(listener.accept().is_err(), "the server was asked");
}

#[test]
fn a_plan_of_own_prompts_leaves_nothing_out_for_the_kv_cache_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), 2);
    let server = Running::start(dir.path(), &["simulate", "--port", "0", "--flavour", "sglang", "--slots", "4"]);
    let port = server.port().to_string();
    let fixed = ["plan", "--host", "127.0.0.1", "--port", &port, "--kv-budget", "100", "--concurrency", "1,4,5"];
    let out = tokscope(dir.path(), &[&fixed[..], &["--dataset", "own.jsonl"]].concat());
    let said = text(&out);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert!(said.contains("KV cache: no cell is left out for it") && said.contains("own prompts"), "{said}");
    assert!(said.contains("2 of own.jsonl") && said.contains("2 cells, 1 left out"), "C=5 is more than the server runs: {said}");
    let out = tokscope(dir.path(), &[&fixed[..], &["--dataset", "own.jsonl", "--json"]].concat());
    let plan: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&plan["prompts"], &plan["dataset"]["prompts"]), (&"dataset".into(), &2.into()));
    assert_eq!(plan["cells"][0]["prompt_tokens_at_least"], Value::Null, "not known is not 0");
    // Made prompts are held against it.
    let out = tokscope(dir.path(), &[&fixed[..], &["--contexts", "0"]].concat());
    assert_eq!(out.status.code(), Some(3), "{}", text(&out));
}

#[test]
fn a_run_goes_on_with_the_next_prompts_and_not_with_a_changed_file() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), 200);
    let server = Running::start(dir.path(), &["simulate", "--port", "0"]);
    let port = server.port().to_string();
    let more = ["--concurrency", "1,2", "--dataset", "own.jsonl", "--max-tokens", "30"];
    let mut run = command(dir.path(), &args(&port, &more)).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("cell start C=2")), "the second cell never began");
    let pid = run.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    lines.for_each(drop);
    assert_eq!(run.wait().unwrap().code(), Some(130));
    let own = std::fs::read(dir.path().join("own.jsonl")).unwrap();
    write_prompts(dir.path(), 199);
    let resume = [&more[..], &["--resume"]].concat();
    let out = tokscope(dir.path(), &args(&port, &resume));
    assert_eq!(out.status.code(), Some(2), "{}", text(&out));
    assert!(text(&out).contains("the content of --dataset (SHA-256) is "), "{}", text(&out));
    std::fs::write(dir.path().join("own.jsonl"), own).unwrap();
    let out = tokscope(dir.path(), &args(&port, &resume));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    let (report, truth) = (report(dir.path()), truth(server.port()));
    assert_eq!((cells(&report).len(), report["tokscope"]["segments"].as_array().unwrap().len()), (2, 2));
    let lengths = lengths(&report, &truth);
    assert!(lengths.values().all(|times| *times == 1), "the second stretch goes on after the first: {lengths:?}");
}

#[test]
fn a_template_that_adds_to_some_prompts_only_is_noticed_by_the_servers_count() {
    const ADDED: u64 = 40;
    for (adds, off) in [("0", false), ("40", true)] {
        let dir = tempfile::tempdir().unwrap();
        let server = Running::start(dir.path(), &["simulate", "--port", "0", "--template-adds", adds]);
        let port = server.port().to_string();
        let more = ["--concurrency", "2,4", "--contexts", "1000", "--max-tokens", "10", "--request-count", "8", "--prefill-contexts", ""];
        let out = tokscope(dir.path(), &args(&port, &more));
        assert_eq!(out.status.code(), Some(0), "{}", text(&out));
        let report = report(dir.path());
        for cell in cells(&report) {
            let (prompt, reasons) = (&cell["tokscope"]["prompt"], cell["tokscope"]["reasons"].as_array().unwrap());
            let reason = reasons.iter().find(|reason| reason["code"] == "prompt-length");
            let of = |key: &str| prompt[key].as_u64().unwrap();
            assert!(of("tokens_min").abs_diff(of("tokens")) <= 8, "{prompt}");
            assert_eq!(reason.is_some(), off, "{reasons:?}");
            assert!(!off || cell["tokscope"]["verdict"] != "valid", "{reasons:?}");
            if let Some(reason) = reason {
                let said = reason["text"].as_str().unwrap();
                assert!(of("tokens_max").abs_diff(of("tokens") + ADDED) <= 8, "{prompt}");
                let range = format!("{} to {}", of("tokens_min"), of("tokens_max"));
                assert!(said.contains(" of 8 prompts of context 1000 ") && said.contains(&range), "{said}");
            }
        }
        assert_eq!(warnings(&report, "prompts of context 1000 have another length"), usize::from(off), "once a context");
    }
}

#[test]
fn a_prefix_cache_known_by_times_alone_makes_no_prompt_smaller_in_the_plan() {
    let plan = |server: &[&str]| -> Value {
        let dir = tempfile::tempdir().unwrap();
        let server = Running::start(dir.path(), &[&["simulate", "--port", "0", "--prefill-tok-s", "20000"], server].concat());
        let port = server.port().to_string();
        let fixed = ["plan", "--host", "127.0.0.1", "--port", &port, "--kv-budget", "20000", "--max-tokens", "100"];
        let out = tokscope(dir.path(), &[&fixed[..], &["--contexts", "8k", "--concurrency", "1,4", "--json"]].concat());
        assert_eq!(out.status.code(), Some(0), "{}", text(&out));
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let counted = plan(&[]);
    assert_eq!(counted["left_out"], serde_json::json!([]), "8k once and four endings fit: {counted}");
    assert!(counted["kv_rule"].as_str().unwrap().contains("counted once"), "{counted}");
    let by_times = plan(&["--metrics", "missing"]);
    assert!(by_times["kv_rule"].as_str().unwrap().contains("by times alone"), "{by_times}");
    let left = &by_times["left_out"][0];
    assert_eq!((&left["concurrency"], &left["code"]), (&4.into(), &"kv-budget".into()));
    let said = left["text"].as_str().unwrap();
    assert!(said.contains("4 x (") && !said.contains("shared + ") && said.contains("by times alone"), "{said}");
}

#[test]
fn answers_are_shortened_to_the_room_that_the_longest_prompt_leaves() {
    // What has no /tokenize is reckoned from its bytes.
    for (flavour, least) in [("vllm", 1100), ("proxy", 200)] {
        let dir = tempfile::tempdir().unwrap();
        let line = |words: usize| format!("{{\"prompt\":\"{}\"}}\n", "word ".repeat(words).trim_end());
        std::fs::write(dir.path().join("own.jsonl"), [8, 800, 20].map(line).concat()).unwrap();
        let fast = ["--step-base-us", "500", "--step-per-sequence-us", "0", "--step-per-context-token-ns", "0"];
        let server =
            Running::start(dir.path(), &[&["simulate", "--port", "0", "--max-context", "2048", "--flavour", flavour][..], &fast].concat());
        let port = server.port().to_string();
        let out = tokscope(dir.path(), &args(&port, &["--concurrency", "2", "--dataset", "own.jsonl", "--request-count", "3"]));
        assert_eq!(out.status.code(), Some(0), "{}", text(&out));
        let (report, truth) = (report(dir.path()), truth(server.port()));
        let cell = &report["results"][0];
        assert_eq!((&cell["completed_request_count"], &cell["num_errors"]), (&3.into(), &0.into()), "{}", text(&out));
        let prompt = &cell["tokscope"]["prompt"];
        let (asked, sent) = (&prompt["max_tokens_asked"], prompt["max_tokens"].as_u64().unwrap());
        assert_eq!(*asked, 8192, "{cell}");
        let longest = *lengths(&report, &truth).keys().next_back().unwrap();
        assert!(longest > 700 && sent >= least && sent + longest <= 2048, "{sent} tokens of answer beside {longest} of the longest prompt");
    }
}
