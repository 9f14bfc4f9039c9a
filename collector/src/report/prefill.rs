//! Prefill in the report: the predecessor's rows, and what they don't say.

use crate::prefill::{Method, PrefillRow, PrefixCache, ServerValidation};
use tokscope_shared::field::{Field, List, Table};
use tokscope_shared::report::hardware::Hardware;
use tokscope_shared::report::own;
use tokscope_shared::report::prefill as old;

/// The rows, by rising context. One that was skipped is not among them.
pub(super) fn rows(rows: &[PrefillRow]) -> Table<old::PrefillRow> {
    sorted(rows).into_iter().map(|measured| (measured.context_tokens.to_string(), row(measured))).collect()
}

fn sorted(rows: &[PrefillRow]) -> Vec<&PrefillRow> {
    let mut sorted: Vec<&PrefillRow> = rows.iter().filter(|row| !row.skipped).collect();
    sorted.sort_by_key(|row| row.context_tokens);
    sorted
}

fn row(measured: &PrefillRow) -> old::PrefillRow {
    let milli = |seconds: Option<f64>| Field::opt(seconds.map(|s| (s * 1e3).round() / 1e3));
    let rate = Field::opt(measured.tok_per_sec.map(f64::round));
    let tokens = measured.prompt_tokens.unwrap_or_else(|| measured.context_tokens.into());
    let client = match (measured.method, measured.ttft_s) {
        // The predecessor copies the headline here; where that is the server's, the client's own rate is worth more.
        (Method::Prometheus, Some(seconds)) => {
            let computed = tokens.saturating_sub(measured.cached_tokens.unwrap_or(0));
            Field::num((computed as f64 / seconds).round())
        }
        _ => rate.clone(),
    };
    old::PrefillRow {
        ttft_seconds: milli(measured.ttft_s),
        prefill_seconds: milli(measured.prefill_s),
        tok_per_sec: rate,
        client_ttft_seconds: milli(measured.ttft_s),
        client_tok_per_sec: client,
        prompt_tokens: Field::count(tokens),
        samples: Field::int(measured.samples),
        method: Field::text(measured.method.as_str()),
        server_validation: Field::Is(validation(measured)),
        hardware_summary: Field::Is(Hardware::default()),
        ..old::PrefillRow::default()
    }
}

fn validation(measured: &PrefillRow) -> old::ServerValidation {
    let own = ServerValidation::default();
    let server = measured.server.as_ref().unwrap_or(&own);
    let whole = |tokens: Option<u64>| Field::or_null(tokens.map(Into::into));
    let integrated = matches!(measured.method, Method::IntegratedScout | Method::ScoutOnly);
    let method = match (server.is_valid(), integrated) {
        (false, _) => String::new(),
        (true, true) => server.method(),
        (true, false) => "prometheus".to_owned(),
    };
    old::ServerValidation {
        method: Field::text(method),
        tok_per_sec: Field::opt(server.tok_per_sec.map(f64::round)),
        prefill_seconds: Field::opt(server.prefill_seconds.map(|s| (s * 1e3).round() / 1e3)),
        prompt_tokens: whole(server.prompt_tokens),
        request_prompt_tokens: whole(server.request_prompt_tokens),
        cached_tokens: whole(server.cached_tokens),
        token_source: Field::text(&server.token_source),
        samples: Field::int(server.samples),
        invalid_reason: Field::text(&server.invalid_reason),
        ..old::ServerValidation::default()
    }
}

/// What the rows don't say.
pub(super) fn own(rows: &[PrefillRow]) -> List<own::PrefillOwn> {
    sorted(rows)
        .into_iter()
        .map(|row| own::PrefillOwn {
            context_tokens: Field::int(row.context_tokens),
            cold: Field::Is(row.cold),
            cached_tokens: Field::or_null(row.cached_tokens.map(Into::into)),
            reason: Field::or_null(row.reason.clone()),
            ..own::PrefillOwn::default()
        })
        .collect()
}

/// Whether the server keeps the beginnings of prompts.
pub(super) fn prefix_cache(found: Option<&PrefixCache>) -> Field<own::PrefixCache> {
    Field::or_null(found.map(|found| own::PrefixCache {
        finding: Field::text(found.finding.as_str()),
        evidence: Field::text(&found.evidence),
        shared_tokens: Field::or_null(found.shared_tokens.map(Into::into)),
        ..own::PrefixCache::default()
    }))
}
