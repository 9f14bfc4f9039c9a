//! A stop signal that many can wait for: given once, it stays given.

use tokio::sync::watch;

/// Gives the signal.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// Waits for it.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// A signal and a waiter, which can be cloned.
#[must_use]
pub fn stop_pair() -> (Stopper, Stop) {
    let (to, from) = watch::channel(false);
    (Stopper(to), Stop(from))
}

impl Stopper {
    /// Gives the signal.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    /// One that is never given.
    #[must_use]
    pub fn never() -> Self {
        stop_pair().1
    }

    /// Whether it was given.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once it is given; never, if whoever could give it is gone.
    pub async fn stopped(&mut self) {
        if self.0.wait_for(|stopped| *stopped).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
