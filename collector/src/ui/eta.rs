//! How long a run still takes. Pure: it is told what happened when.

use crate::plan::{CellLoad, PlannedCell};

/// Time left, from what the cells so far took beside their windows, and how long a token takes.
#[derive(Clone, Debug, Default)]
pub(super) struct Eta {
    /// Those that are to come, the one that is measured first.
    cells: Vec<PlannedCell>,
    window_us: u64,
    /// Time of a cell outside its window, in µs, of those that are done.
    overheads: Vec<u64>,
    /// Of a stream's token.
    token_us: Option<f64>,
    started_us: Option<u64>,
}

/// Time left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) us: u64,
    /// There is more that nothing is known of yet.
    pub(super) at_least: bool,
}

/// Taken for what a cell needs besides its window until one is done: streams, three steady seconds, drain.
const FIRST_GUESS_US: u64 = 5_000_000;

impl Eta {
    /// For these cells with windows of that length.
    pub(super) fn new(cells: Vec<PlannedCell>, window_us: u64) -> Self {
        Eta { cells, window_us, ..Eta::default() }
    }

    /// A cell began.
    pub(super) fn cell_started(&mut self, t_us: u64) {
        self.started_us = Some(t_us);
    }

    /// So many tokens came in that time, from so many streams.
    pub(super) fn tokens(&mut self, tokens: u64, elapsed_us: u64, streams: u32) {
        if tokens > 0 {
            self.token_us = Some(elapsed_us as f64 * f64::from(streams) / tokens as f64);
        }
    }

    /// It ended.
    pub(super) fn cell_ended(&mut self, t_us: u64) {
        if self.cells.is_empty() {
            return;
        }
        let cell = self.cells.remove(0);
        if let (Some(started), true) = (self.started_us.take(), has_window(&cell)) {
            self.overheads.push(t_us.saturating_sub(started).saturating_sub(self.window_us));
        }
    }

    /// What is left at that instant.
    pub(super) fn left(&self, t_us: u64) -> Left {
        let begun = self.started_us.map_or(0, |started| t_us.saturating_sub(started));
        let expected = self.cells.iter().enumerate().filter_map(|(at, cell)| Some((at, self.expected_us(cell)?)));
        let us = expected.map(|(at, us)| if at == 0 { us.saturating_sub(begun) } else { us }).sum();
        Left { us, at_least: self.cells.iter().any(|cell| self.expected_us(cell).is_none()) }
    }

    /// A window has its length; how long requests take depends on the server.
    fn expected_us(&self, cell: &PlannedCell) -> Option<u64> {
        if let CellLoad::Requests { count, warmup } = cell.load {
            let turns = count.div_ceil(cell.concurrency) + warmup.div_ceil(cell.concurrency);
            return self.token_us.map(|token_us| (f64::from(turns) * f64::from(cell.max_tokens) * token_us) as u64);
        }
        let overhead = self.overheads.iter().sum::<u64>().checked_div(self.overheads.len() as u64).unwrap_or(FIRST_GUESS_US);
        Some(self.window_us + overhead)
    }
}

fn has_window(cell: &PlannedCell) -> bool {
    !matches!(cell.load, CellLoad::Requests { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(us: u64) -> Left {
        Left { us, at_least: false }
    }

    #[test]
    fn time_left_learns_from_cells_and_runs_down() {
        let mut eta = Eta::new(vec![PlannedCell::sustained(0, 1, 100); 3], 10_000_000);
        assert_eq!(eta.left(0), known(45_000_000));
        eta.cell_started(0);
        assert_eq!(eta.left(5_000_000), known(40_000_000));
        eta.cell_ended(12_000_000);
        assert_eq!(eta.left(12_000_000), known(24_000_000));
        eta.cell_started(12_000_000);
        assert_eq!(eta.left(30_000_000), known(12_000_000), "one that takes longer eats nothing of the next");
    }

    #[test]
    fn a_burst_takes_as_long_as_its_tokens_once_a_token_was_timed() {
        let load = CellLoad::Requests { count: 20, warmup: 4 };
        let burst = PlannedCell { load, ..PlannedCell::sustained(0, 4, 100) };
        let mut eta = Eta::new(vec![PlannedCell::sustained(0, 1, 100), burst], 10_000_000);
        assert_eq!(eta.left(0), Left { us: 15_000_000, at_least: true });
        // Ten milliseconds a token and stream: six turns of a hundred tokens.
        eta.tokens(400, 1_000_000, 4);
        assert_eq!(eta.left(0), known(21_000_000));
        eta.cell_ended(15_000_000);
        eta.cell_started(15_000_000);
        assert_eq!(eta.left(17_000_000), known(4_000_000));
        eta.tokens(0, 1_000_000, 4);
        assert_eq!(eta.left(17_000_000), known(4_000_000), "no token says nothing");
    }
}
