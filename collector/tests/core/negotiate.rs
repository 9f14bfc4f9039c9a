//! What a server refuses of a run's options is found out with few requests, and said.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokscope_collector::target::{Accepted, Target, TargetError, TargetOptions, UsageOption};

use crate::server::{DONE, Do, STREAM_HEAD, Server, chunk, event, finish, send, whole};

/// A server of which the bodies of generations are kept.
struct Strict {
    server: Server,
    bodies: Arc<Mutex<Vec<Value>>>,
}

fn taken() -> Do {
    send(format!("{STREAM_HEAD}{}{}{DONE}", event("a", Some(1)), finish()))
}

fn refused(message: &str) -> Do {
    let body = serde_json::json!({"error": {"message": message, "type": "BadRequestError", "param": null, "code": 400}});
    send(whole("400 Bad Request", "application/json", &body.to_string()))
}

impl Strict {
    /// `models` is the list's entry; `judge` answers a generation by its body and number from 0.
    async fn start(entry: &str, judge: impl Fn(&Value, usize) -> Do + Send + Sync + 'static) -> Self {
        let list = format!("{{\"data\":[{entry}]}}");
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bodies);
        let server = Server::start_reading(false, move |line, body, _| {
            if line.starts_with("GET /v1/models ") {
                return vec![send(whole("200 OK", "application/json", &list))];
            }
            if !line.starts_with("POST /v1/chat/completions ") {
                return vec![send(whole("404 Not Found", "application/json", "{}"))];
            }
            let body: Value = serde_json::from_slice(body).unwrap();
            let mut kept = kept.lock().unwrap();
            let step = judge(&body, kept.len());
            kept.push(body);
            vec![step]
        })
        .await;
        Self { server, bodies }
    }

    async fn target(&self) -> Target {
        let options = TargetOptions { host: format!("http://{}", self.server.addr), ..TargetOptions::default() };
        Target::detect(&options, &mut |_| {}).await.unwrap()
    }

    async fn negotiate(&self, max_tokens: u32, temperature: Option<f64>) -> Result<Target, TargetError> {
        let mut target = self.target().await;
        target.negotiate(max_tokens, true, temperature).await?;
        Ok(target)
    }

    fn asked(&self) -> usize {
        self.bodies.lock().unwrap().len()
    }
}

const KNOWN: &str = "{\"id\":\"m\",\"max_model_len\":4096}";
const UNKNOWN: &str = "{\"id\":\"m\"}";

#[tokio::test]
async fn what_is_taken_at_once_costs_one_request_of_one_token_with_the_runs_options() {
    // Its engine and context are known, so that no output limit below the context has to be tried.
    let entry = "{\"id\":\"m\",\"max_model_len\":4096,\"owned_by\":\"sglang\"}";
    let strict = Strict::start(entry, |_, _| taken()).await;
    let target = strict.negotiate(1000, Some(0.5)).await.unwrap();
    assert_eq!(target.accepted, Accepted::default());
    let bodies = strict.bodies.lock().unwrap();
    assert_eq!(bodies.len(), 1);
    let body = &bodies[0];
    assert_eq!((&body["max_tokens"], &body["ignore_eos"], &body["temperature"]), (&1.into(), &true.into(), &0.5.into()));
    assert_eq!(body["stream_options"]["continuous_usage_stats"], true);
}

#[tokio::test]
async fn a_refusal_that_names_an_option_costs_one_more_request_and_is_said() {
    let strict = Strict::start(KNOWN, |body, _| {
        if body.get("ignore_eos").is_some() {
            return refused("Unrecognized request argument supplied: ignore_eos");
        }
        if body["stream_options"].get("continuous_usage_stats").is_some() {
            return refused("Unknown parameter: 'stream_options.continuous_usage_stats'.");
        }
        if body.get("max_tokens").is_some() {
            return refused("Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.");
        }
        if body.get("temperature").is_some() {
            return refused("Unsupported value: 'temperature' does not support 0.5");
        }
        taken()
    })
    .await;
    let target = strict.negotiate(1, Some(0.5)).await.unwrap();
    let accepted = target.accepted;
    assert_eq!((accepted.ignore_eos, accepted.temperature, accepted.usage), (false, false, UsageOption::Final));
    assert_eq!((accepted.max_tokens_name, accepted.max_tokens_limit), ("max_completion_tokens", None));
    assert_eq!(strict.asked(), 5);
    assert_eq!(accepted.notes.len(), 4);
    assert!(accepted.notes[0].contains("ignore_eos") && accepted.notes[0].contains("HTTP 400"), "{:?}", accepted.notes);
}

#[tokio::test]
async fn a_refusal_that_names_nothing_is_found_by_leaving_out_one_option_at_a_time() {
    type Bad = fn(&Value) -> bool;
    type Found = fn(&Accepted) -> bool;
    let table: [(Bad, Found); 5] = [
        (|b| b.get("ignore_eos").is_some(), |a| !a.ignore_eos),
        (|b| b["stream_options"].get("continuous_usage_stats").is_some(), |a| a.usage == UsageOption::Final),
        (|b| b.get("stream_options").is_some(), |a| a.usage == UsageOption::None),
        (|b| b.get("max_tokens").is_some(), |a| a.max_tokens_name == "max_completion_tokens"),
        (|b| b.get("temperature").is_some(), |a| !a.temperature),
    ];
    for (at, (bad, found)) in table.into_iter().enumerate() {
        let strict = Strict::start(KNOWN, move |body, _| if bad(body) { refused("bad request") } else { taken() }).await;
        let accepted = strict.negotiate(1, Some(0.0)).await.unwrap().accepted;
        assert!(found(&accepted), "{at}: {accepted:?}");
        let left_out = [!accepted.ignore_eos, !accepted.temperature, accepted.usage != UsageOption::Continuous];
        let renamed = usize::from(accepted.max_tokens_name != "max_tokens");
        assert_eq!(left_out.into_iter().filter(|out| *out).count() + renamed, 1, "{at}: only what is refused: {accepted:?}");
        assert_eq!(accepted.notes.len(), 1);
        assert_eq!(strict.asked(), at + 2);
    }
}

#[tokio::test]
async fn several_refusals_without_a_name_leave_the_plainest_request() {
    let strict = Strict::start(KNOWN, |body, _| {
        let bad = ["ignore_eos", "stream_options", "temperature", "max_tokens"].iter().any(|key| body.get(*key).is_some());
        if bad { refused("no") } else { taken() }
    })
    .await;
    let accepted = strict.negotiate(1, Some(0.0)).await.unwrap().accepted;
    assert_eq!((accepted.ignore_eos, accepted.temperature, accepted.usage), (false, false, UsageOption::None));
    assert_eq!(accepted.max_tokens_name, "max_completion_tokens");
    assert!(strict.asked() <= 8, "{}", strict.asked());
    let wall = Strict::start(KNOWN, |_, _| refused("never")).await;
    let error = wall.negotiate(1, Some(0.0)).await.unwrap_err();
    assert!(matches!(error, TargetError::Refuses { status: 400, .. }), "{error}");
    assert!(error.to_string().contains("never"));
    assert!(wall.asked() <= 8, "{}", wall.asked());
}

#[tokio::test]
async fn an_output_limit_above_the_servers_own_is_read_from_its_words_or_found_by_halving() {
    let over = |limit: u64, words: &'static str| {
        move |body: &Value, _: usize| if body["max_tokens"].as_u64().unwrap() > limit { refused(words) } else { taken() }
    };
    let told =
        Strict::start(UNKNOWN, over(16_384, "max_tokens is too large: 32768. This model supports at most 16384 completion tokens.")).await;
    let target = told.negotiate(32_768, None).await.unwrap();
    assert_eq!(target.accepted.max_tokens_limit, Some(16_384));
    assert_eq!((target.accepted.notes.len(), told.asked()), (1, 3));
    assert_eq!(target.max_model_len(), None);

    let silent = Strict::start(UNKNOWN, over(9000, "too large")).await;
    let target = silent.negotiate(32_768, None).await.unwrap();
    assert_eq!(target.accepted.max_tokens_limit, Some(8192));
    assert_eq!(silent.asked(), 4);

    let within = Strict::start(UNKNOWN, over(40_000, "too large")).await;
    let target = within.negotiate(32_768, None).await.unwrap();
    assert_eq!((target.accepted, within.asked()), (Accepted::default(), 2));
    // An answer of that length is left where it begins, and may end by itself.
    assert!(within.bodies.lock().unwrap()[1].get("ignore_eos").is_none());
}

#[tokio::test]
async fn a_context_that_only_the_refusal_tells_becomes_a_limit_for_the_plan() {
    let path = format!("{}/tests/fixtures/transcripts/litellm/error-max-tokens-over-context.response.http", env!("CARGO_MANIFEST_DIR"));
    let recorded = std::fs::read(path).unwrap();
    let proxy = Strict::start(
        UNKNOWN,
        move |body, _| {
            if body["max_tokens"].as_u64().unwrap() > 8192 { Do::Send(recorded.clone()) } else { taken() }
        },
    )
    .await;
    let target = proxy.negotiate(32_768, None).await.unwrap();
    assert_eq!(target.max_model_len(), Some(8192));
    assert_eq!(target.accepted.max_tokens_limit, None, "each prompt leaves another room in the context");
    let limit = target.limits.iter().find(|limit| limit.name == "max_model_len").unwrap();
    assert!(limit.source.contains("refusal"), "{}", limit.source);
}

#[tokio::test]
async fn an_error_inside_a_stream_is_a_refusal_by_its_code() {
    let refuses = |body: &Value, _: usize| {
        if body.get("ignore_eos").is_none() {
            return taken();
        }
        let error = chunk("data: {\"error\":{\"message\":\"ignore_eos is unknown\",\"code\":400}}\n\n");
        send(format!("{STREAM_HEAD}{error}{DONE}"))
    };
    let strict = Strict::start(KNOWN, refuses).await;
    assert!(!strict.negotiate(1, None).await.unwrap().accepted.ignore_eos);
    let broken = |_: &Value, _: usize| {
        let error = chunk("data: {\"error\":{\"message\":\"engine is dead\",\"code\":\"500\"}}\n\n");
        send(format!("{STREAM_HEAD}{error}{DONE}"))
    };
    let strict = Strict::start(KNOWN, broken).await;
    let error = strict.negotiate(1, None).await.unwrap_err();
    assert!(matches!(error, TargetError::ChatFailed { status: 500, .. }), "{error}");
    assert_eq!(strict.asked(), 1);
}

#[tokio::test]
async fn what_no_option_changes_is_an_error_in_a_sentence() {
    let answer = |status: &'static str, body: &'static str| move |_: &Value, _: usize| send(whole(status, "application/json", body));
    let error = |strict: Strict| async move { (strict.negotiate(1, None).await.unwrap_err(), strict.asked()) };
    let (e, asked) = error(Strict::start(KNOWN, answer("404 Not Found", "{\"error\":{\"message\":\"no model m\"}}")).await).await;
    assert!(matches!(e, TargetError::NoChat { .. }) && e.to_string().contains("no model m"), "{e}");
    assert_eq!(asked, 1);
    let (e, _) = error(Strict::start(KNOWN, answer("401 Unauthorized", "{}")).await).await;
    assert!(matches!(e, TargetError::Unauthorized { status: 401, .. }), "{e}");
    let (e, asked) = error(Strict::start(KNOWN, answer("500 Internal Server Error", "oh")).await).await;
    assert!(matches!(e, TargetError::ChatFailed { status: 500, .. }), "{e}");
    assert_eq!(asked, 1, "an error of the server is not asked away");
    let model = "{\"error\":{\"message\":\"/chat/completions: Invalid model name passed in model=m.\"}}";
    let (e, asked) = error(Strict::start(KNOWN, answer("400 Bad Request", model)).await).await;
    assert!(e.to_string().contains("Invalid model name"), "{e}");
    assert_eq!(asked, 1);
    let whole_answer = "{\"choices\":[{\"message\":{\"content\":\"yes\"}}]}";
    let (e, _) = error(Strict::start(KNOWN, answer("200 OK", whole_answer)).await).await;
    assert!(matches!(e, TargetError::NotStreaming { .. }), "{e}");
}

#[tokio::test]
async fn too_many_requests_are_waited_for_as_long_as_the_server_says_but_not_for_long() {
    let limited = |after: &str| {
        let answer = format!("HTTP/1.1 429 Too Many Requests\r\nRetry-After: {after}\r\nContent-Length: 4\r\n\r\nslow");
        move |_: &Value, n: usize| if n == 0 { send(&answer) } else { taken() }
    };
    let patient = Strict::start(KNOWN, limited("1")).await;
    let start = Instant::now();
    let target = patient.negotiate(1, None).await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!((target.accepted.notes.len(), patient.asked()), (0, 2));
    let long = Strict::start(KNOWN, limited("3600")).await;
    let error = long.negotiate(1, None).await.unwrap_err();
    assert!(matches!(error, TargetError::TooMany { .. }) && error.to_string().contains("3600 s"), "{error}");
    assert_eq!(long.asked(), 1);
}
