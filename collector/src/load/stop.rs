//! A stop signal that many can wait for: given once, it stays given. It has two strengths, and one that concerns a
//! single cell.

use tokio::sync::watch;

/// What was asked for so far.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// End, with what belongs to an end.
    stop: bool,
    /// End without waiting for anybody.
    at_once: bool,
    /// How many cells were to be skipped.
    skips: u32,
}

/// Gives the signal.
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<Asked>);

/// Waits for it.
#[derive(Clone, Debug)]
pub struct Stop {
    from: watch::Receiver<Asked>,
    /// Skips from here on count as a stop; `None`: none does.
    skips: Option<u32>,
}

/// A signal and a waiter, which can be cloned.
#[must_use]
pub fn stop_pair() -> (Stopper, Stop) {
    let (to, from) = watch::channel(Asked::default());
    (Stopper(to), Stop { from, skips: None })
}

impl Stopper {
    /// Gives the signal: what is under way is cut, and its bookkeeping finished.
    pub fn stop(&self) {
        self.0.send_modify(|asked| asked.stop = true);
    }

    /// Gives it once more: nobody is waited for.
    pub fn stop_at_once(&self) {
        self.0.send_modify(|asked| (asked.stop, asked.at_once) = (true, true));
    }

    /// Skips what is measured now. Between two cells it skips none.
    pub fn skip(&self) {
        self.0.send_modify(|asked| asked.skips = asked.skips.wrapping_add(1));
    }
}

impl Stop {
    /// One that is never given.
    #[must_use]
    pub fn never() -> Self {
        stop_pair().1
    }

    /// The same for a cell that begins now: to it, a skip from now on is a stop.
    #[must_use]
    pub fn for_cell(&self) -> Self {
        let skips = Some(self.from.borrow().skips);
        Self { from: self.from.clone(), skips }
    }

    /// Whether it was given.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.holds(*self.from.borrow())
    }

    /// Whether this cell alone was skipped.
    #[must_use]
    pub fn is_skipped(&self) -> bool {
        let asked = *self.from.borrow();
        !asked.stop && self.holds(asked)
    }

    /// Returns once it is given; never, if whoever could give it is gone.
    pub async fn stopped(&mut self) {
        let skips = self.skips;
        if self.from.wait_for(|asked| asked.stop || skips.is_some_and(|n| n != asked.skips)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns once nobody is to be waited for; never, if whoever could say so is gone.
    pub async fn at_once(&mut self) {
        if self.from.wait_for(|asked| asked.at_once).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn holds(&self, asked: Asked) -> bool {
        asked.stop || self.skips.is_some_and(|n| n != asked.skips)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_skip_stops_the_cell_that_runs_and_no_other() {
        let (stopper, stop) = stop_pair();
        stopper.skip();
        let mut cell = stop.for_cell();
        assert!(!cell.is_stopped(), "pressed before it began");
        stopper.skip();
        cell.stopped().await;
        assert!(cell.is_skipped() && !stop.is_stopped() && !stop.for_cell().is_stopped());
        stopper.stop();
        assert!(stop.is_stopped() && cell.is_stopped() && !cell.is_skipped());
    }

    #[tokio::test]
    async fn at_once_is_stronger() {
        let (stopper, stop) = stop_pair();
        stopper.stop();
        let soon = tokio::time::timeout(std::time::Duration::from_millis(10), stop.clone().at_once()).await;
        assert!(soon.is_err());
        stopper.stop_at_once();
        stop.clone().at_once().await;
        assert!(stop.is_stopped());
    }
}
