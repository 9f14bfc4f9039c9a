//! What is on the server besides the cell: requests of others, which were there before the run, and what the cell
//! before left behind. Neither blocks a run for long, and neither goes unsaid.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::measurement::{CellMeasurement, Drain, IdleWait};
use super::run::CellRun;
use crate::event::{Boundary, Event};
use crate::load::record::{Outcome, RequestRecord};
use crate::target::Engine;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// For one look.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
/// For a server that doesn't say whether it is idle.
const BLIND: Duration = Duration::from_secs(1);
/// For a server to take a request back, and how many are asked for at once.
const ABORT_LIMIT: Duration = Duration::from_secs(5);
const ABORTS_AT_ONCE: usize = 32;

/// Requests on the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    running: u64,
    waiting: u64,
}

impl Load {
    fn is_idle(self) -> bool {
        self == Self::default()
    }

    fn within(self, other: Self) -> bool {
        self.running <= other.running && self.waiting <= other.waiting
    }

    fn most(self, other: Self) -> Self {
        Self { running: self.running.max(other.running), waiting: self.waiting.max(other.waiting) }
    }
}

/// What a run knows of the requests that aren't its own, from one cell to the next.
#[derive(Debug, Default)]
pub struct Isolation(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What ran and waited before the last cell; before the first one nothing is known.
    usual: Option<Load>,
    /// The cell before may have left something behind.
    left: bool,
    told_of_others: bool,
    told_of_blindness: bool,
}

impl Isolation {
    /// Of a run that begins.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a wait went.
struct Waited {
    /// At the last look; absent where the server doesn't tell.
    last: Option<Load>,
    /// The most that was seen.
    most: Load,
    /// Whether it was over before its time.
    in_time: bool,
    told: bool,
}

impl CellRun<'_> {
    /// Waits until the server is as it was before the cells before: idle, or with the requests of others that are
    /// always there. Without metrics there is nothing to wait for.
    pub(super) async fn wait_for_idle(&mut self) -> IdleWait {
        let begun_us = self.now_us();
        let (usual, left) = {
            let state = self.bench.isolation.state();
            (state.usual.unwrap_or_default(), state.left)
        };
        let waited = self.wait_for(usual, self.options.idle_limit_us, Boundary::Before).await;
        let mut idle = IdleWait { waited_us: self.now_us() - begun_us, ..IdleWait::default() };
        let Some(last) = waited.last else {
            self.tell_of_blindness();
            return idle;
        };
        (idle.running, idle.waiting) = (Some(last.running), Some(last.waiting));
        idle.idle = Some(last.is_idle());
        idle.left_over = left && !waited.in_time;
        if left && waited.told {
            self.bench.load.seen_at_work();
        }
        let mut state = self.bench.isolation.state();
        // Who stays after that isn't waited for again.
        state.usual = Some(if waited.in_time { last } else { waited.most });
        state.left = false;
        let tell = !last.is_idle() && !std::mem::replace(&mut state.told_of_others, true);
        drop(state);
        if waited.told && waited.in_time {
            self.emit(Event::Drained { cell: self.id, boundary: Boundary::Before });
        }
        if tell {
            let Load { running, waiting } = last;
            let text =
                format!("{running} requests that are not of this run are running and {waiting} waiting: cells beside them are suspect");
            self.emit(Event::LateWarning(text));
        }
        idle
    }

    /// Takes back what the cell left on the server and waits until it is gone. Never the cell's own failure.
    pub(super) async fn drain(&mut self, measured: &CellMeasurement) -> Drain {
        let begun_us = self.now_us();
        let open: Vec<&RequestRecord> = measured.streams.iter().flat_map(|stream| &stream.requests).filter(|r| is_open(r)).collect();
        let mut drain = Drain { open: open.len(), ..Drain::default() };
        if self.bench.target.engine == Engine::Sglang {
            drain.taken_back = self.take_back(&open).await;
        }
        if self.stop.is_stopped() {
            return drain;
        }
        let boundary = match () {
            () if measured.loops.as_ref().is_some_and(|loops| loops.confirmed().is_some()) => Boundary::AfterLoop,
            () if measured.failure.is_some() => Boundary::AfterError,
            () => Boundary::After,
        };
        let usual = self.bench.isolation.state().usual.unwrap_or_default();
        let waited = self.wait_for(usual, self.options.drain_limit_us, boundary).await;
        if waited.told {
            self.bench.load.seen_at_work();
        }
        match waited.last {
            None => self.wait_blindly(!open.is_empty()).await,
            Some(last) => {
                (drain.running, drain.waiting, drain.back) = (Some(last.running), Some(last.waiting), Some(waited.in_time));
                self.bench.isolation.state().left = !waited.in_time;
                if waited.told && waited.in_time {
                    self.emit(Event::Drained { cell: self.id, boundary });
                }
            }
        }
        drain.waited_us = self.now_us() - begun_us;
        drain
    }

    /// Looks at the server until no more than `usual` is there, or until the limit.
    async fn wait_for(&mut self, usual: Load, limit_us: u64, boundary: Boundary) -> Waited {
        let mut waited = Waited { last: None, most: Load::default(), in_time: false, told: false };
        let Some(scraper) = self.bench.scraper else { return waited };
        let begun_us = self.now_us();
        let mut failed = 0;
        loop {
            let asked_us = self.now_us();
            scraper.scrape_now();
            let seen = tokio::select! {
                seen = scraper.wait_since(asked_us, LOOK_LIMIT) => seen,
                () = self.stop.stopped() => None,
            };
            failed = if seen.is_none() { failed + 1 } else { 0 };
            let counts = seen.as_ref().and_then(|s| s.values.running.zip(s.values.waiting));
            // Metrics that don't say whether the server is idle, or that don't come, never will.
            if failed == 2 || (seen.is_some() && counts.is_none()) {
                waited.last = None;
                return waited;
            }
            if let Some((running, waiting)) = counts {
                let now = Load { running: running as u64, waiting: waiting as u64 };
                (waited.last, waited.most) = (Some(now), waited.most.most(now));
                if now.within(usual) {
                    waited.in_time = true;
                    return waited;
                }
                if !std::mem::replace(&mut waited.told, true) {
                    self.emit(Event::DrainWait { cell: self.id, boundary, running: now.running, queue: now.waiting });
                }
            }
            if self.now_us() - begun_us >= limit_us || self.stop.is_stopped() {
                return waited;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.stop.stopped() => {}
            }
        }
    }

    fn tell_of_blindness(&self) {
        if !self.stop.is_stopped() && !std::mem::replace(&mut self.bench.isolation.state().told_of_blindness, true) {
            let text = format!("the server doesn't say whether it is idle: {} s are waited after each cell", BLIND.as_secs_f64());
            self.emit(Event::Startup(text));
        }
    }

    /// Where nothing tells whether the server is idle: a moment, if anything was open.
    async fn wait_blindly(&mut self, anything: bool) {
        if !anything {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(BLIND) => {}
            () = self.stop.stopped() => {}
        }
    }

    /// Asks an SGLang to end requests: it doesn't always notice that a connection was closed. How many it took back.
    async fn take_back(&self, open: &[&RequestRecord]) -> usize {
        let ids: HashSet<&str> = open.iter().map(|r| r.server_id.as_deref().unwrap_or(&r.id)).collect();
        let (url, client) = (self.bench.target.address.url("/abort_request"), &self.bench.target.client);
        let mut ids = ids.into_iter();
        let mut taken = 0;
        loop {
            let mut asked = tokio::task::JoinSet::new();
            for id in ids.by_ref().take(ABORTS_AT_ONCE) {
                let request = client.post(&url).json(&serde_json::json!({ "rid": id })).timeout(ABORT_LIMIT);
                asked.spawn(async move { request.send().await.is_ok_and(|answer| answer.status().is_success()) });
            }
            if asked.is_empty() {
                return taken;
            }
            taken += asked.join_all().await.into_iter().filter(|ok| *ok).count();
        }
    }
}

/// Whether the server may still be at it.
fn is_open(request: &RequestRecord) -> bool {
    let refused = matches!(request.outcome, Outcome::Finished | Outcome::Http | Outcome::Connect);
    request.sent_us.is_some() && !request.done && !refused
}
