//! Whole runs, with prefill, bursts and repeats, against each kind of server, laid beside what the server knows to be
//! true: each field of the report, one after the other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

#[path = "engines_run/fields.rs"]
mod fields;
#[path = "engines_run/truth.rs"]
mod truth;
#[path = "engines_run/whole.rs"]
mod whole;

use fields::{Asked, Case, Engine, Kind, Sampled, Scrape, Want, cell_rules, rule, sample_rules, wrong};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokscope_shared::report::json_schema;
use tokscope_tests::program::{Running, get, tokscope_within};
use truth::Truth;
use whole::{Measured, Whole, measured};

/// Room for 16 streams of 32k. A slow step, so that a busy machine keeps up with it; small blocks, so that streams that
/// restart together read little anew and hardly wait for each other.
const SIMULATOR: [&str; 9] = ["simulate", "--port", "0", "--step-base-us", "20000", "--prefill-tok-s", "10000", "--block-tokens", "16"];
const BUDGET: u64 = 1_048_576;
/// The whole matrix takes six minutes.
const LONGEST_RUN: Duration = Duration::from_secs(900);

const VLLM: Engine = Engine {
    name: "vllm",
    simulate: &["--spec-accept", "0.8,0.6,0.4"],
    source: "openai_continuous_usage",
    metrics: true,
    counts_drafts: true,
    gauges_drafts: false,
    tells_kv: true,
    validation: "prometheus:kv_computed",
    budget: BUDGET,
    max_tokens: 300,
};
const SGLANG: Engine = Engine {
    name: "sglang",
    simulate: &["--flavour", "sglang", "--spec-accept", "0.8,0.6,0.4"],
    counts_drafts: false,
    gauges_drafts: true,
    validation: "prometheus:request_total",
    ..VLLM
};
const LLAMA_CPP: Engine = Engine {
    name: "llama_cpp",
    simulate: &["--flavour", "llama-cpp", "--slots", "16", "--max-context", "40960"],
    source: "openai_final_usage_spread",
    counts_drafts: false,
    tells_kv: false,
    validation: "prometheus:local_compute",
    budget: 0,
    max_tokens: 120,
    ..VLLM
};
const PROXY: Engine =
    Engine { name: "openai_proxy", simulate: &["--flavour", "proxy"], metrics: false, validation: "", budget: 900_000, ..LLAMA_CPP };

fn asked(contexts: &[u64], concurrency: &[u64], repeats: u64, kv_budget: Option<u64>) -> Asked {
    Asked {
        contexts: contexts.to_vec(),
        concurrency: concurrency.to_vec(),
        prefill_contexts: vec![4096, 8192],
        repeats,
        duration: 4.0,
        burst_per_stream: 2,
        burst_warmup: 1,
        accept_len_ref: 3.0,
        temperature: 0.6,
        warmup_limit: 50.0,
        warmup_seconds: 1.0,
        kv_budget,
    }
}

/// What a run left behind.
struct Run {
    report: Value,
    truth: Truth,
    port: u16,
}

fn listed(numbers: &[u64]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn run(engine: &Engine, asked: &Asked) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), &[&SIMULATOR, engine.simulate].concat());
    let args = [
        ("--host", "127.0.0.1".to_owned()),
        ("--port", server.port().to_string()),
        ("--output", "report.json".to_owned()),
        ("--contexts", listed(&asked.contexts)),
        ("--concurrency", listed(&asked.concurrency)),
        ("--prefill-contexts", listed(&asked.prefill_contexts)),
        ("--repeat", asked.repeats.to_string()),
        ("--duration", asked.duration.to_string()),
        ("--max-tokens", engine.max_tokens.to_string()),
        ("--burst-requests-per-concurrency", asked.burst_per_stream.to_string()),
        ("--burst-warmup-request-count", asked.burst_warmup.to_string()),
        ("--accept-len-ref", asked.accept_len_ref.to_string()),
        ("--temperature", asked.temperature.to_string()),
        ("--cell-warmup-timeout-seconds", asked.warmup_limit.to_string()),
        ("--decode-warmup-seconds", asked.warmup_seconds.to_string()),
        ("--kv-budget", asked.kv_budget.unwrap_or(0).to_string()),
    ];
    let args: Vec<&str> = args.iter().flat_map(|(option, value)| [*option, value]).collect();
    let out = tokscope_within(LONGEST_RUN, dir.path(), &[&["run", "--run-burst", "--no-calibration"], args.as_slice()].concat());
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(0), "{text}");
    Run { report: strict(&dir.path().join("report.json")), truth: Truth::new(get(server.port(), "/simulator/truth")), port: server.port() }
}

/// The report, which is JSON without what only some readers take, and of the shape that was published.
fn strict(path: &Path) -> Value {
    let report: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&json_schema()).unwrap();
    let errors: Vec<String> = validator.iter_errors(&report).map(|error| format!("{}: {error}", error.instance_path)).collect();
    assert!(errors.is_empty(), "{errors:?}");
    report
}

fn scrapes(report: &Value) -> Vec<Scrape> {
    let series = &report["tokscope"]["series"];
    let column = |name: &str| series[name].as_array().unwrap();
    let at = |name: &str, at: usize| column(name)[at].as_f64();
    let one = |i: usize| Scrape {
        t_us: column("scrape_t_us")[i].as_u64().unwrap(),
        took_us: column("scrape_took_us")[i].as_u64().unwrap(),
        running: at("running", i),
        waiting: at("waiting", i),
        kv_usage: at("kv_usage", i),
        tokens: at("generation_tokens", i),
    };
    (0..column("scrape_t_us").len()).map(one).collect()
}

/// What was found of a run: what is wrong with it, and how much of it the machine spoiled.
#[derive(Default)]
struct Found {
    wrong: Vec<String>,
    cells: usize,
    noisy: usize,
    /// The worst of all cells, in tokens, and that by what it may be.
    tokens_off: (u64, f64),
    length_off: f64,
    /// Scrapes in windows whose running and waiting requests are the server's own.
    running: usize,
}

/// The simulator is late by so much, or more, only where the machine had no time for it.
const LATE_NS: u64 = 15_000_000;

fn compare(run: &Run, engine: &'static Engine, asked: &Asked) -> Found {
    let Run { report, truth, port } = run;
    assert_eq!((truth.forgotten_requests, truth.history.forgotten), (0, 0), "the truth is whole");
    assert_eq!(report["tokscope"]["status"], "complete");
    let mut found = Found { wrong: Whole { report, truth, asked, engine, port: *port }.wrong(), ..Found::default() };
    if !truth.rejected.is_empty() {
        found.wrong.push(format!("requests were refused: {:?}", truth.rejected));
    }
    let (scrapes, gauge) = (scrapes(report), truth.gauge());
    let origin_ns = report["tokscope"]["client"]["origin_ns"].as_u64().unwrap();
    for Measured { repeat, cell, .. } in measured(report, asked) {
        let ids = cell["tokscope"]["series"]["requests"]["id"].as_array().unwrap();
        let requests = ids.iter().map(|id| truth.request(id.as_str().unwrap())).collect();
        let mut case = Case { cell, truth, engine, requests, scrapes: &scrapes, asked, origin_ns, noisy: false, gauge: &gauge };
        case.noisy = is_noisy(&case);
        let name = format!("{} C={} at {}, repeat {repeat}", cell["benchmark_mode"], case.c(), cell["context_tokens"]);
        let mut of_cell = of_cell(&case, &mut found);
        of_cell.iter_mut().for_each(|text| *text = format!("{name}: {text}"));
        found.wrong.append(&mut of_cell);
        found.cells += 1;
        found.noisy += usize::from(case.noisy);
    }
    found
}

/// Whether the machine was too busy: by the report's own word, or since the simulator was late.
fn is_noisy(case: &Case<'_>) -> bool {
    let (from, to) = case.window();
    let (from, to) = (case.ns(from).saturating_sub(3_000_000_000), case.ns(to));
    let late =
        case.requests.iter().flat_map(|r| r.handed_ns.iter().zip(&r.late_ns)).any(|(at, late)| (from..to).contains(at) && *late > LATE_NS);
    let reasons = case.cell["tokscope"]["reasons"].as_array().unwrap();
    late || reasons.iter().any(|reason| reason["code"] == "client-limited")
}

fn of_cell(case: &Case<'_>, found: &mut Found) -> Vec<String> {
    let mut faults = wrong(case.cell, &cell_rules(), case);
    let own = &case.cell["tokscope"];
    if own["verdict"] != "valid" && !case.noisy {
        faults.push(format!("{}: {}", own["verdict"], own["reasons"]));
    }
    // All these servers keep prefixes, and every context was read before its first cell.
    if own["reasons"].as_array().unwrap().iter().any(|reason| reason["code"] == "no-prefix-caching") {
        faults.push(format!("the cache is said not to work: {}", own["reasons"]));
    }
    faults.extend(of_requests(case));
    faults.extend(of_samples(case));
    faults.extend(of_times(case));
    faults.extend(of_server(case, found));
    let (counted, handed) = (case.cell["client_output_tokens"].as_u64().unwrap_or(0), case.handed());
    let off = (counted.abs_diff(handed), counted.abs_diff(handed) as f64 / case.allowed());
    if !case.is_burst() && off.1 > found.tokens_off.1 {
        found.tokens_off = off;
    }
    faults
}

/// Requests by the columns: each is the server's, and nothing is in the window that isn't in one of them.
fn of_requests(case: &Case<'_>) -> Vec<String> {
    let columns = &case.cell["tokscope"]["series"]["requests"];
    let in_window: f64 = columns["window_tokens"].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).sum();
    let mut faults = Vec::new();
    if (in_window - case.number("client_output_tokens")).abs() > 0.5 {
        faults.push(format!("{in_window} tokens in the window by request"));
    }
    if case.is_burst() {
        let all: u64 = case.requests.iter().map(|request| request.sum()).sum();
        let ended = case.requests.iter().filter(|request| request.end == "length").count() as u64;
        let asked = case.c() * case.asked.burst_per_stream;
        if (all, ended, case.requests.len() as u64) != (case.cell["client_output_tokens"].as_u64().unwrap_or(0), asked, asked) {
            faults.push(format!("the server knows {} requests, {ended} of them to the end, {all} tokens", case.requests.len()));
        }
    }
    faults
}

/// The samples stand for the requests with tokens, in the order of the columns.
fn of_samples(case: &Case<'_>) -> Vec<String> {
    let columns = &case.cell["tokscope"]["series"]["requests"];
    let started = |at: &usize| columns["first_token_us"][*at].is_u64() && columns["tokens"][*at].as_u64() > Some(0);
    let places: Vec<usize> = (0..case.requests.len()).filter(started).collect();
    let samples = case.cell["request_samples"].as_array().unwrap();
    if samples.len() != places.len() {
        return vec![format!("{} samples of {} requests with tokens", samples.len(), places.len())];
    }
    let rules = sample_rules();
    let of_sample = |(sample, at): (&Value, usize)| {
        let named = move |text: String| format!("sample {at}: {text}");
        wrong(sample, &rules, &Sampled { case, at }).into_iter().map(named).collect::<Vec<_>>()
    };
    samples.iter().zip(places).flat_map(of_sample).collect()
}

/// Times that the client took beside those of the server, which began and ended earlier: their medians.
fn of_times(case: &Case<'_>) -> Vec<String> {
    if case.noisy {
        return Vec::new();
    }
    let columns = &case.cell["tokscope"]["series"]["requests"];
    let us = |name: &str, at: usize| columns[name][at].as_f64();
    let finished = |at: &usize| columns["class"][*at] == "finished";
    let places = || 0..case.requests.len();
    let median = |ratios: &mut Vec<f64>| {
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied()
    };
    let first = |at: usize| Some((us("first_token_us", at)? - us("sent_us", at)?) / 1e6 / case.requests[at].ttft_s());
    let whole = |at: usize| Some((us("last_token_us", at)? - us("sent_us", at)?) / 1e6 / case.requests[at].latency_s());
    let ttft = median(&mut places().filter_map(first).collect());
    let latency = median(&mut places().filter(finished).filter_map(whole).collect());
    let mut faults = Vec::new();
    for (name, ratio, most) in [("TTFT", ttft, 1.15), ("request latency", latency, 1.02)] {
        if ratio.is_some_and(|ratio| !(0.999..most).contains(&ratio)) {
            faults.push(format!("{name} is {} times the server's", ratio.unwrap()));
        }
    }
    if case.is_burst() {
        let received = case.requests.iter().map(|request| request.received_ns).min().unwrap();
        let last = case.requests.iter().flat_map(|request| &request.handed_ns).max().unwrap();
        let ratio = case.number("measurement_seconds") / ((last - received) as f64 / 1e9);
        if !(0.999..1.02).contains(&ratio) {
            faults.push(format!("the burst lasted {ratio} times as long as at the server"));
        }
    }
    faults
}

/// What the report has of the server, beside what the server was.
fn of_server(case: &Case<'_>, found: &mut Found) -> Vec<String> {
    let mut faults = Vec::new();
    if !case.engine.metrics || case.noisy {
        return faults;
    }
    let inside = case.inside();
    if inside.is_empty() {
        faults.push("no scrape in the window".to_owned());
    }
    for scrape in &inside {
        let (running, waiting) = case.truth.load_between(case.ns(scrape.t_us - scrape.took_us), case.ns(scrape.t_us));
        let knows = |known: &std::collections::HashSet<u32>, told: Option<f64>| told.is_some_and(|told| known.contains(&(told as u32)));
        if knows(&running, scrape.running) && knows(&waiting, scrape.waiting) {
            found.running += 1;
        } else {
            faults.push(format!(
                "at {} µs {:?} ran and {:?} waited, truly {running:?} and {waiting:?}",
                scrape.t_us, scrape.running, scrape.waiting
            ));
        }
    }
    if case.engine.counts_drafts && !case.drafts_are_true() {
        faults.push(format!(
            "drafts {} and acceptances {} that the server never made",
            case.cell["server_spec_drafts"], case.cell["server_spec_accepted_tokens"]
        ));
    }
    if case.engine.counts_drafts || case.engine.gauges_drafts {
        let (told, (true_length, over_window)) = (case.number("server_spec_accept_length"), case.true_length());
        let off = (told - true_length).abs();
        println!("  acceptance length {told:.4}, truly {true_length:.4}; over the window's own steps {over_window:.4}");
        found.length_off = found.length_off.max(off);
        if off > 0.01 || off.is_nan() {
            faults.push(format!("acceptance length {told}, truly {true_length}"));
        }
    }
    faults
}

/// Where the machine spoiled more than half of the cells, the run is repeated once.
fn whole_run(engine: &'static Engine, asked: &Asked) {
    let mut found = Found::default();
    for attempt in 1..=2 {
        println!("{}, attempt {attempt}", engine.name);
        found = compare(&run(engine, asked), engine, asked);
        println!(
            "{}: {} cells, {} of them spoiled by the machine; tokens off by {} at most ({:.2} of what may be), acceptance length by {:.4}; running exact at {} scrapes",
            engine.name, found.cells, found.noisy, found.tokens_off.0, found.tokens_off.1, found.length_off, found.running
        );
        assert!(found.wrong.is_empty(), "{}", found.wrong.join("\n"));
        if found.noisy * 2 <= found.cells {
            return;
        }
    }
    panic!("the machine spoiled {} of {} cells", found.noisy, found.cells);
}

#[test]
fn every_field_of_a_short_run_is_right() {
    static ENGINE: Engine = Engine { max_tokens: 120, ..VLLM };
    let once = asked(&[0, 8192], &[1, 4], 1, None);
    whole_run(&ENGINE, &Asked { prefill_contexts: vec![8192], burst_per_stream: 1, duration: 2.0, warmup_seconds: 0.0, ..once });
}

#[test]
fn a_field_that_is_missing_odd_off_or_out_of_place_is_named() {
    let rules = || {
        let near = rule("near", Kind::Num, |_: &()| Want::Near(200.0, 1e-3));
        let null = rule("null", Kind::Int, |_: &()| Want::Null);
        let whole = rule("whole", Kind::Int, |_: &()| Want::Is(4.into()));
        vec![near, null, whole, rule("within", Kind::Num, |_: &()| Want::Within(1.0, 2.0))]
    };
    let faults = |section: Value| wrong(&section, &rules(), &());
    assert_eq!(faults(json!({ "near": 200.1, "null": null, "other": 0, "whole": 4, "within": 2 })), Vec::<String>::new());
    for (section, fault) in [
        (json!({ "near": 200.3, "null": null, "whole": 4, "within": 1 }), "near is 200.3, not 200"),
        (json!({ "near": 200, "null": 0, "whole": 4, "within": 1 }), "null is 0, and can't be measured"),
        (json!({ "near": 200, "null": null, "whole": 4.0, "within": 1 }), "whole is 4.0, which is no Int"),
        (json!({ "near": 200, "null": null, "whole": 5, "within": 1 }), "whole is 5, not 4"),
        (json!({ "near": 200, "null": null, "whole": 4, "within": 2.1 }), "within is 2.1, not from 1"),
        (json!({ "near": 200, "null": null, "within": 1 }), "whole is not there"),
        (json!({ "null": null, "near": 200, "whole": 4, "within": 1 }), "keys in another order"),
    ] {
        let found = faults(section);
        assert!(found.len() == 1 && found[0].starts_with(fault), "{found:?} instead of {fault}");
    }
}

macro_rules! whole_matrix {
    ($($test:ident: $engine:expr, $kv_budget:expr;)*) => {$(
        #[test]
        #[ignore = "takes five minutes: cargo test -p tokscope-tests --test engines_run -- --ignored whole_matrix --test-threads 1 --nocapture"]
        fn $test() {
            static ENGINE: Engine = $engine;
            whole_run(&ENGINE, &asked(&[0, 8192, 32_768], &[1, 4, 16], 2, $kv_budget));
        }
    )*};
}

whole_matrix! {
    whole_matrix_of_vllm: VLLM, None;
    whole_matrix_of_sglang: SGLANG, None;
    whole_matrix_of_llama_cpp: LLAMA_CPP, None;
    whole_matrix_of_a_proxy: PROXY, Some(900_000);
}
