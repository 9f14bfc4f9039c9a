//! What a report has once: its sections, settings, prefill rows, tables, event log and methods.

use super::fields::{Asked, Engine, Kind, Rule, Want, rule, wrong};
use super::truth::Truth;
use Kind::{Flag, Int, List, Num, Object, Text};
use Want::{Is, Near, Null, There, Within};
use serde_json::{Value, json};

/// Top-level keys, in order; what only Tokscope writes stands before them.
const SECTIONS: [&str; 14] = [
    "metadata",
    "startup_diagnostics",
    "nvidia_p2p_override",
    "p2pmark",
    "amd_fabric",
    "hardware_run_summary",
    "event_log",
    "prefill",
    "results",
    "summary_table",
    "burst_results",
    "burst_summary_table",
    "methodology",
    "tokscope",
];

/// A report and what it was asked for.
pub struct Whole<'a> {
    pub report: &'a Value,
    pub truth: &'a Truth,
    pub asked: &'a Asked,
    pub engine: &'static Engine,
    pub port: u16,
}

/// A cell that was measured, and as which.
#[derive(Clone, Copy)]
pub struct Measured<'a> {
    pub layer: &'a str,
    pub repeat: u64,
    pub cell: &'a Value,
}

/// All that was measured, in order; each cell of a matrix that was measured once stands in the results alone.
pub fn measured<'a>(report: &'a Value, asked: &Asked) -> Vec<Measured<'a>> {
    let cells = |key: &str| report[key].as_array().unwrap().iter();
    if asked.repeats > 1 {
        let repeats = report["tokscope"]["repeats"].as_array().unwrap().iter();
        let one = |repeat: &'a Value| Measured {
            layer: repeat["layer"].as_str().unwrap(),
            repeat: repeat["repeat"].as_u64().unwrap(),
            cell: &repeat["cell"],
        };
        return repeats.map(one).collect();
    }
    let once = |layer: &'static str| move |cell: &'a Value| Measured { layer, repeat: 1, cell };
    cells("results").map(once("sustained_decode")).chain(cells("burst_results").map(once("burst_e2e_decode"))).collect()
}

impl Whole<'_> {
    /// All that is wrong with it but for its cells.
    pub fn wrong(&self) -> Vec<String> {
        let report = self.report;
        let mut wrong_now = Vec::new();
        let keys: Vec<&String> = report.as_object().unwrap().keys().filter(|key| *key != "tokscope").collect();
        if keys != SECTIONS[..13] || report["tokscope"]["schema"].as_u64().is_none() {
            wrong_now.push(format!("sections: {keys:?}"));
        }
        let mut add = |section: &str, found: Vec<String>| wrong_now.extend(found.into_iter().map(|text| format!("{section}: {text}")));
        add("metadata", wrong(&report["metadata"], &metadata(), self));
        add("metadata.loop_detection", wrong(&report["metadata"]["loop_detection"], &loop_detection(), self));
        add("startup_diagnostics", wrong(&report["startup_diagnostics"], &startup(), self));
        add("startup_diagnostics.args", wrong(&report["startup_diagnostics"]["args"], &startup_args(), self));
        add("prefill", self.prefill());
        add("event_log", self.event_log());
        add("methodology", self.methodology());
        add("results", self.chosen("results", "summary_table", "sustained_decode"));
        add("burst_results", self.chosen("burst_results", "burst_summary_table", "burst_e2e_decode"));
        wrong_now
    }

    fn warms_up(&self) -> bool {
        self.asked.warmup_seconds > 0.0
    }

    fn levels(&self) -> String {
        self.asked.concurrency.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    fn measured(&self) -> Vec<Measured<'_>> {
        measured(self.report, self.asked)
    }

    /// Each place once, in the order of the first repeat; of its repeats the one in the middle, of two the slower. The
    /// table has their rates.
    fn chosen(&self, results: &str, table: &str, layer: &str) -> Vec<String> {
        let place = |cell: &Value| (cell["context_tokens"].as_u64(), cell["concurrency"].as_u64());
        let rate = |cell: &&Value| cell["aggregate_tps"].as_f64().unwrap_or(f64::NEG_INFINITY);
        let of_layer: Vec<Measured<'_>> = self.measured().into_iter().filter(|measured| measured.layer == layer).collect();
        let first: Vec<&Value> = of_layer.iter().filter(|measured| measured.repeat == 1).map(|measured| measured.cell).collect();
        let written: Vec<&Value> = self.report[results].as_array().unwrap().iter().collect();
        let mut wrong = Vec::new();
        if first.iter().map(|cell| place(cell)).ne(written.iter().map(|cell| place(cell))) {
            wrong.push("other cells, or in another order, than the first repeat's".to_owned());
        }
        let places = self.asked.contexts.len() * self.asked.concurrency.len();
        if written.len() != places || of_layer.len() as u64 != places as u64 * self.asked.repeats {
            wrong.push(format!("{} cells, {} repeats of them", written.len(), of_layer.len()));
        }
        for cell in &written {
            let mut of_place: Vec<&Value> = of_layer.iter().map(|measured| measured.cell).filter(|of| place(of) == place(cell)).collect();
            of_place.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
            if of_place.get((of_place.len() - 1) / 2) != Some(cell) {
                wrong.push(format!("{:?} is not the repeat in the middle", place(cell)));
            }
            let told = &self.report[table][cell["context_tokens"].to_string()][cell["concurrency"].to_string()];
            if *told != cell["aggregate_tps"] {
                wrong.push(format!("{table} says {told} of {:?}", place(cell)));
            }
        }
        let told: usize = self.report[table].as_object().unwrap().values().map(|levels| levels.as_object().unwrap().len()).sum();
        if told != places {
            wrong.push(format!("{table} has {told} rates"));
        }
        wrong
    }

    /// The contexts of prefill, in order: those of the matrix but 0, and those asked for besides.
    fn prefill_contexts(&self) -> Vec<u64> {
        let mut contexts: Vec<u64> = self.asked.contexts.iter().chain(&self.asked.prefill_contexts).copied().filter(|n| *n > 0).collect();
        contexts.sort_unstable();
        contexts.dedup();
        contexts
    }

    fn prefill(&self) -> Vec<String> {
        let (rows, contexts) = (self.report["prefill"].as_object().unwrap(), self.prefill_contexts());
        let mut found = Vec::new();
        if rows.keys().map(|key| key.parse::<u64>().unwrap()).ne(contexts.iter().copied()) {
            found.push(format!("rows {:?}", rows.keys().collect::<Vec<_>>()));
        }
        for (context, row) in contexts.iter().zip(rows.values()) {
            let tokens = row["prompt_tokens"].as_u64().unwrap_or(0);
            let Some(request) = self.truth.cold(tokens) else {
                found.push(format!("no request of {tokens} tokens was read anew for {context}"));
                continue;
            };
            let row_case = Row {
                row,
                whole: self,
                context: *context,
                ttft_s: request.ttft_s(),
                rate: request.prompt_tokens as f64 / request.ttft_s(),
                model_rate: request.prefill_rate(),
            };
            println!(
                "  prefill at {context}: {} tok/s, {:+.3} % of the truth's; by the server's counters {} ({:+.3} %)",
                row["tok_per_sec"],
                (row_case.number("tok_per_sec") / row_case.rate - 1.0) * 100.0,
                row["server_validation"]["tok_per_sec"],
                (row["server_validation"]["tok_per_sec"].as_f64().unwrap_or(f64::NAN) / row_case.model_rate - 1.0) * 100.0,
            );
            let named = |text: String| format!("{context}: {text}");
            found.extend(wrong(row, &row_rules(), &row_case).into_iter().map(named));
            found.extend(wrong(&row["server_validation"], &validation_rules(), &row_case).into_iter().map(named));
        }
        found
    }

    fn methodology(&self) -> Vec<String> {
        let methods = &self.report["methodology"];
        let drafts = self.engine.counts_drafts || self.engine.gauges_drafts;
        let mut wrong = Vec::new();
        for (key, present) in
            [("prefill", true), ("sustained_decode", true), ("burst_e2e_decode", true), ("acceptance_normalization", drafts)]
        {
            let method = &methods[key];
            let texts = ["name", "formula", "notes"].iter().all(|text| method[text].as_str().is_some_and(|text| !text.is_empty()));
            if method["present"] != present || !texts {
                wrong.push(format!("{key}: {method}"));
            }
        }
        if methods["prefill"]["mode"] != "integrated_decode_scout" || methods["burst_e2e_decode"]["status"] != "present" {
            wrong.push("mode of prefill or status of bursts".to_owned());
        }
        wrong
    }

    fn event_log(&self) -> Vec<String> {
        let lines: Vec<&str> = self.report["event_log"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
        let mut wrong: Vec<String> = lines.iter().filter(|line| !is_known(line)).map(|line| format!("unknown line: {line}")).collect();
        let events = self.report["tokscope"]["events"].as_array().unwrap();
        let texts = events.iter().map(|event| event["text"].as_str().unwrap());
        if lines.iter().map(|line| &line[9..]).ne(texts) {
            wrong.push("the events are others".to_owned());
        }
        let times: Vec<u64> = events.iter().map(|event| event["t_us"].as_u64().unwrap()).collect();
        if !times.is_sorted() {
            wrong.push("times that go back".to_owned());
        }
        let with = |text: &str| lines.iter().filter(|line| line[9..].starts_with(text)).count();
        let all = self.measured();
        let (cells, sustained) = (all.len(), all.iter().filter(|measured| measured.layer == "sustained_decode").count());
        let integrated = self.asked.contexts.iter().filter(|context| **context > 0).count();
        let alone = self.prefill_contexts().len() - integrated;
        for (text, n) in [
            ("benchmark start engine=", 1),
            ("startup startup preparation done", 1),
            ("cell start C=", cells),
            ("cell done C=", cells),
            ("ready C=", sustained),
            ("measure start C=", cells - sustained),
            ("integrated prefill start ctx=", integrated),
            ("integrated prefill done ctx=", integrated),
            ("prefill scout-only done ctx=", alone),
            ("ERROR", 0),
        ] {
            if with(text) != n {
                wrong.push(format!("{} lines begin with '{text}', not {n}", with(text)));
            }
        }
        let of_matrix: Vec<u64> = self.prefill_contexts().into_iter().filter(|context| self.asked.contexts.contains(context)).collect();
        let extras: Vec<u64> = self.prefill_contexts().into_iter().filter(|context| !self.asked.contexts.contains(context)).collect();
        let python = |contexts: &[u64]| contexts.iter().map(|context| format!("'{}'", label(*context))).collect::<Vec<_>>().join(", ");
        let besides = if extras.is_empty() { String::new() } else { format!("; scout-only extras [{}]", python(&extras)) };
        let text = format!("startup prefill tests: integrated from decode scout requests [{}]{besides}", python(&of_matrix));
        if with(&text) != 1 {
            wrong.push(format!("no line '{text}'"));
        }
        // In the order of execution each cell's line has its rate.
        let done = lines.iter().filter(|line| line[9..].starts_with("cell done C="));
        for (line, Measured { cell, .. }) in done.zip(all) {
            let (context, rate) = (cell["context_tokens"].as_u64().unwrap(), cell["aggregate_tps"].as_f64().unwrap_or(f64::NAN));
            let mut text = format!("cell done C={} ctx={} {rate:.1} tok/s", cell["concurrency"], label(context));
            if let Some((steps, length)) = cell["server_steps_per_s"].as_f64().zip(cell["server_accept_len_effective"].as_f64()) {
                text += &format!(" | norm {steps:.1} step/s len={length:.2}");
            }
            if line[9..] != text {
                wrong.push(format!("'{line}' is not '{text}'"));
            }
        }
        wrong
    }
}

/// A context in the predecessor's words.
fn label(context: u64) -> String {
    if context >= 1024 { format!("{}k", context / 1024) } else { context.to_string() }
}

fn labels(contexts: &[u64]) -> String {
    contexts.iter().map(|context| label(*context)).collect::<Vec<_>>().join(",")
}

/// The texts of the predecessor's log that a run without hardware and interruption may have, then our own. A star is
/// any text.
const TEXTS: [&str; 43] = [
    "benchmark start engine=*",
    "startup server=http://* model=*",
    "startup decode concurrency=* contexts=*",
    "startup KV cache budget manual: * tokens",
    "startup engine SGLang * models=['*']",
    "startup KV cache budget: * tokens",
    "startup engine vLLM * models=['*']",
    "startup engine OpenAI-compatible proxy models=['*']",
    "startup WARNING: *",
    "startup KV cache budget from vLLM metrics: * tokens*",
    "startup max running requests: *",
    "startup model context length: * tokens",
    "startup prefill tests: integrated from decode scout requests [*]*",
    "startup startup preparation done",
    "startup calibrating padding text run=* up_to=*",
    "startup token targeting: estimate from *",
    "startup token targeting: /tokenize exact",
    "startup calibrated: * chars/token (*)",
    "startup context *: * chars (~* tokens)",
    "startup context *: * chars (* prompt tokens via /tokenize)",
    "decode warmup start",
    "prefill warmup start ctx=*",
    "prefill warmup done ctx=*",
    "prefill scout-only start ctx=*",
    "prefill scout-only done ctx=* tok/s",
    "integrated prefill start ctx=*",
    "integrated prefill done ctx=* tok/s",
    "decode warmup start C=1 ctx=* *s",
    "decode warmup done C=1 ctx=*",
    "waiting for scheduler drain * C=* ctx=*: running=* queue=*",
    "scheduler drained * C=* ctx=*",
    "cell start C=* ctx=*",
    "ready C=* ctx=* running_reqs=*/*, queue_reqs=*, active_streams=*/*, stable=3.0s",
    "ready C=* ctx=* metrics_unavailable, active_streams=*/*, stable=3.0s",
    "measure start C=* ctx=* request-count=*",
    "cell done C=* ctx=* tok/s",
    "cell done C=* ctx=* tok/s | norm * step/s len=*",
    "WARNING: *",
    // Of an engine that the predecessor doesn't know.
    "startup engine llama.cpp * models=['*']",
    "startup metrics without *",
    "startup * is known *",
    "startup prefix cache: * (*)",
    "decode warmup done C=* after * waves",
];

fn is_known(line: &str) -> bool {
    let clock = line.get(..9).is_some_and(|clock| {
        let digits = clock.bytes().enumerate().filter(|(at, _)| ![2, 5, 8].contains(at)).all(|(_, byte)| byte.is_ascii_digit());
        digits && (&clock[2..3], &clock[5..6], &clock[8..]) == (":", ":", " ")
    });
    clock && TEXTS.iter().any(|text| matches(&line[9..], text))
}

/// Whether the text is this, with any text for each star.
fn matches(text: &str, with_stars: &str) -> bool {
    let (first, rest) = with_stars.split_once('*').map_or((with_stars, None), |(first, rest)| (first, Some(rest)));
    match (text.strip_prefix(first), rest) {
        (None, _) => false,
        (Some(left), None) => left.is_empty(),
        (Some(left), Some(rest)) => (0..=left.len()).any(|at| left.is_char_boundary(at) && matches(&left[at..], rest)),
    }
}

fn metadata<'a>() -> Vec<Rule<Whole<'a>>> {
    let text = |key: &str, value: &'static str| rule(key, Text, move |_: &Whole<'a>| Is(value.into()));
    let flag = |key: &str, value: bool| rule(key, Flag, move |_: &Whole<'a>| Is(value.into()));
    let int = |key: &str, of: fn(&Whole<'_>) -> u64| rule(key, Int, move |whole: &Whole<'a>| Is(of(whole).into()));
    let num = |key: &str, of: fn(&Asked) -> f64| rule(key, Num, move |whole: &Whole<'a>| Is(of(whole.asked).into()));
    vec![
        rule("version", Text, |_: &Whole<'a>| There),
        rule("engine", Text, |whole: &Whole<'a>| Is(whole.engine.name.into())),
        text("model", "simulated-8b"),
        rule("server", Text, |whole: &Whole<'a>| Is(format!("127.0.0.1:{}", whole.port).into())),
        rule("timestamp", Text, |whole: &Whole<'a>| {
            let text = whole.report["metadata"]["timestamp"].as_str().unwrap_or_default();
            let zoned = text.len() == "2026-01-01T00:00:00.000000+00:00".len() && text.get(10..11) == Some("T");
            if zoned { There } else { Is("a time with µs and a zone".into()) }
        }),
        text("decode_mode", "duration"),
        text("primary_decode_layer", "sustained_decode"),
        num("duration_per_test", |asked| asked.duration),
        int("request_count", |_| 0),
        int("warmup_request_count", |_| 0),
        flag("run_burst", true),
        text("prefill_mode", "integrated_decode_scout"),
        flag("standalone_prefill", false),
        flag("prefill_only", false),
        flag("skip_prefill", false),
        text("burst_e2e_status", "enabled"),
        int("burst_request_count", |_| 0),
        int("burst_warmup_request_count", |whole| whole.asked.burst_warmup),
        int("burst_requests_per_concurrency", |whole| whole.asked.burst_per_stream),
        num("decode_warmup_seconds", |asked| asked.warmup_seconds),
        // The largest that fits.
        int("decode_warmup_context", |whole| if whole.warms_up() { *whole.asked.contexts.iter().max().unwrap() } else { 0 }),
        rule("decode_warmup_loop_diagnostics", List, |_: &Whole<'a>| Is(json!([]))),
        rule("loop_detection", Object, |_: &Whole<'a>| There),
        int("decode_warmup_concurrency", |whole| whole.warms_up().into()),
        num("cell_warmup_timeout_seconds", |asked| asked.warmup_limit),
        rule("cell_warmup_timeout_policy", Text, |_: &Whole<'a>| There),
        flag("show_capacity_limited_values", false),
        int("max_tokens", |whole| whole.engine.max_tokens),
        num("temperature", |asked| asked.temperature),
        flag("ignore_eos", true),
        int("max_total_tokens", |whole| whole.engine.budget),
        int("dcp_size", |_| 0),
        rule("metrics_available", Flag, |whole: &Whole<'a>| Is(whole.engine.metrics.into())),
        rule("metrics_warning", Text, |whole: &Whole<'a>| {
            let empty = whole.report["metadata"]["metrics_warning"] == "";
            if empty == whole.engine.metrics { There } else { Is("a reason where there are no metrics, else nothing".into()) }
        }),
        rule("concurrency_levels", List, |whole: &Whole<'a>| Is(json!(whole.asked.concurrency))),
        rule("context_lengths", List, |whole: &Whole<'a>| Is(json!(whole.asked.contexts))),
        flag("startup_diagnostics_available", true),
        rule("nvidia_p2p_override_effective", Flag, |_: &Whole<'a>| Null),
        text("p2pmark_status", "not_run"),
        text("amd_fabric_status", "not_run"),
    ]
}

fn loop_detection<'a>() -> Vec<Rule<Whole<'a>>> {
    let int = |key: &str, n: u64| rule(key, Int, move |_: &Whole<'a>| Is(n.into()));
    vec![
        rule("enabled", Flag, |_: &Whole<'a>| Is(true.into())),
        rule("scope", Text, |_: &Whole<'a>| Is("decode_cells_and_their_warmups".into())),
        int("confirmed_min_chars", 4096),
        int("confirmed_min_cycles", 4),
        int("max_period_chars", 32_768),
        // Ours, as the guard keeps less.
        rule("history_chars_per_request_channel", Int, |_: &Whole<'a>| There),
        int("check_interval_chars", 256),
        // No sentinel is ever written.
        rule("invalid_cell_aggregate_tps_sentinel", Num, |_: &Whole<'a>| Null),
        rule("limitation", Text, |_: &Whole<'a>| There),
    ]
}

fn startup<'a>() -> Vec<Rule<Whole<'a>>> {
    vec![
        rule("version", Text, |whole: &Whole<'a>| Is(whole.report["metadata"]["version"].clone())),
        rule("server_url", Text, |whole: &Whole<'a>| Is(format!("http://127.0.0.1:{}", whole.port).into())),
        rule("hostname", Text, |_: &Whole<'a>| There),
        rule("uname", Text, |_: &Whole<'a>| There),
        rule("env", Object, |_: &Whole<'a>| There),
        rule("args", Object, |_: &Whole<'a>| There),
    ]
}

fn startup_args<'a>() -> Vec<Rule<Whole<'a>>> {
    let flag = |key: &str, value: bool| rule(key, Flag, move |_: &Whole<'a>| Is(value.into()));
    vec![
        rule("concurrency", Text, |whole: &Whole<'a>| Is(whole.levels().into())),
        rule("contexts", Text, |whole: &Whole<'a>| Is(labels(&whole.asked.contexts).into())),
        rule("max_tokens", Int, |whole: &Whole<'a>| Is(whole.engine.max_tokens.into())),
        rule("duration", Num, |whole: &Whole<'a>| Is(whole.asked.duration.into())),
        rule("request_count", Int, |_: &Whole<'a>| Is(0.into())),
        flag("run_burst", true),
        flag("standalone_prefill", false),
        flag("prefill_only", false),
        flag("skip_prefill", false),
        rule("prefill_contexts", Text, |whole: &Whole<'a>| Is(labels(&whole.asked.prefill_contexts).into())),
        rule("prefill_metric", Text, |_: &Whole<'a>| Is("client".into())),
        rule("dcp_size", Int, |_: &Whole<'a>| Is(0.into())),
        rule("kv_budget", Int, |whole: &Whole<'a>| Is(whole.asked.kv_budget.unwrap_or(0).into())),
    ]
}

/// A row of prefill beside the request that it was measured by.
struct Row<'a> {
    row: &'a Value,
    whole: &'a Whole<'a>,
    context: u64,
    /// To the first token, and prompt tokens by that time, by the truth.
    ttft_s: f64,
    rate: f64,
    /// Prompt tokens by the time that the model took for them.
    model_rate: f64,
}

impl Row<'_> {
    fn number(&self, key: &str) -> f64 {
        self.row[key].as_f64().unwrap_or(f64::NAN)
    }
}

fn row_rules<'a>() -> Vec<Rule<Row<'a>>> {
    let same = |key: &str, of: &'static str| rule(key, Num, move |row: &Row<'a>| Is(row.row[of].clone()));
    vec![
        rule("ttft_seconds", Num, |row: &Row<'a>| Near(row.ttft_s, 0.01)),
        same("prefill_seconds", "ttft_seconds"),
        rule("tok_per_sec", Num, |row: &Row<'a>| Near(row.rate, 0.01)),
        same("client_ttft_seconds", "ttft_seconds"),
        same("client_tok_per_sec", "tok_per_sec"),
        rule("prompt_tokens", Int, |row: &Row<'a>| {
            // As many as asked for, within 0.2 % or 8.
            let off = (row.context as f64 * 0.002).max(8.0);
            Within(row.context as f64 - off, row.context as f64 + off)
        }),
        rule("samples", Int, |_: &Row<'a>| Is(1.into())),
        rule("method", Text, |row: &Row<'a>| {
            Is(if row.whole.asked.contexts.contains(&row.context) { "integrated_scout" } else { "scout_only" }.into())
        }),
        rule("server_validation", Object, |_: &Row<'a>| There),
        rule("hardware_summary", Object, |_: &Row<'a>| Is(json!({}))),
    ]
}

fn validation_rules<'a>() -> Vec<Rule<Row<'a>>> {
    let confirmed = |row: &Row<'a>| !row.whole.engine.validation.is_empty();
    let tokens = move |row: &Row<'a>| if confirmed(row) { Is(row.row["prompt_tokens"].clone()) } else { Null };
    vec![
        rule("method", Text, |row: &Row<'a>| Is(row.whole.engine.validation.into())),
        rule("tok_per_sec", Num, move |row: &Row<'a>| if confirmed(row) { Near(row.model_rate, 0.01) } else { Null }),
        rule("prefill_seconds", Num, move |row: &Row<'a>| {
            // Rounded to milliseconds.
            let seconds = row.row["server_validation"]["prompt_tokens"].as_f64().unwrap_or(f64::NAN) / row.model_rate;
            if confirmed(row) { Within(seconds - 6e-4, seconds + 6e-4) } else { Null }
        }),
        rule("prompt_tokens", Int, tokens),
        rule("request_prompt_tokens", Int, move |row: &Row<'a>| if confirmed(row) { Is(row.row["prompt_tokens"].clone()) } else { Null }),
        rule("cached_tokens", Int, move |row: &Row<'a>| if confirmed(row) { Is(0.into()) } else { Null }),
        rule("token_source", Text, |row: &Row<'a>| Is(row.whole.engine.validation.trim_start_matches("prometheus:").into())),
        rule("samples", Int, move |row: &Row<'a>| Is(u64::from(confirmed(row)).into())),
        // Without metrics nothing is tried, and so nothing fails.
        rule("invalid_reason", Text, |_: &Row<'a>| Is("".into())),
    ]
}
