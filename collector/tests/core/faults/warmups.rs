//! What a whole run sends before it measures: until the server is warm, never more at once than is measured, and in the
//! shape of what is measured.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokscope_collector::clock::Clock;
use tokscope_collector::event::{Events, Stamped};
use tokscope_collector::load::stop::Stop;
use tokscope_collector::report::RunRecord;
use tokscope_collector::run::{Kept, PrefillOptions, RunOptions, run};
use tokscope_collector::simulator::{self, Flavour, Quirks, RequestTruth, Settings, SpeedUp};
use tokscope_collector::target::TargetOptions;

use crate::cells::stream;
use crate::server::{DONE, Server, finish, send, whole};

/// Tokens of a wave's answers, of measured ones, and of the one ahead of prefill.
const WAVE: u64 = 16;
const MEASURED: u32 = 3_000;
const AHEAD: u64 = 64;

/// A short run of one context.
fn options(url: String, concurrency: &[u32]) -> RunOptions {
    RunOptions {
        target: TargetOptions { host: url, ..TargetOptions::default() },
        concurrency: concurrency.to_vec(),
        contexts: vec![0],
        duration_s: 1.5,
        max_tokens: MEASURED,
        prefill: PrefillOptions { skip: true, ..PrefillOptions::default() },
        repeat: 1,
        decode_warmup_s: 0.5,
        seed: 1,
        ..RunOptions::default()
    }
}

/// Runs it; what it left, and what it told meanwhile.
async fn done(options: &RunOptions) -> (RunRecord, Vec<Stamped>) {
    let (to, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let (clock, kept) = (Clock::start(), Kept::default());
    run(options, clock, &Events::new(clock, to), Stop::never(), &kept).await.unwrap();
    (kept.take().unwrap(), std::iter::from_fn(|| heard.try_recv().ok()).collect())
}

/// When each concurrency was tried out, in the order of events: its number, waves, and microseconds.
fn tried(events: &[Stamped]) -> Vec<(u32, u32, u64)> {
    let parse = |stamped: &Stamped| {
        let text = stamped.event.log_text()?;
        let (level, waves) = text.strip_prefix("decode warmup done C=")?.split_once(" after ")?;
        Some((level.parse().ok()?, waves.split(' ').next()?.parse().ok()?, stamped.t_us))
    };
    events.iter().filter_map(parse).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_cell_is_as_fast_as_the_last_on_a_server_that_gets_warm_over_twenty_requests() {
    let quirks = Quirks { speed_up: Some(SpeedUp { factor: 3.0, requests: 20 }), ..Quirks::default() };
    let simulator = simulator::start(Settings { quirks, ..Settings::default() }, "127.0.0.1:0".parse().unwrap()).unwrap();
    let (record, events) = done(&RunOptions { repeat: 2, ..options(simulator.url(), &[4]) }).await;
    let rates: Vec<f64> = record.cells.iter().map(|cell| cell.cell.aggregate_tps.f64().unwrap()).collect();
    let [first, last] = rates[..] else { panic!("{rates:?}") };
    assert!((first / last - 1.0).abs() < 0.05, "{first} at first, {last} at last; {:?}", tried(&events));
    // By the server's own account too: no request of the first cell took longer steps than those of the last.
    let truth = simulator.truth(0).await.unwrap();
    let step_ns = |order: usize| {
        let of_cell = |r: &&RequestTruth| r.id.contains(&format!("{}-{order}-", record.run_id)) && r.handed_ns.len() > 10;
        let mean = |r: &RequestTruth| (r.handed_ns[r.handed_ns.len() - 1] - r.handed_ns[1]) / (r.handed_ns.len() as u64 - 2);
        truth.requests.iter().filter(of_cell).map(mean).max().unwrap() as f64
    };
    assert!((step_ns(0) / step_ns(1) - 1.0).abs() < 0.05, "{} ns a step at first, {} at last", step_ns(0), step_ns(1));
    simulator.stop().await;
}

/// Most of these requests that were on the server at once.
fn most_at_once<'a>(requests: impl Iterator<Item = &'a RequestTruth>) -> i64 {
    let spans = requests.filter_map(|r| Some((r.received_ns, *r.handed_ns.last()?)));
    let mut edges: Vec<(u64, i64)> = spans.flat_map(|(from, to)| [(from, 1), (to, -1)]).collect();
    // At the same instant one that ends makes room for one that begins.
    edges.sort_unstable();
    edges.iter().scan(0, |now, (_, step)| Some((*now += step, *now).1)).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wave_has_as_many_requests_as_the_concurrency_it_is_for_and_never_more_than_the_server_runs() {
    let settings = Settings { flavour: Flavour::Sglang, slots: 3, ..Settings::default() };
    let simulator = simulator::start(settings, "127.0.0.1:0".parse().unwrap()).unwrap();
    let (record, events) = done(&options(simulator.url(), &[1, 3, 8])).await;
    assert_eq!(record.left_out.len(), 1, "eight are more than it runs: {:?}", record.left_out);
    let tried = tried(&events);
    assert_eq!(tried.iter().map(|(level, ..)| *level).collect::<Vec<_>>(), [1, 3]);
    let truth = simulator.truth(0).await.unwrap();
    let received_us = |r: &RequestTruth| u64::try_from(record.clock.us_of_monotonic_ns(r.received_ns)).unwrap();
    let hidden_us = events.iter().find(|stamped| stamped.event.log_text().is_some_and(|text| text == "decode warmup done C=1 ctx=0"));
    let mut from_us = hidden_us.unwrap().t_us;
    for (level, waves, to_us) in tried {
        let of_level = || truth.requests.iter().filter(|r| (from_us..to_us).contains(&received_us(r)));
        assert_eq!((of_level().count() as u32, most_at_once(of_level())), (level * waves, i64::from(level)), "C={level}, {waves} waves");
        from_us = to_us;
    }
    assert_eq!(most_at_once(truth.requests.iter()), 3, "before, while and after it was measured");
    let load = &truth.history.load;
    assert_eq!(load.running.iter().zip(&load.waiting).map(|(running, waiting)| running + waiting).max(), Some(3), "none had to wait");
    simulator.stop().await;
}

/// The bodies of all streamed generations of a run against a server that takes usage at each token, or not.
async fn bodies(temperature: Option<f64>, respect_eos: bool, continuous: bool) -> (RunRecord, Vec<Value>) {
    let kept: Arc<Mutex<Vec<Value>>> = Arc::default();
    let bodies = Arc::clone(&kept);
    let server = Server::start_reading(true, move |line, body, _| {
        let json = |status, text: &str| vec![send(whole(status, "application/json", text))];
        match line.split(' ').nth(1).unwrap() {
            "/v1/models" => return json("200 OK", "{\"data\":[{\"id\":\"m\",\"max_model_len\":100000}]}"),
            "/v1/chat/completions" => {}
            _ => return json("404 Not Found", "{}"),
        }
        let body: Value = serde_json::from_slice(body).unwrap();
        if !continuous && body["stream_options"].get("continuous_usage_stats").is_some() {
            return json("400 Bad Request", "{\"error\":{\"message\":\"Unknown parameter: 'stream_options.continuous_usage_stats'.\"}}");
        }
        if body["stream"] != true {
            return json("200 OK", "{\"usage\":{\"prompt_tokens\":40}}");
        }
        let tokens = body["max_tokens"].as_u64().unwrap();
        bodies.lock().unwrap().push(body);
        [stream(tokens as u32), vec![send(finish()), send(DONE)]].concat()
    })
    .await;
    let url = format!("http://{}", server.addr);
    let (record, _) = done(&RunOptions { temperature, respect_eos, ..options(url, &[2]) }).await;
    assert!(record.cells[0].cell.aggregate_tps.f64().is_some(), "{:?}", record.cells[0].cell.failure_reason);
    let bodies = std::mem::take(&mut *kept.lock().unwrap());
    (record, bodies)
}

/// All but what is asked and how long the answer may be, and the role and number of messages.
fn shape(body: &Value) -> Value {
    let mut shape = body.clone();
    shape["max_tokens"] = Value::Null;
    for message in shape["messages"].as_array_mut().unwrap() {
        message["content"] = Value::Null;
    }
    shape
}

async fn inherits(temperature: Option<f64>, respect_eos: bool, continuous: bool) {
    let (record, mut bodies) = bodies(temperature, respect_eos, continuous).await;
    // Before the one ahead of prefill it was found out what the server takes.
    bodies.drain(..bodies.iter().position(|body| body["max_tokens"] == AHEAD).unwrap());
    let asked = |body: &&Value| body["messages"][0]["content"].as_str().unwrap().to_owned();
    let of_run = |body: &&Value| asked(body).contains(&record.run_id);
    let with = |tokens: u64| bodies.iter().filter(move |body| body["max_tokens"] == tokens);
    let measured: Vec<&Value> = with(MEASURED.into()).filter(of_run).collect();
    let hidden: Vec<&Value> = with(MEASURED.into()).filter(|body| !of_run(body)).collect();
    let waves: Vec<&Value> = with(WAVE).collect();
    assert!(measured.len() == 2 && hidden.len() == 1 && waves.len() >= 4, "{} {} {}", measured.len(), hidden.len(), waves.len());
    let wanted = shape(measured[0]);
    assert_eq!(wanted.get("temperature").and_then(Value::as_f64), temperature);
    assert_eq!(
        (wanted.get("ignore_eos").is_some(), wanted["stream_options"].get("continuous_usage_stats").is_some()),
        (!respect_eos, continuous)
    );
    for body in hidden.iter().chain(&waves) {
        assert_eq!(shape(body), wanted, "as what is measured");
        assert!(!of_run(body), "nothing of what is measured is in a cache: {body}");
    }
    // What only wakes the server up is another thing, on purpose.
    let ahead: Vec<Value> = with(AHEAD).map(shape).collect();
    assert_eq!(ahead.len(), 1);
    let left_to_the_server = ["temperature", "ignore_eos", "stream_options"].map(|field| ahead[0].get(field));
    assert_eq!(left_to_the_server, [None; 3], "{}", ahead[0]);
    assert_eq!(ahead[0]["model"], wanted["model"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warm_up_has_the_shape_of_what_is_measured() {
    tokio::join!(inherits(Some(0.7), false, true), inherits(None, true, true), inherits(Some(0.0), false, false));
}
