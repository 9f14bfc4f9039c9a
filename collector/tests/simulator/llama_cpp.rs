//! llama.cpp's server: what it answers, and what its counters and slots say while answers run.

use std::io::Write;

use serde_json::json;
use tokscope_collector::simulator::{Flavour, Settings};

use super::client::*;

fn llama() -> Settings {
    Settings { flavour: Flavour::LlamaCpp, slots: 4, ..quick() }
}

#[test]
fn plain_answers_and_errors_are_those_recorded() {
    let running = start(Settings { max_context: 4096, ..llama() });
    let body = |recorded: &str| recorded.split_once("\r\n\r\n").unwrap().1.to_owned();
    for (path, recorded) in [
        ("/version", include_str!("../fixtures/transcripts/llama-server/get-version.response.http")),
        ("/get_server_info", include_str!("../fixtures/transcripts/llama-server/get-version.response.http")),
        ("/v1/chat/completions", include_str!("../fixtures/transcripts/llama-server/get-version.response.http")),
        ("/health", include_str!("../fixtures/transcripts/llama-server/get-health.response.http")),
    ] {
        let reply = get(&running, path);
        assert_eq!((reply.status.to_string(), String::from_utf8(reply.body).unwrap()), (recorded[9..12].to_owned(), body(recorded)));
        let name = |line: &str| line.split(':').next().unwrap().to_owned();
        let names = |head: &str| head.split("\r\n\r\n").next().unwrap().lines().skip(1).map(name).collect::<Vec<_>>();
        // A connection that stays open says so in another way.
        let ours: Vec<_> = names(&reply.head).into_iter().filter(|name| name != "Keep-Alive").collect();
        assert_eq!(ours, names(recorded).into_iter().filter(|name| name != "Connection").collect::<Vec<_>>());
    }
    let no_messages = include_str!("../fixtures/transcripts/llama-server/error-no-messages.response.http");
    assert_eq!(String::from_utf8(chat(&running, "a", "{}").body).unwrap(), body(no_messages));
    let too_long = include_str!("../fixtures/transcripts/llama-server/error-context-too-long.response.http");
    let keys = |value: &serde_json::Value| value["error"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let reply = chat(&running, "b", &chat_body(&"word ".repeat(5_000), 3));
    assert_eq!(reply.status, 400);
    assert_eq!(keys(&reply.json()), keys(&serde_json::from_str(&body(too_long)).unwrap()));
    assert_eq!(chat(&running, "c", "{\"messages\":").status, 400);
    // What others refuse is answered.
    for more in [json!({"temperature": -3}), json!({"max_tokens": 0}), json!({"model": "no-such"}), json!({"messages": []})] {
        let mut body = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = chat(&running, "d", &body.to_string());
        assert_eq!((reply.status, &reply.json()["usage"]["completion_tokens"]), (200, &json!(1)), "{more}");
    }
}

#[test]
fn the_page_has_the_recorded_names_in_their_order() {
    let running = start(llama());
    let page = String::from_utf8(get(&running, "/metrics").body).unwrap();
    let types = |page: &str| page.lines().filter(|line| line.starts_with("# TYPE")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(types(&page), types(include_str!("../fixtures/transcripts/llama-server/metrics-2-after-load.response.http")));
}

#[test]
fn tokens_are_counted_when_a_request_ends_or_is_given_up_while_slots_tell_them_at_once() {
    let running = start(llama());
    let mut first = send_chat(&running, "first", &chat_body("a", 6_000));
    let at_work = || {
        let slots = get(&running, "/slots").json();
        slots.as_array().unwrap().iter().filter(|slot| slot["is_processing"] == true).cloned().collect::<Vec<_>>()
    };
    until("the slot has ten tokens", || at_work().first().is_some_and(|slot| slot["next_token"][0]["n_decoded"].as_u64() >= Some(10)));
    assert_eq!(metric(&running, "llamacpp:tokens_predicted_total"), 0.0);
    assert_eq!(metric(&running, "llamacpp:requests_processing"), 1.0);
    assert!(metric(&running, "llamacpp:prompt_tokens_total") > 0.0);
    let reply = chat(&running, "second", &chat_body("b", 5));
    assert_eq!(reply.status, 200);
    assert_eq!(metric(&running, "llamacpp:tokens_predicted_total"), 5.0);
    assert_eq!(at_work().len(), 1);
    read_until(&mut first, b"data: ");
    drop(first);
    until("it is gone", || at_work().is_empty());
    let counted = metric(&running, "llamacpp:tokens_predicted_total");
    assert!(counted > 15.0, "{counted}");
    assert_eq!(metric(&running, "llamacpp:predicted_tokens_seconds"), 0.0, "nothing ended since the last scrape");
}

#[test]
fn each_slot_has_the_whole_context_and_more_requests_wait() {
    let running = start(Settings { slots: 2, prefix_cache: false, ..llama() });
    let long = "word ".repeat(4_000);
    let _streams: Vec<_> = (0..3).map(|at| send_chat(&running, &at.to_string(), &chat_body(&long, 4_000))).collect();
    until("two run and one waits", || {
        metric(&running, "llamacpp:requests_processing") == 2.0 && metric(&running, "llamacpp:requests_deferred") == 1.0
    });
    let props = get(&running, "/props").json();
    assert_eq!((&props["total_slots"], &props["default_generation_settings"]["n_ctx"]), (&json!(2), &json!(8192)));
    assert_eq!(get(&running, "/v1/models").json()["data"][0]["meta"]["n_ctx"], 8192);
}

#[test]
fn the_answer_counts_as_many_tokens_as_its_timings_and_the_truth() {
    let running = start(Settings { spec_accept: vec![0.8, 0.5], ..llama() });
    let mut stream = connect(&running);
    stream.write_all(&request("POST", "/v1/chat/completions", "", &chat_body("x", 50))).unwrap();
    let events = read_reply(&mut stream).events();
    let texts = events.iter().filter(|event| event["choices"][0]["delta"]["content"].is_string()).count();
    let last = events.last().unwrap();
    assert_eq!((texts, &last["usage"]["completion_tokens"], &last["timings"]["predicted_n"]), (50, &json!(50), &json!(50)));
    assert!(events.iter().rev().skip(1).all(|event| event.get("usage").is_none()), "continuous usage is ignored");
    assert_eq!(truth(&running).requests[0].tokens.iter().sum::<u32>(), 50);
}
