//! Answers that repeat themselves.

use tokscope_collector::cell::CellOptions;
use tokscope_collector::event::Event;
use tokscope_shared::field::Json as _;

use super::windows::{no_metrics, reasons, reported};
use crate::cells::{measure_each, server, short};
use crate::server::{Do, STREAM_HEAD, chunk, send};

/// Words that don't repeat.
fn prose(words: usize, seed: u64) -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..words).map(|_| (0..10).map(|_| random.lowercase()).collect::<String>() + " ").collect()
}

/// A stream of these texts in a channel, `each` at a time every 10 ms.
fn says(channel: &str, texts: &[String], each: usize) -> Vec<Do> {
    let mut steps = vec![send(STREAM_HEAD)];
    for (n, texts) in texts.chunks(each).enumerate() {
        let delta = serde_json::json!({ channel: texts.concat() });
        let usage = format!("\"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":{}}}", (n + 1) * each);
        let data = format!("data: {{\"id\":\"answer\",\"choices\":[{{\"index\":0,\"delta\":{delta}}}],{usage}}}\n\n");
        steps.extend([send(chunk(&data)), Do::Sleep(10)]);
    }
    steps
}

fn cycles(n: usize) -> Vec<String> {
    std::iter::repeat_with(|| prose(12, 99)).take(n).flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_ends_its_cell_and_makes_it_invalid_with_all_that_is_known_of_it() {
    // A second of text, then the same 132 characters over and over.
    for channel in ["content", "reasoning_content"] {
        let answer = move |_| says(channel, &[prose(400, 1), cycles(4_000)].concat(), 4);
        let server = server(answer, no_metrics).await;
        let options = CellOptions { duration_us: 20_000_000, ..short() };
        let (cells, events) = measure_each(&server, &[1], &options).await;
        let window = cells[0].window.unwrap();
        assert!(window.seconds() < 10.0, "the cell goes on for {} s", window.seconds());
        let cell = reported(&cells[0]);
        let json = cell.write();
        assert_eq!(json["aggregate_tps"], serde_json::Value::Null);
        assert_eq!(json["aggregate_source"], "invalid_exact_repetition");
        assert_eq!(json["ready_reason"], "loop_detected_during_measurement");
        assert_eq!(json["num_errors"], 1);
        assert_eq!((&json["loop_detection_enabled"], &json["loop_detected"]), (&true.into(), &true.into()));
        assert_eq!(json["tokscope"]["verdict"], "invalid");
        assert_eq!(reasons(&cell)[0], "repetition");
        // The blank before the first cycle ends each of them as well.
        let found = &json["loop_diagnostics"][0];
        let word = if channel == "content" { "content" } else { "reasoning" };
        for (key, value) in [("period_chars", 132), ("observed_start_char", 4_399), ("stream_index", 0), ("request_ordinal", 0)] {
            assert_eq!(found[key], value, "{key}: {found}");
        }
        assert_eq!((&found["status"], &found["channel"], &found["phase"]), (&"confirmed".into(), &word.into(), &"measurement".into()));
        assert_eq!((&found["request_id"], &found["coordinate_unit"]), (&"answer".into(), &"unicode_code_points_in_channel".into()));
        assert!(found["complete_cycles"].as_i64().unwrap() >= 4 && found["repeated_chars"].as_i64().unwrap() >= 4_096);
        // Four words of eleven characters an event, and as many tokens.
        let (at, tokens) = (found["detected_at_char"].as_i64().unwrap(), found["observed_completion_tokens"].as_i64().unwrap());
        assert!((at - tokens * 11).abs() <= 44, "{at} characters, {tokens} tokens");
        for key in ["period_sha256", "cycle_excerpt", "context_excerpt", "tail_excerpt"] {
            assert!(!found[key].as_str().unwrap().is_empty(), "{key}");
        }
        let said: Vec<String> = events.iter().filter_map(Event::log_text).collect();
        let of_loop = said.iter().filter(|text| text.starts_with("ERROR")).collect::<Vec<_>>();
        assert_eq!(of_loop.len(), 1, "{said:?}");
        assert!(of_loop[0].starts_with(&format!("ERROR: loop C=1 ctx=0 {word} period=132 chars cycles=")), "{of_loop:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspicion_is_recorded_on_a_valid_cell_and_without_a_guard_nothing_is() {
    let answer = |_| says("content", &[prose(100, 1), cycles(10), prose(20_000, 2)].concat(), 4);
    let server = server(answer, no_metrics).await;
    let (cells, _) = measure_each(&server, &[1], &short()).await;
    let json = reported(&cells[0]).write();
    assert_eq!(cells[0].failure, None);
    assert!(cells[0].aggregate_tps().unwrap() > 0.0);
    assert_eq!(json["loop_detected"], false);
    assert_eq!((&json["loop_diagnostics"][0]["status"], &json["loop_diagnostics"][0]["period_chars"]), (&"suspected".into(), &132.into()));
    assert_eq!(json["loop_diagnostics_omitted"], 0);

    let answer = |_| says("content", &cycles(4_000), 8);
    let server = self::server(answer, no_metrics).await;
    let (cells, _) = measure_each(&server, &[1], &CellOptions { loop_guard: false, ..short() }).await;
    let cell = reported(&cells[0]);
    let json = cell.write();
    assert!(cells[0].aggregate_tps().is_some());
    assert_eq!((&json["loop_detection_enabled"], &json["loop_diagnostics"]), (&false.into(), &serde_json::json!([])));
    assert!(!reasons(&cell).contains(&"loop-unguarded".to_owned()), "a short answer needs no guard: {:?}", reasons(&cell));
}

/// Like a stream that breaks, a loop of one stream ends the cell of all; what others said is no loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stream_of_several_is_named_and_a_long_answer_without_a_guard_is_a_hint() {
    let answer = |n: usize| says("content", &if n == 1 { cycles(4_000) } else { prose(20_000, n as u64) }, 4);
    let server = server(answer, no_metrics).await;
    let (cells, _) = measure_each(&server, &[3], &CellOptions { duration_us: 8_000_000, ..short() }).await;
    let loops = cells[0].loops.as_ref().unwrap();
    let confirmed: Vec<_> = loops.findings.iter().filter(|found| found.repetition.confirmed).collect();
    assert_eq!(confirmed.len(), 1, "{confirmed:?}");
    assert!(cells[0].failure.as_deref().unwrap().contains(&format!("stream {}", confirmed[0].stream)));
    assert_eq!(loops.lost_bytes, 0);

    let answer = |n: usize| says("content", &prose(40_000, n as u64), 20);
    let server = self::server(answer, no_metrics).await;
    let options = CellOptions { loop_guard: false, duration_us: 3_000_000, ..short() };
    let (cells, _) = measure_each(&server, &[1], &options).await;
    assert!(cells[0].streams[0].requests[0].output_tokens() > 2_048);
    assert!(reasons(&reported(&cells[0])).contains(&"loop-unguarded".to_owned()));
}
