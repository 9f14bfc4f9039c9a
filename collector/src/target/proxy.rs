//! Any other server that speaks the API: a proxy, or an engine we don't know. Nothing is assumed
//! of it.

use super::Engine;
use super::detect::{Answers, Found};

pub(super) fn fallback(answers: &Answers) -> Found {
    let source = if answers.version.is_some() { "/v1/models; it has /version, but no sign of vLLM" } else { "/v1/models only" };
    Found::new(Engine::OpenaiProxy, source)
}
