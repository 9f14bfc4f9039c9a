//! Streams, timing, reading and endings.

use std::io::{BufReader, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use serde_json::{Value, json};
use tokscope_collector::simulator::{self, End, Firehose, Flavour, Settings, SimulatorError, Truth};

use super::client::*;

#[test]
fn the_truth_agrees_with_the_bytes_that_arrive() {
    let running = start(Settings { spec_accept: vec![0.8, 0.6], ..quick() });
    let reply = chat(&running, "abc", &chat_body("Say something.", 60));
    assert_eq!(reply.status, 200);
    let events = reply.events();
    assert!(events.iter().all(|event| event["id"] == "chatcmpl-abc"));
    let truth = truth(&running);
    let record = &truth.requests[0];
    assert_eq!((record.id.as_str(), record.end, record.stream), ("chatcmpl-abc", End::Length, true));
    // Usage of each event but the role's and the last, as differences.
    let usage = |event: &Value| event["usage"]["completion_tokens"].as_u64().unwrap();
    let counts: Vec<u64> = events[..events.len() - 1].iter().map(usage).collect();
    let seen: Vec<u32> = counts.windows(2).map(|pair| (pair[1] - pair[0]) as u32).collect();
    assert_eq!(record.tokens, seen);
    assert_eq!(record.tokens.iter().sum::<u32>(), 60);
    assert_eq!(events.last().unwrap()["usage"]["prompt_tokens"], record.prompt_tokens);
    assert!(record.tokens.len() < 60, "some chunks hold several tokens");
    // Due times, computed from the record, follow the model: overhead and prefill, then steps.
    let due: Vec<u64> = record.handed_ns.iter().zip(&record.late_ns).map(|(h, l)| h - l).collect();
    let first_ns = 500_000 + u64::from(record.prompt_tokens) * 1_000;
    assert_eq!(due[0] - record.received_ns, first_ns);
    let context_ns = |tokens: u32| u64::from(record.prompt_tokens + tokens) * 20;
    let mut generated = record.tokens[0];
    for (at, pair) in due.windows(2).enumerate() {
        assert_eq!(pair[1] - pair[0], 2_000_000 + context_ns(generated));
        generated += record.tokens[at + 1];
    }
    assert_eq!(truth.late_ns.count, record.tokens.len());
    println!("lateness of one stream: {:?}", truth.late_ns);
    assert_eq!(metric(&running, "vllm:generation_tokens_total"), 60.0);
}

#[test]
fn since_and_reset_leave_out_what_is_old() {
    let running = start(quick());
    chat(&running, "one", &chat_body("a", 2));
    let between = truth(&running).now_ns;
    chat(&running, "two", &chat_body("a", 2));
    let later: Truth = serde_json::from_value(get(&running, &format!("/simulator/truth?since_ns={between}")).json()).unwrap();
    let ids: Vec<_> = later.requests.iter().map(|r| r.id.as_str()).collect();
    assert_eq!(ids, ["chatcmpl-two"]);
    assert_eq!(get(&running, "/simulator/truth?since_ns=soon").status, 400);
    let mut stream = connect(&running);
    stream.write_all(&request("POST", "/simulator/reset", "", "")).unwrap();
    assert_eq!(read_reply(&mut stream).status, 200);
    assert!(truth(&running).requests.is_empty());
}

#[test]
fn a_connection_is_used_again_after_streams_errors_and_plain_answers() {
    let running = start(quick());
    let mut stream = connect(&running);
    let chat = request("POST", "/v1/chat/completions", "", &chat_body("hi", 3));
    let bad = request("POST", "/v1/chat/completions", "", "{");
    let models = request("GET", "/v1/models", "", "");
    for (sent, status) in [(&chat, 200), (&bad, 400), (&models, 200), (&chat, 200)] {
        stream.write_all(sent).unwrap();
        let reply = read_reply(&mut stream);
        assert_eq!(reply.status, status);
        assert!(!reply.head.contains("connection: close"));
    }
    // All at once, answered in order.
    stream.write_all(&[&chat[..], &bad, &models].concat()).unwrap();
    assert_eq!([(); 3].map(|()| read_reply(&mut stream).status), [200, 400, 200]);
    let close = request("GET", "/health", "Connection: close\r\n", "");
    stream.write_all(&close).unwrap();
    assert!(read_reply(&mut stream).head.contains("connection: close"));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_request_may_come_in_pieces_and_in_chunks() {
    let running = start(quick());
    let mut stream = connect(&running);
    for byte in request("POST", "/tokenize", "", r#"{"prompt":"one two"}"#) {
        stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(read_reply(&mut stream).json()["count"], 2);
    let head = "POST /tokenize HTTP/1.1\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(read_until(&mut stream, b"\r\n\r\n"), b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"a\r\n{\"prompt\":\r\nc;x=y\r\n\"one two th\r\n").unwrap();
    stream.write_all(b"6\r\nree\"}\n\r\n0\r\ntrailer: 1\r\n\r\n").unwrap();
    // The second chunk's size is wrong by two, which makes this no HTTP.
    let reply = read_reply(&mut stream);
    assert_eq!(reply.status, 400);
    let mut stream = connect(&running);
    stream.write_all(head.as_bytes()).unwrap();
    read_until(&mut stream, b"\r\n\r\n");
    stream.write_all(b"a\r\n{\"prompt\":\r\nb;x=y\r\n\"one two th\r\n").unwrap();
    stream.write_all(b"6\r\nree\"}\n\r\n0\r\ntrailer: 1\r\n\r\n").unwrap();
    assert_eq!(read_reply(&mut stream).json()["count"], 3);
}

#[test]
fn what_is_no_http_is_refused_and_the_connection_closed() {
    let running = start(quick());
    for sent in ["\u{1}\u{2}\r\n\r\n", "POST /tokenize HTTP/1.1\r\ncontent-length: -1\r\n\r\n"] {
        let mut stream = connect(&running);
        stream.write_all(sent.as_bytes()).unwrap();
        assert_eq!(read_reply(&mut stream).status, 400);
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    let mut stream = connect(&running);
    stream.write_all(b"POST /tokenize HTTP/1.1\r\ncontent-length: 9000000000\r\n\r\n").unwrap();
    assert_eq!(read_reply(&mut stream).status, 413);
}

#[test]
fn a_body_of_many_megabytes_is_read_and_counted() {
    let running = start(Settings { max_context: 4_000_000, kv_tokens: 4_100_000, prefill_tok_s: 1e9, ..quick() });
    let text = "word ".repeat(2_000_000);
    let reply = chat(&running, "big", &chat_body(&text, 2));
    assert_eq!(reply.status, 200);
    let usage = reply.events().pop().unwrap();
    let prompt = usage["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!((2_000_000..2_000_020).contains(&prompt), "{prompt}");
    let body = json!({"messages": [{"role": "user", "content": text}]}).to_string();
    let mut stream = connect(&running);
    stream.write_all(&request("POST", "/tokenize", "", &body)).unwrap();
    assert_eq!(read_reply(&mut stream).json()["count"], prompt);
}

#[test]
fn a_client_that_hangs_up_frees_its_slot() {
    let running = start(Settings { slots: 1, ..quick() });
    let mut first = send_chat(&running, "first", &chat_body("a", 8_000));
    read_until(&mut first, b"data: ");
    let mut second = send_chat(&running, "second", &chat_body("b", 3));
    until("the second waits", || metric(&running, "vllm:num_requests_waiting") == 1.0);
    assert_eq!(metric(&running, "vllm:num_requests_running"), 1.0);
    first.shutdown(Shutdown::Both).unwrap();
    drop(first);
    assert_eq!(read_reply(&mut second).events().len(), 5);
    until("nothing runs", || metric(&running, "vllm:num_requests_running") == 0.0);
    let ends: Vec<_> = truth(&running).requests.into_iter().map(|r| (r.id, r.end)).collect();
    assert_eq!(ends, [("chatcmpl-first".to_owned(), End::Disconnect), ("chatcmpl-second".to_owned(), End::Length)]);
    assert_eq!(metric(&running, "vllm:request_success_total"), 0.0, "of reason stop");
}

#[test]
fn a_client_that_hangs_up_before_its_first_token_is_noticed_at_once() {
    // Ten seconds of prefill, of which the second client must not wait for the rest.
    let running = start(Settings { prefill_tok_s: 500.0, ..quick() });
    let mut first = send_chat(&running, "first", &chat_body(&"word ".repeat(5_000), 3));
    read_until(&mut first, b"\r\n\r\n");
    drop(first);
    let second = chat(&running, "second", &chat_body("b", 3));
    assert_eq!(second.events().len(), 5);
    let requests = truth(&running).requests;
    assert_eq!((requests[0].end, requests[0].tokens.len()), (End::Disconnect, 0));
    assert!(requests[1].handed_ns[0] < requests[0].received_ns + 10_000_000_000);
}

#[test]
fn a_slow_reader_delays_nobody_else_and_gets_all_in_the_end() {
    let running = start(Settings { step_base_us: 500.0, step_per_context_token_ns: 0.0, ..quick() });
    // 2.6 MB are much more than the sockets hold; nothing is read of them for now.
    let mut slow = connect(&running);
    let body = chat_body("a", 8_000);
    slow.write_all(&request("POST", "/v1/chat/completions", "x-request-id: slow\r\n", &body)).unwrap();
    let handed = |id: &str| {
        let truth = truth(&running);
        let record = truth.requests.into_iter().find(|r| r.id.ends_with(id)).unwrap();
        (record.tokens.len(), record.end)
    };
    until("the engine is through with it", || metric(&running, "vllm:generation_tokens_total") >= 8_000.0);
    let (chunks, end) = handed("slow");
    assert!(chunks < 8_000 && end == End::Running, "{chunks}");
    let quick = chat(&running, "quick", &chat_body("b", 50));
    assert_eq!(quick.events().len(), 52);
    let reply = read_reply(&mut BufReader::new(slow));
    assert_eq!(reply.events().len(), 8_002);
    until("it ends", || handed("slow") == (8_000, End::Length));
}

#[test]
fn a_cached_prompt_is_due_earlier_by_just_its_cached_tokens() {
    let running = start(Settings { prefill_tok_s: 20_000.0, prompt_tokens_details: true, ..quick() });
    let text = "some words to read ".repeat(200);
    for id in ["cold", "warm"] {
        chat(&running, id, &chat_body(&text, 2));
    }
    let truth = truth(&running);
    let first_ns = |at: usize| {
        let r = &truth.requests[at];
        r.handed_ns[0] - r.late_ns[0] - r.received_ns
    };
    let cached = u64::from(truth.requests[1].cached_tokens);
    assert!(cached > 700 && truth.requests[0].cached_tokens == 0);
    assert_eq!(first_ns(0) - first_ns(1), cached * 50_000);
    assert_eq!(metric(&running, "vllm:prompt_tokens_cached_total"), cached as f64);
}

#[test]
fn the_same_seed_says_the_same_to_the_same_questions() {
    let texts = |seed| {
        let running = start(Settings { seed, spec_accept: vec![0.5], ..quick() });
        let mut bodies = Vec::new();
        for id in 0..3 {
            let body = json!({"messages": [{"role": "user", "content": "x"}], "stream": true}).to_string();
            for event in chat(&running, &id.to_string(), &body).events() {
                bodies.push(event["choices"].clone());
            }
        }
        bodies
    };
    assert_eq!(texts(5), texts(5));
    assert_ne!(texts(5), texts(6));
}

#[test]
fn answers_in_one_piece_are_handed_over_once() {
    let running = start(quick());
    let body = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 7, "ignore_eos": true});
    let reply = chat(&running, "whole", &body.to_string());
    assert_eq!(reply.json()["usage"]["completion_tokens"], 7);
    assert_eq!(reply.json()["choices"][0]["finish_reason"], "length");
    let record = truth(&running).requests.pop().unwrap();
    assert_eq!((record.tokens, record.stream), (vec![7], false));
}

#[test]
fn each_flavour_has_its_own_endpoints() {
    for (flavour, path, status) in [
        (Flavour::Vllm, "/version", 200),
        (Flavour::Vllm, "/get_server_info", 404),
        (Flavour::Vllm, "/metrics", 200),
        (Flavour::Vllm, "/health", 200),
        (Flavour::Vllm, "/v1/chat/completions", 405),
        (Flavour::Vllm, "/no-such", 404),
        (Flavour::Sglang, "/version", 404),
        (Flavour::Sglang, "/get_server_info", 200),
        (Flavour::Sglang, "/metrics", 200),
        (Flavour::Proxy, "/version", 404),
        (Flavour::Proxy, "/get_server_info", 404),
        (Flavour::Proxy, "/metrics", 307),
        (Flavour::Proxy, "/metrics/", 200),
        (Flavour::Proxy, "/tokenize", 404),
        (Flavour::Proxy, "/v1/models", 200),
    ] {
        let running = start(Settings { flavour, ..quick() });
        assert_eq!(get(&running, path).status, status, "{flavour:?} {path}");
    }
    let running = start(Settings { flavour: Flavour::Sglang, ..quick() });
    let info = get(&running, "/get_server_info").json();
    assert_eq!(info["max_total_num_tokens"], 65_536);
    assert_eq!(info["max_running_requests"], 256);
    assert_eq!(info["context_length"], 8192);
}

#[test]
fn plain_answers_are_those_recorded() {
    let running = start(quick());
    for (path, recorded) in [
        ("/version", include_str!("../fixtures/transcripts/vllm/get-version.response.http")),
        ("/no-such", include_str!("../fixtures/transcripts/vllm/get-unknown-path.response.http")),
        ("/health", include_str!("../fixtures/transcripts/vllm/get-health.response.http")),
        ("/v1/chat/completions", include_str!("../fixtures/transcripts/vllm/get-chat-wrong-method.response.http")),
    ] {
        let mut stream = connect(&running);
        stream.write_all(&request("GET", path, "connection: close\r\n", "")).unwrap();
        let mut ours = String::new();
        stream.read_to_string(&mut ours).unwrap();
        let without_date =
            |text: &str| -> Vec<String> { text.split("\r\n").filter(|line| !line.starts_with("date: ")).map(str::to_owned).collect() };
        assert_eq!(without_date(&ours), without_date(recorded), "{path}");
    }
    let keys = |value: &Value| value["data"][0].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let recorded = include_str!("../fixtures/transcripts/vllm/get-v1-models.response.http");
    let recorded = serde_json::from_str(recorded.split_once("\r\n\r\n").unwrap().1).unwrap();
    let ours = get(&running, "/v1/models").json();
    assert_eq!(keys(&ours), keys(&recorded));
    assert_eq!(ours["data"][0]["max_model_len"], 8192);
}

#[test]
fn a_taken_port_is_one_sentence_that_says_what_to_do() {
    let running = start(quick());
    let error = simulator::start(quick(), running.addr()).unwrap_err();
    assert!(matches!(error, SimulatorError::Taken { .. }));
    let text = error.to_string();
    assert!(text.contains(&running.addr().port().to_string()) && text.contains("--port 0"), "{text}");
}

#[tokio::test]
async fn a_stopped_simulator_closes_its_streams_and_frees_its_port() {
    let running = start(quick());
    let addr = running.addr();
    let mut stream = send_chat(&running, "cut", &chat_body("a", 8_000));
    read_until(&mut stream, b"data: ");
    running.stop().await;
    let mut rest = Vec::new();
    // Closed, or reset where something was unread.
    let _ = stream.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"0\r\n\r\n"));
    let again = simulator::start(quick(), addr).unwrap();
    assert_eq!(again.truth(0).await.unwrap().requests.len(), 0);
}

#[test]
fn many_streams_at_once_get_every_token_in_shared_steps() {
    let running = start(Settings { step_base_us: 20_000.0, ..quick() });
    let streams: Vec<_> = (0..256).map(|at| send_chat(&running, &at.to_string(), &chat_body("hi", 40))).collect();
    for stream in streams {
        assert_eq!(read_reply(&mut BufReader::new(stream)).events().len(), 42);
    }
    let truth = truth(&running);
    assert_eq!(truth.requests.len(), 256);
    assert!(truth.requests.iter().all(|r| r.tokens.iter().sum::<u32>() == 40));
    println!("lateness with 256 streams: {:?}", truth.late_ns);
    // Falling behind would stretch the time between the first tokens and the last.
    let stretch = |record: &simulator::RequestTruth| {
        let due = |at: usize| record.handed_ns[at] - record.late_ns[at];
        (record.handed_ns[39] - record.handed_ns[1]) as f64 / (due(39) - due(1)) as f64
    };
    let mean = truth.requests.iter().map(stretch).sum::<f64>() / 256.0;
    assert!(mean < 1.1, "{mean}");
}

#[test]
fn a_request_has_come_when_its_last_byte_reached_the_machine() {
    let running = start(quick());
    let before = truth(&running).now_ns;
    let body = chat_body("hi", 2);
    let whole = request("POST", "/v1/chat/completions", "x-request-id: late\r\n", &body);
    let (most, last) = whole.split_at(whole.len() - 1);
    let mut stream = connect(&running);
    stream.write_all(most).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let between = truth(&running).now_ns;
    stream.write_all(last).unwrap();
    read_reply(&mut stream);
    let truth = truth(&running);
    let record = &truth.requests[0];
    assert!(before < between && between <= record.received_ns && record.received_ns <= truth.now_ns);
    assert!(record.received_by_kernel, "this system stamps what it receives");
    assert_eq!(truth.taken_late_ns.count, 1);
    assert_eq!(truth.taken_late_ns.max, Some(record.taken_late_ns));
    // No client can have a token before it was given away.
    assert!(record.handed_ns.iter().all(|ns| *ns >= record.received_ns && *ns <= truth.now_ns));
}

#[test]
fn a_request_that_is_read_late_says_so() {
    // With no time allowed for reading, every request is taken up late.
    let running = start(Settings { request_overhead_us: 0.0, ..quick() });
    chat(&running, "a", &chat_body("hi", 2));
    assert!(truth(&running).requests[0].taken_late_ns > 0);
    let patient = start(Settings { request_overhead_us: 5e6, ..quick() });
    let _open = send_chat(&patient, "b", &chat_body("hi", 2));
    until("the request is known", || !truth(&patient).requests.is_empty());
    assert_eq!(truth(&patient).requests[0].taken_late_ns, 0);
}

#[test]
fn a_firehose_sends_all_tokens_at_once_and_the_same_to_all() {
    for mode in [Firehose::Blocks, Firehose::Events] {
        let running = start(Settings { firehose: Some(mode), ..quick() });
        let mut streams: Vec<_> = (0..3).map(|at| BufReader::new(send_chat(&running, &format!("r{at}"), &chat_body("hi", 700)))).collect();
        let replies: Vec<Reply> = streams.iter_mut().map(read_reply).collect();
        for reply in &replies {
            let events = reply.events();
            // The role, the tokens, the usage.
            assert_eq!(events.len(), 702);
            for (at, event) in events[..701].iter().enumerate() {
                assert_eq!(event["usage"]["completion_tokens"], at);
            }
            assert_eq!(events[700]["choices"][0]["finish_reason"], "length");
            assert_eq!(events[701]["usage"]["completion_tokens"], 700);
            assert!(reply.body == replies[0].body);
        }
        // A connection is good for more.
        let again = streams[0].get_mut();
        again.write_all(&request("POST", "/v1/chat/completions", "x-request-id: more\r\n", &chat_body("hi", 5))).unwrap();
        assert_eq!(read_reply(&mut streams[0]).events().len(), 7);
        let mut records = truth(&running).requests;
        records.sort_by(|a, b| a.id.cmp(&b.id));
        let seen: Vec<_> = records.iter().map(|r| (r.id.as_str(), r.tokens.iter().sum::<u32>(), r.end)).collect();
        let whole = |id| (id, 700, End::Length);
        assert_eq!(seen, [("chatcmpl-more", 5, End::Length), whole("chatcmpl-r0"), whole("chatcmpl-r1"), whole("chatcmpl-r2")]);
        assert!(records.iter().all(|r| r.late_ns.is_empty()));
        assert_eq!(metric(&running, "vllm:generation_tokens_total"), 2105.0);
    }
}

#[test]
fn a_firehose_survives_who_reads_nothing_and_who_goes_away() {
    let running = start(Settings { firehose: Some(Firehose::Events), max_context: 60_000, ..quick() });
    let stuck = send_chat(&running, "stuck", &chat_body("hi", 50_000));
    let ends = |id: &str| truth(&running).requests.iter().find(|r| r.id.ends_with(id)).map(|r| r.end);
    until("the first request runs", || ends("stuck") == Some(End::Running));
    assert_eq!(chat(&running, "other", &chat_body("hi", 300)).events().len(), 302);
    drop(stuck);
    until("the hang-up is noticed", || ends("stuck") == Some(End::Disconnect));
}
