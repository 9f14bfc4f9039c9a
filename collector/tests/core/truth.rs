//! Cells against the simulator, which knows when each token was handed over.

use std::sync::Arc;

use tokscope_collector::cell::{Bench, CellMeasurement, CellOptions, Isolation};
use tokscope_collector::clock::Clock;
use tokscope_collector::event::{Event, Events, Stamped};
use tokscope_collector::load::Load;
use tokscope_collector::load::endpoint::Endpoint;
use tokscope_collector::load::record::Outcome;
use tokscope_collector::load::stop::{Stop, stop_pair};
use tokscope_collector::load::tokens::TokenSource;
use tokscope_collector::plan::PlannedCell;
use tokscope_collector::prompt::{Prompts, calibrate};
use tokscope_collector::scrape::Scraper;
use tokscope_collector::simulator::{self, Flavour, RequestTruth, Settings, Truth};
use tokscope_collector::target::{Target, TargetOptions};

struct Lab {
    simulator: simulator::Running,
    target: Target,
    endpoint: Arc<Endpoint>,
    load: Load,
    prompts: Prompts,
    scraper: Option<Scraper>,
    events: Events,
    heard: Option<tokio::sync::mpsc::UnboundedReceiver<Stamped>>,
}

impl Lab {
    async fn new(settings: Settings, contexts: &[u32]) -> Self {
        let simulator = simulator::start(settings, "127.0.0.1:0".parse().unwrap()).unwrap();
        let clock = Clock::start();
        let target = Target::detect(&TargetOptions { host: simulator.url(), ..TargetOptions::default() }, &mut |_| {}).await.unwrap();
        let connect = std::time::Duration::from_secs(5);
        let endpoint = Endpoint::resolve(&target.address, &target.roots, connect).await.unwrap();
        let prompts = calibrate(&target, contexts, 1).await;
        let scraper = target.metrics_warning().is_none().then(|| Scraper::start(clock, &target));
        let (to, heard) = tokio::sync::mpsc::unbounded_channel();
        Self {
            simulator,
            endpoint: Arc::new(endpoint),
            load: Load::start(clock, 1).unwrap(),
            prompts,
            scraper,
            events: Events::new(clock, to),
            heard: Some(heard),
            target,
        }
    }

    async fn cell(&self, context: u32, concurrency: u32, max_tokens: u32, stop: &Stop) -> CellMeasurement {
        let bench = Bench {
            target: &self.target,
            endpoint: &self.endpoint,
            load: &self.load,
            prompts: &self.prompts,
            scraper: self.scraper.as_ref(),
            events: &self.events,
            isolation: &Isolation::new(),
        };
        let cell = PlannedCell::sustained(context, concurrency, max_tokens);
        let options = CellOptions { duration_us: 2_000_000, stable_us: 500_000, ..CellOptions::default() };
        bench.measure(0, cell, &options, stop).await
    }
}

/// Tokens that the simulator handed over inside the window.
fn handed(truth: &Truth, clock: Clock, m: &CellMeasurement) -> u64 {
    let window = m.window.unwrap();
    let mut sum = 0;
    for r in &truth.requests {
        for (ns, tokens) in r.handed_ns.iter().zip(&r.tokens) {
            let t = clock.us_of_monotonic_ns(*ns);
            if u64::try_from(t).is_ok_and(|t| window.contains(t)) {
                sum += u64::from(*tokens);
            }
        }
    }
    sum
}

/// The largest chunk times the streams: what may lie on the other side of an edge.
fn allowance(truth: &Truth, m: &CellMeasurement) -> u64 {
    let chunk = truth.requests.iter().flat_map(|r| &r.tokens).max();
    let streams = u64::from(m.cell.concurrency) * u64::from(*chunk.unwrap());
    streams.max(handed_total(truth) / 200)
}

fn handed_total(truth: &Truth) -> u64 {
    truth.requests.iter().flat_map(|r| &r.tokens).map(|t| u64::from(*t)).sum()
}

fn truth_of<'a>(truth: &'a Truth, id: &str) -> &'a RequestTruth {
    truth.requests.iter().find(|r| r.id.ends_with(id)).unwrap()
}

async fn agrees(settings: Settings, context: u32, concurrency: u32, max_tokens: u32) -> (CellMeasurement, Truth) {
    let lab = Lab::new(settings, &[0, context]).await;
    let m = lab.cell(context, concurrency, max_tokens, &Stop::never()).await;
    assert_eq!(m.failure, None);
    assert!(!m.warmup.timed_out, "{:?}", m.warmup);
    let truth = lab.simulator.truth(0).await.unwrap();
    let want = handed(&truth, lab.load.clock(), &m);
    let got = m.tokens.as_ref().unwrap().tokens;
    assert!(got.abs_diff(want) <= allowance(&truth, &m), "{got} counted, {want} handed over; simulator late by {:?}", truth.late_ns);
    assert!(got > 0);
    lab.simulator.stop().await;
    (m, truth)
}

fn fast() -> Settings {
    Settings { step_base_us: 10_000.0, ..Settings::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cells_tokens_are_those_the_server_handed_over() {
    let (m, truth) = agrees(fast(), 2048, 4, 64).await;
    assert_eq!(m.tokens.as_ref().unwrap().source, Some(TokenSource::ContinuousUsage));
    let scout = m.scout.as_ref().unwrap();
    assert_eq!(scout.error, None);
    let prompt = scout.prompt_tokens.unwrap();
    assert!(prompt.abs_diff(2048) <= 8, "{prompt}");
    assert!(m.warmup.ready_reason.starts_with("running_reqs=4/4, queue_reqs=0, active_streams=4/4"));
    assert_eq!(m.server.running.unwrap().max, 4.0);
    // Server and client agree over the same scrapes.
    let server = m.server.generation_tokens.unwrap().delta;
    let client = m.server.client_tokens_between_scrapes.unwrap() as f64;
    let chunk_a_stream_and_edge = 2.0 * 4.0;
    assert!((server - client).abs() <= chunk_a_stream_and_edge + server * 0.01, "{server} {client}");
    // Restarts, each with an id and a record of its own.
    for stream in &m.streams {
        let (last, finished) = stream.requests.split_last().unwrap();
        assert!(!finished.is_empty());
        assert!(finished.iter().all(|r| r.outcome == Outcome::Finished && r.usage_tokens == Some(64)));
        assert_eq!(last.outcome, Outcome::CutByUs);
        for r in &stream.requests[..finished.len()] {
            let t = truth_of(&truth, &r.id);
            assert_eq!(r.prompt_tokens, Some(t.prompt_tokens));
            assert_eq!(t.tokens.iter().sum::<u32>(), 64);
        }
    }
    assert_eq!(m.client.connections_opened, 4);
    assert!(m.tick().unwrap().ticks > 500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_tokens_a_chunk_count_as_several() {
    let settings = Settings { spec_accept: vec![0.9, 0.7, 0.5], ..fast() };
    let (m, _) = agrees(settings, 0, 3, 512).await;
    let tokens = m.tokens.unwrap();
    assert!(tokens.tokens > 2 * tokens.chunks, "{tokens:?}");
    let spec = m.server.spec.unwrap();
    assert!(spec.drafts > 0.0);
    let by_position: f64 = spec.accepted_per_pos.iter().sum();
    assert_eq!(by_position, spec.accepted_tokens);
    assert!(m.scout.is_none(), "there is nothing to fill at context 0");
}

/// Tokens of a step of a sequence, as the simulator handed them over in `[from_us, to_us)`.
fn true_length(truth: &Truth, clock: Clock, from_us: u64, to_us: u64) -> f64 {
    let (mut tokens, mut steps) = (0, 0);
    for r in &truth.requests {
        let inside = |ns: &u64| u64::try_from(clock.us_of_monotonic_ns(*ns)).is_ok_and(|t| (from_us..to_us).contains(&t));
        for (_, n) in r.handed_ns.iter().zip(&r.tokens).filter(|(ns, _)| inside(ns)) {
            (tokens, steps) = (tokens + n, steps + 1);
        }
    }
    f64::from(tokens) / f64::from(steps)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acceptance_is_within_a_hundredth_of_the_truth_by_counters_and_by_gauges() {
    for flavour in [Flavour::Vllm, Flavour::Sglang] {
        let settings = Settings { flavour, spec_accept: vec![0.9, 0.7, 0.5], ..fast() };
        let lab = Lab::new(settings, &[0]).await;
        let m = lab.cell(0, 8, 4096, &Stop::never()).await;
        let truth = lab.simulator.truth(0).await.unwrap();
        let found = m.speculation().unwrap();
        let window = m.window.unwrap();
        let (from_us, to_us) = match &m.server.spec {
            Some(spec) => (spec.from_us, spec.to_us),
            // This simulator's gauge is over its whole life.
            None => (0, u64::midpoint(window.start_us, window.end_us)),
        };
        let want = true_length(&truth, lab.load.clock(), from_us, to_us);
        let got = found.accept_length.unwrap();
        assert!((got - want).abs() < 0.01, "{flavour:?}: {got}, and in truth {want}");
        let (steps, length) = found.norm().unwrap();
        assert!((steps * length / m.aggregate_tps().unwrap() - 1.0).abs() < 1e-9);
        // A rate gauge is that of the last moment: its median over a short window is not the window's rate.
        let allowed = if m.server.spec.is_some() { 0.03 } else { 0.06 };
        assert!((length / want - 1.0).abs() < allowed, "{flavour:?}: {length} tokens a step, and in truth {want}");
        lab.simulator.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_tells_usage_at_the_end_only_gives_the_same_tokens() {
    let settings = Settings { flavour: Flavour::Proxy, spec_accept: vec![0.9, 0.7, 0.5], ..fast() };
    let (m, _) = agrees(settings, 0, 4, 48).await;
    let tokens = m.tokens.unwrap();
    assert_eq!(tokens.source, Some(TokenSource::FinalUsageSpread));
    assert!(m.warmup.ready_reason.starts_with("metrics_unavailable, active_streams="));
    assert_eq!(m.server.running, None);
    assert!(m.server.unavailable.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_sglang_is_measured_by_its_own_metrics() {
    let settings = Settings { flavour: Flavour::Sglang, spec_accept: vec![0.9, 0.7], ..fast() };
    let (m, _) = agrees(settings, 1024, 4, 128).await;
    assert_eq!(m.server.running.unwrap().max, 4.0);
    assert!(m.server.gen_throughput_median.unwrap() > 0.0);
    assert!(m.server.spec_accept_length.unwrap().mean > 1.0);
    assert_eq!(m.server.spec, None, "it has gauges only");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_cell_ends_soon_with_what_there_is() {
    let mut lab = Lab::new(fast(), &[0]).await;
    let mut heard = lab.heard.take().unwrap();
    let (stopper, stop) = stop_pair();
    let (m, ()) = tokio::join!(lab.cell(0, 2, 4096, &stop), async {
        while let Some(s) = heard.recv().await {
            if matches!(s.event, Event::Tick { in_window: true, .. }) {
                break;
            }
        }
        stopper.stop();
    });
    assert!(m.interrupted);
    assert_eq!(m.failure, None);
    let window = m.window.unwrap();
    assert!(window.seconds() > 0.0 && window.seconds() < 2.0, "{window:?}");
    assert!(m.tokens.unwrap().tokens > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_streams_than_slots_time_out_in_words_and_are_measured() {
    let settings = Settings { slots: 2, ..fast() };
    let lab = Lab::new(settings, &[0]).await;
    let bench = Bench {
        target: &lab.target,
        endpoint: &lab.endpoint,
        load: &lab.load,
        prompts: &lab.prompts,
        scraper: lab.scraper.as_ref(),
        events: &lab.events,
        isolation: &Isolation::new(),
    };
    let cell = PlannedCell::sustained(0, 3, 2048);
    let options = CellOptions { duration_us: 1_000_000, warmup_timeout_us: Some(1_500_000), ..CellOptions::default() };
    let m = bench.measure(0, cell, &options, &Stop::never()).await;
    assert!(m.warmup.timed_out);
    assert_eq!(m.warmup.ready_reason, "warmup_timeout");
    assert_eq!(m.warmup.timeout_reason, "running_reqs=2/3");
    assert!(m.window.is_some() && m.aggregate_tps().is_some());
}

fn percentile(sorted: &[f64], p: usize) -> f64 {
    sorted[(sorted.len() - 1) * p / 100]
}

/// Figures for people, too; the bound on TTFT needs a quiet machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "judges milliseconds: run it by name on a quiet machine, in release"]
async fn tokens_and_ttft_agree_with_the_truth_request_by_request() {
    for spec in [vec![], vec![0.9, 0.7, 0.5]] {
        for concurrency in [1, 4, 16] {
            let settings = Settings { spec_accept: spec.clone(), ..Settings::default() };
            let lab = Lab::new(settings, &[0, 2048]).await;
            let m = lab.cell(2048, concurrency, 64, &Stop::never()).await;
            let truth = lab.simulator.truth(0).await.unwrap();
            let clock = lab.load.clock();
            let mut apart_ms = Vec::new();
            for r in m.streams.iter().flat_map(|s| &s.requests) {
                let t = truth_of(&truth, &r.id);
                if let (Some(ours), Some(first)) = (r.ttft_us(), t.handed_ns.first()) {
                    let theirs = clock.us_of_monotonic_ns(*first) - clock.us_of_monotonic_ns(t.received_ns);
                    apart_ms.push((ours as f64 - theirs as f64) / 1e3);
                }
            }
            apart_ms.sort_by(f64::total_cmp);
            let tokens = m.tokens.as_ref().unwrap();
            let off = tokens.tokens.abs_diff(handed(&truth, clock, &m));
            assert!(off <= allowance(&truth, &m), "{off} tokens apart");
            assert!(percentile(&apart_ms, 50) < 2.0, "{apart_ms:?}");
            println!(
                "C={concurrency} spec={spec:?} tokens {} handed {} tps {:.1} ttft apart p50 {:.3} p99 {:.3} ms n={} simulator late p99 {:?} ns max {:?} client tick {:?} cpu {:?} us of {} spread {:?} events {} server {:?} client {:?} spec {:?}",
                tokens.tokens,
                handed(&truth, clock, &m),
                m.aggregate_tps().unwrap(),
                percentile(&apart_ms, 50),
                percentile(&apart_ms, 99),
                apart_ms.len(),
                truth.late_ns.p99,
                truth.late_ns.max,
                m.tick(),
                m.client.load_cpu_us,
                m.client.span_us,
                m.client.start_spread_us,
                m.client.events,
                m.server.generation_tokens,
                m.server.client_tokens_between_scrapes,
                m.server.spec,
            );
        }
    }
}
