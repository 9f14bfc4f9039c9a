//! The run as it goes: one line that changes on a terminal, a line an event elsewhere.

use super::eta::Eta;
use super::{complain, span};
use crate::clock::Clock;
use crate::event::{CellId, Event, Stamped};
use crate::plan::Layer;
use crate::secrets::printable;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

/// Listens to a run on a task of its own.
#[derive(Debug)]
pub struct Listener {
    task: JoinHandle<()>,
}

impl Listener {
    /// Draws what comes, until the senders are gone.
    pub fn start(clock: Clock, mut from: UnboundedReceiver<Stamped>) -> Self {
        let mut progress = Progress::new(clock, std::io::stderr().is_terminal());
        let task = tokio::spawn(async move {
            while let Some(stamped) = from.recv().await {
                progress.on(&stamped);
            }
            progress.finish();
        });
        Listener { task }
    }

    /// Waits until all is drawn; the senders are gone by then, or soon.
    pub async fn ended(self) {
        // Whoever still holds a sender has nothing left to say.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.task).await;
    }
}

fn layer(cell: &CellId) -> &'static str {
    match cell.layer {
        Layer::Sustained => "",
        Layer::Burst => "burst ",
        Layer::OpenLoop => "open loop ",
    }
}

fn repeat(cell: &CellId) -> String {
    if cell.repeat > 1 { format!(" repeat {}", cell.repeat) } else { String::new() }
}

/// What is drawn.
#[derive(Debug)]
pub struct Progress {
    clock: Clock,
    bar: Option<ProgressBar>,
    eta: Eta,
    done: usize,
    cells: usize,
    window_us: u64,
    /// When the last line was written, where there is no changing one.
    said_us: u64,
}

/// Without a changing line, what takes long says so that often.
const BETWEEN_LINES_US: u64 = 60_000_000;

impl Progress {
    /// A changing line on a terminal, lines elsewhere.
    pub fn new(clock: Clock, terminal: bool) -> Self {
        let bar = terminal.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Progress { clock, bar, eta: Eta::default(), done: 0, cells: 0, window_us: 0, said_us: 0 }
    }

    /// Takes an event in.
    pub fn on(&mut self, stamped: &Stamped) {
        let t_us = stamped.t_us;
        match &stamped.event {
            Event::Planned { cells, window_us } => {
                (self.cells, self.window_us) = (cells.len(), *window_us);
                self.eta = Eta::new(cells.clone(), *window_us);
            }
            Event::CellStart { cell } => {
                self.eta.cell_started(t_us);
                if self.bar.is_some() {
                    self.show(cell, "starting", t_us);
                }
            }
            Event::Tick { cell, in_window, elapsed_us, tokens, active_streams } => {
                if *in_window {
                    self.eta.tokens(*tokens, *elapsed_us, cell.concurrency);
                }
                let seconds = *elapsed_us as f64 / 1e6;
                let what = if *in_window {
                    let rate = *tokens as f64 / seconds.max(0.001);
                    format!("{seconds:.0}/{:.0} s  {rate:.1} tok/s", self.window_us as f64 / 1e6)
                } else {
                    format!("warming up, {active_streams} of {} streams decode", cell.concurrency)
                };
                self.show(cell, &what, t_us);
            }
            Event::Requests { cell, before, done, total, elapsed_us, tokens } => {
                let rate = *tokens as f64 / (*elapsed_us as f64 / 1e6).max(0.001);
                if cell.layer == Layer::Burst {
                    self.eta.tokens(*tokens, *elapsed_us, cell.concurrency.min(*total));
                }
                let what = if *before { "requests to warm up" } else { "requests" };
                self.show(cell, &format!("{done}/{total} {what}  {rate:.1} tok/s"), t_us);
            }
            Event::CellDone { .. } | Event::CellError { .. } | Event::LoopFound { .. } | Event::CellSkipped { .. } => {
                self.done += 1;
                self.eta.cell_ended(t_us);
            }
            _ => {}
        }
        // What the changing line says anyway needs no line of its own.
        let passing = matches!(
            stamped.event,
            Event::CellStart { .. } | Event::Ready { .. } | Event::MeasureStart { .. } | Event::DrainWait { .. } | Event::Drained { .. }
        );
        if self.bar.is_some() && passing {
            return;
        }
        if let Some(line) = stamped.event.log_line(&self.clock.wall_at(t_us)) {
            self.line(&self.with_time_left(line, stamped), t_us);
        }
    }

    /// Takes the changing line away.
    pub fn finish(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Without a changing line, the end of each cell says how long the rest takes.
    fn with_time_left(&self, line: String, stamped: &Stamped) -> String {
        let ended =
            matches!(stamped.event, Event::CellDone { .. } | Event::CellError { .. } | Event::LoopFound { .. } | Event::CellSkipped { .. });
        if self.bar.is_some() || !ended || self.done >= self.cells {
            return line;
        }
        format!("{line}  ({} of {}, {} left)", self.done, self.cells, self.left(stamped.t_us))
    }

    fn left(&self, t_us: u64) -> String {
        let left = self.eta.left(t_us);
        format!("{} {}", if left.at_least { "at least" } else { "about" }, span(left.us as f64 / 1e6))
    }

    fn show(&mut self, cell: &CellId, what: &str, t_us: u64) {
        if self.bar.is_none() && !self.is_long_since(t_us) {
            return;
        }
        let (number, cells) = (self.done + 1, self.cells.max(self.done + 1));
        let text = format!("[{number}/{cells}] {}{cell}{}  {what}  {} left", layer(cell), repeat(cell), self.left(t_us));
        match &self.bar {
            Some(bar) => {
                bar.set_message(text);
                bar.tick();
            }
            None => self.line(&format!("{} {text}", self.clock.wall_at(t_us).strftime("%H:%M:%S")), t_us),
        }
    }

    fn is_long_since(&self, t_us: u64) -> bool {
        t_us.saturating_sub(self.said_us) >= BETWEEN_LINES_US
    }

    fn line(&mut self, line: &str, t_us: u64) {
        self.said_us = t_us;
        match &self.bar {
            Some(bar) => bar.println(printable(line)),
            None => complain(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_says_so_once_a_minute_where_no_line_changes() {
        let mut progress = Progress::new(Clock::start(), false);
        let cell = CellId { index: 0, layer: Layer::Burst, repeat: 1, context_tokens: 0, concurrency: 4, per_s: None };
        let mut said = Vec::new();
        for s in 1..=200 {
            let (t_us, before) = (s * 1_000_000, progress.said_us);
            let event = Event::Requests { cell, before: false, done: 1, total: 20, elapsed_us: t_us, tokens: 100 };
            progress.on(&Stamped { t_us, event });
            said.extend((progress.said_us != before).then_some(s));
        }
        assert_eq!(said, [60, 120, 180]);
        // Any other line is one as well.
        progress.on(&Stamped { t_us: 230_000_000, event: Event::CellSkipped { cell } });
        assert!(!progress.is_long_since(240_000_000) && progress.is_long_since(290_000_000));
    }
}
