//! What a cell says of itself beside its numbers: how large the sample is, the window, the requests.

use tokscope_shared::field::{Field, Int, Num};
use tokscope_shared::matrix::shown;
use tokscope_shared::metric::{self, Metric, Reading, format_number};
use tokscope_shared::render::Table;
use tokscope_shared::report::cell::Cell;
use tokscope_shared::report::identity::context_label;
use tokscope_shared::report::own::Distribution;
use tokscope_shared::verdict::{Judgement, Verdict};

const NONE: &str = "—";

/// How much stands behind the numbers: requests, tokens, seconds; each part only where the file has it.
pub fn sample(cell: &Cell) -> String {
    let count = |n: i64, one: &str, many: &str| format!("{} {}", format_number(n as f64, 0), if n == 1 { one } else { many });
    let mut parts = Vec::new();
    if let Some(n) = cell.request_count.i64().filter(|n| *n > 0) {
        let finished = cell.completed_request_count.i64().map_or_else(String::new, |done| format!(", {done} finished"));
        parts.push(count(n, "request", "requests") + &finished);
    }
    if let Some(n) = cell.client_output_tokens.i64().filter(|n| *n > 0) {
        parts.push(count(n, "token", "tokens"));
    }
    if let Some(seconds) = cell.measurement_seconds.f64().filter(|seconds| *seconds > 0.0) {
        parts.push(format!("window {} s", format_number(seconds, 1)));
    }
    if parts.is_empty() { "sample size not recorded".to_owned() } else { parts.join(" · ") }
}

/// The raw value as the metric reads it, or why there is none.
pub fn raw(metric: &Metric, cell: &Cell) -> String {
    match metric.read(cell) {
        Reading::Value(value) if metric.unit.is_empty() => format!("{value}"),
        Reading::Value(value) => format!("{value} {}", metric.unit),
        other => other.absence().unwrap_or_default().to_owned(),
    }
}

/// Cells with their main numbers, for the list of all cells. Reasons are not in it.
pub fn columns() -> Vec<&'static Metric> {
    ["aggregate-tps", "per-stream-tps", "ttft-p50", "tpot-p50", "steps-per-s"].into_iter().filter_map(metric::by_id).collect()
}

/// A cell's line in the list of all cells.
pub fn line(cell: &Cell, verdict: Verdict) -> Vec<String> {
    let context = cell.context_tokens.i64().map_or_else(|| NONE.to_owned(), context_label);
    let concurrency = cell.concurrency.i64().map_or_else(|| NONE.to_owned(), |level| level.to_string());
    [context, concurrency].into_iter().chain(columns().into_iter().map(|metric| shown(metric, cell, verdict))).collect()
}

/// All reasons in one line; empty where there are none.
pub fn reasons(judgement: &Judgement) -> String {
    judgement.reasons.iter().map(|reason| reason.text.as_str()).collect::<Vec<_>>().join("; ")
}

fn number(field: &Field<Num>, scale: f64, decimals: usize) -> String {
    // 0 is how the predecessor writes that something was not measured.
    field.f64().filter(|value| *value > 0.0).map_or_else(|| NONE.to_owned(), |value| format_number(value * scale, decimals))
}

fn whole(field: &Field<Int>) -> String {
    field.i64().map_or_else(|| NONE.to_owned(), |n| format_number(n as f64, 0))
}

/// The first requests of a cell, and how many more there are; `None` where the file has none.
pub fn requests(cell: &Cell, most: usize) -> Option<(Table, usize)> {
    let rows: Vec<Vec<String>> = cell
        .request_samples
        .items()
        .take(most)
        .enumerate()
        .map(|(i, request)| {
            vec![
                (i + 1).to_string(),
                whole(&request.input_tokens),
                whole(&request.output_tokens),
                number(&request.ttft, 1e3, 1),
                number(&request.inter_token_latency_avg, 1e3, 2),
                number(&request.output_tps_per_user, 1.0, 1),
                number(&request.latency, 1.0, 2),
                request.completed.get().map_or(NONE, |done| if *done { "yes" } else { "cut" }).to_owned(),
            ]
        })
        .collect();
    let more = cell.request_samples.items().count().saturating_sub(most);
    let head = ["#", "prompt tok", "tok", "TTFT ms", "TPOT ms", "tok/s", "latency s", "finished"].map(str::to_owned).to_vec();
    (!rows.is_empty()).then_some((Table { head, rows }, more))
}

/// The distributions of what fell into the window, in ms; `None` where the file has none.
pub fn distributions(cell: &Cell) -> Option<Table> {
    let all = cell.tokscope.get()?.distributions.get()?;
    let line = |name: &str, field: &Field<Distribution>| {
        let found = field.get()?;
        let value = |field: &Field<Num>| field.f64().map_or_else(|| NONE.to_owned(), |value| format_number(value * 1e3, 2));
        let n = found.n.i64().filter(|n| *n > 0)?;
        let values = [&found.p50, &found.p90, &found.p95, &found.p99, &found.max].map(value);
        Some([name.to_owned(), n.to_string()].into_iter().chain(values).collect::<Vec<_>>())
    };
    let rows: Vec<Vec<String>> = [
        line("time to first token", &all.ttft_s),
        line("gap between chunks", &all.chunk_gap_s),
        line("gap by token", &all.itl_s),
        line("request latency", &all.request_latency_s),
    ]
    .into_iter()
    .flatten()
    .collect();
    let head = ["ms", "n", "p50", "p90", "p95", "p99", "max"].map(str::to_owned).to_vec();
    (!rows.is_empty()).then_some(Table { head, rows })
}

/// How the cell was made: the window, the source of its tokens, how readiness was seen.
pub fn circumstances(cell: &Cell) -> Vec<(&'static str, String)> {
    let text = |field: &Field<String>| field.str().filter(|text| !text.is_empty()).map(str::to_owned);
    let seconds = |field: &Field<Num>| field.f64().filter(|value| *value > 0.0).map(|value| format!("{} s", format_number(value, 3)));
    let own = cell.tokscope.get();
    let window = own.and_then(|own| own.window.get()).and_then(|window| {
        Some(format!("{} µs to {} µs on the run's clock", whole(&Field::Is(window.start_us.get()?.clone())), whole(&window.end_us)))
    });
    let prompt = own.and_then(|own| own.prompt.get()).and_then(|prompt| {
        // The user's own have no length but those that the server counted.
        let seen = prompt.tokens_min.f64().zip(prompt.tokens_max.f64()).filter(|_| prompt.tokens.get().is_none());
        let tokens = seen.map_or_else(|| whole(&prompt.tokens), |(min, max)| format!("{min:.0} to {max:.0}"));
        Some(format!("{} prompts, {tokens} tok by {}", prompt.mode.str()?, prompt.counted_by.str().unwrap_or(NONE)))
    });
    [
        ("window", seconds(&cell.measurement_wall_seconds).or_else(|| seconds(&cell.measurement_seconds))),
        ("on the clock", window),
        ("tokens by", text(&cell.aggregate_source)),
        ("prompts", prompt),
        ("mode", text(&cell.benchmark_mode)),
        ("ready", text(&cell.ready_reason)),
        ("not ready", text(&cell.timeout_reason)),
        ("whole cell", seconds(&cell.wall_time)),
    ]
    .into_iter()
    .filter_map(|(label, value)| Some((label, value?)))
    .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokscope_shared::import;
    use tokscope_shared::report::Report;

    fn sample_report() -> Report {
        import::open(crate::data::sample()).unwrap().report
    }

    #[test]
    fn the_sample_size_is_said_in_requests_tokens_and_seconds() {
        let report = sample_report();
        let last = report.cells().last().unwrap();
        assert_eq!(sample(last), "1 request, 0 finished · 1\u{2009}514 tokens · window 10.0 s");
        assert_eq!(sample(&Cell::default()), "sample size not recorded");
    }

    #[test]
    fn raw_is_unrounded_and_absence_is_words() {
        let report = sample_report();
        let last = report.cells().last().unwrap();
        assert_eq!(raw(metric::by_id("aggregate-tps").unwrap(), last), "151.51185116953508 tok/s");
        assert_eq!(raw(metric::by_id("latency-p50").unwrap(), last), "written as 0, which means: no value");
    }

    #[test]
    fn what_a_request_did_not_measure_is_a_dash() {
        let report = sample_report();
        let (table, more) = requests(report.cells().next().unwrap(), 20).unwrap();
        assert_eq!(more, 0);
        assert_eq!(table.rows[0][2..4], ["2\u{2009}266".to_owned(), "123.9".to_owned()]);
        assert_eq!(table.rows[0][6..], ["—".to_owned(), "cut".to_owned()]);
        assert!(requests(&Cell::default(), 20).is_none());
    }

    #[test]
    fn a_report_of_the_predecessor_has_no_distributions() {
        assert!(sample_report().cells().all(|cell| distributions(cell).is_none()));
    }
}
