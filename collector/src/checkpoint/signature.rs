//! Whether two stretches belong to one run: what was to be measured, of whom, with which model.

use crate::report::{Options, RunRecord};
use crate::run::RunOptions;
use crate::target::Address;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Options that say nothing of what is measured, and those that follow from others.
const OF_NO_MATTER: [&str; 2] = ["show_capacity_limited_values", "prefill_mode"];
/// Options that are said the other way round.
const NEGATED: [&str; 2] = ["calibrate", "loop_detection"];

/// What all stretches of a run have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Signature {
    options: Map<String, Value>,
    /// Empty where the server wasn't asked yet.
    server: Map<String, Value>,
}

impl Signature {
    /// Of a run whose server is known.
    #[must_use]
    pub fn of(record: &RunRecord) -> Self {
        let server = &record.server;
        let mut known = Map::new();
        known.insert("engine".into(), server.engine.clone().into());
        known.insert("version".into(), server.version.clone().into());
        known.insert("address".into(), server.url.clone().into());
        for (name, value, _) in &server.limits {
            known.insert(name.clone(), (*value).into());
        }
        Self { options: options_of(&record.options), server: known }
    }

    /// Of a run as it is asked for, before the server was.
    #[must_use]
    pub fn asked(options: &RunOptions) -> Self {
        let target = &options.target;
        let display = Address::parse(&target.host, target.port).map(|(address, _)| address.display().to_owned());
        let model = target.model.as_deref().unwrap_or_default();
        let mut known = options_of(&Options::asked(options, display.as_deref().unwrap_or_default(), model));
        if model.is_empty() {
            known.remove("model");
        }
        if display.is_err() {
            known.remove("host");
        }
        Self { options: known, server: Map::new() }
    }

    /// Each difference to an earlier stretch in words; none where it can be gone on.
    #[must_use]
    pub fn differences(&self, earlier: &Self) -> Vec<String> {
        let mut found = differences(&self.options, &earlier.options, option_name);
        if !self.server.is_empty() {
            found.extend(differences(&self.server, &earlier.server, |key, value| (format!("the server's {key}"), shown(value))));
        }
        found
    }
}

fn options_of(options: &Options) -> Map<String, Value> {
    let Ok(Value::Object(mut map)) = serde_json::to_value(options) else { return Map::new() };
    map.retain(|key, _| !OF_NO_MATTER.contains(&key.as_str()));
    map
}

fn differences(now: &Map<String, Value>, before: &Map<String, Value>, named: fn(&str, &Value) -> (String, String)) -> Vec<String> {
    let more = before.keys().filter(|key| !now.contains_key(*key) && !matches!(key.as_str(), "model" | "host"));
    let keys = now.keys().chain(more);
    keys.filter_map(|key| {
        let (now, before) = (now.get(key).unwrap_or(&Value::Null), before.get(key).unwrap_or(&Value::Null));
        let ((name, now_shown), (_, before_shown)) = (named(key, now), named(key, before));
        (now != before).then(|| format!("{name} is {now_shown} now and was {before_shown}"))
    })
    .collect()
}

fn option_name(key: &str, value: &Value) -> (String, String) {
    let name = key.replace('_', "-");
    match value {
        _ if key == "dataset_sha256" => ("the content of --dataset (SHA-256)".to_owned(), shown(value)),
        Value::Bool(on) if NEGATED.contains(&key) => {
            (format!("--no-{}", if key == "calibrate" { "calibration" } else { &name }), shown(&(!on).into()))
        }
        _ => (format!("--{name}"), shown(value)),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "not given".to_owned(),
        Value::Bool(true) => "on".to_owned(),
        Value::Bool(false) => "off".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "not given".to_owned(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::prompt::Dataset;
    use crate::target::TargetOptions;

    fn options() -> RunOptions {
        RunOptions {
            target: TargetOptions { host: "http://me:passw0rd@h:1".into(), model: Some("m".into()), ..TargetOptions::default() },
            concurrency: vec![1, 4],
            duration_s: 3.0,
            calibrate: true,
            ..RunOptions::default()
        }
    }

    fn differences_to(change: impl FnOnce(&mut RunOptions)) -> Vec<String> {
        let mut now = options();
        change(&mut now);
        Signature::asked(&now).differences(&Signature::asked(&options()))
    }

    #[test]
    fn every_difference_is_named_with_both_values() {
        assert!(differences_to(|_| ()).is_empty());
        assert_eq!(differences_to(|now| now.duration_s = 5.0), ["--duration is 5.0 now and was 3.0"]);
        assert_eq!(
            differences_to(|now| {
                now.concurrency = vec![1];
                now.calibrate = false;
                now.target.kv_budget_tokens = Some(7);
            }),
            ["--concurrency is 1 now and was 1,4", "--kv-budget is 7 now and was not given", "--no-calibration is on now and was off"]
        );
        assert_eq!(differences_to(|now| now.target.model = Some("n".into())), ["--model is n now and was m"]);
        assert!(differences_to(|now| now.target.model = None).is_empty(), "whatever the server lists first; it is looked at later");
        assert!(differences_to(|now| now.show_capacity_limited = true).is_empty());
    }

    #[test]
    fn another_file_of_prompts_is_another_run_and_so_is_a_changed_one() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
            Some(Dataset::read(&folder.path().join(name)).unwrap())
        };
        let before = RunOptions { dataset: read("a", "{\"prompt\":\"a\"}\n"), ..options() };
        let differences =
            |dataset: Option<Dataset>| Signature::asked(&RunOptions { dataset, ..options() }).differences(&Signature::asked(&before));
        assert!(differences(read("a", "{\"prompt\":\"a\"}\n")).is_empty());
        let other = differences(read("b", "{\"prompt\":\"a\"}\n"));
        assert!(other.len() == 1 && other[0].starts_with("--dataset is "), "{other:?}");
        let changed = differences(read("a", "{\"prompt\":\"b\"}\n"));
        assert!(changed.len() == 1 && changed[0].starts_with("the content of --dataset (SHA-256) is "), "{changed:?}");
        let without = differences(None);
        assert_eq!(without.len(), 3, "--prompts, --dataset and its content: {without:?}");
    }

    #[test]
    fn a_password_is_no_part_of_it() {
        let text = serde_json::to_string(&Signature::asked(&options())).unwrap_or_default();
        assert!(text.contains("h:1") && !text.contains("passw0rd"), "{text}");
    }
}
