//! Chat requests: reading them, and refusing bad ones with each server's own code and words.
//! What is asked for here is answered in `chunks`.

use serde_json::{Value, json};

use super::http::Response;
use super::model::{Flavour, Settings};
use super::quirks::{LARGE_MAX_TOKENS, Quirks, Refuse};
use super::tokens::{self, Prompt};

/// A chat request that will be answered.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    pub(crate) prompt: Prompt,
    pub(crate) max_output: u32,
    pub(crate) ignore_eos: bool,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) continuous_usage: bool,
    /// What the client calls it; SGLang takes that for the answer's id.
    pub(crate) rid: Option<String>,
}

/// Why a request is refused, in terms of vLLM's recorded answers; the others wrap or reword it.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: u16,
    message: String,
    kind: &'static str,
    param: Option<String>,
    /// Prompt tokens and the context they don't fit in.
    numbers: Option<(i64, i64)>,
}

impl Refusal {
    fn bad_request(param: &str, message: String) -> Self {
        Self { status: 400, message, kind: "BadRequestError", param: Some(param.to_owned()), numbers: None }
    }

    fn validation(location: &str, detail: &str) -> Self {
        Self {
            status: 400,
            message: format!("1 validation error:\n  {detail}"),
            kind: "Bad Request",
            param: Some(location.to_owned()),
            numbers: None,
        }
    }

    /// In the words of the API's inventor, which many servers have taken over.
    fn strict(param: &str, message: String) -> Self {
        Self { status: 400, message, kind: STRICT, param: Some(param.to_owned()), numbers: None }
    }

    /// As the imitated server writes it.
    pub(crate) fn response(self, flavour: Flavour) -> Response {
        let (status, body) = match flavour {
            Flavour::Vllm => (self.status, self.vllm()),
            Flavour::Sglang => (
                self.status,
                json!({"object": "error", "message": self.message, "type": self.kind,
                       "param": self.param, "code": self.status}),
            ),
            Flavour::LlamaCpp => (self.status, self.llama_cpp()),
            Flavour::Proxy => (400, self.proxy()),
        };
        Response::json(status, &body)
    }

    fn vllm(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param,
                         "code": self.status}})
    }

    fn llama_cpp(&self) -> Value {
        let (mut error, param) = (json!({"code": self.status}), self.param.as_deref());
        match (self.kind, param, self.numbers) {
            (STRICT, ..) => {
                error["message"] = json!(self.message);
                error["type"] = json!(STRICT);
                error["param"] = json!(param);
            }
            (_, _, Some((prompt, limit))) => {
                error["message"] =
                    json!(format!("request ({prompt} tokens) exceeds the available context size ({limit} tokens), try increasing it"));
                error["type"] = json!("exceed_context_size_error");
                error["n_prompt_tokens"] = json!(prompt);
                error["n_ctx"] = json!(limit);
            }
            (_, Some("body.messages"), _) => {
                error["message"] = json!("'messages' is required");
                error["type"] = json!(STRICT);
            }
            _ => {
                error["message"] = json!(format!("[json.exception.parse_error.101] {}", self.message.replace('\n', " ")));
                error["type"] = json!(STRICT);
            }
        }
        json!({"error": error})
    }

    /// LiteLLM finds some faults itself and wraps the words of the server behind it for the rest.
    fn proxy(&self) -> Value {
        let param = self.param.as_deref();
        let (message, param) = match (self.kind, param) {
            ("Bad Request", Some("body.messages")) => {
                let message = "/chat/completions: Missing required parameter: 'messages'.";
                (message.to_owned(), Some("messages"))
            }
            ("Bad Request", _) => (format!("Invalid JSON payload: {}", self.message.replace('\n', " ")), Some("request_body")),
            ("NotFoundError", _) => (self.message.clone(), None),
            (STRICT, param) => (self.message.clone(), param),
            _ => {
                let inner = self.vllm();
                (format!("litellm.BadRequestError: Hosted_vllmException - {inner}"), None)
            }
        };
        let mut error = json!({"message": message, "type": "invalid_request_error",
                               "param": param, "code": "400"});
        if self.kind == "NotFoundError" {
            error["provider_specific_fields"] = json!({"error": message});
        }
        json!({"error": error})
    }
}

/// The kind of a refusal that only a strict server makes.
const STRICT: &str = "invalid_request_error";

/// The fields that this server was told to refuse.
fn check_strictness(value: &Value, quirks: &Quirks) -> Result<(), Refusal> {
    let given = |key: &str| value.get(key).filter(|given| !given.is_null());
    let unknown = |param: &str| Err(Refusal::strict(param, format!("Unrecognized request argument supplied: {param}")));
    if quirks.refuses(Refuse::IgnoreEos) && given("ignore_eos").is_some() {
        return unknown("ignore_eos");
    }
    if quirks.refuses(Refuse::StreamOptions) && given("stream_options").is_some() {
        return unknown("stream_options");
    }
    let options = given("stream_options");
    if quirks.refuses(Refuse::ContinuousUsage) && options.is_some_and(|options| options.get("continuous_usage_stats").is_some()) {
        return unknown("stream_options.continuous_usage_stats");
    }
    let temperature = given("temperature").and_then(Value::as_f64).filter(|temperature| *temperature != 1.0);
    if let Some(temperature) = temperature.filter(|_| quirks.refuses(Refuse::Temperature)) {
        let message = format!(
            "Unsupported value: 'temperature' does not support {temperature} with this model. Only the default (1) value is supported."
        );
        return Err(Refusal::strict("temperature", message));
    }
    for key in ["max_tokens", "max_completion_tokens"] {
        let asked = given(key).and_then(Value::as_i64).filter(|asked| *asked > LARGE_MAX_TOKENS);
        if let Some(asked) = asked.filter(|_| quirks.refuses(Refuse::LargeMaxTokens)) {
            let message = format!(
                "{key} is too large: {asked}. This model supports at most {LARGE_MAX_TOKENS} completion tokens, whereas you provided {asked}."
            );
            return Err(Refusal::strict(key, message));
        }
    }
    Ok(())
}

pub(crate) fn parse(body: &[u8]) -> Result<Value, Refusal> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        let lines_before = body.split_inclusive(|byte| *byte == b'\n').take(error.line().max(1) - 1);
        let at = lines_before.map(<[u8]>::len).sum::<usize>() + error.column();
        let at = at.min(body.len());
        Refusal::validation(
            &format!("body.{at}"),
            &format!(
                "{{'type': 'json_invalid', 'loc': 'body.{at}', 'msg': 'JSON decode error', 'input': \
                 '<dict of 0 items>', 'ctx': {{'error': 'Expecting value'}}}}"
            ),
        )
    })?;
    if value.is_object() {
        return Ok(value);
    }
    Err(Refusal::validation(
        "body",
        "{'type': 'model_attributes_type', 'loc': 'body', 'msg': 'Input should be a valid dictionary \
         or object to extract fields from'}",
    ))
}

/// `model` has to be the served one, where it is given. SGLang and llama.cpp don't look at it.
fn check_model(value: &Value, settings: &Settings) -> Result<(), Refusal> {
    let served = &settings.model;
    let asked = value.get("model").and_then(Value::as_str);
    let Some(model) = asked.filter(|asked| asked != served) else {
        return Ok(());
    };
    let message = match settings.flavour {
        Flavour::Sglang | Flavour::LlamaCpp => return Ok(()),
        Flavour::Vllm => {
            format!("The model `{model}` does not exist. Valid aliases: {served}.")
        }
        Flavour::Proxy => format!(
            "/chat/completions: Invalid model name passed in model={model}. Call `/v1/models` to \
             view available models for your key."
        ),
    };
    Err(Refusal { status: 404, message, kind: "NotFoundError", param: Some("model".to_owned()), numbers: None })
}

/// Role and texts of each message.
pub(crate) fn messages(value: &Value) -> Vec<(&str, Vec<&str>)> {
    let list = value.get("messages").and_then(Value::as_array);
    list.into_iter().flatten().map(message).collect()
}

fn message(message: &Value) -> (&str, Vec<&str>) {
    let role = message.get("role").and_then(Value::as_str).unwrap_or("user");
    let texts = match message.get("content") {
        Some(Value::String(text)) => vec![text.as_str()],
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect(),
        _ => Vec::new(),
    };
    (role, texts)
}

fn chat_tokens(value: &Value, flavour: Flavour) -> Result<Vec<u64>, Refusal> {
    let location = "body.messages";
    let Some(messages) = value.get("messages").filter(|m| !m.is_null()) else {
        let items = value.as_object().map_or(0, serde_json::Map::len);
        return Err(Refusal::validation(
            location,
            &format!(
                "{{'type': 'missing', 'loc': '{location}', 'msg': 'Field required', 'input': \
                 '<dict of {items} items>'}}"
            ),
        ));
    };
    let Some(messages) = messages.as_array() else {
        return Err(Refusal::validation(
            location,
            &format!("{{'type': 'list_type', 'loc': '{location}', 'msg': 'Input should be a valid list'}}"),
        ));
    };
    if messages.is_empty() && flavour != Flavour::LlamaCpp {
        return Err(Refusal {
            status: 400,
            message: "Cannot apply chat template to an empty conversation. Provide at least one \
                      message."
                .to_owned(),
            kind: "BadRequestError",
            param: None,
            numbers: None,
        });
    }
    Ok(tokens::of_chat(messages.iter().map(message)))
}

/// A non-negative whole number under `key`; absent and null are the same.
fn integer(value: &Value, key: &str) -> Result<Option<i64>, Refusal> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(number) => number.as_i64().map(Some).ok_or_else(|| {
            let location = format!("body.{key}");
            let detail = format!("{{'type': 'int_type', 'loc': '{location}', 'msg': 'Input should be a valid integer'}}");
            Refusal::validation(&location, &detail)
        }),
    }
}

fn flag(value: Option<&Value>) -> bool {
    value.and_then(Value::as_bool).unwrap_or(false)
}

/// Reads the body of `/v1/chat/completions`.
pub(crate) fn read_chat(body: &[u8], settings: &Settings) -> Result<ChatRequest, Refusal> {
    let value = parse(body)?;
    let tokens = chat_tokens(&value, settings.flavour)?;
    check_model(&value, settings)?;
    check_strictness(&value, &settings.quirks)?;
    let stream = flag(value.get("stream"));
    // llama.cpp takes nearly everything.
    let lenient = settings.flavour == Flavour::LlamaCpp;
    let stream_options = value.get("stream_options").filter(|options| !options.is_null());
    if stream_options.is_some() && !stream && !lenient {
        let message = "Stream options can only be defined when `stream=True`. (parameter=stream_options)";
        return Err(Refusal::bad_request("stream_options", message.to_owned()));
    }
    if let Some(temperature) = value.get("temperature").and_then(Value::as_f64).filter(|t| *t < 0.0 && !lenient) {
        let message = format!(
            "temperature must be non-negative, got {temperature:?}. (parameter=temperature, \
             value={temperature:?})"
        );
        return Err(Refusal::bad_request("temperature", message));
    }
    let limit = i64::from(settings.max_context);
    let asked = match integer(&value, "max_completion_tokens")? {
        Some(asked) => Some(asked),
        None => integer(&value, "max_tokens")?,
    };
    if let Some(asked) = asked.filter(|_| !lenient) {
        let refuse = |message: String| {
            let message = format!("{message} (parameter=max_tokens, value={asked})");
            Err(Refusal::bad_request("max_tokens", message))
        };
        if asked < 1 {
            return refuse(format!("max_tokens must be at least 1, got {asked}."));
        }
        if asked > limit {
            return refuse(format!(
                "max_tokens={asked} cannot be greater than max_model_len={limit}. Please request \
                 fewer output tokens."
            ));
        }
    }
    let prompt_tokens = tokens.len() as i64;
    if prompt_tokens >= limit {
        // The real one stops tokenizing just above the limit.
        let seen = prompt_tokens.min(limit + 1);
        let message = match settings.flavour {
            Flavour::Sglang => format!(
                "The input ({prompt_tokens} tokens) is longer than the model's context length \
                 ({limit} tokens)."
            ),
            _ => format!(
                "This model's maximum context length is {limit} tokens. However, your prompt \
                 contains at least {seen} input tokens, which exceeds this limit even without any \
                 output tokens. Please reduce the length of the input prompt. \
                 (parameter=input_tokens, value={seen})"
            ),
        };
        let numbers = Some((prompt_tokens, limit));
        return Err(Refusal { numbers, ..Refusal::bad_request("input_tokens", message) });
    }
    let room = limit - prompt_tokens;
    // llama.cpp gives one token for 0, and takes less for no limit.
    let asked = asked.filter(|asked| *asked >= 0).map(|asked| asked.max(1));
    let options = |key| flag(stream_options.and_then(|options| options.get(key)));
    Ok(ChatRequest {
        prompt: tokens::to_prompt(&tokens, settings.block_tokens),
        max_output: u32::try_from(asked.unwrap_or(room).min(room)).unwrap_or(1),
        ignore_eos: flag(value.get("ignore_eos")),
        stream,
        include_usage: options("include_usage"),
        continuous_usage: options("include_usage") && options("continuous_usage_stats"),
        rid: value.get("rid").and_then(Value::as_str).map(str::to_owned),
    })
}

/// Answers `/tokenize`, for `messages` or for `prompt`.
pub(crate) fn tokenize(body: &[u8], settings: &Settings) -> Result<Value, Refusal> {
    let value = parse(body)?;
    check_model(&value, settings)?;
    let tokens = match value.get("prompt").and_then(Value::as_str) {
        Some(prompt) => tokens::of_text(prompt),
        None => chat_tokens(&value, settings.flavour)?,
    };
    let ids: Vec<u32> = tokens.into_iter().map(tokens::token_id).collect();
    Ok(json!({"count": ids.len(), "max_model_len": settings.max_context, "tokens": ids,
              "token_strs": null}))
}

#[cfg(test)]
#[path = "openai_tests.rs"]
mod tests;
