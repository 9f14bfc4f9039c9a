//! Requests whose answers count for nothing: what a server compiles at the first of its kind is paid here. What fails is
//! said and costs nothing else.

use std::sync::Arc;
use std::time::Duration;

use super::once;
use crate::cell::Bench;
use crate::event::{Event, context_label};
use crate::load::LoadLimits;
use crate::load::request::RequestSource;
use crate::load::stop::Stop;
use crate::prompt::{Shape, Tag};

/// Tokens of the short answer.
const SHORT_ANSWER: u32 = 64;
/// For it to begin.
const LIMIT: Duration = Duration::from_secs(300);

/// A short answer, streamed. Whether it came.
pub async fn decode_warmup(bench: &Bench<'_>, stop: &Stop) -> bool {
    bench.events.emit(Event::Line("decode warmup start".to_owned()));
    let source: Arc<dyn RequestSource> = Arc::new(bench.prompts.short(bench.target, SHORT_ANSWER));
    let limits = LoadLimits { first_token: LIMIT, ..LoadLimits::default() };
    let scout = once(bench, &source, SHORT_ANSWER, limits, stop).await;
    failed(bench, "the decode warm-up", scout.error.as_deref())
}

/// A prompt of this context, to be read once. `named`: as where prefill comes with the matrix, its context stands in the
/// log. Whether its answer came.
pub async fn prefill_warmup(bench: &Bench<'_>, context: u32, named: bool, stop: &Stop) -> bool {
    let label = context_label(context);
    let line = |text: String| bench.events.emit(Event::Line(text));
    line(if named { format!("prefill warmup start ctx={label}") } else { "prefill warmup start".to_owned() });
    let shape = Shape::one_token(bench.target);
    let source: Arc<dyn RequestSource> = Arc::new(bench.prompts.single(bench.target, Tag::Warmup(1), context, &shape));
    let scout = once(bench, &source, 1, LoadLimits::default(), stop).await;
    let came = failed(bench, "the prefill warm-up", scout.error.as_deref());
    if came && named {
        line(format!("prefill warmup done ctx={label}"));
    }
    came
}

fn failed(bench: &Bench<'_>, what: &str, error: Option<&str>) -> bool {
    if let Some(error) = error {
        bench.events.emit(Event::LateWarning(format!("{what} failed ({error}): the first measurements may be slow")));
    }
    error.is_none()
}
