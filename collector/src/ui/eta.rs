//! How long a run still takes. Pure: it is told what happened when.

/// Time left, from what the cells so far took beside their windows.
#[derive(Clone, Debug)]
pub(super) struct Eta {
    cells: usize,
    window_us: u64,
    /// Time of a cell outside its window, in µs, of those that are done.
    overheads: Vec<u64>,
    started_us: Option<u64>,
}

/// Taken for what a cell needs besides its window until one is done: streams, three steady seconds, drain.
const FIRST_GUESS_US: u64 = 5_000_000;

impl Eta {
    /// For so many cells with windows of that length.
    pub(super) fn new(cells: usize, window_us: u64) -> Self {
        Eta { cells, window_us, overheads: Vec::new(), started_us: None }
    }

    /// A cell began.
    pub(super) fn cell_started(&mut self, t_us: u64) {
        self.started_us = Some(t_us);
    }

    /// It ended.
    pub(super) fn cell_ended(&mut self, t_us: u64) {
        if let Some(started) = self.started_us.take() {
            self.overheads.push(t_us.saturating_sub(started).saturating_sub(self.window_us));
        }
    }

    /// µs left at that instant.
    pub(super) fn left_us(&self, t_us: u64) -> u64 {
        let n = self.overheads.len() as u64;
        let overhead = self.overheads.iter().sum::<u64>().checked_div(n).unwrap_or(FIRST_GUESS_US);
        let each = self.window_us + overhead;
        let begun = self.started_us.map_or(0, |started| t_us.saturating_sub(started));
        (each * (self.cells as u64).saturating_sub(n)).saturating_sub(begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_learns_from_cells_and_runs_down() {
        let mut eta = Eta::new(3, 10_000_000);
        assert_eq!(eta.left_us(0), 45_000_000);
        eta.cell_started(0);
        assert_eq!(eta.left_us(5_000_000), 40_000_000);
        eta.cell_ended(12_000_000);
        assert_eq!(eta.left_us(12_000_000), 24_000_000);
        eta.cell_started(12_000_000);
        assert_eq!(eta.left_us(100_000_000), 0, "never below nothing");
    }
}
