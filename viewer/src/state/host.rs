//! What a host that offers reports says of them. Only the reading of its answer; asking is `platform`'s.

use super::fragment::is_relative;
use serde_json::Value;

/// A report that the host offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosted {
    /// Its name.
    pub name: String,
    /// Its size in bytes, where the host says it.
    pub size: Option<u64>,
    /// Its address, relative to the page.
    pub address: String,
}

/// Reads the host's list, `{"reports": [{"name", "size", "url"}]}`; anything else is an empty list.
pub fn read(text: &str) -> Vec<Hosted> {
    let Ok(answer) = serde_json::from_str::<Value>(text) else { return Vec::new() };
    let reports = answer.get("reports").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    reports
        .iter()
        .filter_map(|report| {
            let address = report.get("url")?.as_str().filter(|address| is_relative(address))?;
            Some(Hosted {
                name: report.get("name")?.as_str()?.to_owned(),
                size: report.get("size").and_then(Value::as_u64),
                address: address.to_owned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_list_is_read() {
        let list = read(r#"{"reports": [{"name": "a b.json", "size": 12, "url": "api/reports/a%20b.json"}]}"#);
        assert_eq!(list, [Hosted { name: "a b.json".to_owned(), size: Some(12), address: "api/reports/a%20b.json".to_owned() }]);
    }

    #[test]
    fn other_answers_are_an_empty_list() {
        for other in ["<!doctype html>", "{}", "[]", r#"{"reports": 3}"#, r#"{"reports": [{"name": "x", "url": "https://x.example/"}]}"#] {
            assert_eq!(read(other), [], "{other}");
        }
    }
}
