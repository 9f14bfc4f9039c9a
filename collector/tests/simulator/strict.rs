//! Servers that refuse, demand a key, or are not ready.

use std::io::Write;

use tokscope_collector::simulator::{Flavour, Quirks, Refuse, Settings};

use super::client::*;

fn with(quirks: Quirks) -> Settings {
    Settings { quirks, ..quick() }
}

#[test]
fn a_refused_field_is_a_400_that_names_it_and_is_counted() {
    let running = start(with(Quirks { refuse: vec![Refuse::IgnoreEos], ..Quirks::default() }));
    let reply = chat(&running, "a", &chat_body("hi", 3));
    assert_eq!(reply.status, 400);
    assert_eq!(reply.json()["error"]["param"], "ignore_eos");
    let without = chat_body("hi", 3).replace("\"ignore_eos\":true,", "");
    assert_eq!(chat(&running, "b", &without).status, 200);
    let truth = truth(&running);
    assert_eq!(truth.rejected.into_iter().collect::<Vec<_>>(), [(400, 1)]);
    assert_eq!(truth.requests.len(), 1);
    assert_eq!(post(&running, "/simulator/reset", "").status, 200);
    assert!(super::client::truth(&running).rejected.is_empty());
}

#[test]
fn a_demanded_key_is_a_401_as_recorded_until_it_is_given() {
    let running = start(with(Quirks { api_key: Some("sk-right".to_owned()), ..Quirks::default() }));
    let recorded = include_str!("../fixtures/transcripts/vllm-spec-ngram/error-wrong-key.response.http");
    let (head, body) = recorded.split_once("\r\n\r\n").unwrap();
    let reply = chat(&running, "a", &chat_body("hi", 3));
    assert_eq!((reply.status.to_string().as_str(), reply.body.as_slice()), (&head[9..12], body.as_bytes()));
    let mut stream = connect(&running);
    stream.write_all(&request("POST", "/v1/chat/completions", "Authorization: Bearer sk-right\r\n", &chat_body("hi", 3))).unwrap();
    assert_eq!(read_reply(&mut stream).status, 200);
    assert_eq!(truth(&running).rejected.get(&401), Some(&1));
}

#[test]
fn a_loading_server_takes_connections_answers_503_and_then_is_ready() {
    for flavour in [Flavour::Vllm, Flavour::Sglang, Flavour::Proxy] {
        let running = start(Settings { flavour, ..with(Quirks { loading_s: 0.3, ..Quirks::default() }) });
        let mut stream = connect(&running);
        stream.write_all(&request("GET", "/v1/models", "", "")).unwrap();
        let first = read_reply(&mut stream);
        assert_eq!(first.status, 503);
        assert!(first.json()["error"].is_object());
        until("it is ready", || get(&running, "/v1/models").status == 200);
    }
}
