#![allow(clippy::unwrap_used)]

use serde_json::Value;

use super::super::openai;
use super::*;

/// The JSON of each event after the head of a stream; `None` is `[DONE]`. Panics where a chunk
/// holds anything but one whole event.
fn events(response: &str) -> Vec<Option<Value>> {
    let (_, mut body) = response.split_once("\r\n\r\n").unwrap();
    let mut events = Vec::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            assert_eq!(rest, "\r\n");
            return events;
        }
        let event = rest[..size].strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
        events.push((event != "[DONE]").then(|| serde_json::from_str(event).unwrap()));
        body = rest[size..].strip_prefix("\r\n").unwrap();
    }
}

/// Keys in their order, and the kind of each value; the texts and numbers are left out.
fn shape(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let items = map.iter().map(|(key, value)| format!("{key}:{}", shape(value)));
            format!("{{{}}}", items.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(shape).collect::<String>()),
        Value::String(_) => "text".to_owned(),
        Value::Number(_) => "number".to_owned(),
        other => other.to_string(),
    }
}

fn shapes(response: &str) -> Vec<String> {
    let events = events(response).into_iter();
    events.map(|event| event.map_or("[DONE]".to_owned(), |event| shape(&event))).collect()
}

fn answer(settings: &Settings, more: &str, chunks: &[u32]) -> String {
    let body = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}]{more}}}"#);
    let request = openai::read_chat(body.as_bytes(), settings).unwrap();
    let mut answer = Answer::new(settings, &request, "chatcmpl-1", 1, false);
    let mut out = Vec::new();
    answer.head(&mut out);
    for (at, tokens) in chunks.iter().enumerate() {
        let emission = Emission {
            key: 1,
            due_ns: 3_000_000 + at as u64 * 1_000_000,
            tokens: *tokens,
            cached_tokens: 1,
            planned_tokens: chunks.iter().sum(),
            finish: (at + 1 == chunks.len()).then_some(Finish::Length),
            prefill_start_ns: 1_000_000,
            first_ns: 3_000_000,
            accepted: None,
        };
        answer.emit(&emission, &mut out);
    }
    String::from_utf8(out).unwrap()
}

fn settings(flavour: Flavour) -> Settings {
    Settings { flavour, empty_share: 0.0, ..Settings::default() }
}

fn header_names(response: &str) -> Vec<&str> {
    let (head, _) = response.split_once("\r\n\r\n").unwrap();
    let lines = head.lines().skip(1);
    let mut names: Vec<&str> = lines.map(|line| line.split_once(':').unwrap().0).collect();
    names.sort_unstable();
    names
}

const STREAM: &str = r#","stream":true"#;
const AT_END: &str = r#","stream":true,"stream_options":{"include_usage":true}"#;
const CONTINUOUS: &str = r#","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}"#;

#[test]
fn vllm_streams_have_the_recorded_headers_events_keys_and_nulls() {
    let ones = [1; 12];
    let details = Settings { prompt_tokens_details: true, ..settings(Flavour::Vllm) };
    for (recorded, settings, more, chunks) in [
        (
            include_str!("../../../tests/fixtures/transcripts/vllm/stream-no-usage.response.http"),
            settings(Flavour::Vllm),
            STREAM,
            &ones[..],
        ),
        (
            include_str!("../../../tests/fixtures/transcripts/vllm/stream-usage-at-end.response.http"),
            settings(Flavour::Vllm),
            AT_END,
            &ones[..],
        ),
        (
            include_str!("../../../tests/fixtures/transcripts/vllm/stream-continuous-usage.response.http"),
            settings(Flavour::Vllm),
            CONTINUOUS,
            &ones[..],
        ),
        (
            include_str!("../../../tests/fixtures/transcripts/vllm-spec-ngram/stream-continuous-usage.response.http"),
            details,
            CONTINUOUS,
            &[1, 1, 1, 1, 1, 1, 1, 1, 1, 3][..],
        ),
    ] {
        let ours = answer(&settings, more, chunks);
        assert_eq!(shapes(&ours), shapes(recorded));
        assert_eq!(header_names(&ours), header_names(recorded));
    }
}

#[test]
fn continuous_usage_counts_tokens_not_chunks() {
    let recorded = events(include_str!("../../../tests/fixtures/transcripts/vllm-spec-ngram/stream-continuous-usage.response.http"));
    let ours = events(&answer(&settings(Flavour::Vllm), CONTINUOUS, &[1, 1, 1, 1, 1, 1, 1, 1, 1, 3]));
    let completion = |events: &[Option<Value>]| -> Vec<Value> {
        let events = events.iter().flatten();
        events.map(|event| event["usage"]["completion_tokens"].clone()).collect()
    };
    assert_eq!(completion(&ours), completion(&recorded));
}

#[test]
fn a_proxys_stream_has_the_recorded_shape_without_continuous_usage() {
    for (recorded, more) in [
        (include_str!("../../../tests/fixtures/transcripts/litellm/stream-continuous-usage.response.http"), CONTINUOUS),
        (include_str!("../../../tests/fixtures/transcripts/litellm/stream-no-usage.response.http"), STREAM),
    ] {
        // One of the twelve recorded tokens had no text and was swallowed.
        let ours = answer(&settings(Flavour::Proxy), more, &[1; 11]);
        assert_eq!(shapes(&ours), shapes(recorded));
    }
}

#[test]
fn answers_in_one_piece_have_the_recorded_keys() {
    for (flavour, recorded) in [
        (Flavour::Vllm, include_str!("../../../tests/fixtures/transcripts/vllm/nonstream.response.http")),
        (Flavour::LlamaCpp, include_str!("../../../tests/fixtures/transcripts/llama-server/nonstream.response.http")),
        (Flavour::Proxy, include_str!("../../../tests/fixtures/transcripts/litellm/nonstream.response.http")),
    ] {
        let ours = answer(&settings(flavour), "", &[1; 12]);
        let body = |response: &str| -> Value { serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap() };
        let (ours, recorded) = (body(&ours), body(recorded));
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&ours), keys(&recorded));
        assert_eq!(shape(&ours["choices"]), shape(&recorded["choices"]));
        assert_eq!(ours["usage"]["completion_tokens"], 12);
    }
}

#[test]
fn sglang_streams_end_with_a_finish_event_then_usage() {
    let events = events(&answer(&settings(Flavour::Sglang), CONTINUOUS, &[1, 2, 1]));
    let events: Vec<_> = events.into_iter().flatten().collect();
    assert_eq!(events.len(), 6);
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(events[2]["usage"]["completion_tokens"], 3);
    assert_eq!(events[4]["choices"][0]["finish_reason"], "length");
    assert_eq!(events[4]["choices"][0]["delta"]["content"], Value::Null);
    assert_eq!(events[5]["usage"]["completion_tokens"], 4);
}

#[test]
fn reasoning_comes_first_under_each_servers_own_name() {
    for (flavour, key) in [(Flavour::Vllm, "reasoning"), (Flavour::Sglang, "reasoning_content"), (Flavour::Proxy, "reasoning_content")] {
        let settings = Settings { reasoning_share: 0.4, ..settings(flavour) };
        let events = events(&answer(&settings, STREAM, &[1; 10]));
        let has = |key: &str| -> Vec<bool> {
            let deltas = events[1..11].iter().flatten().map(|event| &event["choices"][0]["delta"]);
            deltas.map(|delta| delta[key].is_string()).collect()
        };
        let first_four: Vec<bool> = (0..10).map(|at| at < 4).collect();
        assert_eq!(has(key), first_four);
        assert_eq!(has("content"), first_four.iter().map(|is| !is).collect::<Vec<_>>());
    }
}

#[test]
fn half_characters_are_tokens_without_text_and_a_proxy_swallows_them() {
    let text_events = |flavour| {
        let settings = Settings { empty_share: 0.5, ..settings(flavour) };
        let events = events(&answer(&settings, STREAM, &[1; 100]));
        let texts = events.into_iter().flatten().filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned));
        texts.skip(1).collect::<Vec<_>>()
    };
    let (vllm, proxy) = (text_events(Flavour::Vllm), text_events(Flavour::Proxy));
    assert_eq!(vllm.len(), 100);
    let empty = vllm.iter().filter(|text| text.is_empty()).count();
    assert!(empty > 10, "{empty}");
    assert!(!vllm[0].is_empty() && !vllm[99].is_empty());
    assert_eq!(proxy.len(), 100 - empty);
    assert_eq!(proxy.concat(), vllm.concat());
}

#[test]
fn the_text_has_as_many_tokens_as_usage_says() {
    let events = events(&answer(&settings(Flavour::Vllm), STREAM, &[1, 3, 2, 4]));
    let text: String = events.iter().flatten().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(super::super::tokens::of_text(&text).len(), 10);
}

/// The events of each HTTP chunk; `None` is `[DONE]`.
fn chunks_of_events(response: &str) -> Vec<Vec<Option<Value>>> {
    let (_, mut body) = response.split_once("\r\n\r\n").unwrap();
    let mut chunks = Vec::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return chunks;
        }
        let events = rest[..size].split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap());
        chunks.push(events.map(|event| (event != "[DONE]").then(|| serde_json::from_str(event).unwrap())).collect());
        body = rest[size..].strip_prefix("\r\n").unwrap();
    }
}

#[test]
fn llama_cpps_streams_have_the_recorded_events_in_the_recorded_chunks() {
    for (recorded, more, tokens) in [
        (include_str!("../../../tests/fixtures/transcripts/llama-server/stream-continuous-usage.response.http"), CONTINUOUS, 12),
        (include_str!("../../../tests/fixtures/transcripts/llama-server/stream-no-usage.response.http"), STREAM, 12),
        (include_str!("../../../tests/fixtures/transcripts/llama-server/stream-usage-max-tokens-1.response.http"), CONTINUOUS, 1),
    ] {
        let ours = answer(&settings(Flavour::LlamaCpp), more, &vec![1; tokens]);
        let shapes = |response: &str| -> Vec<Vec<String>> {
            let shape = |event: Option<Value>| event.map_or("[DONE]".to_owned(), |event| shape(&event));
            chunks_of_events(response).into_iter().map(|events| events.into_iter().map(shape).collect()).collect()
        };
        assert_eq!(shapes(&ours), shapes(recorded));
        assert_eq!(header_names(&ours), header_names(recorded));
        let last = chunks_of_events(&ours).into_iter().flatten().flatten().last().unwrap();
        let timings = &last["timings"];
        assert_eq!((&timings["predicted_n"], &timings["cache_n"]), (&Value::from(tokens), &Value::from(1)));
        assert_eq!(timings["prompt_ms"], 2.0);
        assert_eq!(timings["predicted_ms"], (tokens - 1) as f64);
        assert_eq!(timings["predicted_per_second"], if tokens > 1 { 1000.0 } else { 0.0 });
    }
    let several = chunks_of_events(&answer(&settings(Flavour::LlamaCpp), AT_END, &[1, 3]));
    assert_eq!(several.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1, 1, 1, 2, 1], "an event a token");
}

#[test]
fn a_loop_is_one_sentence_whose_tokens_are_still_counted_right() {
    for flavour in [Flavour::Vllm, Flavour::Sglang, Flavour::Proxy] {
        let quirks = super::super::Quirks { repeat_text: true, ..Default::default() };
        let events = events(&answer(&Settings { empty_share: 0.5, quirks, ..settings(flavour) }, STREAM, &[1, 3, 20, 12]));
        let text: String = events.iter().flatten().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, REPEATED.concat().repeat(3));
        assert_eq!(super::super::tokens::of_text(&text).len(), 36);
    }
}

#[test]
fn an_aborted_answer_says_so() {
    let settings = settings(Flavour::Sglang);
    let request = openai::read_chat(br#"{"messages":[{"role":"user"}],"stream":true}"#, &settings).unwrap();
    let mut answer = Answer::new(&settings, &request, "a", 1, true);
    let mut out = Vec::new();
    answer.head(&mut out);
    answer.abort(0, &mut out);
    let events = events(std::str::from_utf8(&out).unwrap());
    assert_eq!(events.len(), 3);
    assert_eq!(events[1].as_ref().unwrap()["choices"][0]["finish_reason"], "abort");
}

#[test]
fn a_strange_id_stays_valid_json() {
    let settings = settings(Flavour::Vllm);
    let request = openai::read_chat(br#"{"messages":[{"role":"user"}],"stream":true}"#, &settings).unwrap();
    let mut answer = Answer::new(&settings, &request, "chatcmpl-a\"b\\", 1, true);
    let mut out = Vec::new();
    answer.head(&mut out);
    let finish = Some(Finish::Stop);
    let emission = Emission { key: 1, tokens: 1, planned_tokens: 1, finish, ..Emission::default() };
    answer.emit(&emission, &mut out);
    let events = events(std::str::from_utf8(&out).unwrap());
    assert_eq!(events[0].as_ref().unwrap()["id"], "chatcmpl-a\"b\\");
}
