//! What is generated from the types and tables, and where it is committed.

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use tokscope_shared::{metric, report};

/// Paths and texts of all generated files.
pub(crate) fn files() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let schema = report::json_schema();
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    let shapes = root.join("schema/shapes.txt");
    let committed = std::fs::read_to_string(&shapes).unwrap_or_default();
    vec![
        (root.join("../METRICS.md"), metric::document()),
        (root.join("schema/report.schema.json"), text),
        (shapes, with_shape(&committed, report::SCHEMA, &shape(&schema))),
    ]
}

/// The committed list with a line for this version, where it has none. A line once there never changes: another
/// shape needs a higher version.
fn with_shape(committed: &str, version: i64, shape: &str) -> String {
    let known = committed.lines().any(|line| line.split(' ').next() == Some(&version.to_string()));
    if known { committed.to_owned() } else { format!("{committed}{version} {shape}\n") }
}

/// A hash of the keys and kinds of a schema, without its words.
pub(crate) fn shape(schema: &Value) -> String {
    fn bare(value: &Value) -> Value {
        match value {
            Value::Object(map) => map
                .iter()
                .filter(|(key, value)| !(*key == "description" && value.is_string() || *key == "title"))
                .map(|(key, value)| (key.clone(), bare(value)))
                .collect(),
            Value::Array(items) => items.iter().map(bare).collect(),
            other => other.clone(),
        }
    }
    let digest = Sha256::digest(bare(schema).to_string());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
