//! What the server takes of the options that a run sends, found out once by requests of a single token. A refusal that
//! names an option costs one more request, one that names nothing a request an option. It measures nothing.

use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use serde_json::{Map, Value, json};

use super::http::{explain, in_brackets};
use super::refusal::{Cap, Refusal};
use super::{Accepted, Engine, Limit, Target, TargetError, UsageOption, thousands};
use crate::prompt::CHAT_PATH;

/// Requests in all.
const TRIES: u32 = 8;
/// For each: a model that compiles at its first request needs its time.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// The longest pause that a server may ask for.
const LONGEST_PAUSE_S: u64 = 30;
/// A pause where the server says how many requests are too many and not for how long.
const PAUSE_S: u64 = 2;
/// More of an answer says nothing new.
const MOST_BYTES: usize = 64 << 10;
/// What the smallest output limit is raised to where one token is too few.
pub(super) const FEW_TOKENS: u32 = 16;
/// Left for the prompt where an output limit is tried that nearly fills the context.
const ROOM_FOR_PROMPT: u32 = 256;

/// An option that can be left out or changed, in the order in which that is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    IgnoreEos,
    ContinuousUsage,
    StreamOptions,
    MaxTokensName,
    Temperature,
}

impl Choice {
    const ALL: [Self; 5] = [Self::IgnoreEos, Self::ContinuousUsage, Self::StreamOptions, Self::MaxTokensName, Self::Temperature];

    /// The words by which a refusal names it.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::IgnoreEos => &["ignore_eos"],
            Self::ContinuousUsage => &["continuous_usage_stats"],
            Self::StreamOptions => &["stream_options", "include_usage"],
            // Its being too large or too small is another matter.
            Self::MaxTokensName => &["max_completion_tokens"],
            Self::Temperature => &["temperature"],
        }
    }

    fn leave_out(self, accepted: &mut Accepted) {
        match self {
            Self::IgnoreEos => accepted.ignore_eos = false,
            Self::ContinuousUsage => accepted.usage = UsageOption::Final,
            Self::StreamOptions => accepted.usage = UsageOption::None,
            Self::MaxTokensName => accepted.max_tokens_name = "max_completion_tokens",
            Self::Temperature => accepted.temperature = false,
        }
    }

    /// What it means that the server refuses it.
    fn note(self, refusal: &Refusal) -> String {
        let means = match self {
            Self::IgnoreEos => "ignore_eos: it is not sent, and the model may end its answers itself",
            Self::ContinuousUsage => "continuous_usage_stats: it is not sent, and tokens are known at the end of each answer only",
            Self::StreamOptions => "stream_options: they are not sent, and the server may tell no tokens at all",
            Self::MaxTokensName => "max_tokens: the output limit is sent as max_completion_tokens",
            Self::Temperature => "temperature: it is not sent, and the server's own holds",
        };
        format!("the server refuses {means} ({refusal})")
    }
}

/// What the run will send.
#[derive(Clone, Copy)]
struct Wanted {
    ignore_eos: bool,
    temperature: Option<f64>,
}

impl Wanted {
    /// Whether the choice still changes anything.
    fn open(self, choice: Choice, accepted: &Accepted) -> bool {
        match choice {
            Choice::IgnoreEos => self.ignore_eos && accepted.ignore_eos,
            Choice::ContinuousUsage => accepted.usage == UsageOption::Continuous,
            Choice::StreamOptions => accepted.usage != UsageOption::None,
            Choice::MaxTokensName => accepted.max_tokens_name == "max_tokens",
            Choice::Temperature => self.temperature.is_some() && accepted.temperature,
        }
    }
}

impl Target {
    /// Finds out what the server takes of `max_tokens`, `ignore_eos` and `temperature` and of the usage options, and
    /// leaves it in `accepted`, with notes in words. At most eight requests.
    ///
    /// # Errors
    /// The server refuses every form of the request, or a generation fails for a reason that no option changes: no
    /// such model, a wrong key, too many requests, an error of its own.
    pub async fn negotiate(&mut self, max_tokens: u32, ignore_eos: bool, temperature: Option<f64>) -> Result<(), TargetError> {
        let wanted = Wanted { ignore_eos, temperature };
        let mut talk = Talk { target: self, url: self.address.url(CHAT_PATH), tries: 0 };
        let (mut accepted, tokens) = talk.options(wanted).await?;
        let mut context = None;
        if self.size_is_unsure(max_tokens, tokens) {
            let known = self.max_model_len().map(|len| u32::try_from(len).unwrap_or(u32::MAX));
            let most = known.map_or(max_tokens, |len| max_tokens.min(len.saturating_sub(ROOM_FOR_PROMPT)).max(1));
            context = talk.size(&mut accepted, most, temperature).await?;
        }
        if let Some(tokens) = context {
            self.limits.retain(|limit| limit.name != "max_model_len");
            self.limits.push(Limit { name: "max_model_len", value: tokens.into(), source: "its refusal of a larger max_tokens".into() });
        }
        self.accepted = accepted;
        Ok(())
    }

    /// Engines that tell their context take every output limit that fits into it; a proxy may have limits of its own.
    fn size_is_unsure(&self, max_tokens: u32, tried: u32) -> bool {
        max_tokens > tried && (self.engine == Engine::OpenaiProxy || self.max_model_len().is_none())
    }
}

/// The requests, and how many there were.
struct Talk<'a> {
    target: &'a Target,
    url: String,
    tries: u32,
}

impl Talk<'_> {
    /// Until a request of one token is taken: what that was, and its tokens.
    async fn options(&mut self, wanted: Wanted) -> Result<(Accepted, u32), TargetError> {
        let (mut accepted, mut tokens) = (Accepted::default(), 1);
        loop {
            let refusal = match self.send(&accepted, wanted, tokens).await? {
                Ok(()) => return Ok((accepted, tokens)),
                Err(refusal) => refusal,
            };
            if refusal.is_about_the_model() || self.tries >= TRIES {
                return Err(self.refused(&refusal));
            }
            let open = Choice::ALL.into_iter().filter(|choice| wanted.open(*choice, &accepted));
            let open: Vec<_> = open.map(|choice| (choice, choice.words())).collect();
            let named = refusal.earliest(&open);
            // The one is a part of the other, so that its name may come behind it.
            let inner = refusal.names("continuous_usage_stats") && wanted.open(Choice::ContinuousUsage, &accepted);
            let named = if named == Some(Choice::StreamOptions) && inner { Some(Choice::ContinuousUsage) } else { named };
            if let Some(choice) = named {
                accepted.notes.push(choice.note(&refusal));
                choice.leave_out(&mut accepted);
            } else if tokens < FEW_TOKENS && refusal.names("max_tokens") {
                tokens = FEW_TOKENS;
            } else {
                return Ok((self.one_by_one(accepted, wanted, tokens, &refusal).await?, tokens));
            }
        }
    }

    /// The refusal names nothing: each option is left out alone, then all of them.
    async fn one_by_one(&mut self, accepted: Accepted, wanted: Wanted, tokens: u32, refusal: &Refusal) -> Result<Accepted, TargetError> {
        let open: Vec<Choice> = Choice::ALL.into_iter().filter(|choice| wanted.open(*choice, &accepted)).collect();
        for choice in &open {
            // Two are for the plainest request.
            if self.tries + 2 >= TRIES {
                break;
            }
            let mut without = accepted.clone();
            choice.leave_out(&mut without);
            if self.send(&without, wanted, tokens).await?.is_ok() {
                without.notes.push(choice.note(refusal));
                return Ok(without);
            }
        }
        let mut bare = accepted;
        open.iter().filter(|choice| **choice != Choice::MaxTokensName).for_each(|choice| choice.leave_out(&mut bare));
        let mut last = refusal.clone();
        for rename in [false, true] {
            if rename {
                Choice::MaxTokensName.leave_out(&mut bare);
            }
            if self.tries >= TRIES {
                break;
            }
            match self.send(&bare, wanted, tokens).await? {
                Ok(()) => {
                    let name = bare.max_tokens_name;
                    bare.notes.push(format!(
                        "the server refuses several of ignore_eos, stream_options and temperature without naming them ({refusal}): \
                         nothing but {name} is sent"
                    ));
                    return Ok(bare);
                }
                Err(refusal) => last = refusal,
            }
        }
        Err(self.refused(&last))
    }

    /// Whether the run's output limit is taken, and the largest that is where it isn't. The answer is left as soon as
    /// it begins, and may end by itself. Returns a context limit that a refusal told.
    async fn size(&mut self, accepted: &mut Accepted, most: u32, temperature: Option<f64>) -> Result<Option<u32>, TargetError> {
        let wanted = Wanted { ignore_eos: false, temperature };
        let (mut tokens, mut context, mut why) = (most, None, None);
        while self.tries < TRIES {
            let refusal = match self.send(accepted, wanted, tokens).await? {
                Ok(()) => {
                    // Where the context is the limit, each prompt has another one: the plan knows them.
                    if let Some(refusal) = why.filter(|_| context.is_none()) {
                        accepted.max_tokens_limit = Some(tokens);
                        accepted.notes.push(format!("the server takes no output limit above {} ({refusal})", thousands(tokens.into())));
                    }
                    return Ok(context);
                }
                Err(refusal) => refusal,
            };
            tokens = match refusal.cap(tokens) {
                Some(Cap::Context(limit)) => {
                    context = Some(limit);
                    limit.saturating_sub(ROOM_FOR_PROMPT).max(limit / 2)
                }
                Some(Cap::Output(limit)) => limit,
                None => tokens / 2,
            }
            .max(1);
            why = Some(refusal);
        }
        match why {
            Some(refusal) => Err(self.refused(&refusal)),
            None => {
                accepted.notes.push("whether the server takes the output limit was not tried, after too many other refusals".to_owned());
                Ok(context)
            }
        }
    }

    fn refused(&self, refusal: &Refusal) -> TargetError {
        TargetError::Refuses { url: self.url.clone(), status: refusal.status, detail: in_brackets(&refusal.text) }
    }

    /// One request; with a pause and another one where there were too many.
    async fn send(&mut self, accepted: &Accepted, wanted: Wanted, tokens: u32) -> Result<Result<(), Refusal>, TargetError> {
        let mut body = Map::new();
        body.insert("model".into(), self.target.model.as_str().into());
        body.insert("messages".into(), json!([{"role": "user", "content": "Say yes."}]));
        body.extend(accepted.fields(tokens, wanted.ignore_eos, wanted.temperature));
        loop {
            self.tries += 1;
            let (status, pause, text) = match self.ask(&body).await? {
                Reply::Taken => return Ok(Ok(())),
                Reply::Refused { status, pause, text } => (status, pause, text),
            };
            let (url, detail) = (self.url.clone(), in_brackets(&text));
            match status {
                401 | 403 => return Err(TargetError::Unauthorized { url, status }),
                404 => return Err(TargetError::NoChat { url, detail }),
                429 if self.tries >= TRIES => return Err(TargetError::TooMany { url, detail }),
                429 => {
                    let pause = pause.unwrap_or(PAUSE_S);
                    if pause > LONGEST_PAUSE_S {
                        let detail = format!("{detail}; it asks for a pause of {pause} s");
                        return Err(TargetError::TooMany { url, detail });
                    }
                    tokio::time::sleep(Duration::from_secs(pause)).await;
                }
                400 | 413 | 422 => return Ok(Err(Refusal { status, text })),
                _ => return Err(TargetError::ChatFailed { url, status, detail }),
            }
        }
    }

    async fn ask(&self, body: &Map<String, Value>) -> Result<Reply, TargetError> {
        let wrap = |error: reqwest::Error| explain(&error, &self.url, ANSWER_LIMIT);
        let mut answer = self.target.client.post(&self.url).timeout(ANSWER_LIMIT).json(body).send().await.map_err(wrap)?;
        let status = answer.status().as_u16();
        let pause = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(wrap)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MOST_BYTES || (status < 300 && begun(&bytes) == Some(Begun::Choices)) {
                break;
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if status >= 300 {
            return Ok(Reply::Refused { status, pause, text });
        }
        match begun(&bytes) {
            Some(Begun::Error { status, text }) => Ok(Reply::Refused { status, pause, text }),
            Some(Begun::Choices) => Ok(Reply::Taken),
            Some(Begun::Whole) => Err(TargetError::NotStreaming { url: self.url.clone() }),
            None => Ok(Reply::Taken),
        }
    }
}

/// What came back.
enum Reply {
    Taken,
    Refused { status: u16, pause: Option<u64>, text: String },
}

/// What the beginning of an answer shows.
#[derive(PartialEq, Eq)]
enum Begun {
    /// Something of an answer, in an event.
    Choices,
    /// An error, in an event or alone.
    Error { status: u16, text: String },
    /// A whole answer, no event.
    Whole,
}

/// The first thing in whole lines that says something.
fn begun(bytes: &[u8]) -> Option<Begun> {
    let text = String::from_utf8_lossy(bytes);
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data:")?.trim()).ok());
    let mut said = events.filter_map(|event| match event.get("error").filter(|error| !error.is_null()) {
        Some(error) => Some(error_of(error)),
        // A role comes before the server has looked at anything.
        None => event["choices"].as_array().is_some_and(|choices| choices.iter().any(has_text)).then_some(Begun::Choices),
    });
    said.next().or_else(|| {
        let whole: Value = serde_json::from_str(text.trim()).ok()?;
        match whole.get("error").filter(|error| !error.is_null()) {
            Some(error) => Some(error_of(error)),
            None => whole.get("choices").map(|_| Begun::Whole),
        }
    })
}

fn has_text(choice: &Value) -> bool {
    let delta = &choice["delta"];
    let text = |key: &str| delta[key].as_str().is_some_and(|text| !text.is_empty());
    choice["finish_reason"].is_string()
        || delta.get("tool_calls").is_some()
        || ["content", "reasoning", "reasoning_content"].into_iter().any(text)
}

/// An error inside a stream counts by its own code; one without a code is taken for a refusal.
fn error_of(error: &Value) -> Begun {
    let code = &error["code"];
    let status = code.as_u64().or_else(|| code.as_str()?.parse().ok()).and_then(|code| u16::try_from(code).ok());
    Begun::Error { status: status.filter(|status| (400..600).contains(status)).unwrap_or(400), text: error.to_string() }
}
