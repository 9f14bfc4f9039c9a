//! Faults that load generators are known for, each provoked here. `tests/faults.tsv` says which test stands for which
//! fault, and against which broken variant of the program it must fail.

mod bytes;
mod counts;
mod isolation;
mod pace;
mod sending;
mod texts;
mod warmups;
mod windows;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokscope_collector::clock::Clock;
use tokscope_collector::load::endpoint::Endpoint;
use tokscope_collector::load::health::ClientHealth;
use tokscope_collector::load::record::{RequestRecord, StreamRecord};
use tokscope_collector::load::request::RequestSource;
use tokscope_collector::load::{Load, LoadLimits, Streams, StreamsOptions};
use tokscope_collector::target::{Address, TrustedRoots};

use crate::server::{DONE, Do, STREAM_HEAD, event, finish, send};

/// Patient enough for a busy machine, short enough for a test that fails.
const LIMITS: LoadLimits =
    LoadLimits { connect: Duration::from_secs(5), first_token: Duration::from_secs(4), stall: Duration::from_secs(4) };

/// A whole answer of one token.
fn one_token() -> Do {
    send(format!("{STREAM_HEAD}{}{}{DONE}", event("a", Some(1)), finish()))
}

/// Streams and the threads that carry them.
struct Opened {
    streams: Streams,
    _load: Load,
}

/// Connects `count` streams on `threads` load threads; nothing is sent yet.
async fn open(clock: Clock, addr: SocketAddr, threads: usize, count: u32, max: Option<u32>, source: Arc<dyn RequestSource>) -> Opened {
    let load = Load::start(clock, threads).unwrap();
    let address: Address = format!("http://{addr}").parse().unwrap();
    let endpoint = Arc::new(Endpoint::resolve(&address, &TrustedRoots::default(), LIMITS.connect).await.unwrap());
    let options = StreamsOptions { count, max_requests: max, limits: LIMITS, max_tokens: 64, text: None };
    let streams = load.open(&endpoint, &source, &options).await;
    Opened { streams, _load: load }
}

impl Opened {
    /// Lets them send, and waits until all have ended by themselves, but not for ever.
    async fn run(self) -> (Vec<StreamRecord>, ClientHealth) {
        self.streams.start();
        // Those that have not ended by then are cut, and seen to be.
        let _ = tokio::time::timeout(Duration::from_secs(8), self.streams.ended()).await;
        self.streams.join(Duration::from_secs(2)).await
    }
}

fn all(records: &[StreamRecord]) -> impl Iterator<Item = &RequestRecord> {
    records.iter().flat_map(|stream| &stream.requests)
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// A number that a server's steps count up and look at.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// One more; how many there were.
    fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    /// At least so many from now on.
    fn raise(&self, n: usize) {
        self.0.fetch_max(n, Ordering::SeqCst);
    }

    /// A step that waits until there are `n`.
    fn reached(&self, n: usize) -> Do {
        let count = self.clone();
        Do::When(Arc::new(move || count.get() >= n))
    }

    /// A step that waits until there is none, and makes it one at once.
    fn taken(&self) -> Do {
        let count = self.0.clone();
        Do::When(Arc::new(move || count.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()))
    }

    /// A step that makes it none.
    fn given_back(&self) -> Do {
        let count = self.0.clone();
        Do::When(Arc::new(move || {
            count.store(0, Ordering::SeqCst);
            true
        }))
    }
}
