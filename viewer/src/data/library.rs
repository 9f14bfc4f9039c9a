//! The reports that are loaded and the files that could not be read. A file is known by its bytes.

use super::summary::Summary;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokscope_shared::import;
use tokscope_shared::matrix::Matrix;
use tokscope_shared::metric::{self, Metric};
use tokscope_shared::report::Report;
use tokscope_shared::verdict::{self, Review};

/// What tells a file from another: its length and a hash of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    len: usize,
    hash: u64,
}

impl Id {
    /// Of a file's bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Id { len: bytes.len(), hash: hasher.finish() }
    }
}

/// One loaded report with all that is asked of it again and again.
#[derive(Debug)]
pub struct Entry {
    /// What it is known by.
    pub id: Id,
    /// The file's name.
    pub name: String,
    /// Where on the host it came from, if it did.
    pub address: Option<String>,
    /// The file as it was given, for what is shown as it stands there.
    pub bytes: Vec<u8>,
    /// The report.
    pub report: Report,
    /// Its cells and itself, judged.
    pub review: Review,
    /// Its cells laid out.
    pub matrix: Matrix,
    /// Its line in the list.
    pub summary: Summary,
}

/// The same file.
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Entry {
    /// The metrics of which at least one cell has a value.
    pub fn metrics(&self) -> Vec<&'static Metric> {
        metric::ALL.iter().filter(|metric| self.report.cells().any(|cell| metric.read(cell).value().is_some())).collect()
    }

    /// The metric of that name where the report has it, else the first that it has.
    pub fn metric_or_first(&self, id: &str) -> Option<&'static Metric> {
        let metrics = self.metrics();
        metrics.iter().find(|metric| metric.id == id).or(metrics.first()).copied()
    }
}

/// A file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The file's name.
    pub name: String,
    /// Why, in words.
    pub reason: String,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is a new entry.
    New(Id),
    /// It was there already.
    Known(Id),
    /// It could not be read, and stands among the failed ones.
    Failed,
}

impl Added {
    /// The entry, where there is one.
    pub fn id(self) -> Option<Id> {
        match self {
            Added::New(id) | Added::Known(id) => Some(id),
            Added::Failed => None,
        }
    }
}

/// All files that were given to the page.
#[derive(Clone, Debug, Default)]
pub struct Library {
    entries: Vec<Arc<Entry>>,
    failed: Vec<Failed>,
}

impl Library {
    /// Opens a file.
    pub fn add(&mut self, name: &str, address: Option<&str>, bytes: &[u8]) -> Added {
        let id = Id::of(bytes);
        if self.get(id).is_some() {
            return Added::Known(id);
        }
        let opened = match import::open(bytes) {
            Ok(opened) => opened,
            Err(error) => {
                self.fail(name, &error.to_string());
                return Added::Failed;
            }
        };
        let report = opened.report;
        let review = verdict::review(&report, &opened.findings);
        let summary = Summary::new(&report, &review);
        let matrix = Matrix::new(&report);
        let address = address.map(str::to_owned);
        self.entries.push(Arc::new(Entry { id, name: name.to_owned(), address, bytes: bytes.to_vec(), report, review, matrix, summary }));
        Added::New(id)
    }

    /// Notes a file that could not even be fetched or read from disk, or that is no report.
    pub fn fail(&mut self, name: &str, reason: &str) {
        let failed = Failed { name: name.to_owned(), reason: reason.to_owned() };
        if !self.failed.contains(&failed) {
            self.failed.push(failed);
        }
    }

    /// The entry, where it is loaded.
    pub fn get(&self, id: Id) -> Option<Arc<Entry>> {
        self.entries.iter().find(|entry| entry.id == id).cloned()
    }

    /// The entry that came from that address of the host.
    pub fn from_address(&self, address: &str) -> Option<Id> {
        self.entries.iter().find(|entry| entry.address.as_deref() == Some(address)).map(|entry| entry.id)
    }

    /// The reports, in the order in which they came.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// The files that could not be read.
    pub fn failed(&self) -> &[Failed] {
        &self.failed
    }

    /// Forgets the files that could not be read.
    pub fn clear_failed(&mut self) {
        self.failed.clear();
    }

    /// Takes a report off the list.
    pub fn remove(&mut self, id: Id) {
        self.entries.retain(|entry| entry.id != id);
    }

    /// The entry so many places after another one, at the ends the last or first.
    pub fn beside(&self, id: Id, step: isize) -> Option<Id> {
        let at = self.entries.iter().position(|entry| entry.id == id)?;
        let to = at.saturating_add_signed(step).min(self.entries.len() - 1);
        Some(self.entries[to].id)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_same_file_given_twice_is_one_entry() {
        let mut library = Library::default();
        let first = library.add("a.json", None, crate::data::sample());
        let again = library.add("b.json", None, crate::data::sample());
        assert_eq!(again, Added::Known(first.id().unwrap()));
        assert_eq!(library.entries().len(), 1);
        assert_eq!(library.entries()[0].name, "a.json");
    }

    #[test]
    fn a_file_that_is_no_report_is_listed_with_the_reason() {
        let mut library = Library::default();
        assert_eq!(library.add("cut.json", None, &crate::data::sample()[..500]), Added::Failed);
        assert_eq!(library.add("empty.json", None, b""), Added::Failed);
        assert!(library.entries().is_empty());
        assert_eq!(library.failed()[0].name, "cut.json");
        assert!(library.failed()[0].reason.contains("ends too early"), "{}", library.failed()[0].reason);
        assert!(library.failed()[1].reason.contains("0 bytes"));
    }

    #[test]
    fn the_same_failure_is_listed_once() {
        let mut library = Library::default();
        library.add("empty.json", None, b"");
        library.add("empty.json", None, b"");
        assert_eq!(library.failed().len(), 1);
    }

    #[test]
    fn only_metrics_with_a_value_are_offered() {
        let mut library = Library::default();
        let id = library.add("a.json", None, crate::data::sample()).id().unwrap();
        let entry = library.get(id).unwrap();
        let ids: Vec<_> = entry.metrics().iter().map(|metric| metric.id).collect();
        assert!(ids.contains(&"aggregate-tps") && ids.contains(&"steps-per-s"));
        // No request of the sample reached its end: its latency is 0, which means no value.
        assert!(!ids.contains(&"latency-p50"));
        assert_eq!(entry.metric_or_first("latency-p50").unwrap().id, "aggregate-tps");
        assert_eq!(entry.metric_or_first("steps-per-s").unwrap().id, "steps-per-s");
    }

    #[test]
    fn the_entry_beside_stops_at_the_ends() {
        let mut library = Library::default();
        let first = library.add("a.json", None, crate::data::sample()).id().unwrap();
        let second = library.add("b.json", None, &[crate::data::sample(), b"\n"].concat()).id().unwrap();
        assert_eq!(library.beside(first, 1), Some(second));
        assert_eq!(library.beside(second, 1), Some(second));
        assert_eq!(library.beside(first, -1), Some(first));
        library.remove(first);
        assert_eq!(library.beside(first, 1), None);
    }
}
