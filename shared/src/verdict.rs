//! May this cell be believed, and if not why: rules over a cell, the same for a fresh measurement and for a
//! file ten versions old. A rule whose keys are absent doesn't fire.

use crate::field::Findings;
use crate::metric::{self, Reading, Sentinel};
use crate::report::Report;
use crate::report::cell::Cell;
use crate::report::identity::context_label;

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
    rule("interrupted", Verdict::Limited, "The run was interrupted inside the window: it is shorter than asked for."),
    rule("warmup-timed-out", Verdict::Limited, "The streams were not all decoding steadily when the window opened."),
    rule("underfilled", Verdict::Limited, "Fewer requests ran than the concurrency asked for."),
    rule("queued", Verdict::Limited, "Requests waited at the server for a good part of the window."),
    rule("capacity-limited", Verdict::Limited, "The server did not hold the concurrency: requests waited or too few ran."),
    rule("stalled", Verdict::Limited, "A stream that was decoding stood still for a while inside the window."),
    rule("client-limited", Verdict::Limited, "The measuring client could not keep up."),
    rule("foreign-traffic", Verdict::Suspect, "The server worked for somebody else as well."),
    rule("coarse-chunks", Verdict::Suspect, "Tokens came in few large pieces, so the window's edges decide over a good part of them."),
    rule("prompt-length", Verdict::Suspect, "The prompts were not as long as the context says, by the server's own count."),
    rule("place-unknown", Verdict::Suspect, "The file doesn't say at which concurrency and context length the cell was measured."),
    rule("source-unknown", Verdict::Suspect, "The file doesn't say what the tokens were counted by."),
    rule("chunks-as-tokens", Verdict::Suspect, "Chunks were counted as tokens, because the server reported no usage."),
    rule(
        "server-disagrees",
        Verdict::Suspect,
        "The server's own rate differs by more than 3 %: other traffic, or usage reported only at a request's end.",
    ),
    rule("trailing-stall", Verdict::Suspect, "The tokens ended well before the window did; the rate covers only the good part."),
    rule("rate-inconsistent", Verdict::Suspect, "Tokens by seconds is not the rate that stands in the file."),
    rule(
        "counters-mixed",
        Verdict::Suspect,
        "Acceptance by position doesn't add up to the acceptance length: counters of different windows, or of other traffic.",
    ),
    rule("metrics-gap", Verdict::Valid, "The server's metrics could not be read at some time in the window."),
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
        add("repetition", "the text repeated itself".to_owned());
    }
    // A loop ends its own streams: those errors are no finding of their own.
    if failed && !looped {
        let what = match (errors, failure) {
            (_, Some(text)) => text.to_owned(),
            (1, None) => "one stream ended with an error".to_owned(),
            (n, None) if n > 1 => format!("{n} streams ended with errors"),
            _ => "a stream failed".to_owned(),
        };
        add("stream-failed", what);
    }
    match rate {
        Reading::Sentinel(Sentinel::KvBudget | Sentinel::Skipped) => add("not-run", rate.absence().unwrap_or_default().to_owned()),
        Reading::Sentinel(Sentinel::Unknown) => add("no-tokens", "the rate is a negative number of unknown meaning".to_owned()),
        Reading::Zero if !failed && !looped => add("no-tokens", "the rate is 0: the cell failed or nothing was generated".to_owned()),
        Reading::Null | Reading::Absent if !failed && !looped => add("no-tokens", failure.unwrap_or("there is no rate").to_owned()),
        _ => {}
    }
    if source == "prometheus_fallback" || source == "none" {
        let counted = cell.client_output_tokens.i64().map_or_else(String::new, |n| format!(" (the client counted {n} tokens)"));
        add("server-fallback", format!("the rate is the server's own{counted}"));
    }
}

/// What was not as asked for.
fn conditions(cell: &Cell, own: bool, reasons: &mut Vec<Reason>) {
    let mut add = |code: &str, text: String| reasons.push(Reason::new(code, text));
    let asked = cell.concurrency.i64().unwrap_or(0) as f64;
    if cell.warmup_timed_out.yes() {
        let what = cell.timeout_reason.str().filter(|text| !text.is_empty()).unwrap_or("no reason recorded");
        add("warmup-timed-out", format!("not ready in time: {what}"));
    }
    let running = cell.avg_running_reqs.f64();
    let queued = cell.queue_fraction.f64().unwrap_or(0.0);
    if own {
        // A gauge sampled while equal streams restart together reads too low for a moment: only a lasting
        // lack counts.
        if let Some(mean) = running.filter(|mean| asked > 1.0 && *mean < 0.9 * asked) {
            add("underfilled", format!("{mean:.1} of {asked:.0} requests ran on average"));
        }
        if queued > 0.25 {
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
        "openai_stream_chunks_fallback" => add("chunks-as-tokens", "chunks were counted as tokens".to_owned()),
        _ => {}
    }
    let fallback = source == "prometheus_fallback" || source == "none";
    if let Some(server) = cell.server_gen_throughput.f64().filter(|server| *server > 0.0 && !fallback && !source.is_empty()) {
        let off = server / rate - 1.0;
        if off.abs() > 0.03 {
            add("server-disagrees", format!("the server's own rate is {server:.1} tok/s, {:+.1} %", off * 100.0));
        }
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

/// What doesn't change the verdict but should be known.
fn hints(cell: &Cell, reasons: &mut Vec<Reason>) {
    if metric::rate(cell).value().is_none() {
        return;
    }
    let mut add = |code: &str, text: String| reasons.push(Reason::new(code, text));
    if let Some(n) = cell.request_count.i64().filter(|n| *n < 10) {
        let what = if n == 1 { "one request".to_owned() } else { format!("{n} requests") };
        add("few-requests", format!("percentiles over {what}"));
    }
    let longest = cell.request_samples.items().filter_map(|sample| sample.output_tokens.i64()).max();
    if let Some(tokens) = longest.filter(|tokens| *tokens >= 2048)
        && cell.loop_detection_enabled.is_absent()
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

/// What is doubtful about a file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// A code in kebab-case.
    pub code: &'static str,
    /// In words.
    pub text: String,
}

/// A whole report, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    /// Of each cell of the sustained matrix, in order.
    pub cells: Vec<Judgement>,
    /// Of each cell of the burst matrix, in order.
    pub burst: Vec<Judgement>,
    /// Of the file.
    pub doubts: Vec<Doubt>,
}

impl Review {
    /// How many cells of the sustained matrix have that verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.cells.iter().filter(|judgement| judgement.verdict == verdict).count()
    }

    /// Whether any cell, burst ones too, is invalid.
    pub fn any_invalid(&self) -> bool {
        self.cells.iter().chain(&self.burst).any(|judgement| judgement.verdict == Verdict::Invalid)
    }

    /// The counts in words: `3 of 3 cells valid`, `39 cells: 16 valid, 23 limited`.
    pub fn sentence(&self) -> String {
        let n = self.cells.len();
        match n {
            0 => "no decode cells".to_owned(),
            1 => format!("1 cell, {}", self.cells[0].verdict),
            _ if self.count(Verdict::Valid) == n => format!("{n} of {n} cells valid"),
            _ => {
                let parts: Vec<String> = Verdict::ALL
                    .into_iter()
                    .filter_map(|verdict| Some((verdict, self.count(verdict))).filter(|(_, n)| *n > 0))
                    .map(|(verdict, n)| format!("{n} {verdict}"))
                    .collect();
                format!("{n} cells: {}", parts.join(", "))
            }
        }
    }
}

/// Judges every cell and the file, with what was found when it was read.
pub fn review(report: &Report, findings: &Findings) -> Review {
    Review {
        cells: report.cells().map(judge).collect(),
        burst: report.burst_results.items().map(judge).collect(),
        doubts: file_doubts(report, findings),
    }
}

fn file_doubts(report: &Report, findings: &Findings) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let mut add = |code: &'static str, text: String| doubts.push(Doubt { code, text });
    let n = findings.non_finite;
    if n > 0 {
        add("non-finite", format!("{n} numbers are written as NaN or Infinity and count as not measured"));
    }
    if let Some(first) = findings.odd.first() {
        add(
            "odd-values",
            format!("{} values are of another kind than expected, the first at {first}; they count as not measured", findings.odd.len()),
        );
    }
    let Some(meta) = report.metadata.get() else { return doubts };
    let status = report.tokscope.get().and_then(|own| own.status.str());
    let old_interrupt = meta.engine.str() == Some("") && !report.is_ours();
    if meta.interrupted.yes() || old_interrupt || status == Some("interrupted") {
        add("interrupted", "the run was interrupted".to_owned());
    } else if status == Some("failed") {
        add("failed", "the run failed".to_owned());
    }
    if let Some(warning) = meta.metrics_warning.str().filter(|text| !text.is_empty()) {
        add("no-metrics", format!("the server's metrics were not read: {warning}"));
    }
    if let Some(text) = missing_cells(report) {
        add("cells-missing", text);
    }
    doubts
}

/// Cells that were asked for and are not there, but for those the file says it left out.
fn missing_cells(report: &Report) -> Option<String> {
    let meta = report.metadata.get()?;
    if meta.mode.get().is_some() || meta.prefill_only.yes() || report.cells().next().is_none() {
        return None;
    }
    let number = |n: &crate::field::Int| n.i64();
    let there: Vec<_> = report.cells().map(|cell| (cell.context_tokens.i64(), cell.concurrency.i64())).collect();
    let explained: Vec<_> = report
        .tokscope
        .get()
        .map(|own| own.left_out.items().map(|left| (left.context_tokens.i64(), left.concurrency.i64())).collect())
        .unwrap_or_default();
    let mut missing = Vec::new();
    for context in meta.context_lengths.items().map(number) {
        for level in meta.concurrency_levels.items().map(number) {
            let cell = (Some(context), Some(level));
            if !there.contains(&cell) && !explained.contains(&cell) {
                missing.push(format!("C={level} at {}", context_label(context)));
            }
        }
    }
    let n = missing.len();
    if n == 0 {
        return None;
    }
    let more = if n > 4 { format!(" and {} more", n - 4) } else { String::new() };
    missing.truncate(4);
    let what = if n == 1 { "1 cell that was asked for is" } else { &format!("{n} cells that were asked for are") };
    Some(format!("{what} missing (skipped, left out or interrupted): {}{more}", missing.join(", ")))
}
