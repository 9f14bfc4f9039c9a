//! What a server is, by what it answers.

use tokscope_collector::target::{Engine, Knowledge, MetricsAccess, Target, TargetError, TargetOptions};

use crate::server::{Do, Server, send, whole};

fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/transcripts/{name}.response.http", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}

fn path_of(line: &str) -> &str {
    line.split(' ').nth(1).unwrap_or_default()
}

async fn detect_at(server: &Server) -> Result<Target, TargetError> {
    Target::detect(
        &TargetOptions { host: server.addr.ip().to_string(), port: Some(server.addr.port()), ..TargetOptions::default() },
        &mut |_| {},
    )
    .await
}

/// A server with these routes; everything else is a 404.
async fn routes(table: Vec<(&'static str, Vec<u8>)>) -> Server {
    Server::start(false, move |line, _| {
        let found = table.iter().find(|(path, _)| *path == path_of(line));
        let missing = || whole("404 Not Found", "application/json", "{\"detail\":\"Not Found\"}");
        vec![send(found.map_or_else(missing, |(_, answer)| answer.clone()))]
    })
    .await
}

fn json(body: &str) -> Vec<u8> {
    whole("200 OK", "application/json", body)
}

#[tokio::test]
async fn a_recorded_vllm_is_known_with_version_and_limits() {
    let server = routes(vec![
        ("/v1/models", fixture("vllm/get-v1-models")),
        ("/version", fixture("vllm/get-version")),
        ("/metrics", fixture("vllm/metrics")),
    ])
    .await;
    let t = detect_at(&server).await.unwrap();
    assert_eq!(t.engine, Engine::Vllm);
    assert_eq!(t.version.as_deref(), Some("0.32.0"));
    assert_eq!(t.model, "tiny-llama");
    assert_eq!(t.max_model_len(), Some(8192));
    assert_eq!(t.kv_budget_tokens(), Some(2_097_152));
    assert_eq!(t.max_running(), None, "it does not tell");
    assert_eq!(t.metrics, MetricsAccess::Available);
    assert!(t.limits.iter().all(|l| !l.source.is_empty()));
    assert_eq!(t.startup_lines[0], "engine vLLM 0.32.0 models=['tiny-llama']");
    assert_eq!(t.startup_lines[1], "KV cache budget from vLLM metrics: 2,097,152 tokens");
}

#[tokio::test]
async fn a_recorded_llama_cpp_is_known_with_its_slots() {
    let server = routes(vec![
        ("/v1/models", fixture("llama-server/get-v1-models")),
        ("/props", fixture("llama-server/get-props")),
        ("/metrics", fixture("llama-server/metrics-1-during-load")),
    ])
    .await;
    let t = detect_at(&server).await.unwrap();
    assert_eq!(t.engine, Engine::LlamaCpp);
    assert_eq!(t.version.as_deref(), Some("b11434-unknown"));
    assert_eq!((t.max_model_len(), t.max_running()), (Some(4096), Some(4)));
    assert_eq!(t.metrics, MetricsAccess::Available);
}

#[tokio::test]
async fn sglang_is_known_by_its_server_info_and_dcp_multiplies_its_cache() {
    let info = "{\"version\":\"0.5.2\",\"max_total_num_tokens\":1000000,\"max_running_requests\":64,\"context_length\":98304}";
    let table = vec![
        ("/v1/models", json("{\"data\":[{\"id\":\"m\"}]}")),
        ("/get_server_info", json(info)),
        ("/version", json("{\"version\":\"x\"}")),
        ("/metrics", whole("200 OK", "text/plain", "python_info 1\nsglang_num_running_reqs 0\n")),
    ];
    let server = routes(table).await;
    let t = detect_at(&server).await.unwrap();
    assert_eq!(t.engine, Engine::Sglang);
    assert_eq!(t.max_running(), Some(64));
    assert_eq!(t.max_model_len(), Some(98_304));
    assert_eq!(t.kv_budget_tokens(), Some(1_000_000));
    assert_eq!(t.metrics, MetricsAccess::Available);
    let t = Target::detect(
        &TargetOptions { host: format!("http://{}", server.addr), dcp_size: Some(2), ..TargetOptions::default() },
        &mut |_| {},
    )
    .await
    .unwrap();
    assert_eq!(t.kv_budget_tokens(), Some(2_000_000));
    assert!(t.startup_lines.iter().any(|l| l == "KV cache budget: 2,000,000 tokens (SGLang reported 1,000,000 x DCP 2)"));
}

#[tokio::test]
async fn a_recorded_proxy_is_a_proxy_whose_metrics_redirect() {
    let server = routes(vec![
        ("/v1/models", fixture("litellm/get-v1-models")),
        ("/version", fixture("litellm/get-version")),
        ("/metrics", fixture("litellm/metrics-0-idle")),
    ])
    .await;
    let t = detect_at(&server).await.unwrap();
    assert_eq!(t.engine, Engine::OpenaiProxy);
    assert_eq!(t.models, ["mock-model", "tiny-llama"]);
    assert_eq!(t.model, "mock-model");
    assert!(t.metrics_warning().unwrap().contains("HTTP 307"));
}

#[tokio::test]
async fn a_version_alone_makes_no_vllm() {
    let server = routes(vec![("/v1/models", json("{\"data\":[{\"id\":\"m\"}]}")), ("/version", json("{\"version\":\"9\"}"))]).await;
    assert_eq!(detect_at(&server).await.unwrap().engine, Engine::OpenaiProxy);
}

#[tokio::test]
async fn metrics_that_are_html_502_or_silent_cost_seconds_and_are_named() {
    let html = whole("200 OK", "text/html", "<html></html>");
    for (answer, words) in [
        (vec![send(html)], "a web page"),
        (vec![send(whole("502 Bad Gateway", "text/html", "<html>"))], "HTTP 502"),
        (vec![Do::Hang], "within 2 s"),
    ] {
        let server = Server::start(false, move |line, _| match path_of(line) {
            "/v1/models" => vec![send(json("{\"data\":[{\"id\":\"m\"}]}"))],
            "/metrics" => answer.clone(),
            _ => vec![send(whole("404 Not Found", "text/plain", ""))],
        })
        .await;
        let detected = tokio::time::timeout(std::time::Duration::from_secs(8), detect_at(&server));
        let t = detected.await.expect("it does not wait for long").unwrap();
        let warning = t.metrics_warning().unwrap();
        assert!(warning.contains(words), "{warning}");
    }
}

#[tokio::test]
async fn each_wrong_server_is_told_apart_in_a_sentence() {
    let models = |answer: Vec<u8>| routes(vec![("/v1/models", answer)]);
    let html = models(whole("200 OK", "text/html", "<!doctype html><p>hi")).await;
    assert!(matches!(detect_at(&html).await, Err(TargetError::Html { .. })));
    let nothing = models(json("{\"object\":\"list\",\"data\":[]}")).await;
    assert!(matches!(detect_at(&nothing).await, Err(TargetError::NoModels { .. })));
    let other = models(json("{\"hello\":1}")).await;
    assert!(matches!(detect_at(&other).await, Err(TargetError::NotJson { .. })));
    let cut = models(json("{\"data\":[")).await;
    assert!(matches!(detect_at(&cut).await, Err(TargetError::NotJson { .. })));
    let gateway = models(whole("502 Bad Gateway", "text/html", "<html>nginx")).await;
    let e = detect_at(&gateway).await.unwrap_err();
    assert!(matches!(e, TargetError::Status { status: 502, .. }), "{e}");
    assert!(!e.to_string().contains('<'), "{e}");
    let key = models(fixture("vllm-spec-ngram/error-wrong-key")).await;
    assert!(matches!(detect_at(&key).await, Err(TargetError::Unauthorized { status: 401, .. })));
    let missing = routes(vec![]).await;
    assert!(matches!(detect_at(&missing).await, Err(TargetError::Status { status: 404, .. })));
    let no_http = Server::start(false, |_, _| vec![send("220 mail ready\r\n")]).await;
    assert!(matches!(detect_at(&no_http).await, Err(TargetError::NotHttp { .. })));
    let moved = models(b"HTTP/1.1 308 Moved\r\nLocation: https://x/v1/models\r\nContent-Length: 0\r\n\r\n".to_vec()).await;
    let e = detect_at(&moved).await.unwrap_err();
    assert!(e.to_string().contains("https://x/v1/models"), "{e}");
    for e in [detect_at(&html).await, detect_at(&missing).await] {
        let text = e.unwrap_err().to_string();
        assert!(!text.contains('\n') && text.contains("--port"), "{text}");
    }
}

#[tokio::test]
async fn nobody_there_and_no_such_host_are_told_apart() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let e = Target::detect(&TargetOptions { host: "127.0.0.1".into(), port: Some(port), ..TargetOptions::default() }, &mut |_| {})
        .await
        .unwrap_err();
    assert!(matches!(e, TargetError::Refused { .. }), "{e}");
    let e =
        Target::detect(&TargetOptions { host: "no-such-host.invalid".into(), ..TargetOptions::default() }, &mut |_| {}).await.unwrap_err();
    assert!(matches!(e, TargetError::Unresolved { .. }), "{e:?}");
}

#[tokio::test]
async fn a_model_that_is_not_there_is_named_with_those_that_are() {
    let server = routes(vec![("/v1/models", json("{\"data\":[{\"id\":\"a\"},{\"id\":\"b\"}]}"))]).await;
    let options =
        |model: &str| TargetOptions { host: format!("http://{}", server.addr), model: Some(model.to_owned()), ..TargetOptions::default() };
    let e = Target::detect(&options("c"), &mut |_| {}).await.unwrap_err();
    assert_eq!(e.to_string(), "the server does not list a model 'c'; it has 'a', 'b'");
    assert_eq!(Target::detect(&options("b"), &mut |_| {}).await.unwrap().model, "b");
}

#[tokio::test]
async fn keys_are_never_shown() {
    let server = routes(vec![("/v1/models", json("{\"data\":[{\"id\":\"m\"}]}"))]).await;
    let options = TargetOptions {
        host: format!("http://user:hidden@{}", server.addr),
        api_key: Some("sk-hidden".into()),
        ..TargetOptions::default()
    };
    let t = Target::detect(&options, &mut |_| {}).await.unwrap();
    assert_eq!(t.credentials.header(), Some("Bearer sk-hidden"));
    let shown = format!("{t:?} {options:?} {} {:?}", t.display(), t.startup_lines);
    assert!(!shown.contains("hidden"), "{shown}");
}

async fn detect_telling(server: &Server, wait_ready_s: f64) -> (Result<Target, TargetError>, Vec<String>) {
    let options = TargetOptions { host: format!("http://{}", server.addr), wait_ready_s, ..TargetOptions::default() };
    let mut told = Vec::new();
    let found = Target::detect(&options, &mut |text| told.push(text.to_owned())).await;
    (found, told)
}

#[tokio::test]
async fn the_other_recordings_of_vllm_are_known_too() {
    let server = routes(vec![
        ("/v1/models", fixture("vllm-spec-ngram/get-v1-models")),
        ("/version", fixture("vllm-spec-ngram/get-version")),
        ("/get_server_info", fixture("vllm/get-get_server_info")),
        ("/server_info?config_format=json", fixture("vllm/get-server_info")),
        ("/metrics", fixture("vllm-spec-ngram/metrics-0-idle")),
    ])
    .await;
    let t = detect_at(&server).await.unwrap();
    assert_eq!((t.engine, t.version.as_deref()), (Engine::Vllm, Some("0.32.0")));
    assert_eq!(t.kv_block_tokens(), Some(128));
    assert_eq!((t.data_parallel_engines(), t.kv_budget_per_engine()), (None, None));
    assert_eq!(t.knowledge, Knowledge::Live);
    assert!(t.warnings.is_empty(), "{:?}", t.warnings);
    assert!(!t.startup_lines.iter().any(|line| line.contains("without")), "{:?}", t.startup_lines);
    assert!(t.startup_lines.iter().any(|line| line == "vLLM is known measured live (vLLM 0.32)"));
}

#[tokio::test]
async fn llama_cpp_says_its_slots_and_that_it_tells_metrics_only_when_asked_to() {
    let off =
        whole("501 Not Implemented", "application/json", "{\"error\":{\"message\":\"This server does not support metrics endpoint.\"}}");
    let server = routes(vec![
        ("/v1/models", fixture("llama-server/get-v1-models")),
        ("/slots", fixture("llama-server/get-slots")),
        ("/version", fixture("llama-server/get-version")),
        ("/get_server_info", fixture("llama-server/get-get_server_info")),
        ("/metrics", off),
    ])
    .await;
    let t = detect_at(&server).await.unwrap();
    assert_eq!((t.engine, t.knowledge), (Engine::LlamaCpp, Knowledge::Recorded));
    assert_eq!((t.max_model_len(), t.max_running()), (Some(4096), Some(4)));
    let warning = t.metrics_warning().unwrap();
    assert!(warning.contains("HTTP 501") && warning.contains("--metrics"), "{warning}");
}

#[tokio::test]
async fn an_engine_known_by_its_documentation_alone_says_so() {
    let sglang = routes(vec![
        ("/v1/models", json("{\"data\":[{\"id\":\"m\"}]}")),
        ("/server_info?config_format=json", json("{\"max_total_num_tokens\":1000}")),
    ])
    .await;
    let t = detect_at(&sglang).await.unwrap();
    assert_eq!(t.knowledge, Knowledge::Documented);
    assert!(t.warnings.iter().any(|text| text.contains("documentation only")), "{:?}", t.warnings);
    let v0 = "vllm:avg_generation_throughput_toks_per_s 1\nvllm:num_requests_running 0\n";
    let v0 = routes(vec![
        ("/v1/models", json("{\"data\":[{\"id\":\"m\"}]}")),
        ("/version", json("{\"version\":\"0.6.3\"}")),
        ("/metrics", whole("200 OK", "text/plain", v0)),
    ])
    .await;
    let t = detect_at(&v0).await.unwrap();
    assert_eq!((t.engine, t.knowledge), (Engine::Vllm, Knowledge::Documented));
    assert!(t.startup_lines.iter().any(|text| text.starts_with("metrics without the number of waiting")), "{:?}", t.startup_lines);
}

#[tokio::test]
async fn metrics_that_moved_on_the_same_server_are_read_there() {
    let moved = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /metrics/\r\nContent-Length: 0\r\n\r\n".to_vec();
    let behind = |metrics: Vec<u8>| {
        routes(vec![
            ("/v1/models", fixture("litellm/get-v1-models")),
            ("/get_server_info", fixture("litellm/get-get_server_info")),
            ("/props", fixture("litellm/get-props")),
            ("/metrics", moved.clone()),
            ("/metrics/", metrics),
        ])
    };
    let own = behind(fixture("litellm/get-metrics-slash")).await;
    let t = detect_at(&own).await.unwrap();
    assert_eq!((t.engine, t.knowledge), (Engine::OpenaiProxy, Knowledge::Recorded));
    assert_eq!(t.metrics_warning().unwrap(), "/metrics has no metrics of vLLM, SGLang or llama.cpp");
    let engine = behind(fixture("vllm/metrics")).await;
    let t = detect_at(&engine).await.unwrap();
    assert_eq!((t.engine, t.metrics), (Engine::Vllm, MetricsAccess::Available));
    assert!(t.metrics_url.ends_with("/metrics/"), "{}", t.metrics_url);
}

#[tokio::test]
async fn a_base_path_stands_before_every_route_and_a_v1_at_its_end_is_no_part_of_it() {
    let server = routes(vec![
        ("/api/v1/models", json("{\"data\":[{\"id\":\"m\",\"context_length\":131072}]}")),
        ("/api/version", json("{\"version\":\"1\"}")),
    ])
    .await;
    for path in ["/api", "/api/", "/api/v1", "/api/v1/", "/api/v1/chat/completions"] {
        let host = format!("http://{}{path}", server.addr);
        let t = Target::detect(&TargetOptions { host, ..TargetOptions::default() }, &mut |_| {}).await.unwrap();
        assert_eq!(t.max_model_len(), Some(131_072), "{path}");
        assert_eq!(t.address.base_path(), "/api", "{path}");
    }
}

#[tokio::test]
async fn of_hundreds_of_models_the_one_asked_for_counts_and_a_wrong_name_finds_its_like() {
    let models: Vec<_> = (0..600).map(|n| format!("{{\"id\":\"maker-{n}/model-{n}\",\"context_length\":{}}}", 1000 + n)).collect();
    let list = format!("{{\"data\":[{}]}}", models.join(","));
    let server = routes(vec![("/v1/models", json(&list))]).await;
    let detect = async |model: Option<&str>| {
        let options =
            TargetOptions { host: format!("http://{}", server.addr), model: model.map(str::to_owned), ..TargetOptions::default() };
        Target::detect(&options, &mut |_| {}).await
    };
    let t = detect(Some("maker-417/model-417")).await.unwrap();
    assert_eq!((t.max_model_len(), t.models.len()), (Some(1417), 600));
    assert!(t.startup_lines.iter().all(|line| line.len() < 1000));
    assert!(t.startup_lines[0].ends_with("and 584 more]"), "{}", t.startup_lines[0]);
    let e = detect(Some("Model-417")).await.unwrap_err().to_string();
    assert!(e.contains("it has 'maker-417/model-417', ") && e.ends_with("and 592 more"), "{e}");
    let t = detect(None).await.unwrap();
    assert!(t.warnings.iter().any(|text| text.contains("600 models") && text.contains("--model")), "{:?}", t.warnings);
}

#[tokio::test]
async fn questions_that_nobody_answers_are_asked_at_once_and_given_up() {
    let server = Server::start(false, |line, _| match path_of(line) {
        "/v1/models" => vec![send(json("{\"data\":[{\"id\":\"m\"}]}"))],
        _ => vec![Do::Hang],
    })
    .await;
    // One after the other would take six times as long.
    let t = tokio::time::timeout(std::time::Duration::from_secs(9), detect_at(&server)).await.expect("all at once").unwrap();
    assert_eq!(t.engine, Engine::OpenaiProxy);
}

#[tokio::test]
async fn a_busy_engine_is_given_more_time_for_its_metrics_than_a_stranger() {
    let server = Server::start(false, |line, n| match path_of(line) {
        "/v1/models" => vec![send(fixture("vllm/get-v1-models"))],
        "/version" => vec![send(fixture("vllm/get-version"))],
        "/metrics" if n < 9 => vec![Do::Sleep(3000), send(fixture("vllm/metrics"))],
        _ => vec![send(whole("404 Not Found", "text/plain", ""))],
    })
    .await;
    let t = detect_at(&server).await.unwrap();
    assert_eq!((t.engine, t.metrics), (Engine::Vllm, MetricsAccess::Available));
}

#[tokio::test]
async fn a_server_that_still_loads_is_waited_for_and_what_for_is_told() {
    // No model, then a proxy without it, then (llama.cpp) a model that is not loaded yet.
    let loading = || {
        let (lists, health) = (std::sync::atomic::AtomicUsize::new(0), std::sync::atomic::AtomicUsize::new(0));
        let next = |counter: &std::sync::atomic::AtomicUsize| counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Server::start(false, move |line, _| {
            let unavailable = || whole("503 Service Unavailable", "application/json", "{\"error\":{\"message\":\"Loading model\"}}");
            let answer = match path_of(line) {
                "/v1/models" => match next(&lists) {
                    0 => json("{\"data\":[]}"),
                    1 => unavailable(),
                    _ => fixture("llama-server/get-v1-models"),
                },
                "/health" if next(&health) == 0 => unavailable(),
                "/health" => json("{\"status\":\"ok\"}"),
                _ => whole("404 Not Found", "text/plain", ""),
            };
            vec![send(answer)]
        })
    };
    let (found, told) = detect_telling(&loading().await, 60.0).await;
    assert_eq!(found.unwrap().engine, Engine::LlamaCpp);
    assert_eq!(told.len(), 3, "each reason once: {told:?}");
    for (text, words) in told.iter().zip(["lists no models", "HTTP 503", "still loading"]) {
        assert!(text.contains(words) && text.contains(" s left"), "{text}");
    }
    let (found, told) = detect_telling(&loading().await, 0.0).await;
    assert!(matches!(found, Err(TargetError::NoModels { .. })) && told.is_empty());
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_waited_for_until_the_time_is_over() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let options = TargetOptions { host: format!("http://{addr}"), wait_ready_s: 1.5, ..TargetOptions::default() };
    let mut told = 0;
    let e = Target::detect(&options, &mut |_| told += 1).await.unwrap_err();
    assert!(matches!(&e, TargetError::NotReady { reason, .. } if matches!(**reason, TargetError::Refused { .. })), "{e}");
    assert_eq!(told, 1);
    // It comes while it is waited for.
    let options = TargetOptions { wait_ready_s: 30.0, ..options };
    let late = async {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let listener = tokio::net::TcpListener::bind(addr).await.unwrap();
        Server::on(listener, false, |line, _, _| match path_of(line) {
            "/v1/models" => vec![send(json("{\"data\":[{\"id\":\"m\"}]}"))],
            _ => vec![send(whole("404 Not Found", "text/plain", ""))],
        })
    };
    let mut unheard = |_: &str| {};
    let (found, _server) = tokio::join!(Target::detect(&options, &mut unheard), late);
    assert_eq!(found.unwrap().model, "m");
}

#[tokio::test]
async fn what_waiting_does_not_change_is_said_at_once() {
    let server = routes(vec![("/v1/models", fixture("vllm-spec-ngram/error-no-key"))]).await;
    let (found, told) = detect_telling(&server, 60.0).await;
    assert!(matches!(found, Err(TargetError::Unauthorized { status: 401, .. })) && told.is_empty());
    // LiteLLM without a key.
    let server = routes(vec![("/v1/models", fixture("litellm/error-no-key"))]).await;
    let (found, told) = detect_telling(&server, 60.0).await;
    let e = found.unwrap_err().to_string();
    assert!(e.contains("HTTP 500") && e.contains("--api-key") && told.is_empty(), "{e}");
}
