//! Writing the Prometheus text format as Python's client does: families, series, sorted labels.

use std::fmt::Write as _;

use super::super::counters::Histogram;

/// Labels: key and value.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

/// Writes families; each series has the common labels and its own, sorted by key.
pub(crate) struct Page<'a> {
    pub(crate) text: String,
    pub(crate) common: Vec<(&'a str, &'a str)>,
    /// When the counters began, in Unix seconds; vLLM tells it in series of their own.
    pub(crate) created: Option<f64>,
}

/// A number as Prometheus' Python client writes it.
pub(crate) fn number(value: f64) -> String {
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

impl Page<'_> {
    pub(crate) fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(crate) fn series(&mut self, name: &str, own: Labels<'_>, value: f64) {
        let mut labels = [&self.common, own].concat();
        labels.sort_unstable();
        let labels = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escape(value)));
        let labels = labels.collect::<Vec<_>>().join(",");
        let value = number(value);
        let _ = writeln!(self.text, "{name}{{{labels}}} {value}");
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        self.series(name, &[], value);
    }

    pub(crate) fn gauge_by(&mut self, name: &str, help: &str, label: &str, values: &[(&str, f64)]) {
        self.head(name, "gauge", help);
        for (key, value) in values {
            self.series(name, &[(label, key)], *value);
        }
    }

    pub(crate) fn counter(&mut self, base: &str, help: &str, value: u64) {
        let name = format!("{base}_total");
        self.head(&name, "counter", help);
        self.series(&name, &[], value as f64);
        if let Some(created) = self.created {
            self.gauge(&format!("{base}_created"), help, created);
        }
    }

    pub(crate) fn counter_by(&mut self, base: &str, help: &str, label: &str, values: &[(&str, u64)]) {
        let name = format!("{base}_total");
        self.head(&name, "counter", help);
        for (key, value) in values {
            self.series(&name, &[(label, key)], *value as f64);
        }
        if let Some(created) = self.created {
            let values: Vec<_> = values.iter().map(|(key, _)| (*key, created)).collect();
            self.gauge_by(&format!("{base}_created"), help, label, &values);
        }
    }

    pub(crate) fn histogram(&mut self, name: &str, help: &str, own: Labels<'_>, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let mut sum = 0;
        let bounds = histogram.bounds.iter().map(|bound| format!("{bound:?}"));
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&histogram.counts) {
            sum += count;
            let labels = [own, &[("le", &bound)]].concat();
            self.series(&format!("{name}_bucket"), &labels, sum as f64);
        }
        self.series(&format!("{name}_count"), own, sum as f64);
        self.series(&format!("{name}_sum"), own, histogram.sum);
        if let Some(created) = self.created {
            let name = format!("{name}_created");
            self.head(&name, "gauge", help);
            self.series(&name, own, created);
        }
    }
}
