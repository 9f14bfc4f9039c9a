#![allow(clippy::unwrap_used, clippy::panic)]

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
fn a_proxy_refuses_as_recorded() {
    let settings = Settings { flavour: Flavour::Proxy, ..small() };
    let message = r#""messages":[{"role":"user","content":"hi"}]"#;
    for (body, recorded) in [
        (
            format!(r#"{{"model":"no-such-model",{message}}}"#),
            include_str!("../../tests/fixtures/transcripts/litellm/error-bad-model.response.http"),
        ),
        ("{}".to_owned(), include_str!("../../tests/fixtures/transcripts/litellm/error-no-messages.response.http")),
    ] {
        let response = read_chat(body.as_bytes(), &settings).unwrap_err().response(Flavour::Proxy);
        let (head, answer) = recorded.split_once("\r\n\r\n").unwrap();
        assert_eq!(response.status.to_string(), head[9..12]);
        let ours: Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(ours, serde_json::from_str::<Value>(answer).unwrap());
    }
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
fn a_strict_server_refuses_each_field_by_its_name_and_only_those_it_was_told() {
    use Refuse::{ContinuousUsage, IgnoreEos, LargeMaxTokens, StreamOptions, Temperature};
    let message = r#""messages":[{"role":"user","content":"hi"}],"stream":true"#;
    let cases = [
        (IgnoreEos, r#""ignore_eos":true"#, "ignore_eos"),
        (StreamOptions, r#""stream_options":{"include_usage":true}"#, "stream_options"),
        (ContinuousUsage, r#""stream_options":{"continuous_usage_stats":true}"#, "stream_options.continuous_usage_stats"),
        (Temperature, r#""temperature":0"#, "temperature"),
        (LargeMaxTokens, r#""max_tokens":4097"#, "max_tokens"),
        (LargeMaxTokens, r#""max_completion_tokens":4097"#, "max_completion_tokens"),
    ];
    for (refuse, field, param) in cases {
        let body = format!("{{{message},{field}}}");
        for flavour in [Flavour::Vllm, Flavour::Sglang, Flavour::Proxy] {
            let strict = |refuse: Vec<Refuse>| Settings { flavour, quirks: Quirks { refuse, ..Quirks::default() }, ..small() };
            let response = read_chat(body.as_bytes(), &strict(vec![refuse])).unwrap_err().response(flavour);
            let answer: Value = serde_json::from_slice(&response.body).unwrap();
            let error = answer.get("error").unwrap_or(&answer);
            assert_eq!((response.status, error["param"].as_str()), (400, Some(param)), "{flavour:?}");
            assert!(error["message"].as_str().unwrap().contains(param.rsplit('.').next().unwrap()), "{error}");
            let others = [IgnoreEos, ContinuousUsage, StreamOptions, Temperature, LargeMaxTokens].into_iter().filter(|r| *r != refuse);
            // continuous_usage_stats is one of the stream options.
            let others = others.filter(|r| refuse != ContinuousUsage || *r != StreamOptions).collect();
            assert!(read_chat(body.as_bytes(), &strict(others)).is_ok(), "{flavour:?} {field}");
        }
    }
    let polite = format!(r#"{{{message},"temperature":1,"max_tokens":4096,"stream_options":{{"include_usage":true}}}}"#);
    let all_but_options = Quirks { refuse: vec![IgnoreEos, ContinuousUsage, Temperature, LargeMaxTokens], ..Quirks::default() };
    assert!(read_chat(polite.as_bytes(), &Settings { quirks: all_but_options, ..small() }).is_ok());
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
