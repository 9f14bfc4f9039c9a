//! What measuring a cell leaves behind. Plain data, from which the report is assembled.

use std::sync::Arc;

use crate::event::CellId;
use crate::load::health::{ClientHealth, TickLateness};
use crate::load::record::{Outcome, RequestRecord, StreamRecord};
use crate::load::schedule::Schedule;
use crate::load::tokens::WindowTokens;
use crate::plan::{CellLoad, PlannedCell};
use crate::scrape::snapshot::ServerWindow;

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
}

/// When the first stream failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePhase {
    /// Before the window opened.
    Warmup,
    /// After.
    Measurement,
}

impl FailurePhase {
    /// The predecessor's `ready_reason` for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warmup => "stream_failure_during_warmup",
            Self::Measurement => "stream_failure_during_measurement",
        }
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
