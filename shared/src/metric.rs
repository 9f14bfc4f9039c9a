//! The one table of metrics: the terminal, the page, the exports and METRICS.md all draw on it.
//! What a number is, where a cell has it, and why it may be missing; whether to believe it says `verdict`.

use crate::field::{Field, Num};
use crate::report::cell::Cell;
use crate::report::own::{Distribution, Distributions};

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither: it describes the run.
    Neither,
}

/// What a negative rate in a report of the predecessor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sentinel {
    /// −1: left out, it would not have fitted the KV budget.
    KvBudget,
    /// −2: skipped by the user.
    Skipped,
    /// −3: the text repeated itself.
    Repetition,
    /// −4: a stream failed.
    StreamFailed,
    /// Another negative number.
    Unknown,
}

/// What a cell says of a metric. The four ways of saying nothing stay apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// A number.
    Value(f64),
    /// The file has no such key: its version didn't record it.
    Absent,
    /// Recorded as not measured, or as a value of another kind.
    Null,
    /// A zero by which the predecessor says "no value".
    Zero,
    /// A negative number by which the predecessor says why there is none.
    Sentinel(Sentinel),
}

impl Reading {
    /// The number, where there is one.
    pub fn value(self) -> Option<f64> {
        if let Reading::Value(value) = self { Some(value) } else { None }
    }

    /// Why there is no number, in words; `None` where there is one.
    pub fn absence(self) -> Option<&'static str> {
        Some(match self {
            Reading::Value(_) => return None,
            Reading::Absent => "not recorded by the version that wrote the file",
            Reading::Null => "not measured",
            Reading::Zero => "written as 0, which means: no value",
            Reading::Sentinel(Sentinel::KvBudget) => "left out: it would not have fitted the KV budget",
            Reading::Sentinel(Sentinel::Skipped) => "skipped by the user",
            Reading::Sentinel(Sentinel::Repetition) => "invalid: the text repeated itself",
            Reading::Sentinel(Sentinel::StreamFailed) => "invalid: a stream failed",
            Reading::Sentinel(Sentinel::Unknown) => "a negative number of unknown meaning",
        })
    }
}

/// One metric.
#[derive(Clone, Copy)]
pub struct Metric {
    /// Stable name, kebab-case.
    pub id: &'static str,
    /// Name for people.
    pub label: &'static str,
    /// Unit as shown; empty where there is none.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// Decimals shown.
    pub decimals: usize,
    /// Where the file has it.
    pub source: &'static str,
    /// What it is, in a sentence.
    pub definition: &'static str,
    read: fn(&Cell) -> Reading,
}

impl std::fmt::Debug for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id)
    }
}

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Metric {
    /// What the cell says of it.
    pub fn read(&self, cell: &Cell) -> Reading {
        (self.read)(cell)
    }

    /// A number as it is shown, without its unit: fixed decimals, thin spaces between thousands.
    pub fn format(&self, value: f64) -> String {
        format_number(value, self.decimals)
    }

    /// Label and unit, as a column's head.
    pub fn head(&self) -> String {
        if self.unit.is_empty() { self.label.to_owned() } else { format!("{}, {}", self.label, self.unit) }
    }
}

/// The metric of that name.
pub fn by_id(id: &str) -> Option<&'static Metric> {
    ALL.iter().find(|metric| metric.id == id)
}

/// Fixed decimals, thin spaces between thousands.
pub fn format_number(value: f64, decimals: usize) -> String {
    let text = format!("{:.*}", decimals, value.abs());
    let (whole, rest) = text.find('.').map_or((text.as_str(), ""), |dot| text.split_at(dot));
    let mut out = String::with_capacity(text.len() + 6);
    if value < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        out.push('−');
    }
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push('\u{2009}');
        }
        out.push(digit);
    }
    out + rest
}

/// The headline rate, with the predecessor's sentinels told apart.
pub fn rate(cell: &Cell) -> Reading {
    match plain(&cell.aggregate_tps) {
        Reading::Value(0.0) => Reading::Zero,
        Reading::Value(value) if value < 0.0 => Reading::Sentinel(match value {
            -1.0 => Sentinel::KvBudget,
            -2.0 => Sentinel::Skipped,
            -3.0 => Sentinel::Repetition,
            -4.0 => Sentinel::StreamFailed,
            _ => Sentinel::Unknown,
        }),
        other => other,
    }
}

fn plain(field: &Field<Num>) -> Reading {
    match field {
        Field::Absent => Reading::Absent,
        Field::Null | Field::Odd(_) => Reading::Null,
        Field::Is(number) => Reading::Value(number.f64()),
    }
}

/// A number for which 0 is no measurement.
fn positive(field: &Field<Num>) -> Reading {
    match plain(field) {
        Reading::Value(value) if value <= 0.0 => Reading::Zero,
        other => other,
    }
}

fn scaled(reading: Reading, by: f64) -> Reading {
    if let Reading::Value(value) = reading { Reading::Value(value * by) } else { reading }
}

fn ms(field: &Field<Num>) -> Reading {
    scaled(positive(field), 1e3)
}

/// A percentile of what fell into the window, where it was recorded and its sample is large enough; else the old key.
fn window_ms(
    cell: &Cell,
    of: fn(&Distributions) -> &Field<Distribution>,
    p: fn(&Distribution) -> &Field<Num>,
    old: &Field<Num>,
) -> Reading {
    let own = cell.tokscope.get().and_then(|own| own.distributions.get());
    match own.and_then(|own| p(of(own).get()?).f64()) {
        Some(seconds) => Reading::Value(seconds * 1e3),
        None if own.is_some() && old.is_absent() => Reading::Null,
        None => ms(old),
    }
}

fn hardware(cell: &Cell, key: fn(&crate::report::hardware::Hardware) -> &Field<Num>) -> Reading {
    match &cell.hardware_summary {
        Field::Is(hardware) => plain(key(hardware)),
        Field::Absent => Reading::Absent,
        Field::Null | Field::Odd(_) => Reading::Null,
    }
}

fn power(cell: &Cell) -> Reading {
    match hardware(cell, |h| &h.power_total_avg_w) {
        Reading::Value(value) if value <= 0.0 => Reading::Zero,
        other => other,
    }
}

/// One reading by another; what is missing first is what is missing.
fn ratio(a: Reading, b: Reading) -> Reading {
    match (a, b) {
        (Reading::Value(a), Reading::Value(b)) if b != 0.0 => Reading::Value(a / b),
        (Reading::Value(_), Reading::Value(_)) => Reading::Zero,
        (Reading::Value(_), missing) => missing,
        (missing, _) => missing,
    }
}

use Better::{Higher, Lower, Neither};

macro_rules! metrics {
    ($( $id:literal, $label:literal, $unit:literal, $better:ident, $decimals:literal, $source:literal, $definition:literal, $read:expr; )+) => {
        &[ $( Metric {
            id: $id, label: $label, unit: $unit, better: $better, decimals: $decimals,
            source: $source, definition: $definition, read: $read,
        }, )+ ]
    };
}

/// All metrics of a cell, in the order in which they are offered.
pub const ALL: &[Metric] = metrics![
    "aggregate-tps", "Aggregate", "tok/s", Higher, 1, "aggregate_tps",
        "Tokens of all streams inside the window, by the window's length.", rate;
    "per-stream-tps", "Per stream", "tok/s", Higher, 1, "per_request_avg_tps",
        "The aggregate rate by the concurrency asked for.", |c| match rate(c) { Reading::Value(_) => positive(&c.per_request_avg_tps), missing => missing };
    "user-tps-p50", "Per user, p50", "tok/s", Higher, 1, "output_tps_per_user_p50",
        "Tokens a second after a request's first token (1 / time per output token); median over requests.", |c| positive(&c.output_tps_per_user_p50);
    "ttft-p50", "TTFT, p50", "ms", Lower, 1, "tokscope.distributions.ttft_s, ttft_p50",
        "Time to first token: from sending a request to its first text, reasoning or tool call; median over requests whose first token fell into the window, over all where the file has only that.", |c| window_ms(c, |d| &d.ttft_s, |d| &d.p50, &c.ttft_p50);
    "ttft-p90", "TTFT, p90", "ms", Lower, 1, "tokscope.distributions.ttft_s, ttft_p90",
        "Time to first token, 90th percentile over the same requests.", |c| window_ms(c, |d| &d.ttft_s, |d| &d.p90, &c.ttft_p90);
    "ttft-p99", "TTFT, p99", "ms", Lower, 1, "tokscope.distributions.ttft_s, ttft_p99",
        "Time to first token, 99th percentile over the same requests.", |c| window_ms(c, |d| &d.ttft_s, |d| &d.p99, &c.ttft_p99);
    "tpot-p50", "TPOT, p50", "ms", Lower, 2, "inter_token_latency_p50",
        "Time per output token: a request's time from first to last token by its tokens after the first; median over requests.", |c| ms(&c.inter_token_latency_p50);
    "tpot-p99", "TPOT, p99", "ms", Lower, 2, "inter_token_latency_p99",
        "Time per output token, 99th percentile of the requests' means: a stall inside a request is averaged away.", |c| ms(&c.inter_token_latency_p99);
    "itl-p50", "ITL, p50", "ms", Lower, 2, "tokscope.distributions.itl_s",
        "Time by token: a gap between chunks, shared by the tokens of the later one; median over the window's tokens.", |c| window_ms(c, |d| &d.itl_s, |d| &d.p50, &Field::Absent);
    "itl-p99", "ITL, p99", "ms", Lower, 2, "tokscope.distributions.itl_s",
        "Time by token, 99th percentile over the window's tokens: a stall inside a request is in it.", |c| window_ms(c, |d| &d.itl_s, |d| &d.p99, &Field::Absent);
    "chunk-gap-p50", "Chunk gap, p50", "ms", Lower, 2, "tokscope.distributions.chunk_gap_s, chunk_inter_token_latency_p50",
        "Time between chunks with text; median over the window's gaps, over the requests' means where the file has only those. With speculative decoding a chunk holds several tokens.", |c| window_ms(c, |d| &d.chunk_gap_s, |d| &d.p50, &c.chunk_inter_token_latency_p50);
    "chunk-gap-p99", "Chunk gap, p99", "ms", Lower, 2, "tokscope.distributions.chunk_gap_s, chunk_inter_token_latency_p99",
        "Time between chunks with text, 99th percentile of the same.", |c| window_ms(c, |d| &d.chunk_gap_s, |d| &d.p99, &c.chunk_inter_token_latency_p99);
    "ttst-p50", "TTST, p50", "ms", Lower, 2, "time_to_second_token_p50",
        "Time from the first to the second chunk with text; median over requests.", |c| ms(&c.time_to_second_token_p50);
    "latency-p50", "Request latency, p50", "ms", Lower, 0, "tokscope.distributions.request_latency_s, request_latency_p50",
        "Time from sending to the last token; median over requests that finished inside the window, over all that finished where the file has only those.", |c| window_ms(c, |d| &d.request_latency_s, |d| &d.p50, &c.request_latency_p50);
    "e2e-tps-p50", "End to end per user, p50", "tok/s", Higher, 1, "e2e_output_tps_per_user_p50",
        "Tokens by the whole time of a finished request; median.", |c| positive(&c.e2e_output_tps_per_user_p50);
    "steps-per-s", "Steps", "1/s", Higher, 1, "server_steps_per_s",
        "Forward passes a second of all sequences: the aggregate rate by the effective acceptance length. Compares only at equal concurrency.", |c| positive(&c.server_steps_per_s);
    "accept-length", "Acceptance length", "tok", Higher, 2, "server_spec_accept_length",
        "Tokens a drafted step: 1 + accepted tokens by drafts, from the server's counters over the window. A server that has only a gauge of its last steps (SGLang) is read at each scrape, and the mean of that is off in a short window.", |c| positive(&c.server_spec_accept_length);
    "accept-length-effective", "Effective acceptance length", "tok", Higher, 2, "server_accept_len_effective",
        "Tokens a step, with steps that drafted nothing.", |c| positive(&c.server_accept_len_effective);
    "accept-rate", "Acceptance rate", "%", Higher, 1, "server_spec_accept_rate",
        "Accepted by drafted tokens over the window.", |c| scaled(positive(&c.server_spec_accept_rate), 100.0);
    "server-tps", "Server's own rate", "tok/s", Higher, 1, "server_gen_throughput",
        "Tokens a second by the server's counters, with any other client's.", |c| positive(&c.server_gen_throughput);
    "running", "Running", "req", Neither, 1, "avg_running_reqs",
        "Mean of the requests the server ran at once.", |c| plain(&c.avg_running_reqs);
    "waiting", "Waiting", "req", Lower, 1, "avg_queue_reqs",
        "Mean of the requests that waited at the server.", |c| plain(&c.avg_queue_reqs);
    "kv-usage", "KV cache in use", "%", Neither, 1, "server_utilization",
        "Share of the KV cache in use: mean inside the window; in reports of the predecessor the last value after the streams were cut.", |c| scaled(plain(&c.server_utilization), 100.0);
    "input-tokens", "Prompt", "tok", Neither, 0, "input_seq_len_avg",
        "Prompt tokens as the server counted them; mean over requests.", |c| positive(&c.input_seq_len_avg);
    "output-tokens", "Generated a request", "tok", Neither, 0, "output_seq_len_avg",
        "Tokens generated a request, also before the window; mean.", |c| positive(&c.output_seq_len_avg);
    "window-tokens", "Tokens in the window", "tok", Neither, 0, "client_output_tokens",
        "Tokens that the client counted inside the window.", |c| match &c.client_output_tokens {
            Field::Absent => Reading::Absent,
            Field::Is(n) if n.i64() > 0 => Reading::Value(n.i64() as f64),
            Field::Is(_) => Reading::Zero,
            Field::Null | Field::Odd(_) => Reading::Null,
        };
    "power", "Power", "W", Lower, 0, "hardware_summary.power_total_avg_w",
        "Mean power of all GPUs.", power;
    "tps-per-watt", "Efficiency", "tok/s/W", Higher, 3, "aggregate_tps / power_total_avg_w",
        "Aggregate rate by the mean power of all GPUs.", |c| ratio(rate(c), power(c));
    "joules-per-token", "Energy", "J/tok", Lower, 2, "power_total_avg_w / aggregate_tps",
        "Mean power of all GPUs by the aggregate rate.", |c| ratio(power(c), rate(c));
    "gpu-util", "GPU use", "%", Neither, 0, "hardware_summary.gpu_util_avg_pct",
        "Mean use of the GPUs.", |c| hardware(c, |h| &h.gpu_util_avg_pct);
    "gpu-temp-max", "GPU temperature, max", "°C", Lower, 0, "hardware_summary.temp_max_c",
        "Highest GPU temperature.", |c| hardware(c, |h| &h.temp_max_c);
    "vram", "GPU memory", "GiB", Neither, 1, "hardware_summary.vram_used_max_mb",
        "Most memory used on all GPUs.", |c| scaled(hardware(c, |h| &h.vram_used_max_mb), 1.0 / 1024.0);
    "warmup", "Warm-up", "s", Neither, 1, "warmup_duration",
        "From the cell's start to the window, with the request sent ahead.", |c| positive(&c.warmup_duration);
];

/// METRICS.md: the table in words, then the verdicts.
pub fn document() -> String {
    let mut out = String::from(
        "# Metrics\n\nGenerated from `shared/src/metric.rs` and `shared/src/verdict.rs`; a test compares it.\n\n\
         | id | name | unit | better | from | definition |\n|---|---|---|---|---|---|\n",
    );
    for m in ALL {
        let better = match m.better {
            Better::Higher => "higher",
            Better::Lower => "lower",
            Better::Neither => "–",
        };
        out += &format!("| `{}` | {} | {} | {better} | `{}` | {} |\n", m.id, m.label, m.unit, m.source, m.definition);
    }
    out += "\n## Verdicts\n\nA cell has exactly one verdict; the worst of its reasons decides. \
            A reason that is `valid` is a hint: shown, but not counted. A rule whose keys a file doesn't have doesn't fire.\n\n\
            | reason | verdict | meaning |\n|---|---|---|\n";
    for rule in crate::verdict::REASONS {
        out += &format!("| `{}` | {} | {} |\n", rule.code, rule.verdict, rule.meaning);
    }
    out
}
