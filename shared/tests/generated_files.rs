//! The committed METRICS.md, JSON Schema and shapes are those of the code.
#![allow(clippy::unwrap_used, missing_docs)]

mod generated;

use tokscope_shared::report;

#[test]
fn committed_files_are_the_generated_ones() {
    for (path, text) in generated::files() {
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "{} is old: run `cargo run -p tokscope-shared --example generate`", path.display());
    }
}

#[test]
fn a_change_of_shape_needs_a_higher_schema() {
    let shapes = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/schema/shapes.txt")).unwrap();
    let lines: Vec<(i64, &str)> = shapes.lines().map(|line| line.split_once(' ').unwrap()).map(|(v, s)| (v.parse().unwrap(), s)).collect();
    assert!(lines.is_sorted_by(|a, b| a.0 < b.0), "a version stands twice or out of order");
    let (version, shape) = *lines.last().unwrap();
    assert_eq!(version, report::SCHEMA);
    assert_eq!(shape, generated::shape(&report::json_schema()), "the shape changed: raise `SCHEMA` in shared/src/report/mod.rs");
}
