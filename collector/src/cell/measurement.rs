//! What measuring a cell leaves behind. Plain data, from which the report is assembled.

use std::sync::Arc;

use crate::event::CellId;
use crate::load::health::{ClientHealth, TickLateness};
use crate::load::record::{Outcome, RequestRecord, StreamRecord};
use crate::load::schedule::Schedule;
use crate::load::text::Channel;
use crate::load::tokens::WindowTokens;
use crate::plan::{CellLoad, PlannedCell};
use crate::prompt::Lengths;
use crate::repetition::Repetition;
use crate::scrape::snapshot::ServerWindow;
use tokscope_shared::stats::{Speculation, percentile, sorted};

/// A half-open span of the run's clock: `[start_us, end_us)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First microsecond inside.
    pub start_us: u64,
    /// First microsecond after.
    pub end_us: u64,
}

impl Window {
    /// Length, edge to edge, seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.end_us.saturating_sub(self.start_us) as f64 / 1e6
    }

    /// Whether `t_us` is inside.
    #[must_use]
    pub fn contains(&self, t_us: u64) -> bool {
        (self.start_us..self.end_us).contains(&t_us)
    }
}

/// The request sent ahead of a cell's streams, which fills the prefix cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Scout {
    /// The `x-request-id` sent.
    pub id: String,
    /// When it was sent, microseconds.
    pub sent_us: Option<u64>,
    /// Sending to the first token, microseconds. Where the one token has no text, to the first
    /// event that says it exists.
    pub ttft_us: Option<u64>,
    /// Prompt tokens as the server counted them.
    pub prompt_tokens: Option<u32>,
    /// Those of them from the prefix cache, if it says so.
    pub cached_tokens: Option<u32>,
    /// Why it failed, in a sentence.
    pub error: Option<String>,
}

/// How the streams came up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Warmup {
    /// Cell start to window start, scout included; microseconds. Absent without a window.
    pub duration_us: Option<u64>,
    /// The limit that applied, microseconds.
    pub timeout_us: u64,
    /// Whether the limit was reached.
    pub timed_out: bool,
    /// The predecessor's `ready_reason`: `running_reqs=a/C, queue_reqs=q, active_streams=n/C, stable=3.0s`,
    /// `metrics_unavailable, ...`, `warmup_timeout`; empty if neither was reached.
    pub ready_reason: String,
    /// The predecessor's `timeout_reason` code, or empty.
    pub timeout_reason: String,
}

/// How waiting for an idle server went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IdleWait {
    /// How long it took, microseconds.
    pub waited_us: u64,
    /// Whether the server was idle then; absent if its metrics do not tell.
    pub idle: Option<bool>,
    /// Requests running at the last look, if told.
    pub running: Option<u64>,
    /// Requests waiting at the last look, if told.
    pub waiting: Option<u64>,
    /// Whether they are those of the cell before, which did not end in time.
    pub left_over: bool,
    /// How long the server had had nothing of ours to do when the cell began, microseconds; absent if it never had.
    pub rested_us: Option<u64>,
}

/// How the server came to rest after a cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drain {
    /// How long it took, microseconds.
    pub waited_us: u64,
    /// Requests that were open when the streams were closed.
    pub open: usize,
    /// Those of them that the server was asked to end, and said it would.
    pub taken_back: usize,
    /// Whether it was as before the cell then; absent if its metrics do not tell.
    pub back: Option<bool>,
    /// Requests running at the last look, if told.
    pub running: Option<u64>,
    /// Requests waiting at the last look, if told.
    pub waiting: Option<u64>,
}

/// Text that repeats itself.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopFinding {
    /// Of which group of the cell's streams, from 0: the scout, warm-ups, the streams themselves.
    pub group: u32,
    /// The stream.
    pub stream: u32,
    /// The request's number in its stream.
    pub request: u32,
    /// Where the text stood.
    pub channel: Channel,
    /// When it was noticed, microseconds on the run's clock.
    pub t_us: u64,
    /// The request's tokens by then, where the server tells.
    pub tokens: Option<u32>,
    /// What repeats itself.
    pub repetition: Repetition,
}

/// What the guard against repetitions found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loops {
    /// At most one for each request and channel.
    pub findings: Vec<LoopFinding>,
    /// Findings that are not kept.
    pub omitted: u64,
    /// Bytes of text that were not looked at, because they came too fast.
    pub lost_bytes: u64,
    /// The group that was measured.
    pub last_group: u32,
}

impl Loops {
    /// The first one that is sure.
    #[must_use]
    pub fn confirmed(&self) -> Option<&LoopFinding> {
        self.findings.iter().filter(|found| found.repetition.confirmed).min_by_key(|found| found.t_us)
    }
}

/// Speculative decoding over a window, by the server's counters, or by its gauges where it has no others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpeculationFound {
    /// Share of the drafted tokens that were accepted.
    pub accept_rate: Option<f64>,
    /// Tokens of a step with a draft.
    pub accept_length: Option<f64>,
    /// Steps of sequences.
    pub engine_steps: Option<f64>,
    /// Tokens a step, also those without a draft.
    pub effective_length: Option<f64>,
    /// Steps a second.
    pub steps_per_s: Option<f64>,
}

impl SpeculationFound {
    /// Steps a second and tokens a step, where both are known.
    #[must_use]
    pub fn norm(&self) -> Option<(f64, f64)> {
        self.steps_per_s.zip(self.effective_length)
    }
}

/// What a schedule asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenLoop {
    /// Requests a second.
    pub per_s: f64,
    /// Whether the gaps are drawn at random.
    pub poisson: bool,
    /// When which request was due.
    pub schedule: Arc<Schedule>,
    /// The schedule's beginning on the run's clock, microseconds.
    pub begin_us: u64,
    /// Connections: the most that could be under way.
    pub connections: u32,
    /// How long after the schedule's end answers were waited for, microseconds.
    pub answer_limit_us: u64,
    /// Whether some were still missing then.
    pub limit_reached: bool,
}

/// One cell, measured as far as it went.
#[derive(Clone, Debug)]
pub struct CellMeasurement {
    /// Which.
    pub id: CellId,
    /// As planned, with its output limit.
    pub cell: PlannedCell,
    /// Cell start, before waiting and scout; microseconds.
    pub started_us: u64,
    /// Everything over, streams joined; microseconds.
    pub ended_us: u64,
    /// Waiting for an idle server before it.
    pub idle: IdleWait,
    /// The scout; absent at context 0 or if not wanted.
    pub scout: Option<Scout>,
    /// How the streams came up.
    pub warmup: Warmup,
    /// The window; absent if it never opened. Shorter than asked for only if `interrupted` or if
    /// all streams had failed.
    pub window: Option<Window>,
    /// What the schedule asked for, where there is one.
    pub open_loop: Option<OpenLoop>,
    /// Tokens in the window, of a finite number of requests those of the finished; absent without a window.
    pub tokens: Option<WindowTokens>,
    /// What each stream left behind, stream 0 first.
    pub streams: Vec<StreamRecord>,
    /// The server's side.
    pub server: ServerWindow,
    /// The client's side.
    pub client: ClientHealth,
    /// Whether the user stopped it.
    pub interrupted: bool,
    /// Why there is no valid number: distinct stream errors joined with `; `, in the predecessor's way.
    pub failure: Option<String>,
    /// The predecessor's `ready_reason` of a failed cell: `stream_failure_during_warmup` or
    /// `stream_failure_during_measurement`'s stem, as the report writes it.
    pub failure_phase: Option<FailurePhase>,
    /// What the guard against repetitions found; absent where there was none.
    pub loops: Option<Loops>,
    /// What happened after it on the server.
    pub drain: Drain,
}

/// When the first stream failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePhase {
    /// Before the window opened.
    Warmup,
    /// After.
    Measurement,
    /// A loop, found before the window opened.
    LoopInWarmup,
    /// A loop, found after.
    LoopInMeasurement,
}

impl FailurePhase {
    /// The predecessor's `ready_reason` for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warmup => "stream_failure_during_warmup",
            Self::Measurement => "stream_failure_during_measurement",
            Self::LoopInWarmup => "loop_detected_during_warmup",
            Self::LoopInMeasurement => "loop_detected_during_measurement",
        }
    }

    /// Whether the text repeated itself.
    #[must_use]
    pub fn is_loop(self) -> bool {
        matches!(self, Self::LoopInWarmup | Self::LoopInMeasurement)
    }
}

impl CellMeasurement {
    /// Tokens of the window over its length, edge to edge. `None` where there is no valid number:
    /// no window, a failed stream, no token.
    #[must_use]
    pub fn aggregate_tps(&self) -> Option<f64> {
        if self.failure.is_some() {
            return None;
        }
        let seconds = self.window?.seconds();
        let tokens = self.tokens.as_ref()?.tokens;
        (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
    }

    /// Speculative decoding in the window; `None` where the server doesn't draft, or doesn't tell.
    #[must_use]
    pub fn speculation(&self) -> Option<SpeculationFound> {
        let tps = self.aggregate_tps();
        let counted = self.tokens.as_ref().map(|tokens| tokens.tokens as f64);
        let output = self.server.generation_tokens.map(|delta| delta.delta).filter(|delta| *delta > 0.0).or(counted);
        let spec = self.server.spec.as_ref().zip(output);
        let by_counters = spec.and_then(|(spec, output)| Speculation::new(spec.drafts, spec.draft_tokens, spec.accepted_tokens, output));
        if let Some(found) = by_counters {
            return Some(SpeculationFound {
                accept_rate: Some(found.accept_rate),
                accept_length: Some(found.accept_length),
                engine_steps: Some(found.engine_steps),
                effective_length: Some(found.effective_length),
                steps_per_s: tps.map(|tps| found.steps_per_s(tps)),
            });
        }
        // Without counters: the median of rate by acceptance length, each pair from one scrape of the window.
        let accept_length = self.server.spec_accept_length.map(|gauge| gauge.mean);
        let steps_per_s = percentile(&sorted(self.server.steps_per_s.iter().copied()), 50.0).filter(|steps| *steps > 0.0);
        accept_length.or(steps_per_s)?;
        Some(SpeculationFound {
            accept_rate: self.server.spec_accept_rate.map(|gauge| gauge.mean),
            accept_length,
            engine_steps: steps_per_s.zip(self.window).map(|(steps, window)| steps * window.seconds()),
            effective_length: tps.zip(steps_per_s).map(|(tps, steps)| tps / steps),
            steps_per_s,
        })
    }

    /// Prompt tokens of the requests from here that the server may have counted between the two scrapes of its counter.
    /// A server may count a prompt when it begins, when its first token comes, or when it ends, and one that was given
    /// up at any time or never: all that could count do. A length the server never told is taken for the longest.
    #[must_use]
    pub fn prompt_tokens_meanwhile(&self) -> Option<f64> {
        let counted = self.server.prompt_tokens?;
        let requests = || self.streams.iter().flat_map(|stream| &stream.requests);
        let longest = requests().filter_map(|r| r.prompt_tokens).max()?;
        let around = requests().filter(|r| r.sent_us.is_some_and(|sent| sent <= counted.to_us) && r.ended_us >= counted.from_us);
        Some(around.map(|r| f64::from(r.prompt_tokens.unwrap_or(longest))).sum())
    }

    /// How long its prompts were, as the server counted those of its requests; `None` where it doesn't tell.
    #[must_use]
    pub fn prompt_lengths(&self, expected: Option<u64>) -> Option<Lengths> {
        Lengths::against(self.requests().filter_map(|r| r.prompt_tokens).map(u64::from), expected)
    }

    /// How late the client's tick was inside the window; without a window, over all of the cell.
    #[must_use]
    pub fn tick(&self) -> Option<TickLateness> {
        TickLateness::of(&self.client.ticks, self.window.map(|window| (window.start_us, window.end_us)))
    }

    /// All requests, stream by stream.
    pub fn requests(&self) -> impl Iterator<Item = &RequestRecord> {
        self.streams.iter().flat_map(|stream| &stream.requests)
    }

    /// Whether C streams shall decode all the time, as neither a finite number of requests nor a schedule can promise.
    #[must_use]
    pub fn is_sustained(&self) -> bool {
        self.cell.load == CellLoad::Sustained
    }

    /// What ended well and what failed: streams, where they restart by themselves, else requests.
    #[must_use]
    pub fn completed_and_failed(&self) -> (usize, usize) {
        if self.is_sustained() {
            let failed = self.failed_streams();
            return (self.streams.len() - failed, failed);
        }
        let of = |is: fn(Outcome) -> bool| self.requests().filter(|r| is(r.outcome)).count();
        (of(|outcome| outcome == Outcome::Finished), of(Outcome::is_failure))
    }

    /// Streams of which a request failed before the window was over. What breaks after it changes nothing.
    #[must_use]
    pub fn failed_streams(&self) -> usize {
        let end_us = self.window.map_or(u64::MAX, |window| window.end_us);
        self.streams.iter().filter(|s| s.failure().is_some_and(|r| r.ended_us < end_us)).count()
    }
}
