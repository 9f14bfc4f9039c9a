//! Prompts and prefill on servers whose tokenizer, cache and speed are known.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokscope_collector::cell::{Bench, Isolation};
use tokscope_collector::clock::Clock;
use tokscope_collector::event::{Events, Stamped};
use tokscope_collector::load::endpoint::Endpoint;
use tokscope_collector::load::request::RequestSource;
use tokscope_collector::load::stop::{Stop, stop_pair};
use tokscope_collector::load::{Load, LoadLimits};
use tokscope_collector::prefill::{
    Ahead, Finding, IdleOptions, PrefillMetric, PrefillRow, StandaloneOptions, ahead, decode_warmup, once, prefill_warmup, prefix_cache,
    standalone, standalone_context,
};
use tokscope_collector::prompt::{CountedBy, PromptMode, PromptOptions, Prompts, Shape, Tag, close_enough, make};
use tokscope_collector::scrape::Scraper;
use tokscope_collector::simulator::{self, Flavour, Settings};
use tokscope_collector::target::{Target, TargetOptions};

use crate::server::{DONE, Do, STREAM_HEAD, Server, event, finish, send, whole};

/// All that a request needs.
struct Lab {
    target: Target,
    endpoint: Arc<Endpoint>,
    load: Load,
    prompts: Prompts,
    scraper: Option<Scraper>,
    events: Events,
    isolation: Isolation,
    heard: tokio::sync::mpsc::UnboundedReceiver<Stamped>,
}

impl Lab {
    async fn at(url: String, contexts: &[u32], mode: PromptMode) -> Self {
        let clock = Clock::start();
        let target = Target::detect(&TargetOptions { host: url, ..TargetOptions::default() }, &mut |_| {}).await.unwrap();
        let endpoint = Endpoint::resolve(&target.address, &target.roots, Duration::from_secs(5)).await.unwrap();
        let prompts = make(&target, &PromptOptions { contexts: contexts.to_vec(), seed: 1, mode }).await;
        let scraper = target.metrics_warning().is_none().then(|| Scraper::start(clock, &target));
        let (to, heard) = tokio::sync::mpsc::unbounded_channel();
        let (load, events) = (Load::start(clock, 1).unwrap(), Events::new(clock, to));
        Self { target, endpoint: Arc::new(endpoint), load, prompts, scraper, events, isolation: Isolation::new(), heard }
    }

    fn bench(&self) -> Bench<'_> {
        Bench {
            target: &self.target,
            endpoint: &self.endpoint,
            load: &self.load,
            prompts: &self.prompts,
            scraper: self.scraper.as_ref(),
            events: &self.events,
            isolation: &self.isolation,
        }
    }

    fn texts(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.heard.try_recv().ok()).filter_map(|stamped| stamped.event.log_text()).collect()
    }

    /// The prompt tokens and cached tokens of a source's requests, as the server tells.
    async fn asked(&self, source: &Arc<dyn RequestSource>) -> (Option<u32>, Option<u32>) {
        let scout = once(&self.bench(), source, 1, LoadLimits::default(), &Stop::never()).await;
        assert_eq!(scout.error, None);
        (scout.prompt_tokens, scout.cached_tokens)
    }

    /// The request of a stream of a cell.
    fn request(&self, cell: usize, context: u32, stream: u32, ordinal: u32) -> Arc<dyn RequestSource> {
        let prompts = self.prompts.cell(&self.target, cell, context, &Shape::one_token(&self.target)).unwrap();
        Arc::new(One { prompts: Arc::new(prompts), stream, ordinal })
    }
}

/// One request of many.
struct One {
    prompts: Arc<dyn RequestSource>,
    stream: u32,
    ordinal: u32,
}

impl RequestSource for One {
    fn prepare(&self, _: u32, _: u32) -> tokscope_collector::load::request::PreparedRequest {
        self.prompts.prepare(self.stream, self.ordinal)
    }
}

fn simulator(settings: Settings) -> simulator::Running {
    simulator::start(settings, "127.0.0.1:0".parse().unwrap()).unwrap()
}

fn fast() -> Settings {
    Settings { prefill_tok_s: 1e6, prompt_tokens_details: true, ..Settings::default() }
}

fn quick() -> StandaloneOptions {
    let idle = IdleOptions { stable_us: 50_000, look_us: 20_000, limit_us: 3_000_000 };
    StandaloneOptions { duration_us: 1_500_000, pause_us: 0, idle, ..StandaloneOptions::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_prompt_has_the_length_asked_for_as_the_server_counts_it() {
    for flavour in [Flavour::Vllm, Flavour::Proxy] {
        let simulator = simulator(Settings { flavour, ..fast() });
        for mode in [PromptMode::Shared, PromptMode::Distinct, PromptMode::Identical] {
            let lab = Lab::at(simulator.url(), &[0, 1_000, 16_384], mode).await;
            assert!(lab.prompts.warnings.is_empty(), "{:?}", lab.prompts.warnings);
            for context in [1_000, 16_384] {
                let by = if flavour == Flavour::Proxy { CountedBy::Probe } else { CountedBy::Tokenize };
                assert_eq!(lab.prompts.context(context).unwrap().counted_by, by);
                for (stream, ordinal) in [(0, 0), (7, 3)] {
                    let tokens = lab.asked(&lab.request(2, context, stream, ordinal)).await.0.unwrap();
                    let off = tokens.abs_diff(context);
                    assert!(u64::from(off) <= close_enough(context), "{flavour:?} {mode:?} {context}: {tokens}");
                }
            }
            let bare = lab.asked(&lab.request(2, 0, 0, 0)).await.0.unwrap();
            assert!(u64::from(bare).abs_diff(lab.prompts.context(0).unwrap().prompt_tokens) <= 8);
        }
        simulator.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_counts_bytes_gets_prompts_of_the_length_asked_for() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let server = Server::start_reading(false, move |line, body, _| {
        let json = |text: &str| vec![send(whole("200 OK", "application/json", text))];
        match line.split(' ').nth(1).unwrap() {
            "/v1/models" => json("{\"data\":[{\"id\":\"m\"}]}"),
            "/v1/chat/completions" => {
                let body: serde_json::Value = serde_json::from_slice(body).unwrap();
                let content = body["messages"][0]["content"].as_str().unwrap();
                let tokens = 17 + content.len();
                heard.lock().unwrap().push((content.to_owned(), tokens));
                json(&format!("{{\"usage\":{{\"prompt_tokens\":{tokens}}}}}"))
            }
            _ => vec![send(whole("404 Not Found", "text/plain", ""))],
        }
    })
    .await;
    let lab = Lab::at(format!("http://{}", server.addr), &[300, 8_192], PromptMode::Shared).await;
    assert!(lab.prompts.warnings.is_empty(), "{:?}", lab.prompts.warnings);
    for context in [300_u32, 8_192] {
        let request = lab.request(0, context, 0, 0).prepare(0, 0);
        let body: serde_json::Value = serde_json::from_slice(&[&request.shared[..], &request.tail].concat()).unwrap();
        let tokens = 17 + body["messages"][0]["content"].as_str().unwrap().len();
        assert!(tokens.abs_diff(context as usize) as u64 <= close_enough(context), "{context}: {tokens}");
        assert_eq!(lab.prompts.context(context).unwrap().counted_by, CountedBy::Probe);
    }
    let asked = asked.lock().unwrap();
    assert!(asked.len() <= 2 + 4, "{} probes", asked.len());
    assert!(asked.iter().all(|(text, _)| text.starts_with("[P0 ")), "no measured prompt is in the cache");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_run_with_the_same_seed_finds_nothing_of_the_first_one_in_the_cache() {
    let simulator = simulator(fast());
    for run in 0..2 {
        let lab = Lab::at(simulator.url(), &[0, 4_096], PromptMode::Shared).await;
        for context in [4_096, 0] {
            let (tokens, cached) = lab.asked(&lab.request(0, context, 0, 0)).await;
            assert!(tokens.unwrap() > 60);
            assert_eq!(cached, Some(0), "run {run}, context {context}");
        }
        // The cache is there, and works within a run.
        assert!(lab.asked(&lab.request(0, 4_096, 1, 0)).await.1.unwrap() > 3_000);
    }
    simulator.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn distinct_prompts_find_nothing_of_each_other_in_the_cache() {
    let simulator = simulator(Settings { block_tokens: 16, ..fast() });
    let lab = Lab::at(simulator.url(), &[4_096], PromptMode::Distinct).await;
    for (cell, stream, ordinal) in [(0, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0)] {
        let cached = lab.asked(&lab.request(cell, 4_096, stream, ordinal)).await.1.unwrap();
        assert!(cached <= 16, "cell {cell}, stream {stream}, request {ordinal}: {cached} tokens were there");
    }
    simulator.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_repetition_is_cold_and_the_rate_is_the_servers() {
    // Its cache works, and its usage says nothing of it.
    let simulator = simulator(Settings { prefill_tok_s: 20_000.0, ..Settings::default() });
    let mut lab = Lab::at(simulator.url(), &[4_096, 8_192], PromptMode::Shared).await;
    let mut rows: Vec<PrefillRow> = Vec::new();
    let options = StandaloneOptions { metric: PrefillMetric::Auto, ..quick() };
    standalone(&lab.bench(), &[8_192, 4_096], &options, &Stop::never(), |row| rows.push(row)).await;
    assert_eq!(rows.iter().map(|row| row.context_tokens).collect::<Vec<_>>(), [8_192, 4_096]);
    for row in &rows {
        assert!(row.samples >= 2, "{row:?}");
        assert!(row.cold && row.reason.is_none());
        let (rate, ttft) = (row.tok_per_sec.unwrap(), row.ttft_s.unwrap());
        assert!((rate * ttft - row.prompt_tokens.unwrap() as f64).abs() < 1e-6 * rate, "tokens over time are the rate");
        assert!((0.85..1.0).contains(&(rate / 20_000.0)), "{rate} instead of 20000");
        let server = row.server.as_ref().unwrap();
        assert!(server.is_valid(), "{}", server.invalid_reason);
        assert!((server.tok_per_sec.unwrap() / 20_000.0 - 1.0).abs() < 0.03, "{server:?}");
        assert_eq!((server.token_source.as_str(), server.cached_tokens), ("kv_computed", Some(0)));
    }
    let texts = lab.texts();
    assert_eq!(texts[0], "prefill start ctx=8k");
    assert!(texts[1].starts_with("prefill done ctx=8k 1") && texts[1].ends_with(" tok/s"), "{}", texts[1]);
    assert_eq!(texts[2], "prefill start ctx=4k");
    simulator.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_counters_as_headline_the_rate_is_theirs() {
    let simulator = simulator(Settings { request_overhead_us: 100_000.0, ..Settings::default() });
    let lab = Lab::at(simulator.url(), &[4_096], PromptMode::Shared).await;
    let options = StandaloneOptions { metric: PrefillMetric::Prometheus, ..quick() };
    let row = standalone_context(&lab.bench(), 4_096, &options, &Stop::never()).await;
    let rate = row.tok_per_sec.unwrap();
    assert!((rate / 20_000.0 - 1.0).abs() < 0.03, "{rate}: the 100 ms before it are no prefill");
    let client = row.prompt_tokens.unwrap() as f64 / row.ttft_s.unwrap();
    assert!(client < 0.8 * rate, "{client}");
    simulator.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_prefill_keeps_what_there_is_and_skips_the_rest() {
    let simulator = simulator(Settings { prefill_tok_s: 1_000.0, ..Settings::default() });
    let mut lab = Lab::at(simulator.url(), &[4_096], PromptMode::Shared).await;
    let (stopper, stop) = stop_pair();
    let mut rows: Vec<PrefillRow> = Vec::new();
    let later = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        stopper.stop();
    };
    let (bench, options) = (lab.bench(), quick());
    tokio::join!(standalone(&bench, &[4_096, 1_024], &options, &stop, |row| rows.push(row)), later);
    assert_eq!(rows.len(), 1);
    assert!(rows[0].skipped && rows[0].tok_per_sec.is_none() && rows[0].ttft_s.is_none(), "{:?}", rows[0]);
    assert_eq!(lab.texts(), ["prefill start ctx=4k", "prefill skipped ctx=4k"]);
    simulator.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whether_prefixes_are_kept_is_found_by_usage_counters_or_times() {
    let told = "usage:";
    for (settings, finding, by) in [
        (fast(), Finding::Works, told),
        (Settings { prompt_tokens_details: false, ..fast() }, Finding::Works, "the server's counters:"),
        (Settings { prefix_cache: false, ..fast() }, Finding::DoesNot, "the server's counters:"),
        (Settings { flavour: Flavour::Sglang, ..fast() }, Finding::Works, told),
        (Settings { flavour: Flavour::Proxy, ..fast() }, Finding::Works, told),
        (
            Settings { flavour: Flavour::Proxy, prefix_cache: false, prefill_tok_s: 20_000.0, ..fast() },
            Finding::DoesNot,
            "time to first token",
        ),
        (Settings { flavour: Flavour::Proxy, prefix_cache: false, ..fast() }, Finding::Unknown, "time to first token"),
    ] {
        let simulator = simulator(settings.clone());
        let lab = Lab::at(simulator.url(), &[0], PromptMode::Shared).await;
        let found = prefix_cache::find(&lab.bench(), LoadLimits::default(), &Stop::never()).await;
        assert_eq!(found.finding, finding, "{settings:?}: {}", found.evidence);
        assert!(found.evidence.starts_with(by), "{}", found.evidence);
        let shared = found.shared_tokens.unwrap_or(0);
        assert_eq!((1_920..2_100).contains(&shared), finding == Finding::Works, "{found:?}");
        simulator.stop().await;
    }
}

/// Lists a model and answers generations by number.
async fn answering(chat: impl Fn(usize) -> Vec<Do> + Send + Sync + 'static) -> Server {
    let chats = AtomicUsize::new(0);
    Server::start_reading(false, move |line, body, _| {
        let json = |text: &str| vec![send(whole("200 OK", "application/json", text))];
        let streams = String::from_utf8_lossy(body).contains("\"stream\":true");
        match line.split(' ').nth(1).unwrap() {
            "/v1/models" => json("{\"data\":[{\"id\":\"m\"}]}"),
            "/v1/chat/completions" if streams => chat(chats.fetch_add(1, Ordering::SeqCst)),
            "/v1/chat/completions" => json("{\"usage\":{\"prompt_tokens\":40}}"),
            _ => vec![send(whole("404 Not Found", "text/plain", ""))],
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_prefill_is_a_reason_and_a_failed_warm_up_a_warning() {
    let server = answering(|_| vec![send(whole("500 No", "text/plain", "broken"))]).await;
    let mut lab = Lab::at(format!("http://{}", server.addr), &[0], PromptMode::Shared).await;
    let bench = lab.bench();
    let row = standalone_context(&bench, 2_048, &quick(), &Stop::never()).await;
    assert!(row.tok_per_sec.is_none() && !row.skipped && row.samples == 0);
    assert!(row.reason.as_deref().unwrap().contains("500"), "{:?}", row.reason);
    let extra = ahead(&bench, 2_048, Ahead::Alone, &quick(), &Stop::never()).await;
    assert!(extra.reason.as_deref().unwrap().contains("500"));
    assert!(!decode_warmup(&bench, &Stop::never()).await);
    assert!(!prefill_warmup(&bench, 2_048, true, &Stop::never()).await);
    let found = prefix_cache::find(&bench, LoadLimits::default(), &Stop::never()).await;
    assert_eq!(found.finding, Finding::Unknown);
    let texts = lab.texts();
    for wanted in [
        "prefill failed ctx=2k: http",
        "prefill scout-only failed ctx=2k: http",
        "WARNING: the decode warm-up failed (http",
        "WARNING: the prefill warm-up failed (http",
    ] {
        assert!(texts.iter().any(|text| text.starts_with(wanted)), "{wanted}: {texts:?}");
    }
    assert!(!texts.iter().any(|text| text.contains("prefill warmup done")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_one_token_has_no_text_its_first_sign_ends_the_prefill() {
    let silent = |_| vec![send(STREAM_HEAD), Do::Sleep(60), send(event("", Some(1))), Do::Sleep(300), send(finish()), send(DONE)];
    let server = answering(silent).await;
    let lab = Lab::at(format!("http://{}", server.addr), &[0], PromptMode::Shared).await;
    let source: Arc<dyn RequestSource> = Arc::new(lab.prompts.single(&lab.target, Tag::Repeat(1), 0, &Shape::one_token(&lab.target)));
    let scout = once(&lab.bench(), &source, 1, LoadLimits::default(), &Stop::never()).await;
    let ttft_us = scout.ttft_us.unwrap();
    assert!((60_000..300_000).contains(&ttft_us), "{ttft_us} µs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn warm_ups_say_what_the_predecessor_says() {
    let simulator = simulator(fast());
    let mut lab = Lab::at(simulator.url(), &[0], PromptMode::Shared).await;
    let bench = lab.bench();
    assert!(decode_warmup(&bench, &Stop::never()).await);
    assert!(prefill_warmup(&bench, 8_192, true, &Stop::never()).await);
    assert!(prefill_warmup(&bench, 8_192, false, &Stop::never()).await);
    assert!(ahead(&bench, 8_192, Ahead::Alone, &quick(), &Stop::never()).await.cold, "what warmed up is another prompt");
    let texts = lab.texts();
    let wanted = [
        "decode warmup start",
        "prefill warmup start ctx=8k",
        "prefill warmup done ctx=8k",
        "prefill warmup start",
        "prefill scout-only start ctx=8k",
    ];
    assert_eq!(texts[..5], wanted);
    assert!(texts[5].starts_with("prefill scout-only done ctx=8k ") && texts[5].ends_with(" tok/s"), "{}", texts[5]);
    simulator.stop().await;
}
