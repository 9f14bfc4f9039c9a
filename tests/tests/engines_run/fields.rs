//! The fields of a report, one after the other: whether each is there, of which kind, and what it has to be. Only the
//! formulas are here; what they are fed with comes from the report's own columns, and from the truth where that knows.

use super::truth::{Drafted, Request, Truth};
use serde_json::Value;

/// What a field has to be.
pub enum Want {
    /// Exactly this; numbers by value.
    Is(Value),
    /// This number, give or take this share of it.
    Near(f64, f64),
    /// A number between these, both included.
    Within(f64, f64),
    /// Null: it can't be measured here.
    Null,
    /// Something of its kind.
    There,
}

/// What a value is in JSON. A whole number may stand for a number, not the other way round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Int,
    Num,
    Text,
    Flag,
    List,
    Object,
}
use Kind::{Flag, Int, List, Num, Object, Text};
use Want::{Is, Near, Null, There, Within};

impl Kind {
    fn fits(self, value: &Value) -> bool {
        match self {
            Int => value.is_i64() || value.is_u64(),
            Num => value.is_number(),
            Text => value.is_string(),
            Flag => value.is_boolean(),
            List => value.is_array(),
            Object => value.is_object(),
        }
    }
}

/// A field of some section.
pub type Rule<C> = (String, Kind, Box<dyn Fn(&C) -> Want>);

/// Makes a rule.
pub fn rule<C>(key: &str, kind: Kind, want: impl Fn(&C) -> Want + 'static) -> Rule<C> {
    (key.to_owned(), kind, Box::new(want))
}

/// All fields of the table that aren't as they have to be, each in a sentence; keys stand in the table's order.
pub fn wrong<C>(section: &Value, rules: &[Rule<C>], case: &C) -> Vec<String> {
    let mut wrong = Vec::new();
    for (key, kind, want) in rules {
        let Some(value) = section.get(key) else {
            wrong.push(format!("{key} is not there"));
            continue;
        };
        wrong.extend(fault(value, *kind, &want(case)).map(|fault| format!("{key} is {}, {fault}", short(value))));
    }
    let known = |key: &&String| rules.iter().any(|rule| rule.0 == **key);
    let written: Vec<&String> = section.as_object().unwrap().keys().filter(known).collect();
    let asked: Vec<&String> = rules.iter().map(|rule| &rule.0).filter(|key| section.get(key.as_str()).is_some()).collect();
    if written != asked {
        wrong.push(format!("keys in another order: {written:?}"));
    }
    wrong
}

fn fault(value: &Value, kind: Kind, want: &Want) -> Option<String> {
    if matches!(want, Null) {
        return (!value.is_null()).then(|| "and can't be measured here".to_owned());
    }
    if !kind.fits(value) {
        return Some(format!("which is no {kind:?}"));
    }
    let number = value.as_f64();
    match want {
        Is(wanted) => {
            let same = number.map_or_else(|| value == wanted, |number| wanted.as_f64() == Some(number));
            (!same).then(|| format!("not {}", short(wanted)))
        }
        Near(wanted, share) => {
            let near = number.is_some_and(|number| (number - wanted).abs() <= (wanted * share).abs());
            (!near).then(|| format!("not {wanted} ± {:.4} %", share * 100.0))
        }
        Within(from, to) => (!number.is_some_and(|number| (*from..=*to).contains(&number))).then(|| format!("not from {from} to {to}")),
        Null | There => None,
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.len() > 120 { format!("{}...", text.chars().take(120).collect::<String>()) } else { text }
}

/// Shares of this size come from binary fractions alone.
const EXACT: f64 = 1e-9;

/// A cell of the report with all that its fields are held to.
pub struct Case<'a> {
    pub cell: &'a Value,
    pub truth: &'a Truth,
    pub engine: &'static Engine,
    /// Its requests as the server knows them, in the order of the columns.
    pub requests: Vec<&'a Request>,
    /// What the report says of the server at each scrape of the run.
    pub scrapes: &'a [Scrape],
    pub asked: &'a Asked,
    /// Nanoseconds of the system's clock at the run's 0.
    pub origin_ns: u64,
    /// Whether the machine, or the simulator, was too slow for the cell to be held to the truth in all.
    pub noisy: bool,
    /// The server's gauge of the acceptance length, by the truth.
    pub gauge: &'a [(u64, f64)],
}

/// What is known of a kind of server before it is measured.
pub struct Engine {
    /// As `metadata.engine` has it.
    pub name: &'static str,
    /// Options of the simulator.
    pub simulate: &'static [&'static str],
    /// What the tokens of a window are counted by.
    pub source: &'static str,
    /// Whether it has metrics.
    pub metrics: bool,
    /// Whether it counts drafts.
    pub counts_drafts: bool,
    /// Whether it has gauges of the last drafts instead.
    pub gauges_drafts: bool,
    /// Whether it tells its KV cache's fill.
    pub tells_kv: bool,
    /// How its counters confirm a prefill; empty where they can't.
    pub validation: &'static str,
    /// Its KV budget in tokens, found or given.
    pub budget: u64,
    /// Output limit of the run's requests.
    pub max_tokens: u64,
}

/// What the run is asked for.
pub struct Asked {
    pub contexts: Vec<u64>,
    pub concurrency: Vec<u64>,
    pub prefill_contexts: Vec<u64>,
    pub repeats: u64,
    pub duration: f64,
    pub burst_per_stream: u64,
    pub burst_warmup: u64,
    pub accept_len_ref: f64,
    pub temperature: f64,
    pub warmup_limit: f64,
    pub warmup_seconds: f64,
    /// `--kv-budget`, where it is given.
    pub kv_budget: Option<u64>,
}

/// What the server said at one time; times in µs on the run's clock.
#[derive(Clone, Copy)]
pub struct Scrape {
    pub t_us: u64,
    pub took_us: u64,
    pub running: Option<f64>,
    pub waiting: Option<f64>,
    pub kv_usage: Option<f64>,
    pub tokens: Option<f64>,
}

impl<'a> Case<'a> {
    pub fn c(&self) -> u64 {
        self.cell["concurrency"].as_u64().unwrap()
    }

    pub fn is_burst(&self) -> bool {
        self.cell["benchmark_mode"] == "burst-e2e"
    }

    /// The window, µs on the run's clock.
    pub fn window(&self) -> (u64, u64) {
        let window = &self.cell["tokscope"]["window"];
        (window["start_us"].as_u64().unwrap(), window["end_us"].as_u64().unwrap())
    }

    pub fn ns(&self, t_us: u64) -> u64 {
        self.origin_ns + t_us * 1_000
    }

    /// The last token belongs to it.
    fn burst_seconds(&self) -> f64 {
        let times = |name: &str| self.column(name).iter().map(|us| us.as_u64().unwrap());
        (times("last_token_us").max().unwrap() + 1 - times("sent_us").min().unwrap()) as f64 / 1e6
    }

    pub fn number(&self, key: &str) -> f64 {
        self.cell[key].as_f64().unwrap_or(f64::NAN)
    }

    /// Tokens that the server handed over in the window.
    pub fn handed(&self) -> u64 {
        let (from, to) = self.window();
        self.requests.iter().map(|request| request.handed_between(self.ns(from), self.ns(to))).sum()
    }

    /// What may lie on the other side of the window's edges: 0.2 %, or a chunk a stream. Where usage comes at the end
    /// only, nobody can tell on which side of an edge those tokens of a request were that brought no text.
    pub fn allowed(&self) -> f64 {
        let nowhere = if self.engine.source == "openai_final_usage_spread" { self.without_text_at_edges() } else { 0 };
        (0.002 * self.handed() as f64).max((self.c() * self.truth.chunk() + nowhere) as f64)
    }

    /// Tokens without text, of requests that an edge of the window lies in.
    fn without_text_at_edges(&self) -> u64 {
        let (from, to) = self.window();
        let (first, ended) = (self.column("first_token_us"), self.column("ended_us"));
        let of_request = |(at, request): (usize, &&Request)| {
            let (first, ended) = (first[at].as_u64()?, ended[at].as_u64()?);
            let straddles = [from, to].iter().any(|edge| (first..ended).contains(edge));
            let chunks = self.column("chunks")[at].as_u64()?;
            straddles.then(|| request.handed_between(0, self.ns(ended)).saturating_sub(chunks))
        };
        self.requests.iter().enumerate().filter_map(of_request).sum()
    }

    fn column(&self, name: &str) -> &'a [Value] {
        self.cell["tokscope"]["series"]["requests"][name].as_array().unwrap()
    }

    /// The scrapes that came back inside the window.
    pub fn inside(&self) -> Vec<Scrape> {
        let (from, to) = self.window();
        self.scrapes.iter().copied().filter(|scrape| (from..to).contains(&scrape.t_us)).collect()
    }

    /// The scrapes nearest to the window's edges, where there are any.
    fn edges(&self) -> Option<(Scrape, Scrape)> {
        let (from, to) = self.window();
        let nearest = |t_us: u64| self.scrapes.iter().min_by_key(|scrape| scrape.t_us.abs_diff(t_us)).copied();
        nearest(from).zip(nearest(to))
    }

    fn gauge_mean(&self, of: fn(&Scrape) -> Option<f64>) -> Option<f64> {
        mean(&self.inside().iter().filter_map(of).collect::<Vec<_>>())
    }

    fn gauge_max(&self, of: fn(&Scrape) -> Option<f64>) -> Option<f64> {
        self.inside().iter().filter_map(of).reduce(f64::max)
    }

    fn counted_by_server(&self) -> Option<f64> {
        let (a, b) = self.edges()?;
        Some(b.tokens? - a.tokens?)
    }

    /// Drafts between the same scrapes, by the truth: what fits of the steps that may have met them.
    fn drafted(&self) -> Vec<Drafted> {
        let (a, b) = self.edges().unwrap();
        self.truth.drafted_around(self.ns(a.t_us - a.took_us / 2), self.ns(b.t_us - b.took_us / 2))
    }

    /// Of a server with counters: whether the truth knows these drafts and acceptances together.
    pub fn drafts_are_true(&self) -> bool {
        let told = (self.number("server_spec_drafts") as u64, self.number("server_spec_accepted_tokens") as u64);
        self.noisy || self.drafted().iter().any(|drafted| (drafted.drafts, drafted.accepted) == told)
    }

    /// What the acceptance length has to be, by the truth, and what it was over the window's own steps.
    pub fn true_length(&self) -> (f64, f64) {
        let (from, to) = self.window();
        let over_window = self.truth.drafted_between(self.ns(from), self.ns(to)).length();
        let told = self.number("server_spec_accept_length");
        let nearest = |lengths: &mut dyn Iterator<Item = f64>| lengths.min_by(|a, b| (a - told).abs().total_cmp(&(b - told).abs()));
        if self.engine.gauges_drafts {
            // At each scrape one value, or two where the gauge moved meanwhile: the means of all choices.
            let mut sums = vec![0.0];
            let inside = self.inside();
            for scrape in &inside {
                let stood = self.gauge_at(scrape);
                sums = sums.iter().flat_map(|sum| stood.iter().map(move |length| sum + length)).collect();
            }
            let n = inside.len() as f64;
            return (nearest(&mut sums.iter().map(|sum| sum / n)).unwrap_or(f64::NAN), over_window);
        }
        (nearest(&mut self.drafted().iter().map(|drafted| drafted.length())).unwrap_or(f64::NAN), over_window)
    }

    /// The gauge's values while a scrape was under way; the simulator may be late by 5 ms itself.
    fn gauge_at(&self, scrape: &Scrape) -> Vec<f64> {
        let (from, to) = (self.ns(scrape.t_us - scrape.took_us) - 5_000_000, self.ns(scrape.t_us));
        let before = self.gauge.partition_point(|(at, _)| *at <= from).saturating_sub(1);
        let after = self.gauge.partition_point(|(at, _)| *at <= to);
        self.gauge[before..after.max(before + 1)].iter().map(|(_, length)| *length).collect()
    }

    /// Values of the request samples above 0, in rising order; the predecessor leaves out all others.
    fn samples(&self, key: &str) -> Vec<f64> {
        let samples = self.cell["request_samples"].as_array().unwrap();
        let mut values: Vec<f64> = samples.iter().filter_map(|sample| sample[key].as_f64()).filter(|value| *value > 0.0).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// The same of finished requests; of all, where none finished.
    fn lengths(&self, key: &str) -> Vec<f64> {
        let samples = self.cell["request_samples"].as_array().unwrap();
        let finished: Vec<&Value> = samples.iter().filter(|sample| sample["completed"] == true).collect();
        let counted = if finished.is_empty() { samples.iter().collect() } else { finished };
        let mut values: Vec<f64> = counted.iter().filter_map(|sample| sample[key].as_f64()).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn rate(&self) -> f64 {
        self.number("client_output_tokens") / self.number("measurement_seconds")
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Between the two order statistics, by distance.
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (sorted.len().checked_sub(1)? as f64) * share;
    let (low, high) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    Some(low + (high - low) * rank.fract())
}

fn near(value: Option<f64>) -> Want {
    value.map_or(Null, |value| Near(value, EXACT))
}

fn rounded(value: Option<f64>, digits: i32) -> Want {
    let unit = 10f64.powi(digits);
    value.map_or(Null, |value| Near((value * unit).round() / unit, EXACT))
}

/// The table of a cell, in the order in which its keys are written.
pub fn cell_rules<'a>() -> Vec<Rule<Case<'a>>> {
    let mut rules = window_rules();
    for (family, sample) in [
        ("ttft", "ttft"),
        ("time_to_second_token", "time_to_second_token"),
        ("request_latency", "latency"),
        ("inter_token_latency", "inter_token_latency_avg"),
        ("output_tps_per_user", "output_tps_per_user"),
        ("e2e_output_tps_per_user", "e2e_output_tps_per_user"),
        ("chunk_inter_token_latency", "chunk_inter_token_latency_avg"),
    ] {
        rules.push(rule(&format!("{family}_avg"), Num, move |case: &Case<'a>| near(mean(&case.samples(sample)))));
        for (stat, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            let key = format!("{family}_{stat}");
            rules.push(rule(&key, Num, move |case: &Case<'a>| near(percentile(&case.samples(sample), share))));
        }
    }
    rules.push(rule("input_seq_len_avg", Num, |case: &Case<'a>| near(mean(&case.lengths("input_tokens")))));
    rules.push(rule("output_seq_len_avg", Num, |case: &Case<'a>| near(mean(&case.lengths("output_tokens")))));
    for (stat, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
        let key = format!("output_seq_len_{stat}");
        rules.push(rule(&key, Num, move |case: &Case<'a>| near(percentile(&case.lengths("output_tokens"), share))));
    }
    rules.extend(bookkeeping_rules());
    rules.extend(server_rules());
    rules.extend(scheduler_rules());
    rules
}

fn window_rules<'a>() -> Vec<Rule<Case<'a>>> {
    // A window is as long as asked for; a burst lasts from the first request's sending to the last one's last token.
    let seconds = |case: &Case<'a>| Near(if case.is_burst() { case.burst_seconds() } else { case.asked.duration }, EXACT);
    vec![
        rule("concurrency", Int, |case: &Case<'a>| Is(case.c().into())),
        rule("context_tokens", Int, |_: &Case<'a>| There),
        rule("benchmark_mode", Text, |_: &Case<'a>| There),
        rule("request_count_target", Int, |case: &Case<'a>| {
            Is(if case.is_burst() { case.c() * case.asked.burst_per_stream } else { 0 }.into())
        }),
        rule("warmup_request_count", Int, |case: &Case<'a>| Is(if case.is_burst() { case.asked.burst_warmup } else { 0 }.into())),
        rule("measurement_seconds", Num, seconds),
        rule("measurement_wall_seconds", Num, seconds),
        rule("client_output_tokens", Int, |case: &Case<'a>| {
            if case.is_burst() {
                return Is((case.c() * case.asked.burst_per_stream * case.engine.max_tokens).into());
            }
            let (handed, allowed) = (case.handed() as f64, case.allowed());
            Within(handed - allowed, handed + allowed)
        }),
        rule("server_output_tokens", Int, |case: &Case<'a>| near(case.counted_by_server())),
        rule("aggregate_source", Text, |case: &Case<'a>| {
            Is(if case.is_burst() { "openai_completed_usage" } else { case.engine.source }.into())
        }),
        rule("aggregate_tps", Num, |case: &Case<'a>| Near(case.rate(), 1e-6)),
        rule("failure_reason", Text, |_: &Case<'a>| Is("".into())),
        rule("per_request_avg_tps", Num, |case: &Case<'a>| Near(case.rate() / case.c() as f64, 1e-6)),
    ]
}

fn bookkeeping_rules<'a>() -> Vec<Rule<Case<'a>>> {
    let samples = |case: &Case<'a>| case.cell["request_samples"].as_array().unwrap().clone();
    vec![
        rule("request_count", Int, move |case: &Case<'a>| Is(samples(case).len().into())),
        rule("completed_request_count", Int, move |case: &Case<'a>| {
            Is(samples(case).iter().filter(|sample| sample["completed"] == true).count().into())
        }),
        rule("request_samples", List, |_: &Case<'a>| There),
        rule("total_tokens", Int, |case: &Case<'a>| Is(case.cell["client_output_tokens"].clone())),
        // From the scout to the last stream's end; of a finite number of requests the measurement itself.
        rule("wall_time", Num, |case: &Case<'a>| {
            let measured = case.number("measurement_seconds");
            if case.is_burst() { Near(measured, EXACT) } else { Within(measured + case.number("warmup_duration"), f64::MAX) }
        }),
        rule("num_completed", Int, |case: &Case<'a>| Is((case.c() * if case.is_burst() { case.asked.burst_per_stream } else { 1 }).into())),
        rule("num_errors", Int, |_: &Case<'a>| Is(0.into())),
    ]
}

fn server_rules<'a>() -> Vec<Rule<Case<'a>>> {
    let drafted = |key: &'static str, from_truth: fn(&Case<'_>) -> Want| {
        rule(key, Int, move |case: &Case<'a>| if case.engine.counts_drafts { from_truth(case) } else { Null })
    };
    let steps = |case: &Case<'a>| case.number("server_steps_per_s");
    let drafts = |case: &Case<'a>| case.engine.counts_drafts || case.engine.gauges_drafts;
    vec![
        rule("server_gen_throughput", Num, |case: &Case<'a>| {
            let seconds = case.edges().map(|(a, b)| (b.t_us - a.t_us) as f64 / 1e6);
            near(case.counted_by_server().zip(seconds).map(|(tokens, seconds)| tokens / seconds))
        }),
        rule("server_utilization", Num, |case: &Case<'a>| if case.engine.tells_kv { near(case.gauge_mean(|s| s.kv_usage)) } else { Null }),
        rule("server_spec_accept_rate", Num, move |case: &Case<'a>| match () {
            () if case.engine.counts_drafts => {
                Near(case.number("server_spec_accepted_tokens") / case.number("server_spec_draft_tokens"), EXACT)
            }
            // Three tokens a draft.
            () if drafts(case) => Near((case.number("server_spec_accept_length") - 1.0) / 3.0, 1e-6),
            () => Null,
        }),
        rule("server_spec_accept_length", Num, move |case: &Case<'a>| {
            if case.engine.counts_drafts {
                return Near(1.0 + case.number("server_spec_accepted_tokens") / case.number("server_spec_drafts"), EXACT);
            }
            if drafts(case) { There } else { Null }
        }),
        drafted("server_spec_drafts", |_| There),
        drafted("server_spec_draft_tokens", |case| Is(((case.number("server_spec_drafts") * 3.0) as u64).into())),
        drafted("server_spec_accepted_tokens", |_| There),
        rule("server_spec_pos_accept", List, |case: &Case<'a>| {
            let by_position = case.cell["server_spec_pos_accept"].as_array().unwrap();
            let falls = by_position.windows(2).all(|pair| pair[0].as_f64() >= pair[1].as_f64());
            let sum: f64 = by_position.iter().map(|share| share.as_f64().unwrap()).sum();
            let whole = !case.engine.counts_drafts || (sum - (case.number("server_spec_accept_length") - 1.0)).abs() < 2e-4;
            let as_many = by_position.len() == if case.engine.counts_drafts { 3 } else { 0 };
            if falls && whole && as_many { There } else { Is("falling shares that add up to the length less 1".into()) }
        }),
        rule("server_engine_steps", Num, move |case: &Case<'a>| {
            let (drafts_made, accepted) = (case.number("server_spec_drafts"), case.number("server_spec_accepted_tokens"));
            match () {
                () if case.engine.counts_drafts => {
                    Near(drafts_made + (case.number("server_output_tokens") - accepted - drafts_made).max(0.0), EXACT)
                }
                () if drafts(case) => Near(steps(case) * case.number("measurement_seconds"), EXACT),
                () => Null,
            }
        }),
        rule("server_steps_per_s", Num, move |case: &Case<'a>| {
            if !drafts(case) { Null } else { Near(case.rate() / case.number("server_accept_len_effective"), EXACT) }
        }),
        rule("server_accept_len_effective", Num, move |case: &Case<'a>| match () {
            () if case.engine.counts_drafts => Near(case.number("server_output_tokens") / case.number("server_engine_steps"), EXACT),
            () if drafts(case) => Near(case.rate() / steps(case), EXACT),
            () => Null,
        }),
        rule(
            "accept_norm_tps",
            Num,
            move |case: &Case<'a>| {
                if drafts(case) { Near(steps(case) * case.asked.accept_len_ref, EXACT) } else { Null }
            },
        ),
        rule("accept_norm_ref_len", Num, |case: &Case<'a>| Is(case.asked.accept_len_ref.into())),
    ]
}

fn scheduler_rules<'a>() -> Vec<Rule<Case<'a>>> {
    let running = |case: &Case<'a>| rounded(case.gauge_mean(|s| s.running), 1);
    let few = |case: &Case<'a>, share: f64| {
        let (mean, c) = (case.gauge_mean(|s| s.running), case.c() as f64);
        mean.map(|mean| c > 1.0 && !case.is_burst() && mean < share * c)
    };
    let queued = |case: &Case<'a>| case.gauge_max(|s| s.waiting).is_some_and(|most| most > 0.0);
    vec![
        rule("avg_running_reqs", Num, running),
        rule("max_running_reqs", Int, |case: &Case<'a>| near(case.gauge_max(|s| s.running))),
        rule("effective_concurrency", Num, running),
        rule("avg_queue_reqs", Num, |case: &Case<'a>| rounded(case.gauge_mean(|s| s.waiting), 1)),
        rule("max_queue_reqs", Int, |case: &Case<'a>| near(case.gauge_max(|s| s.waiting))),
        rule("queue_fraction", Num, |case: &Case<'a>| rounded(case.gauge_mean(|s| s.waiting.map(|n| if n > 0.0 { 1.0 } else { 0.0 })), 3)),
        rule("underfilled", Flag, move |case: &Case<'a>| few(case, 0.98).map_or(Null, |few| Is(few.into()))),
        rule("warmup_timed_out", Flag, |_: &Case<'a>| Is(false.into())),
        rule("warmup_duration", Num, |case: &Case<'a>| {
            // It ends with three steady seconds.
            if case.is_burst() { Is(0.into()) } else { Within(3.0, case.asked.warmup_limit) }
        }),
        rule("ready_reason", Text, |case: &Case<'a>| Is(ready_reason(case).into())),
        rule("timeout_reason", Text, |_: &Case<'a>| Is("".into())),
        rule("capacity_limited", Flag, move |case: &Case<'a>| {
            let sustained = !case.is_burst() && case.c() > 1;
            let never = sustained && case.gauge_max(|s| s.running).is_some_and(|most| most < case.c() as f64);
            Is((queued(case) || never || few(case, 0.95).unwrap_or(false)).into())
        }),
        rule("hardware_summary", Object, |_: &Case<'a>| There),
        rule("loop_detection_enabled", Flag, |_: &Case<'a>| Is(true.into())),
        rule("loop_detected", Flag, |_: &Case<'a>| Is(false.into())),
        rule("loop_diagnostics", List, |_: &Case<'a>| There),
        rule("loop_diagnostics_omitted", Int, |_: &Case<'a>| Is(0.into())),
    ]
}

/// The predecessor's words; how many streams were seen active, and what ran, is taken from the report.
fn ready_reason(case: &Case<'_>) -> String {
    let (told, c) = (case.cell["ready_reason"].as_str().unwrap_or_default(), case.c());
    if case.is_burst() {
        return format!("request_count={}, warmup_request_count={}", c * case.asked.burst_per_stream, case.asked.burst_warmup);
    }
    let count = |name: &str| {
        let after = told.split(&format!("{name}=")).nth(1).unwrap_or_default();
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok().filter(|n| *n <= c).map_or_else(|| "?".to_owned(), |n| n.to_string())
    };
    let streams = format!("active_streams={}/{c}, stable=3.0s", count("active_streams"));
    if !case.engine.metrics {
        return format!("metrics_unavailable, {streams}");
    }
    format!("running_reqs={}/{c}, queue_reqs={}, {streams}", count("running_reqs"), count("queue_reqs"))
}

/// One request of a cell: its sample, its place in the columns, and the truth.
pub struct Sampled<'a> {
    pub case: &'a Case<'a>,
    pub at: usize,
}

impl Sampled<'_> {
    fn us(&self, column: &str) -> Option<f64> {
        self.case.column(column)[self.at].as_f64()
    }

    fn seconds(&self, from: &str, to: &str) -> Option<f64> {
        Some((self.us(to)? - self.us(from)?) / 1e6)
    }

    fn finished(&self) -> bool {
        self.case.column("class")[self.at] == "finished"
    }

    /// From the first to the last chunk, by what came after the first.
    fn per(&self, column: &str) -> Option<f64> {
        let after_first = self.us(column)? - 1.0;
        let span = self.seconds("first_token_us", "last_token_us")?;
        (after_first > 0.0).then(|| span / after_first)
    }

    /// Tokens that all came at once have no time each.
    fn per_token(&self) -> Option<f64> {
        self.per("tokens").filter(|seconds| *seconds > 0.0)
    }
}

/// The table of a request sample, and the order of its keys.
pub fn sample_rules<'a>() -> Vec<Rule<Sampled<'a>>> {
    let latency = |sampled: &Sampled<'a>| sampled.seconds("sent_us", "last_token_us").filter(|_| sampled.finished());
    vec![
        rule("ttft", Num, |sampled: &Sampled<'a>| near(sampled.seconds("sent_us", "first_token_us"))),
        rule("time_to_second_token", Num, |sampled: &Sampled<'a>| {
            let most = sampled.seconds("first_token_us", "last_token_us").unwrap_or(0.0);
            if sampled.us("chunks") > Some(1.0) { Within(0.0, most + 1e-9) } else { Null }
        }),
        rule("latency", Num, move |sampled: &Sampled<'a>| near(latency(sampled))),
        rule("inter_token_latency_avg", Num, |sampled: &Sampled<'a>| near(sampled.per_token())),
        rule("chunk_inter_token_latency_avg", Num, |sampled: &Sampled<'a>| near(sampled.per("chunks"))),
        rule("input_tokens", Int, |sampled: &Sampled<'a>| {
            // Without its end a request may never be told how long its prompt was.
            let told = sampled.case.engine.source == "openai_continuous_usage" || sampled.finished();
            let true_tokens = Is(sampled.case.requests[sampled.at].prompt_tokens.into());
            if told || sampled.us("prompt_tokens").is_some() { true_tokens } else { Null }
        }),
        rule("output_tokens", Int, |sampled: &Sampled<'a>| {
            let all = sampled.case.requests[sampled.at].sum();
            if sampled.finished() {
                return Is(all.into());
            }
            // The server went on for as long as it took to hear of the end.
            Within(0.0, all as f64)
        }),
        rule("output_tps_per_user", Num, |sampled: &Sampled<'a>| near(sampled.per_token().map(|seconds| 1.0 / seconds))),
        rule("e2e_output_tps_per_user", Num, move |sampled: &Sampled<'a>| {
            near(latency(sampled).zip(sampled.us("tokens")).map(|(seconds, tokens)| tokens / seconds))
        }),
        rule("completed", Flag, |sampled: &Sampled<'a>| Is(sampled.finished().into())),
    ]
}
