//! Scrapes `/metrics` once a second on a task of its own, and once more whenever asked. A scrape
//! that failed is a gap. Nobody waits for it inside a window.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::engines::values;
use super::snapshot::{Gap, Snapshot};
use crate::clock::Clock;
use crate::target::{Engine, Target};

/// Between two scrapes.
const PERIOD: Duration = Duration::from_secs(1);
/// For one scrape.
const LIMIT: Duration = Duration::from_secs(5);

/// A scrape's outcome.
pub type Scrape = Result<Snapshot, Gap>;

/// Scrapes until dropped.
#[derive(Debug)]
pub struct Scraper {
    history: Arc<Mutex<Vec<Scrape>>>,
    latest: watch::Receiver<Option<Arc<Scrape>>>,
    ask: mpsc::UnboundedSender<()>,
    under_way: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Scraper {
    /// Starts scraping `target`'s metrics.
    #[must_use]
    pub fn start(clock: Clock, target: &Target) -> Self {
        let source = Source { clock, engine: target.engine, client: target.scrape_client.clone(), url: target.metrics_url.clone() };
        let history = Arc::new(Mutex::new(Vec::new()));
        let (tell, latest) = watch::channel(None);
        let (ask, asked) = mpsc::unbounded_channel();
        let under_way = Arc::new(AtomicUsize::new(0));
        let keep = Keep { history: Arc::clone(&history), tell: Arc::new(tell), under_way: Arc::clone(&under_way) };
        let task = tokio::spawn(run(source, keep, asked));
        Self { history, latest, ask, under_way, task }
    }

    /// Asks for a scrape now, beside those that are due. Returns at once.
    pub fn scrape_now(&self) {
        // The task lives as long as we do.
        let _ = self.ask.send(());
    }

    /// Asks for a scrape unless one is under way: for looking often without piling questions on a
    /// slow server.
    pub fn scrape_if_idle(&self) {
        if self.under_way.load(Ordering::Relaxed) == 0 {
            self.scrape_now();
        }
    }

    /// The newest outcome.
    #[must_use]
    pub fn latest(&self) -> Option<Arc<Scrape>> {
        self.latest.borrow().clone()
    }

    /// Waits until a scrape sent at or after `since_us` has come back or failed, at most `limit`.
    /// Returns it if it came back.
    pub async fn wait_since(&self, since_us: u64, limit: Duration) -> Option<Snapshot> {
        let mut latest = self.latest.clone();
        let fresh = |s: &Option<Arc<Scrape>>| {
            s.as_ref().is_some_and(|s| match s.as_ref() {
                Ok(snapshot) => snapshot.sent_us >= since_us,
                Err(gap) => gap.t_us >= since_us,
            })
        };
        let found = tokio::time::timeout(limit, latest.wait_for(fresh)).await;
        let scrape = found.ok()?.ok()?.clone()?;
        scrape.as_ref().as_ref().ok().cloned()
    }

    /// All outcomes since `since_us`, in order of time.
    #[must_use]
    pub fn since(&self, since_us: u64) -> Vec<Scrape> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let from = history.partition_point(|s| time_of(s) < since_us);
        history.get(from..).unwrap_or_default().to_vec()
    }
}

impl Drop for Scraper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// When a scrape arrived or had failed.
pub(super) fn time_of(scrape: &Scrape) -> u64 {
    match scrape {
        Ok(snapshot) => snapshot.t_us,
        Err(gap) => gap.t_us,
    }
}

#[derive(Clone)]
struct Source {
    clock: Clock,
    engine: Engine,
    client: reqwest::Client,
    url: String,
}

#[derive(Clone)]
struct Keep {
    history: Arc<Mutex<Vec<Scrape>>>,
    tell: Arc<watch::Sender<Option<Arc<Scrape>>>>,
    under_way: Arc<AtomicUsize>,
}

async fn run(source: Source, keep: Keep, mut asked: mpsc::UnboundedReceiver<()>) {
    let mut interval = tokio::time::interval(PERIOD);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut regular: Option<JoinHandle<()>> = None;
    loop {
        tokio::select! {
            _ = interval.tick() => {
                // A slow server is not asked again before it has answered; those asked for go anyway.
                if regular.as_ref().is_none_or(JoinHandle::is_finished) {
                    regular = Some(tokio::spawn(once(source.clone(), keep.clone())));
                }
            }
            ask = asked.recv() => match ask {
                Some(()) => drop(tokio::spawn(once(source.clone(), keep.clone()))),
                None => return,
            },
        }
    }
}

async fn once(source: Source, keep: Keep) {
    keep.under_way.fetch_add(1, Ordering::Relaxed);
    let scrape = source.scrape().await;
    keep.under_way.fetch_sub(1, Ordering::Relaxed);
    let mut history = keep.history.lock().unwrap_or_else(PoisonError::into_inner);
    // Two may be under way: they are kept in order of time, not of coming here.
    let at = history.partition_point(|s| time_of(s) <= time_of(&scrape));
    history.insert(at, scrape.clone());
    drop(history);
    keep.tell.send_replace(Some(Arc::new(scrape)));
}

impl Source {
    async fn scrape(&self) -> Scrape {
        let sent_us = self.clock.now_us();
        let read = async {
            let answer = self.client.get(&self.url).timeout(LIMIT).send().await;
            let answer = answer.map_err(|e| in_words(&e))?;
            // The head comes when the values have been gathered.
            let t_us = self.clock.now_us();
            if !answer.status().is_success() {
                return Err(format!("HTTP {}", answer.status().as_u16()));
            }
            let body = crate::target::body_of(answer).await?;
            let text = String::from_utf8_lossy(&body);
            let (values, _) = values(self.engine, &text);
            Ok(Snapshot { sent_us, t_us, values })
        };
        read.await.map_err(|reason| Gap { t_us: self.clock.now_us(), reason })
    }
}

fn in_words(e: &reqwest::Error) -> String {
    if e.is_timeout() { format!("no answer within {} s", LIMIT.as_secs()) } else { crate::target::root_cause(e) }
}
