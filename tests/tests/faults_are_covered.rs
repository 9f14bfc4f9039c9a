//! Each known fault has a test, or a reason why not, and each such test a broken variant that still can be made. That
//! the tests fail against them is tried by `tests/broken.sh`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;

use tokscope_tests::checkout;
use tokscope_tests::faults::{Line, table, variants};

/// Accuracy of the load, and reading streams.
const A: [u32; 27] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 22, 23, 25, 26, 27, 29, 30, 31, 32];
const B: [u32; 18] = [1, 2, 3, 4, 5, 7, 10, 11, 12, 13, 14, 16, 18, 20, 21, 22, 24, 25];
/// Tokens and lengths; warm-up and caches; the server's metrics; speculation; errors and the process.
const C: [u32; 9] = [1, 2, 3, 4, 5, 7, 8, 10, 11];
const D: [u32; 9] = [1, 2, 3, 4, 5, 6, 8, 9, 10];
const E: [u32; 7] = [1, 2, 5, 8, 9, 10, 11];
const F: [u32; 3] = [1, 2, 3];
const G: [u32; 6] = [1, 2, 3, 5, 6, 8];

#[test]
fn every_fault_has_a_test_or_a_reason_why_not() {
    let lines = table(&checkout()).unwrap();
    let listed: BTreeSet<&str> = lines.iter().map(Line::id).collect();
    let groups: [(&str, &[u32]); 7] = [("A", &A), ("B", &B), ("C", &C), ("D", &D), ("E", &E), ("F", &F), ("G", &G)];
    let known: BTreeSet<String> = groups.iter().flat_map(|(group, ids)| ids.iter().map(move |id| format!("{group}{id}"))).collect();
    let known: BTreeSet<&str> = known.iter().map(String::as_str).collect();
    let (missing, unknown) = (known.difference(&listed).collect::<Vec<_>>(), listed.difference(&known).collect::<Vec<_>>());
    assert!(missing.is_empty() && unknown.is_empty(), "not in tests/faults.tsv: {missing:?}; not among the known faults: {unknown:?}");
    for line in &lines {
        if let Line::Not { id, reason } = line {
            assert!(reason.split(' ').count() > 4, "{id} needs a reason in words, not '{reason}'");
            assert_eq!(lines.iter().filter(|other| other.id() == id).count(), 1, "{id} has a reason and a test");
        }
    }
}

#[test]
fn every_test_of_a_fault_is_in_the_sources() {
    let root = checkout();
    for line in table(&root).unwrap() {
        let Line::Tested { id, test, .. } = line else { continue };
        let (file, function) = test.source(&root);
        let text = fs::read_to_string(&file).unwrap();
        let before = text.split(&format!("fn {function}(")).next().filter(|before| before.len() < text.len());
        let before = before.unwrap_or_else(|| panic!("{id}: there is no fn {function} in {}", file.display()));
        let attribute = before.rsplit("\n\n").next().unwrap();
        assert!(attribute.contains("#[test]") || attribute.contains("#[tokio::test"), "{id}: {function} is no test");
    }
}

#[test]
fn every_broken_variant_can_be_made_and_is_tried() {
    let root = checkout();
    let lines = table(&root).unwrap();
    let used: BTreeSet<&str> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Tested { variant, .. } => Some(variant.as_str()),
            Line::Not { .. } => None,
        })
        .collect();
    let variants = variants(&root).unwrap();
    let kept: BTreeSet<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
    assert_eq!(used, kept, "in the table, and in tests/broken.toml");
    assert_eq!(kept.len(), variants.len(), "two variants have one name");
    for variant in &variants {
        for (file, text) in variant.broken(&root).unwrap_or_else(|error| panic!("{error}")) {
            assert_ne!(text, fs::read_to_string(root.join(&file)).unwrap(), "{} changes nothing in {file}", variant.name);
        }
    }
}
