//! Chat requests: reading them, and refusing bad ones with each server's own code and words.
//! What is asked for here is answered in `chunks`.

use serde_json::{Value, json};

use super::http::Response;
use super::model::{Flavour, Settings};
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
}

/// Why a request is refused, in terms of vLLM's recorded answers; the others wrap or reword it.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: u16,
    message: String,
    kind: &'static str,
    param: Option<String>,
}

impl Refusal {
    fn bad_request(param: &str, message: String) -> Self {
        Self { status: 400, message, kind: "BadRequestError", param: Some(param.to_owned()) }
    }

    fn validation(location: &str, detail: &str) -> Self {
        Self { status: 400, message: format!("1 validation error:\n  {detail}"), kind: "Bad Request", param: Some(location.to_owned()) }
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
            Flavour::Proxy => (400, self.proxy()),
        };
        Response::json(status, &body)
    }

    fn vllm(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param,
                         "code": self.status}})
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
            ("NotFoundError", _) => (
                "/chat/completions: Invalid model name passed in the request. Call `/v1/models` to \
                 view available models for your key."
                    .to_owned(),
                None,
            ),
            _ => {
                let inner = self.vllm();
                (format!("litellm.BadRequestError: Hosted_vllmException - {inner}"), None)
            }
        };
        json!({"error": {"message": message, "type": "invalid_request_error", "param": param,
                         "code": "400"}})
    }
}

fn parse(body: &[u8]) -> Result<Value, Refusal> {
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

/// `model` has to be the served one, where it is given. SGLang doesn't look at it.
fn check_model(value: &Value, settings: &Settings) -> Result<(), Refusal> {
    match value.get("model").and_then(Value::as_str) {
        Some(model) if model != settings.model && settings.flavour != Flavour::Sglang => Err(Refusal {
            status: 404,
            message: format!("The model `{model}` does not exist. Valid aliases: {}.", settings.model),
            kind: "NotFoundError",
            param: Some("model".to_owned()),
        }),
        _ => Ok(()),
    }
}

fn chat_tokens(value: &Value) -> Result<Vec<u64>, Refusal> {
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
    if messages.is_empty() {
        return Err(Refusal {
            status: 400,
            message: "Cannot apply chat template to an empty conversation. Provide at least one \
                      message."
                .to_owned(),
            kind: "BadRequestError",
            param: None,
        });
    }
    Ok(tokens::of_chat(messages.iter().map(|message| {
        let role = message.get("role").and_then(Value::as_str).unwrap_or("user");
        let texts = match message.get("content") {
            Some(Value::String(text)) => vec![text.as_str()],
            Some(Value::Array(parts)) => parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect(),
            _ => Vec::new(),
        };
        (role, texts)
    })))
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
    let tokens = chat_tokens(&value)?;
    check_model(&value, settings)?;
    let stream = flag(value.get("stream"));
    let stream_options = value.get("stream_options").filter(|options| !options.is_null());
    if stream_options.is_some() && !stream {
        let message = "Stream options can only be defined when `stream=True`. (parameter=stream_options)";
        return Err(Refusal::bad_request("stream_options", message.to_owned()));
    }
    if let Some(temperature) = value.get("temperature").and_then(Value::as_f64).filter(|t| *t < 0.0) {
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
    if let Some(asked) = asked {
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
        return Err(Refusal::bad_request("input_tokens", message));
    }
    let room = limit - prompt_tokens;
    let options = |key| flag(stream_options.and_then(|options| options.get(key)));
    Ok(ChatRequest {
        prompt: tokens::to_prompt(&tokens, settings.block_tokens),
        max_output: u32::try_from(asked.unwrap_or(room).min(room)).unwrap_or(1),
        ignore_eos: flag(value.get("ignore_eos")),
        stream,
        include_usage: options("include_usage"),
        continuous_usage: options("include_usage") && options("continuous_usage_stats"),
    })
}

/// Answers `/tokenize`, for `messages` or for `prompt`.
pub(crate) fn tokenize(body: &[u8], settings: &Settings) -> Result<Value, Refusal> {
    let value = parse(body)?;
    check_model(&value, settings)?;
    let tokens = match value.get("prompt").and_then(Value::as_str) {
        Some(prompt) => tokens::of_text(prompt),
        None => chat_tokens(&value)?,
    };
    let ids: Vec<u32> = tokens.into_iter().map(tokens::token_id).collect();
    Ok(json!({"count": ids.len(), "max_model_len": settings.max_context, "tokens": ids,
              "token_strs": null}))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn small() -> Settings {
        Settings { model: "tiny-llama".to_owned(), max_context: 8192, kv_tokens: 8192, ..Settings::default() }
    }

    fn refusal(body: &str) -> (u16, Value) {
        let Err(refusal) = read_chat(body.as_bytes(), &small()) else { panic!("{body} was accepted") };
        (refusal.status, refusal.vllm())
    }

    /// Body of a recorded request, and status and body of its answer.
    fn recorded(request: &str, response: &str) -> (String, u16, Value) {
        let (_, body) = request.split_once("\r\n\r\n").unwrap();
        let (head, answer) = response.split_once("\r\n\r\n").unwrap();
        let status = head[9..12].parse().unwrap();
        (body.to_owned(), status, serde_json::from_str(answer).unwrap())
    }

    macro_rules! recorded {
        ($name:literal) => {
            recorded(
                include_str!(concat!("../../tests/fixtures/transcripts/vllm/", $name, ".request.http")),
                include_str!(concat!("../../tests/fixtures/transcripts/vllm/", $name, ".response.http")),
            )
        };
    }

    #[test]
    fn bad_requests_are_refused_as_vllm_was_recorded_to() {
        for (body, status, answer) in [
            recorded!("error-bad-model"),
            recorded!("error-empty-messages"),
            recorded!("error-invalid-json"),
            recorded!("error-max-tokens-negative"),
            recorded!("error-max-tokens-over-context"),
            recorded!("error-no-messages"),
            recorded!("error-stream-options-without-stream"),
            recorded!("error-temperature"),
        ] {
            assert_eq!(refusal(&body), (status, answer), "{body}");
        }
    }

    #[test]
    fn a_prompt_over_the_context_is_refused_as_recorded() {
        let words = "word ".repeat(9000);
        let body = json!({"messages": [{"role": "user", "content": words}]}).to_string();
        let answer = include_str!("../../tests/fixtures/transcripts/vllm/error-context-too-long.response.http");
        let (_, answer) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(refusal(&body), (400, serde_json::from_str(answer).unwrap()));
    }

    #[test]
    fn other_servers_use_other_shapes() {
        let refuse = |flavour| {
            let settings = Settings { flavour, ..small() };
            let refusal = read_chat(b"{\"messages\":[]}", &settings).unwrap_err();
            let response = refusal.response(flavour);
            serde_json::from_slice::<Value>(&response.body).unwrap()
        };
        assert_eq!(refuse(Flavour::Sglang)["object"], "error");
        assert_eq!(refuse(Flavour::Proxy)["error"]["code"], "400");
    }

    #[test]
    fn the_answer_is_limited_by_what_is_asked_and_by_the_room() {
        let read = |more: &str| {
            let body = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}]{more}}}"#);
            read_chat(body.as_bytes(), &small()).unwrap()
        };
        let open = read("");
        assert_eq!(open.max_output, 8192 - open.prompt.tokens);
        assert_eq!(read(r#","max_tokens":5"#).max_output, 5);
        assert_eq!(read(r#","max_completion_tokens":6,"max_tokens":5"#).max_output, 6);
        assert_eq!(read(r#","max_tokens":8192"#).max_output, open.max_output);
    }

    #[test]
    fn text_in_parts_counts_like_text_in_one() {
        let count = |content: Value| {
            let body = json!({"messages": [{"role": "user", "content": content}]}).to_string();
            tokenize(body.as_bytes(), &small()).unwrap()["count"].clone()
        };
        let parts = json!([{"type": "text", "text": "one two"}, {"type": "text", "text": " three"}]);
        assert_eq!(count(parts), count(json!("one two three")));
    }
}
