//! What a server is, by what it answers.

use tokscope_collector::target::{Engine, MetricsAccess, Target, TargetError, TargetOptions};

use crate::server::{Do, Server, send, whole};

fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/transcripts/{name}.response.http", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}

fn path_of(line: &str) -> &str {
    line.split(' ').nth(1).unwrap_or_default()
}

async fn detect_at(server: &Server) -> Result<Target, TargetError> {
    Target::detect(&TargetOptions { host: server.addr.ip().to_string(), port: Some(server.addr.port()), ..TargetOptions::default() }).await
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
    let t = Target::detect(&TargetOptions { host: format!("http://{}", server.addr), dcp_size: Some(2), ..TargetOptions::default() })
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
    let e = Target::detect(&TargetOptions { host: "127.0.0.1".into(), port: Some(port), ..TargetOptions::default() }).await.unwrap_err();
    assert!(matches!(e, TargetError::Refused { .. }), "{e}");
    let e = Target::detect(&TargetOptions { host: "no-such-host.invalid".into(), ..TargetOptions::default() }).await.unwrap_err();
    assert!(matches!(e, TargetError::Unresolved { .. }), "{e:?}");
}

#[tokio::test]
async fn a_model_that_is_not_there_is_named_with_those_that_are() {
    let server = routes(vec![("/v1/models", json("{\"data\":[{\"id\":\"a\"},{\"id\":\"b\"}]}"))]).await;
    let options =
        |model: &str| TargetOptions { host: format!("http://{}", server.addr), model: Some(model.to_owned()), ..TargetOptions::default() };
    let e = Target::detect(&options("c")).await.unwrap_err();
    assert_eq!(e.to_string(), "the server does not list a model 'c'; it has 'a', 'b'");
    assert_eq!(Target::detect(&options("b")).await.unwrap().model, "b");
}

#[tokio::test]
async fn keys_are_never_shown() {
    let server = routes(vec![("/v1/models", json("{\"data\":[{\"id\":\"m\"}]}"))]).await;
    let options = TargetOptions {
        host: format!("http://user:hidden@{}", server.addr),
        api_key: Some("sk-hidden".into()),
        ..TargetOptions::default()
    };
    let t = Target::detect(&options).await.unwrap();
    assert_eq!(t.credentials.header(), Some("Bearer sk-hidden"));
    let shown = format!("{t:?} {options:?} {} {:?}", t.display(), t.startup_lines);
    assert!(!shown.contains("hidden"), "{shown}");
}
