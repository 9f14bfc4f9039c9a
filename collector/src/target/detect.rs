//! The order of questions that tells engines apart.

use serde_json::Value;

use super::{
    Accepted, Address, Credentials, Engine, Limit, MetricsAccess, PROBE_LIMIT, Target, TargetError, TargetOptions, Tokenize, TrustedRoots,
    http, llama_cpp, metrics, proxy, sglang, vllm, wait,
};
use crate::scrape::engines::{has_metrics_of, missing};

/// Models named in the start-up block.
const MODELS_SHOWN: usize = 16;

/// What a server said to each question; `None` where it did not say anything of use.
pub(super) struct Answers {
    pub(super) models: Value,
    /// The model that will be measured.
    pub(super) model: String,
    pub(super) get_server_info: Option<Value>,
    pub(super) server_info: Option<Value>,
    pub(super) version: Option<Value>,
    pub(super) props: Option<Value>,
    pub(super) slots: Option<Value>,
    pub(super) metrics: Result<String, String>,
}

impl Answers {
    /// A list of models and metrics, and nothing else.
    #[cfg(test)]
    pub(super) fn of(models: Value, model: &str, metrics: Result<String, String>) -> Self {
        let model = model.to_owned();
        Self { models, model, get_server_info: None, server_info: None, version: None, props: None, slots: None, metrics }
    }

    pub(super) fn metrics_of(&self, engine: Engine) -> Option<&str> {
        let text = self.metrics.as_deref().ok()?;
        has_metrics_of(engine, text).then_some(text)
    }

    /// What the list says of the model that will be measured.
    pub(super) fn entry(&self) -> Option<&Value> {
        let list = self.models["data"].as_array()?;
        list.iter().find(|entry| entry["id"] == self.model.as_str())
    }

    /// Who owns that model.
    pub(super) fn owned_by(&self) -> Option<&str> {
        self.entry()?["owned_by"].as_str()
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

/// What the user says of the KV cache, besides the budget itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// The context-parallel size, and where it was given.
    pub(super) context_parallel: Option<(u64, &'static str)>,
}

impl Asked {
    /// The option, else the predecessor's variable; 0 is as if not given.
    fn new(options: &TargetOptions, env: impl Fn(&str) -> Option<String>) -> Self {
        let variable = || env("LLM_BENCH_DCP_SIZE")?.trim().parse().ok().filter(|n| *n > 0);
        let option = options.dcp_size.filter(|n| *n > 0).map(|n| (u64::from(n), "argument"));
        Self { context_parallel: option.or_else(|| variable().map(|n| (n, "LLM_BENCH_DCP_SIZE"))) }
    }
}

pub(super) async fn detect(options: &TargetOptions, progress: &mut (dyn FnMut(&str) + Send)) -> Result<Target, TargetError> {
    let env = |name: &str| std::env::var(name).ok();
    let (address, user) = Address::parse(&options.host, options.port)?;
    let credentials = match (&options.api_key, user) {
        (None, Some((user, password))) => Credentials::basic(&user, &password),
        (key, _) => Credentials::choose(key.as_deref(), env),
    };
    let roots = TrustedRoots::read(options.ca_cert.as_deref())?;
    let client = http::client(&roots, &credentials, false)?;
    let scrape_client = http::client(&roots, &credentials, true)?;
    let found = wait::models(&client, &address, options.wait_ready_s, progress).await;
    let (models_json, models) = found.map_err(|error| without_key(error, &credentials))?;
    let model = choose_model(options.model.as_deref(), &models)?;
    let (answers, metrics_url) = ask_all(&client, &address, models_json, &model).await;
    let asked = Asked::new(options, env);
    let mut found = recognise(&answers, asked);
    common_limits(&mut found, &answers, options);
    if options.model.is_none() && models.len() > 1 {
        found.warnings.push(format!("the server lists {} models, and '{model}' is measured: give --model for another", models.len()));
    }
    let metrics = metrics::access(found.engine, &answers);
    if let MetricsAccess::Unavailable { reason } = &metrics {
        found.warnings.push(format!("server metrics are not available: {reason}"));
    }
    told_metrics(&mut found, &answers);
    let old_metrics = answers.metrics_of(Engine::Vllm).is_some_and(vllm::is_v0);
    let knowledge = found.engine.knowledge(old_metrics);
    found.warnings.extend(knowledge.doubt(found.engine));
    let tokenize = match found.engine {
        // Both know the route; whether it works is found out by using it.
        Engine::Vllm | Engine::Sglang => Tokenize::Chat,
        Engine::LlamaCpp | Engine::OpenaiProxy => Tokenize::Unavailable,
    };
    let mut startup_lines = vec![engine_line(&found, &models)];
    startup_lines.append(&mut found.startup_lines);
    startup_lines.push(knowledge.line(found.engine));
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
        metrics_url,
        knowledge,
        tokenize,
        accepted: Accepted::default(),
        startup_lines,
        warnings: found.warnings,
        roots,
        client,
        scrape_client,
    })
}

fn recognise(answers: &Answers, asked: Asked) -> Found {
    let sglang = sglang::recognise(answers, asked);
    let found = sglang.or_else(|| vllm::recognise(answers, asked)).or_else(|| llama_cpp::recognise(answers));
    found.unwrap_or_else(|| proxy::fallback(answers))
}

/// All other questions at once: on a slow proxy one after the other would add up. The answers, and where the metrics
/// are.
async fn ask_all(client: &reqwest::Client, address: &Address, models: Value, model: &str) -> (Answers, String) {
    let ask = |path: &'static str| {
        let (client, url) = (client.clone(), address.url(path));
        async move { http::get(&client, &url, PROBE_LIMIT).await.ok()?.json() }
    };
    let (get_server_info, server_info, version, props, slots, probe) = tokio::join!(
        ask("/get_server_info"),
        // In this form vLLM tells its settings, where it tells them at all.
        ask("/server_info?config_format=json"),
        ask("/version"),
        ask("/props"),
        ask("/slots"),
        metrics::probe(client, address),
    );
    let mut answers =
        Answers { models, model: model.to_owned(), get_server_info, server_info, version, props, slots, metrics: probe.text.clone() };
    let url = probe.url.clone();
    if probe.silent && recognise(&answers, Asked::default()).engine != Engine::OpenaiProxy {
        answers.metrics = metrics::again(client, probe).await.text;
    }
    (answers, url)
}

/// LiteLLM answers a request without a key with 500, and others with 400.
fn without_key(error: TargetError, credentials: &Credentials) -> TargetError {
    match error {
        TargetError::Status { url, status: status @ (400 | 500), detail } if credentials.header().is_none() => {
            TargetError::Status { url, status, detail: format!("{detail}; some proxies answer so when no key is sent: try --api-key") }
        }
        other => other,
    }
}

fn choose_model(wanted: Option<&str>, models: &[String]) -> Result<String, TargetError> {
    let Some(wanted) = wanted.filter(|m| !m.is_empty()) else {
        return Ok(models.first().cloned().unwrap_or_default());
    };
    if models.iter().any(|m| m == wanted) {
        return Ok(wanted.to_owned());
    }
    Err(TargetError::UnknownModel { model: wanted.to_owned(), available: nearest(wanted, models) })
}

/// Eight of the models, those first that share most with what was wanted: a proxy may have hundreds.
fn nearest(wanted: &str, models: &[String]) -> String {
    let words = |name: &str| -> Vec<String> {
        name.to_lowercase().split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_owned).collect()
    };
    let wanted = words(wanted);
    let shared = |model: &String| words(model).iter().filter(|word| wanted.contains(word)).count();
    let mut sorted: Vec<&String> = models.iter().collect();
    sorted.sort_by_key(|model| std::cmp::Reverse(shared(model)));
    let shown: Vec<String> = sorted.iter().take(8).map(|m| format!("'{m}'")).collect();
    let more = models.len().saturating_sub(8);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// Which of the values that a measurement wants are in the metrics under no name we know.
fn told_metrics(found: &mut Found, answers: &Answers) {
    let Some(text) = answers.metrics_of(found.engine) else { return };
    let missing = missing(found.engine, text);
    if !missing.is_empty() {
        found.startup_lines.push(format!("metrics without {}", missing.join(", ")));
    }
}

/// What does not depend on the engine: the model's limit from the list, and the user's own budget.
fn common_limits(found: &mut Found, answers: &Answers, options: &TargetOptions) {
    let has = |found: &Found, name| found.limits.iter().any(|l| l.name == name);
    if !has(found, "max_model_len") {
        let entry = answers.entry();
        let read = |key: &str| entry.and_then(|m| m[key].as_u64()).filter(|n| *n > 0);
        for key in ["max_model_len", "context_length", "context_window"] {
            if let Some(len) = read(key) {
                found.limit("max_model_len", len, &format!("/v1/models {key}"));
                break;
            }
        }
    }
    if let Some(budget) = options.kv_budget_tokens.filter(|n| *n > 0) {
        // The user's budget is the whole server's: what each engine said of itself no longer fits to it.
        found.limits.retain(|l| l.name != "kv_budget_tokens" && l.name != "kv_budget_tokens_per_engine");
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
    let quoted: Vec<String> = models.iter().take(MODELS_SHOWN).map(|m| format!("'{m}'")).collect();
    let more = models.len().saturating_sub(MODELS_SHOWN);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let (name, models) = (found.engine.name(), format!("{}{more}", quoted.join(", ")));
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
