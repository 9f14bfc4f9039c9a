//! Servers that break, limit, repeat themselves, start slowly or work on one request at a time.

use std::io::BufReader;

use tokscope_collector::simulator::{Flavour, MetricsAnswer, Quirks, Settings, SpeedUp};

use super::client::*;

fn with(quirks: Quirks) -> Settings {
    Settings { quirks, ..quick() }
}

#[test]
fn metrics_may_be_missing_broken_a_web_page_or_elsewhere() {
    for (metrics, status, content_type) in [
        (MetricsAnswer::Missing, 404, "application/json"),
        (MetricsAnswer::BadGateway, 502, "text/html"),
        (MetricsAnswer::Html, 200, "text/html"),
    ] {
        for flavour in [Flavour::Vllm, Flavour::Proxy] {
            let running = start(Settings { flavour, ..with(Quirks { metrics, ..Quirks::default() }) });
            let reply = get(&running, "/metrics");
            assert_eq!(reply.status, status);
            assert!(reply.head.contains(&format!("content-type: {content_type}")), "{}", reply.head);
            assert!(!String::from_utf8(reply.body).unwrap().contains("# TYPE"));
        }
    }
    let running = start(Settings { flavour: Flavour::Proxy, ..quick() });
    let reply = get(&running, "/metrics");
    assert_eq!(reply.status, 307);
    assert!(reply.head.contains("location: /metrics/\r\n"));
    let page = String::from_utf8(get(&running, "/metrics/").body).unwrap();
    assert!(page.contains("# TYPE") && !page.contains("vllm:"));
}

#[test]
fn a_share_fails_and_the_same_seed_fails_the_same() {
    let statuses = || {
        let running = start(with(Quirks { fail_share: 0.4, ..Quirks::default() }));
        let statuses: Vec<u16> = (0..60).map(|at| chat(&running, &at.to_string(), &chat_body("hi", 1)).status).collect();
        let failed = statuses.iter().filter(|status| **status == 500).count();
        assert_eq!(truth(&running).rejected.get(&500), Some(&(failed as u64)));
        assert!(statuses.iter().all(|status| [200, 500].contains(status)));
        // 24 expected; four standard deviations are 15.
        assert!((9..=39).contains(&failed), "{failed}");
        statuses
    };
    assert_eq!(statuses(), statuses());
}

#[test]
fn more_than_the_limit_in_flight_are_told_to_come_back() {
    let running = start(with(Quirks { rate_limit: Some(2), ..Quirks::default() }));
    let streams: Vec<_> = (0..2).map(|at| send_chat(&running, &at.to_string(), &chat_body("hi", 8_000))).collect();
    until("two run", || metric(&running, "vllm:num_requests_running") == 2.0);
    let third = chat(&running, "2", &chat_body("hi", 1));
    assert_eq!(third.status, 429);
    assert!(third.head.contains("retry-after: 1\r\n"));
    drop(streams);
    until("there is room again", || chat(&running, "3", &chat_body("hi", 1)).status == 200);
}

#[test]
fn a_loop_says_one_sentence() {
    let running = start(with(Quirks { repeat_text: true, ..Quirks::default() }));
    let events = chat(&running, "a", &chat_body("hi", 120)).events();
    let text: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    let period = text.len() / 10;
    assert!(text.is_char_boundary(period) && text == text[..period].repeat(10));
}

#[test]
fn a_serial_server_runs_one_and_hides_the_rest() {
    let running = start(with(Quirks { serial: true, ..Quirks::default() }));
    let streams: Vec<_> = (0..3).map(|at| send_chat(&running, &at.to_string(), &chat_body("hi", 100))).collect();
    until("all have come", || truth(&running).requests.len() == 3);
    assert_eq!(metric(&running, "vllm:num_requests_waiting"), 0.0);
    for stream in streams {
        assert_eq!(read_reply(&mut BufReader::new(stream)).events().len(), 102);
    }
    let truth = truth(&running);
    assert_eq!(truth.history.load.running.iter().max(), Some(&1));
    assert!(truth.history.load.waiting.iter().max() >= Some(&1));
    let spans: Vec<_> = truth.requests.iter().map(|request| (request.prefill_start_ns, request.handed_ns.last().copied())).collect();
    assert!(spans.windows(2).all(|pair| pair[1].0 >= pair[0].1.map(|last| last.saturating_sub(50_000_000))));
}

#[test]
fn a_cold_engine_is_slower_by_the_factor_at_first_and_less_with_each_request() {
    let speed_up = Some(SpeedUp { factor: 5.0, requests: 2 });
    let settings = Settings {
        step_per_context_token_ns: 0.0,
        prefix_cache: false,
        prefill_tok_s: 20_000.0,
        ..with(Quirks { speed_up, ..Quirks::default() })
    };
    let running = start(settings);
    for at in 0..3 {
        chat(&running, &at.to_string(), &chat_body("some words to read", 4));
    }
    let requests = truth(&running).requests;
    let prefill_ns = |at: usize| requests[at].prefill_end_ns.unwrap() - requests[at].prefill_start_ns.unwrap();
    let step_ns = |at: usize| {
        let due = |chunk: usize| requests[at].handed_ns[chunk] - requests[at].late_ns[chunk];
        due(2) - due(1)
    };
    for (at, times) in [(0, 5), (1, 3)] {
        assert_eq!((prefill_ns(at), step_ns(at)), (times * prefill_ns(2), times * step_ns(2)));
    }
    assert_eq!(step_ns(2), 2_000_000);
}
