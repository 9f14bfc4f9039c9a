//! One request on the load's path, so that its times are those of the measurement.

use std::sync::Arc;
use std::time::Duration;

use crate::cell::{Bench, Scout};
use crate::load::request::RequestSource;
use crate::load::stop::Stop;
use crate::load::{LoadLimits, StreamsOptions};

/// For a stream to notice that it is cut.
const JOIN_LIMIT: Duration = Duration::from_secs(5);

/// Sends one request of `source`, whose answer has `max_tokens` tokens at most. Time to first token ends with the first
/// text, or where the one token has none, with the first event that says it exists.
pub async fn once(bench: &Bench<'_>, source: &Arc<dyn RequestSource>, max_tokens: u32, limits: LoadLimits, stop: &Stop) -> Scout {
    let options = StreamsOptions { count: 1, max_requests: Some(1), limits, max_tokens, text: None };
    let streams = bench.load.open(bench.endpoint, source, &options).await;
    streams.start();
    let mut stop = stop.clone();
    tokio::select! {
        () = streams.ended() => {}
        () = stop.stopped() => {}
    }
    let (mut records, _) = streams.join(JOIN_LIMIT).await;
    let request = records.pop().and_then(|mut record| record.requests.pop());
    let Some(request) = request else {
        let error = (!stop.is_stopped()).then(|| "the request was not sent".to_owned());
        return Scout { id: String::new(), sent_us: None, ttft_us: None, prompt_tokens: None, cached_tokens: None, error };
    };
    let first = request.first_token_us.or(request.first_sign_us);
    Scout {
        sent_us: request.sent_us,
        ttft_us: first.zip(request.sent_us).and_then(|(first, sent)| first.checked_sub(sent)),
        prompt_tokens: request.prompt_tokens,
        cached_tokens: request.cached_tokens,
        error: request.error.map(|error| format!("{}: {error}", request.outcome.as_str())),
        id: request.id,
    }
}
