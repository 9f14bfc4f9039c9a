//! May this cell be believed, and if not why: rules over a cell, the same for a fresh measurement and for a
//! file ten versions old. A rule whose keys are absent doesn't fire.

mod review;

pub use review::{Doubt, Review, review};

use crate::metric::{self, Reading, Sentinel};
use crate::report::cell::Cell;
use crate::report::identity::context_label;
use crate::report::own::{Calibration, CellClient};

/// How far a cell can be believed; the worst comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A measurement.
    Valid,
    /// A number that may be off.
    Suspect,
    /// A number made under other conditions than asked for.
    Limited,
    /// Not a measurement.
    Invalid,
}

impl Verdict {
    /// All, from best to worst.
    pub const ALL: [Verdict; 4] = [Verdict::Valid, Verdict::Suspect, Verdict::Limited, Verdict::Invalid];

    /// Its name in files and on screens.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Valid => "valid",
            Verdict::Suspect => "suspect",
            Verdict::Limited => "limited",
            Verdict::Invalid => "invalid",
        }
    }

    /// The verdict of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.name() == name)
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A kind of reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its code.
    pub code: &'static str,
    /// What it makes of a cell.
    pub verdict: Verdict,
    /// What it means, in a sentence.
    pub meaning: &'static str,
}

const fn rule(code: &'static str, verdict: Verdict, meaning: &'static str) -> Rule {
    Rule { code, verdict, meaning }
}

/// Every reason there is.
pub const REASONS: &[Rule] = &[
    rule("stream-failed", Verdict::Invalid, "A stream ended with an error, so the load was not the one asked for."),
    rule("repetition", Verdict::Invalid, "The text repeated itself, which speculative decoders answer faster than real text."),
    rule("no-tokens", Verdict::Invalid, "There is no rate: nothing was generated, or the cell failed before it could be measured."),
    rule("server-fallback", Verdict::Invalid, "The rate is the server's own, with any other client's tokens; the client counted none."),
    rule("not-run", Verdict::Invalid, "The cell was left out or skipped; there is no measurement."),
    rule("slept", Verdict::Invalid, "The machine slept while the cell was measured."),
    rule("interrupted", Verdict::Limited, "The run was interrupted inside the window: it is shorter than asked for."),
    rule("warmup-timed-out", Verdict::Limited, "The streams were not all decoding steadily when the window opened."),
    rule("underfilled", Verdict::Limited, "Fewer requests ran than the concurrency asked for."),
    rule("queued", Verdict::Limited, "Requests waited at the server for a good part of the window."),
    rule("capacity-limited", Verdict::Limited, "The server did not hold the concurrency: requests waited or too few ran."),
    rule("stalled", Verdict::Limited, "A stream that was decoding stood still for a while inside the window."),
    rule("client-limited", Verdict::Limited, "The measuring client could not keep up."),
    rule("rate-not-reached", Verdict::Limited, "Requests were not sent at the rate asked for, or not when they were due."),
    rule("unfinished", Verdict::Suspect, "Requests were still unanswered when answers were given up: they are in no latency."),
    rule("late-requests", Verdict::Limited, "Streams stood idle between two requests, so the load was less than asked for."),
    rule("foreign-traffic", Verdict::Suspect, "The server worked for somebody else as well."),
    rule("leftovers", Verdict::Suspect, "Requests of the cell before were still on the server when this one began."),
    rule("coarse-chunks", Verdict::Suspect, "Tokens came in few large pieces, so the window's edges decide over a good part of them."),
    rule(
        "one-piece",
        Verdict::Suspect,
        "Answers came in one piece, not as they were generated: times to the first token and by token mean nothing.",
    ),
    rule(
        "tokens-below-chunks",
        Verdict::Suspect,
        "The server counted fewer tokens than it sent pieces of text: its usage may leave some out.",
    ),
    rule(
        "unknown-text",
        Verdict::Suspect,
        "Many events held no text in a known place: where that is output, the times to the first token and by token are wrong.",
    ),
    rule("no-finish-reason", Verdict::Suspect, "Answers ended without a finish reason: an error may have broken them off."),
    rule(
        "prompt-length",
        Verdict::Suspect,
        "Prompts were not as long as the context says, or as they were made to be, by the server's own count.",
    ),
    rule("place-unknown", Verdict::Suspect, "The file doesn't say at which concurrency and context length the cell was measured."),
    rule("source-unknown", Verdict::Suspect, "The file doesn't say what the tokens were counted by."),
    rule("chunks-as-tokens", Verdict::Suspect, "Chunks were counted as tokens, because the server reported no usage."),
    rule(
        "server-disagrees",
        Verdict::Suspect,
        "The server's own count or rate is more than 3 % off the client's: other traffic, or usage reported only at a request's end.",
    ),
    rule("bad-events", Verdict::Suspect, "Events of a stream could not be read and were passed over."),
    rule("trailing-stall", Verdict::Suspect, "The tokens ended well before the window did; the rate covers only the good part."),
    rule("rate-inconsistent", Verdict::Suspect, "Tokens by seconds is not the rate that stands in the file."),
    rule(
        "counters-mixed",
        Verdict::Suspect,
        "Acceptance by position doesn't add up to the acceptance length: counters of different windows, or of other traffic.",
    ),
    rule("metrics-gap", Verdict::Valid, "The server's metrics could not be read at some time in the window."),
    rule(
        "restarts-together",
        Verdict::Valid,
        "Streams that end together wait for their prompts together: how much of that lies in the window is luck.",
    ),
    rule("start-spread", Verdict::Valid, "The streams did not start together."),
    rule("few-requests", Verdict::Valid, "Fewer than 10 requests: percentiles over requests mean little."),
    rule("loop-unguarded", Verdict::Valid, "Long generations without a guard against repeated text."),
    rule("queue-seen", Verdict::Valid, "Requests were seen waiting at the server."),
    rule(
        "no-prefix-caching",
        Verdict::Valid,
        "Prefix caching did not seem to work: the first token took as long as reading the prompt anew.",
    ),
];

/// Why a cell has its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Code of the rule.
    pub code: String,
    /// What the rule makes of the cell.
    pub verdict: Verdict,
    /// In words, with the numbers.
    pub text: String,
}

impl Reason {
    /// A reason of the table. A code that isn't in it counts as `suspect`.
    pub fn new(code: &str, text: impl Into<String>) -> Self {
        let verdict = REASONS.iter().find(|rule| rule.code == code).map_or(Verdict::Suspect, |rule| rule.verdict);
        Reason { code: code.to_owned(), verdict, text: text.into() }
    }
}

/// A cell's verdict with its reasons, the worst first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The worst of the reasons; valid without any.
    pub verdict: Verdict,
    /// Why.
    pub reasons: Vec<Reason>,
}

impl Judgement {
    /// From reasons in any order.
    pub fn of(mut reasons: Vec<Reason>) -> Self {
        let mut worst_first = Vec::with_capacity(reasons.len());
        for verdict in Verdict::ALL.into_iter().rev() {
            worst_first.extend(reasons.extract_if(.., |reason| reason.verdict == verdict));
        }
        let verdict = worst_first.first().map_or(Verdict::Valid, |reason| reason.verdict);
        Judgement { verdict, reasons: worst_first }
    }

    /// The reasons that are only hints.
    pub fn hints(&self) -> impl Iterator<Item = &Reason> {
        self.reasons.iter().filter(|reason| reason.verdict == Verdict::Valid)
    }
}

/// Judges one cell. Reasons that were found while measuring are taken from the cell; the others are found anew.
pub fn judge(cell: &Cell) -> Judgement {
    let own = cell.tokscope.get();
    let mut reasons = Vec::new();
    failures(cell, &mut reasons);
    conditions(cell, own.is_some(), &mut reasons);
    schedule(cell, &mut reasons);
    doubts(cell, own.is_some(), &mut reasons);
    hints(cell, &mut reasons);
    for recorded in own.iter().flat_map(|own| own.reasons.items()) {
        if let (Some(code), Some(text)) = (recorded.code.str(), recorded.text.str())
            && !reasons.iter().any(|reason| reason.code == code)
        {
            reasons.push(Reason::new(code, text));
        }
    }
    // A later version may know worse of it than this one does.
    if let Some(recorded) = own.and_then(|own| Verdict::from_name(own.verdict.str()?))
        && reasons.iter().all(|reason| reason.verdict < recorded)
        && recorded > Verdict::Valid
    {
        let text = format!("judged {recorded} when it was measured");
        reasons.push(Reason { code: "recorded".to_owned(), verdict: recorded, text });
    }
    Judgement::of(reasons)
}

/// A tick every 2 ms: later than a tick in one of a hundred means that arrivals were stamped late as well; where
/// the kernel stamps them, later than this means that several arrivals were taken for one.
const TICK_LATE_US: f64 = 2_000.0;
const TICK_LATE_KERNEL_US: f64 = 10_000.0;
/// Errors of the client against a server of known times, 99th percentiles, and of its count.
const TTFT_OFF_US: f64 = 10_000.0;
const ITL_OFF_US: f64 = 5_000.0;
const TOKENS_OFF: f64 = 0.005;
/// Share of a load thread's time from which on arrivals wait for it.
const BUSY: f64 = 0.9;
/// Starts further apart than this reach a server in several steps and not as one wave.
const START_SPREAD_US: i64 = 100_000;

/// What makes it no measurement.
fn failures(cell: &Cell, reasons: &mut Vec<Reason>) {
    let mut add = |code: &str, text: String| reasons.push(Reason::new(code, text));
    let failure = cell.failure_reason.str().filter(|text| !text.is_empty());
    let errors = cell.num_errors.i64().unwrap_or(0);
    let source = cell.aggregate_source.str().unwrap_or_default();
    let rate = metric::rate(cell);
    let failed = errors > 0
        || source == "invalid_stream_failure"
        || rate == Reading::Sentinel(Sentinel::StreamFailed)
        || (failure.is_some() && rate.value().is_some());
    let looped = cell.loop_detected.yes() || source == "invalid_exact_repetition" || rate == Reading::Sentinel(Sentinel::Repetition);
    if looped {
        add("repetition", repetition(cell));
    }
    // So does a machine that slept: the connections are gone when it wakes up.
    let slept = cell.tokscope.get().is_some_and(|own| own.reasons.items().any(|reason| reason.code.str() == Some("slept")));
    // A loop ends its own streams: those errors are no finding of their own.
    if failed && !looped && !slept {
        let what = match (errors, failure) {
            (_, Some(text)) => text.to_owned(),
            (1, None) => "one stream ended with an error".to_owned(),
            (n, None) if n > 1 => format!("{n} streams ended with errors"),
            _ => "a stream failed".to_owned(),
        };
        add("stream-failed", what + &failed_share(cell).unwrap_or_default());
    }
    match rate {
        Reading::Sentinel(Sentinel::KvBudget | Sentinel::Skipped) => add("not-run", rate.absence().unwrap_or_default().to_owned()),
        Reading::Sentinel(Sentinel::Unknown) => add("no-tokens", "the rate is a negative number of unknown meaning".to_owned()),
        Reading::Zero if !failed && !looped => add("no-tokens", "the rate is 0: the cell failed or nothing was generated".to_owned()),
        Reading::Null | Reading::Absent if !failed && !looped && !slept => {
            add("no-tokens", failure.unwrap_or("there is no rate").to_owned());
        }
        _ => {}
    }
    if source == "prometheus_fallback" || source == "none" {
        let counted = cell.client_output_tokens.i64().map_or_else(String::new, |n| format!(" (the client counted {n} tokens)"));
        add("server-fallback", format!("the rate is the server's own{counted}"));
    }
}

/// What repeated itself, as far as the file tells.
fn repetition(cell: &Cell) -> String {
    let confirmed = cell.loop_diagnostics.items().find(|found| found.status.str() == Some("confirmed"));
    let told = confirmed.and_then(|found| Some((found.channel.str()?, found.period_chars.i64()?, found.complete_cycles.i64()?)));
    let Some((channel, period, cycles)) = told else { return "the text repeated itself".to_owned() };
    format!("the {channel} repeated itself: {cycles} times the same {period} characters")
}

/// Requests that failed, of all, where the file tells of each: those we cut ourselves are neither.
fn failed_share(cell: &Cell) -> Option<String> {
    let classes = &cell.tokscope.get()?.series.get()?.requests.get()?.class;
    let over: Vec<&String> = classes.items().filter(|class| *class != "cut-by-us").collect();
    let failed = over.iter().filter(|class| **class != "finished").count();
    (failed > 0 && over.len() > 1)
        .then(|| format!("; {failed} of {} requests that ended failed ({:.0} %)", over.len(), failed as f64 / over.len() as f64 * 100.0))
}

/// What was not as asked for.
fn conditions(cell: &Cell, own: bool, reasons: &mut Vec<Reason>) {
    let mut add = |code: &str, text: String| reasons.push(Reason::new(code, text));
    let asked = cell.concurrency.i64().unwrap_or(0) as f64;
    if cell.warmup_timed_out.yes() {
        let what = cell.timeout_reason.str().filter(|text| !text.is_empty()).unwrap_or("no reason recorded");
        add("warmup-timed-out", format!("not ready in time: {what}"));
    }
    if let Some(text) = client(cell).and_then(client_limited) {
        add("client-limited", text);
    }
    let running = cell.avg_running_reqs.f64();
    let queued = cell.queue_fraction.f64().unwrap_or(0.0);
    let reconciled = cell.tokscope.get().and_then(|own| own.reconciled.get());
    if let Some(mean) = reconciled.and_then(|r| r.running_mean.f64()).filter(|mean| asked > 0.0 && *mean > 1.05 * asked + 0.5) {
        add("foreign-traffic", format!("{mean:.1} requests ran on average, {asked:.0} are ours"));
    }
    // Only streams that restart as they finish keep the concurrency; by a schedule, waiting is what is measured.
    let mode = cell.benchmark_mode.str().unwrap_or("duration");
    if own {
        // A gauge sampled while equal streams restart together reads too low for a moment: only a lasting
        // lack counts.
        if let Some(mean) = running.filter(|mean| mode == "duration" && asked > 1.0 && *mean < 0.9 * asked) {
            add("underfilled", format!("{mean:.1} of {asked:.0} requests ran on average"));
        }
        if queued > 0.25 && mode != "open-loop" {
            add("queued", format!("requests waited in {:.0} % of the samples", queued * 100.0));
        }
    } else {
        if cell.underfilled.yes() {
            add(
                "underfilled",
                running.map_or_else(|| "too few requests ran".to_owned(), |mean| format!("{mean} of {asked:.0} requests ran on average")),
            );
        }
        if cell.capacity_limited.yes() && !cell.warmup_timed_out.yes() {
            let most = cell.max_running_reqs.f64().map_or_else(String::new, |most| format!("at most {most} of {asked:.0} requests ran, "));
            add("capacity-limited", format!("{most}requests waited in {:.0} % of the samples", queued * 100.0));
        }
    }
}

/// Share of a schedule's requests, and of its rate, that has to be sent when due.
const RATE_REACHED: f64 = 0.95;

/// Whether a schedule was kept, and answered.
fn schedule(cell: &Cell, reasons: &mut Vec<Reason>) {
    let mut add = |code: &str, text: String| reasons.push(Reason::new(code, text));
    let Some(own) = cell.tokscope.get() else { return };
    let Some(open) = own.open_loop.get() else { return };
    // What wasn't sent because the user stopped it is nobody's fault.
    if own.reasons.items().any(|reason| reason.code.str() == Some("interrupted")) {
        return;
    }
    let count = |field: &crate::field::Field<crate::field::Int>| field.i64().unwrap_or(0);
    let (scheduled, late, unsent) = (count(&open.scheduled), count(&open.late), count(&open.unsent));
    if let Some((asked, sent)) = open.scheduled_per_s.f64().zip(open.sent_per_s.f64())
        && (sent < RATE_REACHED * asked || (late + unsent) as f64 > (1.0 - RATE_REACHED) * scheduled as f64)
    {
        let (most, connections) = (count(&open.most_in_flight), count(&open.connections));
        let why = if most >= connections {
            format!("all {connections} connections were busy")
        } else {
            "the client was late by itself".to_owned()
        };
        let delay = open.schedule_delay_s.get().and_then(|delay| delay.max.f64());
        let delay = delay.map_or_else(String::new, |s| format!(", by {s:.2} s at most"));
        let never = if unsent > 0 { format!(", {unsent} never") } else { String::new() };
        add(
            "rate-not-reached",
            format!("{sent:.2} of {asked:.2} requests a second were sent; {late} of {scheduled} were late{delay}{never}: {why}"),
        );
    }
    let missing = count(&open.cut) + unsent;
    if open.answer_limit_reached.yes() && missing > 0 {
        let limit = open.answer_limit_s.f64().map_or_else(String::new, |s| format!(" {s:.0} s after the last was due"));
        add("unfinished", format!("{missing} of {scheduled} requests were unanswered{limit}"));
    }
}

/// What makes the number doubtful.
fn doubts(cell: &Cell, own: bool, reasons: &mut Vec<Reason>) {
    let Reading::Value(rate) = metric::rate(cell) else { return };
    let mut add = |code: &str, text: String| reasons.push(Reason::new(code, text));
    let source = cell.aggregate_source.str().unwrap_or_default();
    if cell.concurrency.i64().is_none_or(|n| n < 1) || cell.context_tokens.i64().is_none_or(|n| n < 0) {
        add("place-unknown", "concurrency or context length is missing or makes no sense".to_owned());
    }
    match source {
        "" => add("source-unknown", "the file doesn't say what the tokens were counted by".to_owned()),
        "openai_stream_chunks_fallback" => {
            // A server that tells usage at the end of an answer only has told none.
            let none_ended = cell.tokscope.get().is_some() && cell.completed_request_count.i64() == Some(0);
            let help = if none_ended { ", and no answer ended to tell its usage: with a smaller --max-tokens some do" } else { "" };
            add("chunks-as-tokens", format!("chunks were counted as tokens{help}"));
        }
        _ => {}
    }
    let fallback = source == "prometheus_fallback" || source == "none";
    if let Some((server, client)) = counters(cell) {
        if let Some(text) = counters_disagree(server, client, cell.concurrency.i64().unwrap_or(0)) {
            add("server-disagrees", text);
        }
    } else if let Some(server) = cell.server_gen_throughput.f64().filter(|server| *server > 0.0 && !fallback && !source.is_empty()) {
        let off = server / rate - 1.0;
        if off.abs() > 0.03 {
            add("server-disagrees", format!("the server's own rate is {server:.1} tok/s, {:+.1} %", off * 100.0));
        }
    }
    if let Some(n) = client(cell).and_then(|client| client.bad_events.i64()).filter(|n| *n > 0) {
        let what = if n == 1 { "1 event".to_owned() } else { format!("{n} events") };
        add("bad-events", format!("{what} could not be read: tokens may be missing"));
    }
    if let Some(seconds) = cell.measurement_seconds.f64().filter(|seconds| *seconds <= 0.0) {
        add("rate-inconsistent", format!("a rate over {seconds} s is none"));
    }
    let seconds = cell.measurement_seconds.f64().filter(|seconds| *seconds > 0.0);
    let wall = cell.measurement_wall_seconds.f64().filter(|wall| *wall > 0.0);
    if let (Some(seconds), Some(wall)) = (seconds, wall)
        && seconds < 0.95 * wall
    {
        add("trailing-stall", format!("the last token came {:.1} s before the end of a window of {wall:.1} s", wall - seconds));
    }
    if let (Some(seconds), Some(tokens)) = (seconds, cell.client_output_tokens.i64())
        && !fallback
    {
        let again = tokens as f64 / seconds;
        // The predecessor writes seconds with six decimals.
        if (again / rate - 1.0).abs() > if own { 1e-9 } else { 1e-5 } {
            add("rate-inconsistent", format!("{tokens} tokens in {seconds} s are {again:.1} tok/s, not {rate:.1}"));
        }
    }
    let by_position: Vec<f64> = cell.server_spec_pos_accept.items().map(crate::field::Num::f64).collect();
    if let Some(length) = cell.server_spec_accept_length.f64()
        && !by_position.is_empty()
    {
        let sum: f64 = by_position.iter().sum();
        // Positions are rounded to four decimals.
        if (sum - (length - 1.0)).abs() > 5e-4 + 5e-5 * by_position.len() as f64 {
            add("counters-mixed", format!("acceptance by position adds up to {sum:.3}, the acceptance length says {:.3}", length - 1.0));
        }
    }
}

/// Tokens that server and client counted between the same instants.
fn counters(cell: &Cell) -> Option<(i64, i64)> {
    let reconciled = cell.tokscope.get()?.reconciled.get()?;
    Some((reconciled.server_tokens.i64()?, reconciled.client_tokens.i64()?))
}

/// Tokens of one side that aren't the other's: more than 3 %, and more than can be under way at the two instants.
fn counters_disagree(server: i64, client: i64, streams: i64) -> Option<String> {
    let off = server as f64 - client as f64;
    if off.abs() <= 0.03 * client as f64 || off.abs() <= 2.0 * streams as f64 {
        return None;
    }
    let share = if client > 0 { format!(" ({:+.1} %)", off / client as f64 * 100.0) } else { String::new() };
    let why = if off > 0.0 { ": it may have worked for somebody else as well" } else { "" };
    Some(format!("the server counted {server} tokens, {client} were counted here between the same instants{share}{why}"))
}

/// By what the client could not keep up.
fn client_limited(client: &CellClient) -> Option<String> {
    let limit = if client.stamp.str() == Some("kernel") { TICK_LATE_KERNEL_US } else { TICK_LATE_US };
    let tick = client.tick_late_p99_us.f64().filter(|p99| *p99 > limit).map(|p99| {
        let most = client.tick_late_max_us.f64().map_or_else(String::new, |max| format!(", {:.1} at most", max / 1e3));
        format!("the client's tick was late by {:.1} ms (p99){most}", p99 / 1e3)
    });
    let busy = client.busy_share.f64().filter(|busy| *busy > BUSY);
    let busy = busy.map(|busy| format!("the client's busiest thread was at work for {:.0} % of the time", busy * 100.0));
    let own = client.calibration.get().and_then(own_error);
    let found: Vec<String> = [tick, busy, own].into_iter().flatten().collect();
    (!found.is_empty()).then(|| found.join("; "))
}

/// What the client got wrong of a server whose times are known, if that is too much.
fn own_error(calibration: &Calibration) -> Option<String> {
    let ms = |name: &str, us: Option<f64>, limit: f64| us.filter(|us| *us > limit).map(|us| format!("{name} by {:.1} ms (p99)", us / 1e3));
    let ttft = ms("TTFT", calibration.ttft_off_p99_us.f64(), TTFT_OFF_US);
    let itl = ms("ITL", calibration.itl_off_p99_us.f64(), ITL_OFF_US);
    let tokens = calibration.tokens_off.i64().zip(calibration.tokens.i64()).and_then(|(off, all)| {
        // A chunk a stream may lie on the other side of an edge.
        let edge = calibration.concurrency.i64()?.checked_mul(calibration.tokens_per_chunk.i64()?)?;
        let most = off.saturating_abs();
        let too_much = most > edge && most as f64 > TOKENS_OFF * all as f64;
        too_much.then(|| format!("the count by {off:+} of {all} tokens"))
    });
    let found: Vec<String> = [ttft, itl, tokens].into_iter().flatten().collect();
    (!found.is_empty()).then(|| format!("against a server of known times the client was off: {}", found.join(", ")))
}

fn client(cell: &Cell) -> Option<&CellClient> {
    cell.tokscope.get()?.client.get()
}

/// What doesn't change the verdict but should be known.
fn hints(cell: &Cell, reasons: &mut Vec<Reason>) {
    if metric::rate(cell).value().is_none() {
        return;
    }
    let mut add = |code: &str, text: String| reasons.push(Reason::new(code, text));
    let window = cell.tokscope.get().and_then(|own| own.window.get());
    if let Some(us) = window.and_then(|window| window.start_spread_us.i64()).filter(|us| *us > START_SPREAD_US) {
        add("start-spread", format!("the last stream's first request was sent {:.2} s after the first one's", us as f64 / 1e6));
    }
    if let Some(n) = cell.request_count.i64().filter(|n| *n < 10) {
        let what = if n == 1 { "one request".to_owned() } else { format!("{n} requests") };
        add("few-requests", format!("percentiles over {what}"));
    }
    let longest = cell.request_samples.items().filter_map(|sample| sample.output_tokens.i64()).max();
    if let Some(tokens) = longest.filter(|tokens| *tokens >= 2048)
        && !cell.loop_detection_enabled.yes()
    {
        add("loop-unguarded", format!("up to {tokens} tokens a request, without a guard against repeated text"));
    }
    if !cell.capacity_limited.yes()
        && let Some(share) = cell.queue_fraction.f64().filter(|share| *share > 0.0)
    {
        add("queue-seen", format!("requests waited in {:.0} % of the samples", share * 100.0));
    }
    if let Some(text) = no_prefix_caching(cell) {
        add("no-prefix-caching", text);
    }
}

/// At C = 1 the request sent ahead has put the prompt into the prefix cache. The warm-up is that request, the
/// first token of the next, and 3 s of steady decoding: where both waits are alike, the cache did not help.
fn no_prefix_caching(cell: &Cell) -> Option<String> {
    let context = cell.context_tokens.i64()?;
    if cell.concurrency.i64()? != 1 || context < 8192 || cell.warmup_timed_out.yes() {
        return None;
    }
    let ttft = cell.ttft_p50.f64().filter(|ttft| *ttft > 0.0)?;
    let ahead = match cell.tokscope.get() {
        Some(own) => own.prompt.get()?.scout_ttft_s.f64()?,
        None => cell.warmup_duration.f64()? - ttft - 3.0,
    };
    (ttft >= 0.5 * ahead).then(|| {
        format!(
            "the first token took {ttft:.1} s at {}, after the same prompt had just been read in about {:.1} s",
            context_label(context),
            ahead.max(0.0)
        )
    })
}
