//! What is asked: a context of the wanted length, shared by all streams of a cell, and an ending of
//! its own for each request. Makes requests as bytes; sends nothing but the calibration.

mod calibrate;
mod prose;

use std::collections::BTreeMap;

use bytes::Bytes;

pub use calibrate::calibrate;
pub use prose::prose;

use crate::load::request::{PreparedRequest, RequestHead, RequestSource};
use crate::target::{Accepted, Target};

/// The route of every generation.
pub const CHAT_PATH: &str = "/v1/chat/completions";

/// How a prompt's tokens are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedBy {
    /// The server's `/tokenize`, template included.
    Tokenize,
    /// The `prompt_tokens` of a request with this very text.
    Probe,
    /// Reckoned from the probes of other lengths.
    ProbeRatio,
    /// From nothing but an assumed ratio: the server told nothing.
    Assumed,
}

impl CountedBy {
    /// As the report writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tokenize => "tokenize",
            Self::Probe => "probe",
            Self::ProbeRatio => "probe-ratio",
            Self::Assumed => "assumed",
        }
    }
}

/// The part of a prompt that all streams of a context share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextText {
    /// Requested context, tokens.
    pub context_tokens: u32,
    /// Characters of the shared part.
    pub chars: usize,
    /// Tokens of the whole prompt, template and ending included.
    pub prompt_tokens: u64,
    /// How that is known.
    pub counted_by: CountedBy,
    text: String,
}

/// All that is asked in a run.
#[derive(Clone, Debug)]
pub struct Prompts {
    /// Twelve lowercase letters, in every prompt: no run finds another one's prompts in a cache.
    pub run_id: String,
    /// The seed of the text.
    pub seed: u64,
    /// Characters a token, as calibrated; absent if only assumed.
    pub chars_per_token: Option<f64>,
    /// Tokens of template and ending, as calibrated.
    pub overhead_tokens: Option<u64>,
    /// For the event log's start-up block, in the predecessor's words, without `startup ` in front.
    pub startup_lines: Vec<String>,
    /// Doubts, each a sentence.
    pub warnings: Vec<String>,
    texts: BTreeMap<u32, ContextText>,
}

/// What a generation shall be like.
#[derive(Clone, Debug)]
pub struct Shape {
    /// What the server takes.
    pub accepted: Accepted,
    /// Output limit, tokens.
    pub max_tokens: u32,
    /// Whether the model's own end shall be passed over.
    pub ignore_eos: bool,
    /// Temperature, if any is to be sent.
    pub temperature: Option<f64>,
}

impl Prompts {
    /// The text of a context that was calibrated.
    #[must_use]
    pub fn context(&self, context_tokens: u32) -> Option<&ContextText> {
        self.texts.get(&context_tokens)
    }

    /// Tokens of each context's prompt, for the plan.
    #[must_use]
    pub fn prompt_tokens(&self) -> BTreeMap<u32, u64> {
        let counts = self.texts.iter().map(|(ctx, t)| (*ctx, t.prompt_tokens));
        counts.collect()
    }

    /// The requests of a cell's streams. `None` if the context was not calibrated.
    #[must_use]
    pub fn cell(&self, target: &Target, cell_index: usize, context_tokens: u32, shape: &Shape) -> Option<CellPrompts> {
        let text = self.context(context_tokens)?;
        Some(CellPrompts {
            head: RequestHead::post(&target.address, &target.credentials, CHAT_PATH),
            shared: Bytes::from(body_start(&target.model, &text.text)),
            end: body_end(shape),
            id_prefix: format!("{}-{cell_index}", self.run_id),
            scout: false,
        })
    }
}

/// The requests of one cell.
#[derive(Clone, Debug)]
pub struct CellPrompts {
    head: RequestHead,
    shared: Bytes,
    end: String,
    id_prefix: String,
    scout: bool,
}

impl CellPrompts {
    /// The same context, to be asked for a single token ahead of the streams.
    #[must_use]
    pub fn scout(&self, shape: &Shape) -> Self {
        let shape = Shape { max_tokens: 1, ..shape.clone() };
        Self { end: body_end(&shape), scout: true, ..self.clone() }
    }
}

impl RequestSource for CellPrompts {
    fn prepare(&self, stream: u32, ordinal: u32) -> PreparedRequest {
        let (id, ending) = if self.scout {
            (format!("{}-scout-{ordinal}", self.id_prefix), ending(0, 0))
        } else {
            let id = format!("{}-{stream}-{ordinal}", self.id_prefix);
            (id, ending(stream + 1, ordinal + 1))
        };
        let tail = format!("{}{}", json_inside(&ending), self.end);
        self.head.with_body(id, self.shared.clone(), tail.into_bytes())
    }
}

const SUBJECTS: [&str; 16] = [
    "mathematics",
    "navigation",
    "astronomy",
    "printing",
    "medicine",
    "agriculture",
    "architecture",
    "music",
    "chemistry",
    "cartography",
    "weaving",
    "metallurgy",
    "trade",
    "optics",
    "clocks",
    "law",
];

/// The end of a prompt, of nearly the same length for all; (0, 0) is nobody's.
fn ending(stream: u32, turn: u32) -> String {
    let at = (stream as usize + 5 * turn as usize) % SUBJECTS.len();
    let subject = SUBJECTS.get(at).copied().unwrap_or("mathematics");
    format!(
        "Task {stream:04}-{turn:04}: write an encyclopaedia article about the history of {subject}, as long and as detailed as you can, chapter after chapter, from its beginnings to our time. Do not summarise and do not stop early."
    )
}

/// The shared part of a prompt. `chars` counts the filler only.
fn shared_text(run_id: &str, label: &str, filler: &str, chars: usize) -> String {
    if chars == 0 {
        return format!("[{run_id} {label}] ");
    }
    // Cut after a word, so that the last token is a whole one.
    let cut = filler.get(..chars).unwrap_or(filler);
    let cut = cut.rfind(' ').map_or(cut, |end| &cut[..end]);
    format!("[{run_id} {label}] Read the document below, then do the task that follows it.\n\n{cut}\n\nThe document ends here. ")
}

/// Text as it stands between the quotes of JSON.
fn json_inside(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

fn body_start(model: &str, shared: &str) -> String {
    format!("{{\"model\":{},\"messages\":[{{\"role\":\"user\",\"content\":\"{}", serde_json::Value::from(model), json_inside(shared))
}

fn body_end(shape: &Shape) -> String {
    let fields = shape.accepted.fields(shape.max_tokens, shape.ignore_eos, shape.temperature);
    let fields = serde_json::Value::from(fields).to_string();
    format!("\"}}],{}", fields.get(1..).unwrap_or_default())
}

/// A new run id: twelve lowercase letters.
#[must_use]
pub fn new_run_id() -> String {
    let mut rng = fastrand::Rng::new();
    (0..12).map(|_| rng.lowercase()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn cell() -> CellPrompts {
        let address = "http://h:1/base".parse().unwrap();
        let credentials = crate::target::Credentials::bearer("secret", "--api-key");
        CellPrompts {
            head: RequestHead::post(&address, &credentials, CHAT_PATH),
            shared: Bytes::from(body_start("a \"model\"", "[run] line\nnext \\ ")),
            end: body_end(&Shape { accepted: Accepted::default(), max_tokens: 7, ignore_eos: true, temperature: None }),
            id_prefix: "abc-3".into(),
            scout: false,
        }
    }

    fn body(p: &PreparedRequest) -> serde_json::Value {
        serde_json::from_slice(&[&p.shared[..], &p.tail].concat()).unwrap()
    }

    #[test]
    fn a_request_is_valid_json_with_the_length_its_head_says() {
        let p = cell().prepare(2, 5);
        let body = body(&p);
        assert_eq!(body["model"], "a \"model\"");
        let content = body["messages"][0]["content"].as_str().unwrap();
        assert!(content.starts_with("[run] line\nnext \\ Task 0003-0006"));
        assert_eq!(body["max_tokens"], 7);
        assert_eq!(body["ignore_eos"], true);
        assert_eq!(body["stream_options"]["continuous_usage_stats"], true);
        assert!(body.get("temperature").is_none());
        let head = String::from_utf8(p.head.clone()).unwrap();
        assert!(head.starts_with("POST /base/v1/chat/completions HTTP/1.1\r\nHost: h:1\r\n"));
        assert!(head.contains("x-request-id: abc-3-2-5\r\n"));
        assert!(head.contains("Authorization: Bearer secret\r\n"));
        let length = p.shared.len() + p.tail.len();
        assert!(head.contains(&format!("Content-Length: {length}\r\n")));
        assert!(!format!("{:?}", cell()).contains("secret"));
    }

    #[test]
    fn every_request_has_an_ending_of_its_own_and_the_same_beginning() {
        let cell = cell();
        let mut tails = std::collections::HashSet::new();
        for (stream, ordinal) in [(0, 0), (0, 1), (1, 0), (1, 1), (5, 0)] {
            let p = cell.prepare(stream, ordinal);
            assert_eq!(p.shared, cell.shared);
            assert!(tails.insert(p.tail));
        }
        let shape = Shape { accepted: Accepted::default(), max_tokens: 7, ignore_eos: false, temperature: Some(0.0) };
        let scout = cell.scout(&shape).prepare(0, 0);
        assert_eq!(body(&scout)["max_tokens"], 1);
        assert_eq!(scout.id, "abc-3-scout-0");
        assert!(tails.insert(scout.tail));
    }

    #[test]
    fn a_run_id_is_twelve_lowercase_letters_and_stands_in_every_prompt() {
        let id = new_run_id();
        assert_eq!(id.len(), 12);
        assert!(id.bytes().all(|b| b.is_ascii_lowercase()));
        assert_ne!(id, new_run_id());
        assert!(shared_text(&id, "0", "", 0).contains(&id));
        assert!(shared_text(&id, "8192", "some words here", 9).contains(&id));
    }
}
