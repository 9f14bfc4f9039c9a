//! Real reports of many versions and engines, in the folder named by TOKSCOPE_CORPUS: they open, lose nothing,
//! and are judged as they should be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tokscope_shared::field::{Json, Leaf};
use tokscope_shared::import::{self, OpenError, Opened};
use tokscope_shared::verdict::{Verdict, review};

fn corpus() -> PathBuf {
    PathBuf::from(std::env::var_os("TOKSCOPE_CORPUS").expect("TOKSCOPE_CORPUS names the folder of the real reports"))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the corpus has this folder") {
        let path = entry.unwrap().path();
        if path.is_dir() { out.extend(files(&path)) } else { out.push(path) }
    }
    out.sort();
    out
}

/// The 45 reports and the seed.
fn reports() -> Vec<(String, Value, Opened)> {
    let mut paths = files(&corpus().join("decode-bench"));
    paths.push(corpus().join("seed.json"));
    assert_eq!(paths.len(), 46);
    paths
        .iter()
        .map(|path| {
            let bytes = std::fs::read(path).unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let report = import::open(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, serde_json::from_slice(&bytes).unwrap(), report)
        })
        .collect()
}

#[test]
#[cfg_attr(not(feature = "corpus"), ignore = "needs the real reports: set TOKSCOPE_CORPUS and --features corpus")]
fn every_report_opens_and_its_cells_are_judged() {
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    let mut codes: BTreeMap<String, usize> = BTreeMap::new();
    let mut most_invalid = 0;
    for (_, _, opened) in reports() {
        let review = review(&opened.report, &opened.findings);
        for judgement in &review.cells {
            *counts.entry(judgement.verdict).or_default() += 1;
            for reason in &judgement.reasons {
                *codes.entry(reason.code.clone()).or_default() += 1;
            }
        }
        most_invalid = most_invalid.max(review.count(Verdict::Invalid));
    }
    assert_eq!(counts.values().sum::<usize>(), 272);
    assert_eq!(counts[&Verdict::Invalid], 27 + 2, "{codes:?}");
    assert_eq!(most_invalid, 26);
    assert_eq!(counts[&Verdict::Limited], 26, "{codes:?}");
    assert_eq!(counts[&Verdict::Suspect], 59, "{codes:?}");
    assert_eq!(counts[&Verdict::Valid], 158, "{codes:?}");
    assert_eq!(codes["server-fallback"], 2);
    assert_eq!(codes["source-unknown"], 59);
    assert_eq!(codes["no-prefix-caching"], 3);
    // Rules that no real report calls for.
    for quiet in ["counters-mixed", "rate-inconsistent", "trailing-stall", "server-disagrees", "chunks-as-tokens"] {
        assert!(!codes.contains_key(quiet), "{quiet} fired: {codes:?}");
    }
}

#[test]
#[cfg_attr(not(feature = "corpus"), ignore = "needs the real reports: set TOKSCOPE_CORPUS and --features corpus")]
fn the_prefix_caching_hint_is_on_two_cells_of_the_seed_and_one_at_128k() {
    let mut found = Vec::new();
    for (name, _, opened) in reports() {
        for (cell, judgement) in opened.report.cells().zip(review(&opened.report, &opened.findings).cells) {
            if judgement.reasons.iter().any(|reason| reason.code == "no-prefix-caching") {
                found.push((name.clone(), cell.context_tokens.i64().unwrap()));
            }
        }
    }
    let expected = [("evaluations__decode__bestkld_dcp2_mtp3_128k.json", 131_072), ("seed.json", 32_768), ("seed.json", 65_536)];
    assert_eq!(found, expected.map(|(name, context)| (name.to_owned(), context)));
}

#[test]
#[cfg_attr(not(feature = "corpus"), ignore = "needs the real reports: set TOKSCOPE_CORPUS and --features corpus")]
fn a_report_rewritten_unchanged_is_equal_as_json() {
    for (name, original, opened) in reports() {
        let again: Value = serde_json::from_str(&opened.report.to_json()).unwrap();
        assert!(again == original, "{name} changed when it was rewritten");
    }
}

#[test]
#[cfg_attr(not(feature = "corpus"), ignore = "needs the real reports: set TOKSCOPE_CORPUS and --features corpus")]
fn every_typed_field_that_is_changed_is_changed_in_the_rewritten_file() {
    let mut typed = 0;
    for (name, original, opened) in reports() {
        let (mut report, findings) = (opened.report, opened.findings);
        let mut changed: BTreeMap<String, Value> = BTreeMap::new();
        report.each_leaf("", &mut |path, leaf| {
            let new = match leaf {
                Leaf::Number(n) | Leaf::Whole(n) => {
                    *n = match n.as_i64() {
                        Some(i) => (i + 1).into(),
                        None => serde_json::Number::from_f64(n.as_f64().unwrap() + 1.5).unwrap(),
                    };
                    Value::Number(n.clone())
                }
                Leaf::Text(text) => {
                    text.push('~');
                    Value::String(text.clone())
                }
                Leaf::Flag(flag) => {
                    *flag = !*flag;
                    Value::Bool(*flag)
                }
            };
            assert!(changed.insert(path.to_owned(), new).is_none(), "{name}: {path} handed out twice");
        });
        let again: Value = serde_json::from_str(&report.to_json()).unwrap();
        for (path, new) in &changed {
            assert_eq!(again.pointer(path), Some(new), "{name}: {path}");
            assert_ne!(original.pointer(path), Some(new), "{name}: {path}");
        }
        // What wasn't handed out is under a key that the schema doesn't know.
        let mut scalars = Vec::new();
        scalars_of(&original, String::new(), &mut scalars);
        for path in scalars.iter().filter(|path| !changed.contains_key(*path)) {
            let unknown = |key: &String| path == key || path.starts_with(&format!("{key}/"));
            assert!(findings.unknown.iter().any(unknown), "{name}: {path} is neither typed nor unknown");
        }
        typed += changed.len();
    }
    assert!(typed > 30_000, "only {typed} typed values were found");
}

fn scalars_of(value: &Value, path: String, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, item)| scalars_of(item, tokscope_shared::field::join(&path, key), out)),
        Value::Array(items) => items.iter().enumerate().for_each(|(i, item)| scalars_of(item, format!("{path}/{i}"), out)),
        Value::Null => {}
        _ => out.push(path),
    }
}

#[test]
#[cfg_attr(not(feature = "corpus"), ignore = "needs the real reports: set TOKSCOPE_CORPUS and --features corpus")]
fn only_keys_that_the_predecessor_never_wrote_are_unknown_and_no_value_is_odd() {
    let mut unknown: Vec<String> = Vec::new();
    for (name, _, opened) in reports() {
        let findings = opened.findings;
        assert!(findings.odd.is_empty(), "{name}: {:?}", findings.odd);
        unknown.extend(findings.unknown);
    }
    unknown.sort();
    unknown.dedup();
    // Added by hand or by forks to single files.
    let expected = [
        "/metadata/context_sharing_mode",
        "/metadata/shared_context_percent",
        "/metadata/token_targeting",
        "/metadata/unique_context_percent",
        "/public_replay_command",
        "/public_replay_powershell",
        "/recorded_arguments",
        "/request_policy",
        "/sanitization",
        "/schema",
    ];
    assert_eq!(unknown, expected);
}

#[test]
#[cfg_attr(not(feature = "corpus"), ignore = "needs the real reports: set TOKSCOPE_CORPUS and --features corpus")]
fn files_of_other_tools_are_named_and_refused() {
    let mut named = BTreeMap::new();
    for path in files(&corpus().join("other")) {
        let folder = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        match import::open(&std::fs::read(&path).unwrap()) {
            Err(OpenError::Foreign(foreign)) => {
                assert!(!foreign.holds.is_empty());
                named.insert(folder, foreign.tool);
            }
            other => panic!("{}: {other:?}", path.display()),
        }
    }
    let expected = [
        ("aiperf", "AIPerf"),
        ("guidellm", "GuideLLM"),
        ("inference_perf", "inference-perf"),
        ("llama_bench", "llama-bench"),
        ("llama_benchy", "llama-benchy"),
        ("sglang_bench_serving", "SGLang bench_serving"),
        ("vllm_bench_serve", "vllm bench serve"),
    ];
    assert_eq!(named, expected.into_iter().map(|(folder, tool)| (folder.to_owned(), tool)).collect());
}

#[test]
#[cfg_attr(not(feature = "corpus"), ignore = "needs the real reports: set TOKSCOPE_CORPUS and --features corpus")]
fn a_report_cut_anywhere_says_where_it_ends() {
    let bytes = std::fs::read(corpus().join("seed.json")).unwrap();
    for at in (1..bytes.len() - 1).step_by(997) {
        match import::open(&bytes[..at]) {
            Err(OpenError::Syntax { line, column, cut: true, .. }) => assert!(line >= 1 && column <= at),
            other => panic!("cut at {at}: {other:?}"),
        }
    }
}
