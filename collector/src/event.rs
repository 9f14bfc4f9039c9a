//! What the pipeline tells the terminal, the event log, the checkpoint and the host while it runs,
//! and the predecessor's wording of it. It draws nothing, and keeps what the report will say.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Zoned;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedSender;

use crate::clock::Clock;
use crate::plan::{Layer, PlannedCell};

/// Something that happened at `t_us` of the run's clock.
#[derive(Clone, Debug)]
pub struct Stamped {
    /// Microseconds since the run's start.
    pub t_us: u64,
    /// What happened.
    pub event: Event,
}

/// An event as it is kept: in words, so that those of an earlier stretch of the run stand beside those of this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// Microseconds since the run's start.
    pub t_us: u64,
    /// What kind.
    pub kind: String,
    /// The predecessor's words for it.
    pub text: String,
    /// The same as a line of `event_log`.
    pub line: String,
}

/// What happened so far, of what is kept. Copies share it.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<Logged>>>);

impl Log {
    /// One that goes on after these.
    #[must_use]
    pub fn after(earlier: Vec<Logged>) -> Self {
        Self(Arc::new(Mutex::new(earlier)))
    }

    /// All of it.
    #[must_use]
    pub fn entries(&self) -> Vec<Logged> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, stamped: &Stamped, wall: &Zoned) {
        let Some(text) = stamped.event.log_text() else { return };
        let line = format!("{} {text}", wall.strftime("%H:%M:%S"));
        let entry = Logged { t_us: stamped.t_us, kind: stamped.event.kind().to_owned(), text, line };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }
}

/// Which cell an event is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellId {
    /// Place in the order of execution, from 0.
    pub index: usize,
    /// Which part of the matrix.
    pub layer: Layer,
    /// Which repeat of it, from 1.
    pub repeat: u32,
    /// Requested context, tokens.
    pub context_tokens: u32,
    /// Streams at once; of an open loop the most that may be under way.
    pub concurrency: u32,
    /// Requests a second of an open loop.
    pub per_s: Option<f64>,
}

impl std::fmt::Display for CellId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let label = context_label(self.context_tokens);
        match self.per_s {
            Some(per_s) => write!(f, "{per_s}/s ctx={label}"),
            None => write!(f, "C={} ctx={label}", self.concurrency),
        }
    }
}

/// On which side of a cell the server is waited for, in the predecessor's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// Before it.
    Before,
    /// After it was measured.
    After,
    /// After it was skipped.
    AfterSkipped,
    /// After an answer repeated itself.
    AfterLoop,
    /// After it failed.
    AfterError,
}

impl std::fmt::Display for Boundary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Before => "before",
            Self::After => "after",
            Self::AfterSkipped => "after skipped",
            Self::AfterLoop => "after loop",
            Self::AfterError => "after stream error",
        })
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The run begins with this engine (`vllm`, ...).
    BenchmarkStart {
        /// Engine id as in the report.
        engine: String,
    },
    /// What will be measured is known. Not in the log.
    Planned {
        /// Cells to come.
        cells: Vec<PlannedCell>,
        /// Length of each window, microseconds.
        window_us: u64,
    },
    /// A fact found at start-up, in words.
    Startup(String),
    /// Something the user should know about, found at start-up.
    Warning(String),
    /// The same, found while the run goes.
    LateWarning(String),
    /// A phase besides the cells begins or ends, in the predecessor's words.
    Line(String),
    /// The server works on more than it used to: it is waited for.
    DrainWait {
        /// The cell.
        cell: CellId,
        /// Whether before or after it.
        boundary: Boundary,
        /// Requests running.
        running: u64,
        /// Requests waiting.
        queue: u64,
    },
    /// The server is at rest again.
    Drained {
        /// The cell.
        cell: CellId,
        /// Whether before or after it.
        boundary: Boundary,
    },
    /// An answer repeats itself: the cell ends.
    LoopFound {
        /// The cell.
        cell: CellId,
        /// `content` or `reasoning`.
        channel: String,
        /// Characters of a cycle.
        period: u64,
        /// Whole cycles when it was noticed.
        cycles: u64,
    },
    /// A cell begins.
    CellStart {
        /// The cell.
        cell: CellId,
    },
    /// The cell's scout has come back.
    ScoutDone {
        /// The cell.
        cell: CellId,
        /// Time to first token, microseconds; absent if it failed.
        ttft_us: Option<u64>,
        /// Prompt tokens as the server counted them.
        prompt_tokens: Option<u64>,
        /// Those of them that came from the prefix cache, if it says so.
        cached_tokens: Option<u64>,
        /// Why it failed.
        error: Option<String>,
    },
    /// The streams are up: the window opens now.
    Ready {
        /// The cell.
        cell: CellId,
        /// The predecessor's wording.
        reason: String,
        /// How long the window will be, microseconds.
        duration_us: u64,
    },
    /// The streams did not come up in time: the window opens anyway.
    WarmupTimeout {
        /// The cell.
        cell: CellId,
        /// What was missing.
        reason: String,
        /// How long the window will be, microseconds.
        duration_us: u64,
    },
    /// A number of requests, or a schedule of them, begins now.
    MeasureStart {
        /// The cell.
        cell: CellId,
        /// What begins: `request-count=N`, in the predecessor's wording, or `request-rate=R`.
        what: String,
    },
    /// Progress of requests that are finite in number, a few times a second. Not in the log.
    Requests {
        /// The cell.
        cell: CellId,
        /// Whether they are those before the measured ones.
        before: bool,
        /// Requests that have ended.
        done: u32,
        /// Requests there are.
        total: u32,
        /// Since they began, microseconds.
        elapsed_us: u64,
        /// Tokens so far.
        tokens: u64,
    },
    /// Progress, about twice a second. Not in the log.
    Tick {
        /// The cell.
        cell: CellId,
        /// Whether the window is open; before that, the streams warm up.
        in_window: bool,
        /// Since the cell's start or, inside the window, since its opening; microseconds.
        elapsed_us: u64,
        /// Tokens so far in the window, or since the streams started; as known while they flow.
        tokens: u64,
        /// Streams that received something lately.
        active_streams: u32,
    },
    /// A cell was measured.
    CellDone {
        /// The cell.
        cell: CellId,
        /// Tokens a second; absent if there is no number.
        tps: Option<f64>,
        /// With speculative decoding: steps a second, and tokens a step.
        norm: Option<(f64, f64)>,
    },
    /// A cell failed.
    CellError {
        /// The cell.
        cell: CellId,
        /// Why.
        text: String,
    },
    /// A cell was skipped by the user.
    CellSkipped {
        /// The cell.
        cell: CellId,
    },
}

impl Event {
    /// A short word for the event, for `tokscope.events[].kind`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::BenchmarkStart { .. } => "benchmark-start",
            Self::Planned { .. } => "planned",
            Self::Startup(_) => "startup",
            Self::Warning(_) | Self::LateWarning(_) => "warning",
            Self::Line(_) => "phase",
            Self::DrainWait { .. } => "drain-wait",
            Self::Drained { .. } => "drained",
            Self::LoopFound { .. } => "loop",
            Self::CellStart { .. } => "cell-start",
            Self::ScoutDone { .. } => "scout-done",
            Self::Ready { .. } => "ready",
            Self::WarmupTimeout { .. } => "warmup-timeout",
            Self::MeasureStart { .. } => "measure-start",
            Self::Requests { .. } => "requests",
            Self::Tick { .. } => "tick",
            Self::CellDone { .. } => "cell-done",
            Self::CellError { .. } => "cell-error",
            Self::CellSkipped { .. } => "cell-skipped",
        }
    }

    /// The predecessor's text for this event, to the letter; `None` where it has none.
    #[must_use]
    pub fn log_text(&self) -> Option<String> {
        // Names and errors come from the server: an event stays a line.
        self.words().map(|text| text.replace(char::is_control, " "))
    }

    fn words(&self) -> Option<String> {
        Some(match self {
            Self::BenchmarkStart { engine } => format!("benchmark start engine={engine}"),
            Self::Startup(text) => format!("startup {text}"),
            Self::Warning(text) => format!("startup WARNING: {text}"),
            Self::LateWarning(text) => format!("WARNING: {text}"),
            Self::Line(text) => text.clone(),
            Self::DrainWait { cell, boundary, running, queue } => {
                format!("waiting for scheduler drain {boundary} {cell}: running={running} queue={queue}")
            }
            Self::Drained { cell, boundary } => format!("scheduler drained {boundary} {cell}"),
            Self::LoopFound { cell, channel, period, cycles } => {
                format!("ERROR: loop {cell} {channel} period={period} chars cycles={cycles}")
            }
            Self::CellStart { cell } => format!("cell start {cell}"),
            Self::Ready { cell, reason, .. } => format!("ready {cell} {reason}"),
            Self::WarmupTimeout { cell, reason, .. } => format!("warmup timeout {cell} {reason}"),
            Self::MeasureStart { cell, what } => format!("measure start {cell} {what}"),
            Self::CellDone { cell, tps, norm: None } => format!("cell done {cell} {:.1} tok/s", (*tps)?),
            Self::CellDone { cell, tps, norm: Some((steps, length)) } => {
                format!("cell done {cell} {:.1} tok/s | norm {steps:.1} step/s len={length:.2}", (*tps)?)
            }
            Self::CellError { cell, text } => format!("ERROR {cell}: {text}"),
            Self::CellSkipped { cell } => format!("cell skipped {cell}"),
            Self::Planned { .. } | Self::ScoutDone { .. } | Self::Requests { .. } | Self::Tick { .. } => return None,
        })
    }

    /// The line of `event_log`: `HH:MM:SS text`, local time.
    #[must_use]
    pub fn log_line(&self, wall: &Zoned) -> Option<String> {
        let text = self.log_text()?;
        Some(format!("{} {text}", wall.strftime("%H:%M:%S")))
    }
}

/// The label of a context: `0`, `32k`, `1536`. The predecessor's, but for those that are no whole `k`: there two contexts
/// must not have one name.
#[must_use]
pub fn context_label(tokens: u32) -> String {
    tokscope_shared::report::identity::context_label(i64::from(tokens))
}

/// Sends events, stamped. Nobody has to listen.
#[derive(Clone, Debug)]
pub struct Events {
    clock: Clock,
    to: Option<UnboundedSender<Stamped>>,
    log: Log,
}

impl Events {
    /// Events that go to `to`.
    #[must_use]
    pub fn new(clock: Clock, to: UnboundedSender<Stamped>) -> Self {
        Self::logged(clock, to, Log::default())
    }

    /// The same, and they are kept in `log`.
    #[must_use]
    pub fn logged(clock: Clock, to: UnboundedSender<Stamped>, log: Log) -> Self {
        Self { clock, to: Some(to), log }
    }

    /// Events that nobody hears.
    #[must_use]
    pub fn silent(clock: Clock) -> Self {
        Self { clock, to: None, log: Log::default() }
    }

    /// Emits `event`, stamped now. A listener that is gone is no error.
    pub fn emit(&self, event: Event) {
        if let Some(to) = &self.to {
            let t_us = self.clock.now_us();
            let stamped = Stamped { t_us, event };
            self.log.add(&stamped, &self.clock.wall_at(t_us));
            // The run goes on without its listener.
            let _ = to.send(stamped);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_read_as_the_predecessors() {
        let cell = CellId { index: 0, layer: Layer::Sustained, repeat: 1, context_tokens: 65_536, concurrency: 8, per_s: None };
        let wall: Zoned = "2026-12-02T03:04:05+00:00[UTC]".parse().unwrap();
        let line = |e: Event| e.log_line(&wall);
        assert_eq!(line(Event::CellStart { cell }).unwrap(), "03:04:05 cell start C=8 ctx=64k");
        let done = |tps| line(Event::CellDone { cell, tps, norm: None });
        let norm = Event::CellDone { cell, tps: Some(145.491_6), norm: Some((52.534, 2.769_5)) };
        assert_eq!(line(norm).unwrap(), "03:04:05 cell done C=8 ctx=64k 145.5 tok/s | norm 52.5 step/s len=2.77");
        let found = Event::LoopFound { cell, channel: "content".into(), period: 130, cycles: 31 };
        assert_eq!(line(found).unwrap(), "03:04:05 ERROR: loop C=8 ctx=64k content period=130 chars cycles=31");
        assert_eq!(done(Some(145.491_6)).unwrap(), "03:04:05 cell done C=8 ctx=64k 145.5 tok/s");
        assert_eq!(done(None), None, "no number, no line with a number");
        assert_eq!(
            line(Event::WarmupTimeout { cell, reason: "running_reqs=5/8".into(), duration_us: 1 }).unwrap(),
            "03:04:05 warmup timeout C=8 ctx=64k running_reqs=5/8"
        );
        assert_eq!(
            line(Event::DrainWait { cell, boundary: Boundary::Before, running: 1, queue: 0 }).unwrap(),
            "03:04:05 waiting for scheduler drain before C=8 ctx=64k: running=1 queue=0"
        );
        assert_eq!(
            line(Event::MeasureStart { cell, what: "request-count=40".into() }).unwrap(),
            "03:04:05 measure start C=8 ctx=64k request-count=40"
        );
        assert_eq!(
            line(Event::Drained { cell, boundary: Boundary::AfterLoop }).unwrap(),
            "03:04:05 scheduler drained after loop C=8 ctx=64k"
        );
        assert_eq!(context_label(1000), "1000");
        assert_eq!(context_label(1536), "1536");
        assert_eq!(context_label(32_768), "32k");
    }
}
