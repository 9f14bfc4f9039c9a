//! Tests that need more than Rust are left out by name: each says so itself, so that `cargo test` lists
//! and counts it as ignored. This makes sure that none forgets.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;

use tokscope_tests::checkout;

#[test]
fn every_browser_and_corpus_test_is_listed_as_ignored_where_its_feature_is_off() {
    for entry in fs::read_dir(checkout().join("tests/tests")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let feature = match name.as_str() {
            file if file.starts_with("page") => "browser",
            file if file.starts_with("corpus") => "corpus",
            _ => continue,
        };
        let source = fs::read_to_string(&path).unwrap();
        let lines = || source.lines().map(str::trim);
        let tests = lines().filter(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test")).count();
        let gated = source.matches(&format!("not(feature = \"{feature}\")")).count();
        assert_eq!(tests, gated, "{name}: every test needs the cfg_attr of its neighbours");
        assert!(tests > 0, "{name} holds no test");
    }
}
