//! The order of questions that tells engines apart.

use serde_json::Value;

use super::http::{self, Answer};
use super::{
    ASK_LIMIT, Accepted, Address, Credentials, Engine, Limit, METRICS_PROBE_LIMIT, MetricsAccess, Target, TargetError, TargetOptions,
    Tokenize, TrustedRoots, llama_cpp, proxy, sglang, vllm,
};
use crate::scrape::engines::has_metrics_of;

/// What a server said to each question; `None` where it did not say anything of use.
pub(super) struct Answers {
    pub(super) models: Value,
    pub(super) server_info: Option<Value>,
    pub(super) version: Option<Value>,
    pub(super) props: Option<Value>,
    pub(super) metrics: Result<String, String>,
}

impl Answers {
    pub(super) fn metrics_of(&self, engine: Engine) -> Option<&str> {
        let text = self.metrics.as_deref().ok()?;
        has_metrics_of(engine, text).then_some(text)
    }

    /// `owned_by` of the first model.
    pub(super) fn owned_by(&self) -> Option<&str> {
        self.models["data"][0]["owned_by"].as_str()
    }
}

/// What an engine's own file found.
pub(super) struct Found {
    pub(super) engine: Engine,
    pub(super) source: String,
    pub(super) version: Option<String>,
    pub(super) limits: Vec<Limit>,
    pub(super) warnings: Vec<String>,
    pub(super) startup_lines: Vec<String>,
}

impl Found {
    pub(super) fn new(engine: Engine, source: &str) -> Self {
        Self { engine, source: source.to_owned(), version: None, limits: Vec::new(), warnings: Vec::new(), startup_lines: Vec::new() }
    }

    pub(super) fn limit(&mut self, name: &'static str, value: u64, source: &str) {
        let source = source.to_owned();
        self.limits.push(Limit { name, value, source });
    }
}

pub(super) async fn detect(options: &TargetOptions) -> Result<Target, TargetError> {
    let (address, user) = Address::parse(&options.host, options.port)?;
    let credentials = match (&options.api_key, user) {
        (None, Some((user, password))) => Credentials::basic(&user, &password),
        (key, _) => Credentials::choose(key.as_deref(), |name| std::env::var(name).ok()),
    };
    let roots = TrustedRoots::read(options.ca_cert.as_deref())?;
    let client = http::client(&roots, &credentials)?;
    let models_url = address.url("/v1/models");
    let answer = http::get(&client, &models_url, ASK_LIMIT).await?;
    let (models_json, models) = read_models(&answer, &models_url)?;
    let model = choose_model(options.model.as_deref(), &models)?;

    // Asked at once: on a slow proxy one after the other would add up.
    let ask = |path: &'static str| {
        let (client, url) = (client.clone(), address.url(path));
        async move { http::get(&client, &url, ASK_LIMIT).await.ok()?.json() }
    };
    let metrics_url = address.url("/metrics");
    let probe = http::get(&client, &metrics_url, METRICS_PROBE_LIMIT);
    let (server_info, version, props, metrics) = tokio::join!(ask("/get_server_info"), ask("/version"), ask("/props"), probe);
    let answers = Answers { models: models_json, server_info, version, props, metrics: read_metrics(metrics) };
    let mut found = sglang::recognise(&answers, options)
        .or_else(|| vllm::recognise(&answers, options))
        .or_else(|| llama_cpp::recognise(&answers))
        .unwrap_or_else(|| proxy::fallback(&answers));
    common_limits(&mut found, &answers, &model, options);

    let metrics = metrics_access(found.engine, &answers);
    if let MetricsAccess::Unavailable { reason } = &metrics {
        found.warnings.push(format!("server metrics are not available: {reason}"));
    }
    let tokenize = match found.engine {
        // Both know the route; whether it works is found out by using it.
        Engine::Vllm | Engine::Sglang => Tokenize::Chat,
        Engine::LlamaCpp | Engine::OpenaiProxy => Tokenize::Unavailable,
    };
    let mut startup_lines = vec![engine_line(&found, &models)];
    startup_lines.append(&mut found.startup_lines);
    Ok(Target {
        address,
        credentials,
        engine: found.engine,
        engine_source: found.source,
        version: found.version,
        models,
        model,
        limits: found.limits,
        metrics,
        tokenize,
        accepted: Accepted::default(),
        startup_lines,
        warnings: found.warnings,
        roots,
        client,
    })
}

fn read_models(answer: &Answer, url: &str) -> Result<(Value, Vec<String>), TargetError> {
    let url = || url.to_owned();
    match answer.status {
        200..=299 => {}
        status @ (401 | 403) => return Err(TargetError::Unauthorized { url: url(), status }),
        300..=399 => {
            let location = answer.location.clone();
            return Err(TargetError::Redirect { url: url(), location: location.unwrap_or_else(|| "an address it does not name".into()) });
        }
        status => {
            let detail = excerpt(answer);
            return Err(TargetError::Status { url: url(), status, detail });
        }
    }
    if answer.looks_like_html() {
        return Err(TargetError::Html { url: url() });
    }
    let not_json = |reason: String| TargetError::NotJson { url: url(), reason };
    let json: Value = serde_json::from_slice(&answer.body).map_err(|e| not_json(e.to_string()))?;
    let Some(list) = json["data"].as_array() else {
        return Err(not_json("it has no list named data".into()));
    };
    let ids: Vec<String> = list.iter().filter_map(|m| m["id"].as_str().map(str::to_owned)).collect();
    if ids.is_empty() {
        return Err(TargetError::NoModels { url: url() });
    }
    Ok((json, ids))
}

/// The first words of an error answer, as ` (...)`; nothing of a web page.
fn excerpt(answer: &Answer) -> String {
    if answer.looks_like_html() {
        return " and a web page".to_owned();
    }
    let text = answer.text();
    let words: Vec<&str> = text.split_whitespace().collect();
    let short = crate::secrets::beginning(&words.join(" "), 120);
    if short.is_empty() { short } else { format!(" ({short})") }
}

fn choose_model(wanted: Option<&str>, models: &[String]) -> Result<String, TargetError> {
    let Some(wanted) = wanted.filter(|m| !m.is_empty()) else {
        return Ok(models.first().cloned().unwrap_or_default());
    };
    if models.iter().any(|m| m == wanted) {
        return Ok(wanted.to_owned());
    }
    let available: Vec<String> = models.iter().take(8).map(|m| format!("'{m}'")).collect();
    Err(TargetError::UnknownModel { model: wanted.to_owned(), available: available.join(", ") })
}

fn read_metrics(answer: Result<Answer, TargetError>) -> Result<String, String> {
    match answer {
        Ok(a) if !a.is_ok() => Err(match a.location {
            Some(to) => format!("/metrics answers with HTTP {} and points to {to}", a.status),
            None => format!("/metrics answers with HTTP {}", a.status),
        }),
        Ok(a) if a.looks_like_html() => Err("/metrics answers with a web page".to_owned()),
        Ok(a) => Ok(a.text().into_owned()),
        Err(TargetError::NoAnswer { seconds, .. }) => Err(format!("/metrics did not answer within {seconds} s")),
        Err(e) => Err(format!("/metrics can't be read: {e}")),
    }
}

fn metrics_access(engine: Engine, answers: &Answers) -> MetricsAccess {
    let reason = match (&answers.metrics, engine) {
        (Err(reason), _) => reason.clone(),
        (Ok(_), Engine::OpenaiProxy) => "/metrics has no metrics of vLLM, SGLang or llama.cpp".to_owned(),
        (Ok(_), _) if answers.metrics_of(engine).is_some() => return MetricsAccess::Available,
        (Ok(_), engine) => format!("/metrics has no metrics of {}", engine.name()),
    };
    MetricsAccess::Unavailable { reason }
}

/// What does not depend on the engine: the model's limit from the list, and the user's own budget.
fn common_limits(found: &mut Found, answers: &Answers, model: &str, options: &TargetOptions) {
    let has = |found: &Found, name| found.limits.iter().any(|l| l.name == name);
    if !has(found, "max_model_len") {
        let list = answers.models["data"].as_array();
        let entry = list.and_then(|l| l.iter().find(|m| m["id"] == model));
        let read = |key| entry.and_then(|m| m[key].as_u64()).filter(|n| *n > 0);
        for key in ["max_model_len", "context_length", "context_window"] {
            if let Some(len) = read(key) {
                found.limit("max_model_len", len, &format!("/v1/models {key}"));
                break;
            }
        }
    }
    if let Some(budget) = options.kv_budget_tokens.filter(|n| *n > 0) {
        found.limits.retain(|l| l.name != "kv_budget_tokens");
        found.startup_lines.retain(|l| !l.starts_with("KV cache budget"));
        found.limit("kv_budget_tokens", budget, "--kv-budget");
        let tokens = thousands(budget);
        let line = format!("KV cache budget manual: {tokens} tokens");
        found.startup_lines.push(line);
    }
    if let Some(l) = found.limits.iter().find(|l| l.name == "max_model_len") {
        let line = format!("model context length: {} tokens", thousands(l.value));
        found.startup_lines.push(line);
    }
}

fn engine_line(found: &Found, models: &[String]) -> String {
    let quoted: Vec<String> = models.iter().map(|m| format!("'{m}'")).collect();
    let (name, models) = (found.engine.name(), quoted.join(", "));
    match &found.version {
        Some(version) => format!("engine {name} {version} models=[{models}]"),
        None if found.engine == Engine::OpenaiProxy => format!("engine {name} models=[{models}]"),
        None => format!("engine {name} from metrics models=[{models}]"),
    }
}

/// `1234567` as `1,234,567`.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}
