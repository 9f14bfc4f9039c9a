//! The committed page is the one these sources make, as far as can be told with Rust alone.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use tokscope_tests::checkout;
use tokscope_tests::dist::BuildRecord;

#[test]
fn dist_was_built_from_these_sources_and_is_whole() {
    let dist = checkout().join("dist");
    let record = BuildRecord::read(&dist).unwrap();
    let found = BuildRecord::take(&checkout(), &dist, BTreeMap::new(), &BTreeMap::new()).unwrap();
    let differences = record.differences(&found);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn the_record_names_every_tool_and_the_page_keeps_to_its_size() {
    let record = BuildRecord::read(&checkout().join("dist")).unwrap();
    for tool in ["rustc", "cargo", "host", "std", "trunk", "wasm-bindgen", "wasm-opt"] {
        assert!(record.tools.contains_key(tool), "BUILD.json names no {tool}");
    }
    let wasm: Vec<_> = record.files.iter().filter(|(name, _)| name.ends_with(".wasm")).collect();
    assert_eq!(wasm.len(), 1, "one wasm file is expected");
    let (name, file) = wasm[0];
    assert!(file.bytes <= 550_000, "{name} has {} bytes", file.bytes);
    let brotli = file.brotli_bytes.unwrap();
    assert!(brotli <= 180_000, "{name} has {brotli} bytes with brotli");
}
