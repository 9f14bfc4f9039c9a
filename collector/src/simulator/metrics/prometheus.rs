//! Writing the Prometheus text format as Python's client does: families, series, sorted labels.

use std::fmt::Write as _;

use super::super::counters::{Counters, Gauges, Histogram};

/// Labels: key and value.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// One engine: its labels, and what it counts.
pub(super) struct Part {
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) counters: Counters,
    pub(super) gauges: Gauges,
}

/// Writes families; each has a series for every engine, with that engine's labels and its own, sorted by key.
pub(super) struct Page {
    pub(super) text: String,
    pub(super) parts: Vec<Part>,
    /// When the counters began, in Unix seconds; vLLM tells it in series of their own.
    pub(super) created: Option<f64>,
}

/// A number as Prometheus' Python client writes it.
pub(super) fn number(value: f64) -> String {
    if value.abs() >= 1e6 {
        let text = format!("{value:e}");
        return match text.split_once('e') {
            Some((digits, exponent)) if digits.contains('.') => format!("{digits}e+{exponent:0>2}"),
            Some((digits, exponent)) => format!("{digits}.0e+{exponent:0>2}"),
            None => text,
        };
    }
    format!("{value:?}")
}

/// A label's value with its special characters escaped.
fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

fn put(text: &mut String, name: &str, common: &[(&'static str, String)], own: Labels<'_>, value: f64) {
    let mut labels: Vec<(&str, &str)> = common.iter().map(|(key, value)| (*key, value.as_str())).collect();
    labels.extend_from_slice(own);
    labels.sort_unstable();
    let labels = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escape(value)));
    let labels = labels.collect::<Vec<_>>().join(",");
    let value = number(value);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{name}{{{labels}}} {value}");
}

impl Page {
    pub(super) fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A series without the engine's labels.
    pub(super) fn series(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        put(&mut self.text, name, &[], labels, value);
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl Fn(&Part) -> f64) {
        self.head(name, "gauge", help);
        for part in &self.parts {
            put(&mut self.text, name, &part.labels, &[], value(part));
        }
    }

    pub(super) fn gauge_by(&mut self, name: &str, help: &str, label: &str, values: impl Fn(&Part) -> Vec<(String, f64)>) {
        self.head(name, "gauge", help);
        for part in &self.parts {
            for (key, value) in values(part) {
                put(&mut self.text, name, &part.labels, &[(label, &key)], value);
            }
        }
    }

    pub(super) fn counter(&mut self, base: &str, help: &str, value: impl Fn(&Part) -> u64) {
        let name = format!("{base}_total");
        self.head(&name, "counter", help);
        for part in &self.parts {
            put(&mut self.text, &name, &part.labels, &[], value(part) as f64);
        }
        if let Some(created) = self.created {
            self.gauge(&format!("{base}_created"), help, |_| created);
        }
    }

    pub(super) fn counter_by(&mut self, base: &str, help: &str, label: &str, values: impl Fn(&Part) -> Vec<(String, u64)>) {
        let name = format!("{base}_total");
        self.head(&name, "counter", help);
        for part in &self.parts {
            for (key, value) in values(part) {
                put(&mut self.text, &name, &part.labels, &[(label, &key)], value as f64);
            }
        }
        if let Some(created) = self.created {
            self.gauge_by(&format!("{base}_created"), help, label, |part| {
                values(part).into_iter().map(|(key, _)| (key, created)).collect()
            });
        }
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, own: Labels<'_>, histogram: impl Fn(&Counters) -> &Histogram) {
        self.head(name, "histogram", help);
        for part in &self.parts {
            let histogram = histogram(&part.counters);
            let mut sum = 0;
            let bounds = histogram.bounds.iter().map(|bound| format!("{bound:?}"));
            for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&histogram.counts) {
                sum += count;
                let labels = [own, &[("le", &bound)]].concat();
                put(&mut self.text, &format!("{name}_bucket"), &part.labels, &labels, sum as f64);
            }
            put(&mut self.text, &format!("{name}_count"), &part.labels, own, sum as f64);
            put(&mut self.text, &format!("{name}_sum"), &part.labels, own, histogram.sum);
        }
        if let Some(created) = self.created {
            let name = format!("{name}_created");
            self.head(&name, "gauge", help);
            for part in &self.parts {
                put(&mut self.text, &name, &part.labels, own, created);
            }
        }
    }
}
