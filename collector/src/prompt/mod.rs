//! What is asked: a context of the wanted length, an ending of its own for each request, and how the prompts of a cell
//! relate. Makes requests as bytes; sends nothing but the calibration.

mod body;
mod calibrate;
mod dataset;
mod lengths;
mod prose;
mod text;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

pub use calibrate::{PromptOptions, calibrate, make, own};
pub use dataset::{Dataset, DatasetError, DatasetPrompts};
pub use lengths::{Lengths, close_enough};
pub use prose::prose;
pub use text::Tag;

use crate::load::request::{PreparedRequest, RequestHead, RequestSource};
use crate::target::{Accepted, Target, UsageOption};
use body::{body_end, body_start};
use text::{Document, Place, ending, json_inside};

/// The route of every generation.
pub const CHAT_PATH: &str = "/v1/chat/completions";

/// How the prompts of a cell relate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PromptMode {
    /// One context for all, an ending of its own for each request.
    #[default]
    Shared,
    /// A context of its own for each request.
    Distinct,
    /// The same bytes for all requests of a context.
    Identical,
}

impl PromptMode {
    /// As the report writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Distinct => "distinct",
            Self::Identical => "identical",
        }
    }
}

/// How a prompt's tokens are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedBy {
    /// The server's `/tokenize`, template included.
    Tokenize,
    /// The `prompt_tokens` of a request with this very text.
    Probe,
    /// Reckoned from the counts of other lengths.
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

    /// Whether the very text was counted, and not reckoned from others.
    #[must_use]
    pub fn is_count(self) -> bool {
        matches!(self, Self::Tokenize | Self::Probe)
    }
}

/// The text of a context.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextText {
    /// Requested context, tokens.
    pub context_tokens: u32,
    /// Characters between the prompt's tag and its task.
    pub chars: usize,
    /// Tokens of the whole prompt, template and ending included.
    pub prompt_tokens: u64,
    /// How that is known.
    pub counted_by: CountedBy,
    /// Where each stream has a text of its own: the tokens of a sample of them.
    pub sample: Option<Lengths>,
    document: Arc<Document>,
}

/// All that is asked in a run.
#[derive(Clone, Debug)]
pub struct Prompts {
    /// Twelve lowercase letters, in every prompt: no run finds another one's prompts in a cache.
    pub run_id: String,
    /// The seed of the text.
    pub seed: u64,
    /// How the prompts of a cell relate.
    pub mode: PromptMode,
    /// Characters a token, as calibrated; absent if only assumed.
    pub chars_per_token: Option<f64>,
    /// Tokens of template, tag and ending, as calibrated.
    pub overhead_tokens: Option<u64>,
    /// For the event log's start-up block, in the predecessor's words, without `startup ` in front.
    pub startup_lines: Vec<String>,
    /// Doubts, each a sentence.
    pub warnings: Vec<String>,
    /// Prompts of one's own, which the cells send in place of made ones.
    pub dataset: Option<Dataset>,
    /// Tokens of the longest of them, and how that is known.
    pub longest_own: Option<(u64, CountedBy)>,
    /// What documents are cut from.
    filler: Arc<str>,
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

impl Shape {
    /// A single token, and what it cost: nothing is sent that a server could refuse.
    #[must_use]
    pub fn one_token(target: &Target) -> Self {
        let mut accepted = target.accepted.clone();
        if accepted.usage == UsageOption::Continuous {
            accepted.usage = UsageOption::Final;
        }
        Self { accepted, max_tokens: 1, ignore_eos: false, temperature: None }
    }
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

    /// Tokens from the beginning on that all prompts of a context have in common, for the plan; rather too few than too
    /// many, and absent where there are none worth mentioning.
    #[must_use]
    pub fn shared_tokens(&self) -> BTreeMap<u32, u64> {
        let own = match self.mode {
            PromptMode::Distinct => return BTreeMap::new(),
            // No more than a token for two characters.
            PromptMode::Shared => ending(0, 0, 0).len() as u64 / 2,
            // The last one is always computed.
            PromptMode::Identical => 1,
        };
        let texts = self.texts.iter().filter(|(context, _)| **context > 0 || self.mode == PromptMode::Identical);
        texts.map(|(context, text)| (*context, text.prompt_tokens.saturating_sub(own))).filter(|(_, shared)| *shared > 0).collect()
    }

    /// What a cell sends: its streams' requests, and the one that may go ahead of them; prompts of one's own have none.
    /// `None` if the context was not calibrated.
    #[must_use]
    pub fn requests(&self, target: &Target, cell_index: usize, context_tokens: u32, shape: &Shape) -> Option<Requests> {
        if let Some(dataset) = &self.dataset {
            return Some(Requests { ahead: None, streams: Arc::new(dataset.cell(target, &self.run_id, cell_index, shape)) });
        }
        let made = self.cell(target, cell_index, context_tokens, shape)?;
        Some(Requests { ahead: Some(Arc::new(made.scout(shape))), streams: Arc::new(made) })
    }

    /// Made prompts for a cell's streams. `None` if the context was not calibrated.
    #[must_use]
    pub fn cell(&self, target: &Target, cell_index: usize, context_tokens: u32, shape: &Shape) -> Option<CellPrompts> {
        let text = self.context(context_tokens)?;
        let own = (self.mode == PromptMode::Distinct).then(|| {
            Arc::new(OwnTexts {
                model: target.model.clone(),
                run_id: self.run_id.clone(),
                seed: self.seed,
                context: context_tokens,
                cell: u32::try_from(cell_index).unwrap_or(u32::MAX),
                document: Arc::clone(&text.document),
            })
        });
        let shared = if own.is_some() { Bytes::new() } else { self.start(target, text, Tag::Shared) };
        Some(CellPrompts {
            head: RequestHead::post(&target.address, &target.credentials, CHAT_PATH),
            shared,
            own,
            end: body_end(shape),
            id_prefix: format!("{}-{cell_index}", self.run_id),
            ending: 1 + (cell_index % 9_999) as u32,
            kind: Kind::Streams { alike: self.mode == PromptMode::Identical },
        })
    }

    /// A prompt of about this many tokens, the same for each request: what is sent beside the matrix. With another tag
    /// it shares nothing with any other prompt. A context that was not calibrated is reckoned.
    #[must_use]
    pub fn single(&self, target: &Target, tag: Tag, context_tokens: u32, shape: &Shape) -> CellPrompts {
        let text = self.context(context_tokens).map_or_else(|| Cow::Owned(self.reckoned(context_tokens)), Cow::Borrowed);
        let place = tag.words(&self.run_id, context_tokens);
        let place = place.split([' ', '[']).nth(1).unwrap_or_default();
        CellPrompts {
            head: RequestHead::post(&target.address, &target.credentials, CHAT_PATH),
            shared: self.start(target, &text, tag),
            own: None,
            end: body_end(shape),
            id_prefix: format!("{}-{place}-{context_tokens}", self.run_id),
            ending: 0,
            kind: Kind::Streams { alike: true },
        }
    }

    /// A short answer to a trivial task: what a server compiles for its first request is paid here.
    #[must_use]
    pub fn short(&self, target: &Target, max_tokens: u32) -> CellPrompts {
        let accepted = Accepted { usage: UsageOption::None, ..target.accepted.clone() };
        let shape = Shape { accepted, max_tokens, ignore_eos: false, temperature: None };
        let text = format!("{}Count from one to fifty in words, a word a line. ", Tag::Warmup(0).words(&self.run_id, 0));
        CellPrompts {
            head: RequestHead::post(&target.address, &target.credentials, CHAT_PATH),
            shared: Bytes::from(body_start(&target.model, &json_inside(&text))),
            own: None,
            end: body_end(&shape),
            id_prefix: format!("{}-W0", self.run_id),
            ending: 0,
            kind: Kind::Bare,
        }
    }

    fn place(&self, tag: Tag, context: u32) -> Place<'_> {
        Place { tag, run_id: &self.run_id, context, seed: self.seed }
    }

    fn start(&self, target: &Target, text: &ContextText, tag: Tag) -> Bytes {
        let text = text.document.json(&self.place(tag, text.context_tokens));
        Bytes::from(body_start(&target.model, &text))
    }
}

/// What a cell sends.
#[derive(Clone)]
pub struct Requests {
    /// The request ahead of the streams, for a single token.
    pub ahead: Option<Arc<dyn RequestSource>>,
    /// Those of the streams.
    pub streams: Arc<dyn RequestSource>,
}

/// Contexts of their own, each made when its request is prepared: copied sentence by sentence, none is kept.
#[derive(Debug)]
struct OwnTexts {
    model: String,
    run_id: String,
    seed: u64,
    context: u32,
    cell: u32,
    document: Arc<Document>,
}

impl OwnTexts {
    fn start(&self, stream: u32, ordinal: u32) -> Bytes {
        let tag = Tag::Own { cell: self.cell, stream, ordinal };
        let text = self.document.json(&Place { tag, run_id: &self.run_id, context: self.context, seed: self.seed });
        Bytes::from(body_start(&self.model, &text))
    }
}

/// Which requests of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Its streams; whether they all send the same.
    Streams { alike: bool },
    /// The one that goes ahead of them.
    Ahead { alike: bool },
    /// A prompt that is whole without an ending.
    Bare,
}

/// The requests of one cell.
#[derive(Clone, Debug)]
pub struct CellPrompts {
    head: RequestHead,
    /// The body up to the ending; empty where each request has a context of its own.
    shared: Bytes,
    own: Option<Arc<OwnTexts>>,
    end: String,
    id_prefix: String,
    /// What sets its endings apart from those of other cells.
    ending: u32,
    kind: Kind,
}

impl CellPrompts {
    /// The same context, to be asked for a single token ahead of the streams. Where each request has a context of its
    /// own, so has this one.
    #[must_use]
    pub fn scout(&self, shape: &Shape) -> Self {
        let shape = Shape { max_tokens: 1, ..shape.clone() };
        let kind = Kind::Ahead { alike: self.kind == Kind::Streams { alike: true } };
        Self { end: body_end(&shape), kind, ..self.clone() }
    }
}

impl RequestSource for CellPrompts {
    fn prepare(&self, stream: u32, ordinal: u32) -> PreparedRequest {
        let place = if matches!(self.kind, Kind::Ahead { .. }) { "scout".to_owned() } else { stream.to_string() };
        let id = format!("{}-{place}-{ordinal}", self.id_prefix);
        let ending = match self.kind {
            Kind::Bare => String::new(),
            Kind::Streams { alike: false } => ending(self.ending, stream + 1, ordinal + 1),
            Kind::Streams { alike: true } | Kind::Ahead { .. } => ending(0, 0, 0),
        };
        let tail = format!("{}{}", json_inside(&ending), self.end);
        let Some(own) = &self.own else { return self.head.with_body(id, self.shared.clone(), tail.into_bytes()) };
        let stream = if matches!(self.kind, Kind::Ahead { .. }) { Tag::AHEAD } else { stream };
        self.head.with_body(id, own.start(stream, ordinal), tail.into_bytes())
    }
}

/// A new run id: twelve lowercase letters.
#[must_use]
pub fn new_run_id() -> String {
    let mut rng = fastrand::Rng::new();
    (0..12).map(|_| rng.lowercase()).collect()
}

#[cfg(test)]
mod tests;
