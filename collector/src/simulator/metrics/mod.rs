//! What `/metrics` says, in the Prometheus text format: vLLM's families as recorded, SGLang's as
//! its documentation names them. Families that the simulated engine has nothing for stand at 0.

mod llama_cpp;
mod prometheus;
mod sglang;
mod vllm;

use super::clock;
use super::counters::{Counters, Gauges};
use super::engine::Occupied;
use super::model::{Flavour, Settings};
pub(crate) use llama_cpp::{Scraped, page as llama_cpp};
use prometheus::Part;

/// What a scrape is made from.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Of each engine; there is one at least.
    pub(crate) engines: Vec<(Counters, Gauges)>,
    /// Requests in a slot.
    pub(crate) occupied: Vec<Occupied>,
}

impl Snapshot {
    /// Of the first engine, which for many servers is the only one.
    fn first(&self) -> (Counters, Gauges) {
        self.engines.first().cloned().unwrap_or_else(|| (Counters::new(0), Gauges::default()))
    }

    /// The engines, each with its labels.
    fn parts(&self, labels: impl Fn(usize) -> Vec<(&'static str, String)>) -> Vec<Part> {
        let engines = self.engines.iter().enumerate();
        engines.map(|(at, (counters, gauges))| Part { labels: labels(at), counters: counters.clone(), gauges: *gauges }).collect()
    }
}

/// The page of the imitated server. llama.cpp's is [`llama_cpp`]; a proxy's tells of itself and nothing of an engine.
pub(crate) fn page(settings: &Settings, snapshot: &Snapshot, started_s: f64) -> String {
    match settings.flavour {
        Flavour::Vllm => vllm::page(settings, snapshot, started_s),
        Flavour::Sglang => sglang::page(settings, snapshot),
        Flavour::LlamaCpp | Flavour::Proxy => {
            let name = "process_start_time_seconds";
            format!("# HELP {name} When the proxy started.\n# TYPE {name} gauge\n{name} {}\n", prometheus::number(started_s))
        }
    }
}

/// When the counters of a server that starts now began.
pub(crate) fn started_s() -> f64 {
    clock::unix_s()
}

#[cfg(test)]
mod tests;
