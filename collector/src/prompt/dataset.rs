//! Prompts of one's own: a file with a JSON object a line, sent as they are. The run's id is not put into them, so what a
//! server kept of an earlier run shows in the cached tokens.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::body::fields;
use super::{CHAT_PATH, Shape};
use crate::load::request::{PreparedRequest, RequestHead, RequestSource, Taken};
use crate::target::Target;

const MOST_BYTES: u64 = 1_000_000_000;

/// Why a file is no dataset.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// It can't be read.
    #[error("--dataset {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It isn't read at all.
    #[error("--dataset {} {reason}", file.display())]
    Unfit {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// Nothing is in it.
    #[error("--dataset {}: there is no prompt in it; give a JSON object a line, as {{\"prompt\": \"...\"}}", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// A line is no prompt.
    #[error("--dataset {}, line {line}: {reason}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what is wanted.
        reason: String,
    },
}

/// One prompt.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    /// `[{"role":...}]`, as JSON.
    messages: Bytes,
    max_tokens: Option<u32>,
}

/// A file of prompts as it was read.
#[derive(Debug, PartialEq)]
struct Source {
    file: PathBuf,
    sha256: String,
    entries: Vec<Entry>,
}

/// Which prompt comes next, counted on over the end of the file. Held for a few instructions once a request, while it is
/// built and not yet due.
#[derive(Debug, Default)]
struct Turn {
    next: usize,
    /// Those before it that were taken and never sent.
    back: BTreeSet<usize>,
}

impl Turn {
    fn take(&mut self) -> usize {
        self.back.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    fn give_back(&mut self, number: usize) {
        self.back.insert(number);
        while self.next > 0 && self.back.remove(&(self.next - 1)) {
            self.next -= 1;
        }
    }
}

/// A turn that was taken.
#[derive(Debug)]
struct Mine {
    number: usize,
    turn: Arc<Mutex<Turn>>,
    sent: bool,
}

impl Taken for Mine {
    fn is_sent(&mut self) {
        self.sent = true;
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        if !self.sent {
            self.turn.lock().unwrap_or_else(PoisonError::into_inner).give_back(self.number);
        }
    }
}

/// Prompts of one's own, and which comes next. Clones go on with the same one: nothing is sent twice before the end of
/// the file.
#[derive(Clone, Debug)]
pub struct Dataset {
    source: Arc<Source>,
    turn: Arc<Mutex<Turn>>,
}

impl Dataset {
    /// Reads a file: a line each `{"prompt": "..."}` or `{"messages": [...]}`, with `"max_tokens"` where an answer shall be
    /// shorter than the run's limit. Empty lines are passed over, and so are other keys.
    ///
    /// # Errors
    /// The file can't be read, has no prompt, or a line is none.
    pub fn read(path: &Path) -> Result<Self, DatasetError> {
        let file = || path.to_owned();
        let read = |source| DatasetError::Read { file: file(), source };
        let about = std::fs::metadata(path).map_err(read)?;
        if !about.is_file() {
            return Err(DatasetError::Unfit { file: file(), reason: "is no ordinary file" });
        }
        if about.len() > MOST_BYTES {
            return Err(DatasetError::Unfit { file: file(), reason: "is larger than 1 GB: all of it is kept in memory" });
        }
        let bytes = std::fs::read(path).map_err(read)?;
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        let mut entries = Vec::new();
        for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let entry = read_line(line).map_err(|reason| DatasetError::Line { file: file(), line: at + 1, reason })?;
            entries.push(entry);
        }
        if entries.is_empty() {
            return Err(DatasetError::Empty { file: file() });
        }
        let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { source: Arc::new(Source { file: file(), sha256, entries }), turn: Arc::default() })
    }

    /// The file, as it was named.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.source.file
    }

    /// SHA-256 of its bytes, in hexadecimal: whether it is the same file as before.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.source.sha256
    }

    /// How many prompts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.source.entries.len()
    }

    /// The messages of the so many longest prompts, the longest first.
    #[must_use]
    pub fn longest(&self, count: usize) -> Vec<Value> {
        let mut entries: Vec<&Entry> = self.source.entries.iter().collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.messages.len()));
        entries.iter().take(count).filter_map(|entry| serde_json::from_slice(&entry.messages).ok()).collect()
    }

    /// Never: a file without prompts is an error.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.source.entries.is_empty()
    }

    /// Goes on after so many, which an earlier stretch of the run took.
    pub fn go_on_after(&self, used: usize) {
        let mut turn = self.turn();
        turn.next = turn.next.max(used);
    }

    /// How many were sent. Those that streams had ready when their cell ended are sent with the next one.
    #[must_use]
    pub fn used(&self) -> usize {
        self.turn().next
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be said once prompts came again.
    #[must_use]
    pub fn wrapped(&self) -> Option<String> {
        let (used, all) = (self.used(), self.len());
        (used > all).then(|| {
            format!(
                "the {all} prompt{} of --dataset {} gone through {:.1} times: from the second time on the server may have kept them",
                if all == 1 { "" } else { "s" },
                if all == 1 { "was" } else { "were" },
                used as f64 / all as f64
            )
        })
    }

    /// The requests of a cell: the next prompts, in the file's order, whichever stream asks.
    #[must_use]
    pub fn cell(&self, target: &Target, run_id: &str, cell_index: usize, shape: &Shape) -> DatasetPrompts {
        DatasetPrompts {
            dataset: self.clone(),
            head: RequestHead::post(&target.address, &target.credentials, CHAT_PATH),
            start: format!("{{\"model\":{},\"messages\":", Value::from(target.model.as_str())),
            shape: shape.clone(),
            id_prefix: format!("{run_id}-{cell_index}"),
        }
    }
}

fn read_line(line: &[u8]) -> Result<Entry, String> {
    let value: Value =
        serde_json::from_slice(line).map_err(|error| format!("no JSON, at column {} ({})", error.column(), plain(&error)))?;
    let Value::Object(line) = value else { return Err("a JSON object is wanted, as {\"prompt\": \"...\"}".to_owned()) };
    let messages = match (line.get("prompt"), line.get("messages")) {
        (Some(_), Some(_)) => return Err("\"prompt\" and \"messages\" exclude each other".to_owned()),
        (Some(prompt), None) => json!([{"role": "user", "content": text(prompt, "\"prompt\"")?}]),
        (None, Some(messages)) => checked(messages)?,
        (None, None) => return Err(format!("neither \"prompt\" nor \"messages\" is there, but {}", keys(&line))),
    };
    let max_tokens = match line.get("max_tokens") {
        None | Some(Value::Null) => None,
        Some(value) => {
            let tokens = value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
            Some(tokens.ok_or_else(|| format!("\"max_tokens\" has to be a whole number from 1, not {value}"))?)
        }
    };
    Ok(Entry { messages: Bytes::from(messages.to_string()), max_tokens })
}

/// Without the place: the line is known, and each is read alone.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

fn keys(line: &Map<String, Value>) -> String {
    let keys: Vec<&str> = line.keys().map(String::as_str).collect();
    if keys.is_empty() { "nothing".to_owned() } else { format!("\"{}\"", keys.join("\", \"")) }
}

fn text<'a>(value: &'a Value, what: &str) -> Result<&'a str, String> {
    match value.as_str() {
        Some(text) if !text.trim().is_empty() => Ok(text),
        Some(_) => Err(format!("{what} is empty")),
        None => Err(format!("{what} has to be a text, not {}", kind(value))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Messages as they are; what they may hold beyond role and content is for the server to judge.
fn checked(messages: &Value) -> Result<Value, String> {
    let Some(list) = messages.as_array() else { return Err(format!("\"messages\" has to be a list, not {}", kind(messages))) };
    if list.is_empty() {
        return Err("\"messages\" is empty".to_owned());
    }
    for (at, message) in list.iter().enumerate() {
        let what = |key| format!("\"{key}\" of message {}", at + 1);
        let Some(message) = message.as_object() else {
            return Err(format!("message {} has to be an object, not {}", at + 1, kind(message)));
        };
        text(message.get("role").unwrap_or(&Value::Null), &what("role"))?;
        if !message.contains_key("content") && !message.contains_key("tool_calls") {
            return Err(format!("{} is missing", what("content")));
        }
    }
    Ok(messages.clone())
}

/// The requests of one cell with prompts of one's own.
#[derive(Clone, Debug)]
pub struct DatasetPrompts {
    dataset: Dataset,
    head: RequestHead,
    start: String,
    shape: Shape,
    id_prefix: String,
}

impl RequestSource for DatasetPrompts {
    fn prepare(&self, stream: u32, ordinal: u32) -> PreparedRequest {
        let entries = &self.dataset.source.entries;
        let number = self.dataset.turn().take();
        let at = number % entries.len().max(1);
        let (messages, own) = entries.get(at).map_or((Bytes::new(), None), |e| (e.messages.clone(), e.max_tokens));
        let max_tokens = own.map_or(self.shape.max_tokens, |own| own.min(self.shape.max_tokens));
        let options = fields(&Shape { max_tokens, ..self.shape.clone() }).to_string();
        let tail = format!(",{}", options.get(1..).unwrap_or_default());
        let body = Bytes::from([self.start.as_bytes(), &messages].concat());
        let mut request = self.head.with_body(format!("{}-{stream}-{ordinal}", self.id_prefix), body, tail.into_bytes());
        request.taken = Some(Box::new(Mine { number, turn: Arc::clone(&self.dataset.turn), sent: false }));
        request
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::target::{Accepted, Credentials};
    use std::io::Write as _;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn read(text: &str) -> Result<Dataset, String> {
        let file = file(text);
        let path = file.path().display().to_string();
        Dataset::read(file.path()).map_err(|error| error.to_string().replace(&path, "FILE"))
    }

    fn source(dataset: &Dataset) -> DatasetPrompts {
        DatasetPrompts {
            dataset: dataset.clone(),
            head: RequestHead::post(&"http://h:1".parse().unwrap(), &Credentials::bearer("k", "--api-key"), CHAT_PATH),
            start: "{\"model\":\"m\",\"messages\":".to_owned(),
            shape: Shape { accepted: Accepted::default(), max_tokens: 100, ignore_eos: true, temperature: None },
            id_prefix: "run-0".to_owned(),
        }
    }

    fn sent(mut request: PreparedRequest) -> PreparedRequest {
        request.taken.as_mut().unwrap().is_sent();
        request
    }

    fn body(request: &PreparedRequest) -> Value {
        serde_json::from_slice(&[&request.shared[..], &request.tail].concat()).unwrap()
    }

    #[test]
    fn what_is_wrong_is_said_with_file_and_line() {
        for (text, wanted) in [
            ("", "--dataset FILE: there is no prompt in it; give a JSON object a line, as {\"prompt\": \"...\"}"),
            ("\n \n", "--dataset FILE: there is no prompt in it; give a JSON object a line, as {\"prompt\": \"...\"}"),
            ("{\"prompt\":\"a\"}\n{\"prompt\":", "--dataset FILE, line 2: no JSON, at column 10 (EOF while parsing a value)"),
            ("\n[1]", "--dataset FILE, line 2: a JSON object is wanted, as {\"prompt\": \"...\"}"),
            ("{\"promt\":\"a\"}", "--dataset FILE, line 1: neither \"prompt\" nor \"messages\" is there, but \"promt\""),
            ("{}", "--dataset FILE, line 1: neither \"prompt\" nor \"messages\" is there, but nothing"),
            ("{\"prompt\":7}", "--dataset FILE, line 1: \"prompt\" has to be a text, not a number"),
            ("{\"prompt\":\" \"}", "--dataset FILE, line 1: \"prompt\" is empty"),
            ("{\"prompt\":\"a\",\"messages\":[]}", "--dataset FILE, line 1: \"prompt\" and \"messages\" exclude each other"),
            ("{\"messages\":[]}", "--dataset FILE, line 1: \"messages\" is empty"),
            ("{\"messages\":\"a\"}", "--dataset FILE, line 1: \"messages\" has to be a list, not a text"),
            ("{\"messages\":[{\"content\":\"a\"}]}", "--dataset FILE, line 1: \"role\" of message 1 has to be a text, not null"),
            ("{\"messages\":[{\"role\":\"user\"}]}", "--dataset FILE, line 1: \"content\" of message 1 is missing"),
            ("{\"prompt\":\"a\",\"max_tokens\":0}", "--dataset FILE, line 1: \"max_tokens\" has to be a whole number from 1, not 0"),
        ] {
            assert_eq!(read(text).unwrap_err(), wanted, "{text:?}");
        }
        let device = Dataset::read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(device, "--dataset /dev/zero is no ordinary file");
        let sparse = file("");
        sparse.as_file().set_len(MOST_BYTES + 1).unwrap();
        assert!(Dataset::read(sparse.path()).unwrap_err().to_string().contains(" is larger than 1 GB"));
        let missing = Dataset::read(Path::new("no-such-file.jsonl")).unwrap_err().to_string();
        assert!(missing.starts_with("--dataset no-such-file.jsonl: "), "{missing}");
    }

    #[test]
    fn prompts_go_out_as_they_are_and_none_twice_before_all_have_gone() {
        let dataset = read(
            "\u{feff}{\"prompt\":\"one \\\"quoted\\\"\",\"max_tokens\":7}\r\n\n{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"é\"}]}],\"max_tokens\":500}\n{\"prompt\":\"three\"}\n",
        )
        .unwrap();
        assert_eq!(dataset.len(), 3);
        let (one, other) = (source(&dataset), source(&dataset));
        let bodies = [one.prepare(0, 0), one.prepare(1, 0), other.prepare(0, 0)].map(|request| body(&sent(request)));
        assert_eq!(bodies[0]["messages"], json!([{"role": "user", "content": "one \"quoted\""}]));
        assert_eq!(bodies[1]["messages"][1]["content"][0]["text"], "é");
        assert_eq!(bodies[2]["messages"][0]["content"], "three");
        let limits = bodies.each_ref().map(|body| body["max_tokens"].as_u64().unwrap());
        assert_eq!(limits, [7, 100, 100], "shorter, never longer than the run's");
        assert!(bodies.iter().all(|body| body["stream"] == true && body["ignore_eos"] == true && body["model"] == "m"));
        assert_eq!(dataset.wrapped(), None, "all once is no repeat");
        let again = sent(one.prepare(1, 1));
        assert_eq!(body(&again)["messages"], bodies[0]["messages"]);
        assert_eq!(again.id, "run-0-1-1");
        assert!(dataset.wrapped().unwrap().contains("gone through 1.3 times"));
        dataset.go_on_after(9);
        dataset.go_on_after(2);
        assert_eq!(dataset.used(), 9, "a later stretch goes on where the last one was");
    }

    #[test]
    fn what_was_ready_and_never_sent_comes_next() {
        let dataset = read(&(0..9).map(|n| format!("{{\"prompt\":\"{n}\"}}\n")).collect::<String>()).unwrap();
        let one = source(&dataset);
        let of = |request: &PreparedRequest| body(request)["messages"][0]["content"].as_str().unwrap().to_owned();
        let (zero, first, second) = (sent(one.prepare(0, 0)), one.prepare(1, 0), sent(one.prepare(2, 0)));
        assert_eq!([&zero, &first, &second].map(of), ["0", "1", "2"]);
        drop((one.prepare(0, 1), one.prepare(1, 1), first));
        assert_eq!(dataset.used(), 3);
        let next = [(); 3].map(|()| of(&sent(source(&dataset).prepare(0, 0))));
        assert_eq!(next, ["1", "3", "4"]);
        assert_eq!(dataset.used(), 5);
    }

    #[test]
    fn a_file_is_known_by_its_bytes() {
        let sums = ["{\"prompt\":\"a\"}", "{\"prompt\":\"b\"}", "{\"prompt\":\"a\"}"].map(|text| read(text).unwrap().sha256().to_owned());
        assert_eq!((sums[0].len(), &sums[0]), (64, &sums[2]));
        assert_ne!(sums[0], sums[1]);
    }
}
