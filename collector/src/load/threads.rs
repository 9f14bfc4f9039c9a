//! The load threads: each waits for its streams' sockets, and does nothing else but read, record and send. What is
//! asked of it from outside are two flags; what it gives is the streams' records at the end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::time::Timespec;
use tokio::sync::oneshot;

use super::alarm::Alarm;
use super::endpoint::Endpoint;
use super::health::{ClientHealth, StampSource};
use super::pace::{Ahead, Pace, Work};
use super::progress::Progress;
use super::record::StreamRecord;
use super::request::RequestSource;
use super::schedule::{Claim, Cursor};
use super::stream::{Context, LoadLimits, Stream};
use super::text::TextTap;
use super::tick::{PERIOD_US, Ticker, Ticks};
use crate::clock::{Clock, thread_cpu_us};
use crate::kernel_time::RealClock;

/// Room made ahead of time for a stream's arrivals: at most this many, 24 bytes each. What isn't used is never
/// touched, and so takes no memory.
const MOST_EXPECTED_ARRIVALS: usize = 1 << 15;
/// Connections begun at once: a server's queue of new ones is short.
const OPENING_AT_ONCE: usize = 64;
/// Of the epoll's answer.
const EVENTS: usize = 256;
/// The places of the timers among the streams.
const TIMER: u64 = u64::MAX;
const ALARM: u64 = u64::MAX - 1;
/// From the start to the beginning of a schedule: all threads have heard of it by then.
const SCHEDULE_LEAD_US: u64 = 5_000;
/// Requests prepared before sockets are looked at again.
const PREPARED_A_TURN: usize = 16;
/// Between two looks at the flags while nothing flows.
const FLAG_LOOK: Duration = Duration::from_millis(1);
/// Ticks between two looks at limits and clocks.
const CHECK_TICKS: usize = 25;

/// Threads that do nothing but carry streams, one group of streams after the other. Each stream stays on one of them.
#[derive(Debug)]
pub struct Load {
    clock: Clock,
    threads: Vec<LoadThread>,
    worked: Worked,
}

/// Until when the server is known to have had something of ours to do, on the run's clock; 0: it never had.
#[derive(Clone, Debug, Default)]
struct Worked(Arc<AtomicU64>);

impl Worked {
    fn until(&self, t_us: u64) {
        self.0.fetch_max(t_us, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct LoadThread {
    /// Dropped to end the thread.
    groups: Option<mpsc::Sender<Group>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What streams shall do.
#[derive(Clone, Debug)]
pub struct StreamsOptions {
    /// How many.
    pub count: u32,
    /// Requests each sends at most; `None`: until stopped.
    pub max_requests: Option<u32>,
    /// How long they wait for what.
    pub limits: LoadLimits,
    /// Output limit of a request, tokens: room is made for as many arrivals.
    pub max_tokens: u32,
    /// Who gets the texts, if anybody wants them.
    pub text: Option<TextTap>,
}

/// What a thread is told while its streams run.
#[derive(Debug, Default)]
struct Control {
    start: AtomicBool,
    stop: AtomicBool,
    /// When a schedule begins, microseconds.
    begin_us: AtomicU64,
    /// Streams that have not ended.
    alive: AtomicUsize,
}

/// The streams of one thread.
struct Group {
    endpoint: Arc<Endpoint>,
    source: Arc<dyn RequestSource>,
    options: StreamsOptions,
    work: Arc<Work>,
    progress: Arc<[Progress]>,
    control: Arc<Control>,
    /// Their numbers.
    streams: Vec<u32>,
    opened: oneshot::Sender<()>,
    done: oneshot::Sender<Done>,
}

/// What a thread leaves behind.
#[derive(Debug)]
struct Done {
    records: Vec<StreamRecord>,
    ticks: Ticks,
    cpu_us: u64,
    tick_cpu_us: Option<u64>,
    span_us: u64,
    reads: u64,
    stamped: u64,
    unstamped: Option<String>,
}

impl Load {
    /// Starts `threads` load threads (at least one).
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(clock: Clock, threads: usize) -> io::Result<Self> {
        let threads = (0..threads.max(1)).map(|index| LoadThread::start(clock, index));
        Ok(Self { clock, threads: threads.collect::<io::Result<_>>()?, worked: Worked::default() })
    }

    /// The clock it stamps with.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// For how long the server has had nothing of ours to do, microseconds; `None`: it never had anything.
    #[must_use]
    pub fn rested_us(&self) -> Option<u64> {
        let until_us = Some(self.worked.0.load(Ordering::Relaxed)).filter(|us| *us > 0)?;
        Some(self.clock.now_us().saturating_sub(until_us))
    }

    /// The server was seen at work on something of ours just now, after its request had been given up.
    pub fn seen_at_work(&self) {
        self.worked.until(self.clock.now_us());
    }

    /// Opens one connection a stream and prepares the first requests; returns when all are open or
    /// have failed. Nothing is sent before [`Streams::start`]. One group of streams runs at a time: another one
    /// waits for the end of the one before.
    pub async fn open(&self, endpoint: &Arc<Endpoint>, source: &Arc<dyn RequestSource>, options: &StreamsOptions) -> Streams {
        self.open_paced(endpoint, source, options, &Pace::Closed).await
    }

    /// The same, with requests that are due by something else than the end of the one before. No more streams are
    /// opened than there are requests.
    pub async fn open_paced(
        &self,
        endpoint: &Arc<Endpoint>,
        source: &Arc<dyn RequestSource>,
        options: &StreamsOptions,
        pace: &Pace,
    ) -> Streams {
        let most = match pace {
            Pace::Closed => options.count,
            Pace::Counted(total) => *total,
            Pace::Scheduled(schedule) => schedule.len(),
        };
        let options = StreamsOptions { count: options.count.min(most), ..options.clone() };
        let work = Arc::new(Work::new(pace, options.count, options.max_requests));
        let progress: Arc<[Progress]> = (0..options.count).map(|_| Progress::default()).collect();
        let control = Arc::new(Control { alive: AtomicUsize::new(options.count as usize), ..Control::default() });
        let (mut all_opened, mut all_done) = (Vec::new(), Vec::new());
        let first = (0_u32..).take(self.threads.len());
        for (first, thread) in first.zip(&self.threads) {
            let (opened, is_opened) = oneshot::channel();
            let (done, is_done) = oneshot::channel();
            let group = Group {
                endpoint: Arc::clone(endpoint),
                source: Arc::clone(source),
                options: options.clone(),
                work: Arc::clone(&work),
                progress: Arc::clone(&progress),
                control: Arc::clone(&control),
                streams: (first..options.count).step_by(self.threads.len()).collect(),
                opened,
                done,
            };
            // A thread that is gone drops the group, which ends both waits.
            if let Some(groups) = &thread.groups {
                let _ = groups.send(group);
            }
            all_opened.push(is_opened);
            all_done.push(is_done);
        }
        for opened in all_opened {
            let _ = opened.await;
        }
        Streams { clock: self.clock, count: options.count, progress, control, worked: self.worked.clone(), done: all_done }
    }
}

impl LoadThread {
    fn start(clock: Clock, index: usize) -> io::Result<Self> {
        let (groups, inbox) = mpsc::channel::<Group>();
        let thread = std::thread::Builder::new().name(format!("load-{index}")).spawn(move || {
            while let Ok(group) = inbox.recv() {
                carry(clock, group);
            }
        })?;
        Ok(Self { groups: Some(groups), thread: Some(thread) })
    }
}

impl Drop for LoadThread {
    fn drop(&mut self) {
        drop(self.groups.take());
        if let Some(thread) = self.thread.take() {
            // A load thread that panicked has been noticed by its streams' join already.
            let _ = thread.join();
        }
    }
}

/// Runs a group to its end and hands over what it leaves behind.
fn carry(clock: Clock, group: Group) {
    let Group { endpoint, source, options, work, progress, control, streams, opened, done } = group;
    // Without an event queue there is nothing to run: both waits end, and the records are empty.
    let Ok(epoll) = epoll::create(epoll::CreateFlags::CLOEXEC) else { return };
    let mut context = Context {
        clock,
        endpoint: &endpoint,
        source: source.as_ref(),
        limits: options.limits,
        progress: &progress,
        work: &work,
        max_tokens: options.max_tokens,
        epoll,
        real: RealClock::read(),
        buffer: Context::read_buffer(),
        text: options.text.as_ref().map(TextTap::writer),
        reads: 0,
        stamped: 0,
        unstamped: None,
        ended: 0,
        to_send: Vec::new(),
        to_prepare: Vec::new(),
        to_read: Vec::new(),
        free: Vec::new(),
        freed: false,
    };
    let expected = (options.max_tokens as usize).saturating_mul(2).min(MOST_EXPECTED_ARRIVALS);
    let mut streams: Vec<Stream> =
        streams.into_iter().enumerate().map(|(place, stream)| Stream::new(place, stream, expected, &context)).collect();
    let mut turns = Turns { events: Vec::with_capacity(EVENTS), ticker: None, due: None, told: 0 };
    turns.open(&mut streams, &mut context, &control);
    if let Some(cursor) = work.cursor() {
        turns.due = Due::new(clock, cursor, streams.len(), &mut context);
    }
    let _ = opened.send(());
    let (started, stopped) = (|| control.start.load(Ordering::Acquire), || control.stop.load(Ordering::Acquire));
    while !started() && !stopped() {
        std::thread::sleep(FLAG_LOOK);
    }
    let (cpu_us, start_us) = (thread_cpu_us(), clock.now_us());
    if !stopped() {
        turns.run(start_us, &mut streams, &mut context, &control);
    }
    let end_us = clock.now_us();
    streams.iter_mut().for_each(|stream| stream.cut(&mut context));
    turns.tell(&context, &control);
    if let Some(step_ns) = context.real.stepped(&RealClock::read()) {
        let step_ms = step_ns as f64 / 1e6;
        context.unstamped = Some(format!("the system's clock was set by {step_ms:+.1} ms meanwhile, so the kernel's times are not used"));
        context.stamped = 0;
        streams.iter_mut().for_each(|stream| stream.record.use_read_times());
    }
    let (ticks, tick_cpu_us) = turns.ticker.map_or((Ticks::default(), None), |ticker| (ticker.ticks.clone(), ticker.cpu_us()));
    // Whoever asked may have given it up.
    let _ = done.send(Done {
        records: streams.into_iter().map(|stream| stream.record).collect(),
        ticks,
        cpu_us: thread_cpu_us() - cpu_us,
        tick_cpu_us,
        span_us: end_us - start_us,
        reads: context.reads,
        stamped: context.stamped,
        unstamped: context.unstamped,
    });
}

/// The thread's loop.
struct Turns {
    events: Vec<epoll::Event>,
    ticker: Option<Ticker>,
    /// Where requests are due by the time.
    due: Option<Due>,
    /// Streams whose end was told.
    told: usize,
}

/// A schedule as one thread takes from it.
struct Due {
    alarm: Alarm,
    ahead: Ahead,
    begin_us: u64,
}

impl Due {
    /// All streams are free and the first requests are prepared. `None`: the system gives no timer.
    fn new(clock: Clock, cursor: &Cursor, streams: usize, context: &mut Context<'_>) -> Option<Self> {
        let alarm = Alarm::new(clock).ok()?;
        epoll::add(&context.epoll, &alarm, epoll::EventData::new_u64(ALARM), epoll::EventFlags::IN).ok()?;
        let mut ahead = Ahead::default();
        while ahead.is_short(cursor) {
            ahead.prepare(cursor, context.source);
        }
        context.free.extend((0..streams).rev());
        context.freed = true;
        Some(Self { alarm, ahead, begin_us: 0 })
    }

    /// Sends what is due, as long as a connection is free, and sets the alarm for the next.
    fn send(&mut self, cursor: &Cursor, streams: &mut [Stream], context: &mut Context<'_>) {
        context.freed = false;
        while let Some(place) = context.free.last().copied() {
            // The schedule has a beginning, before which nothing is due.
            let Some(since_us) = context.clock.now_us().checked_sub(self.begin_us) else { return self.alarm.set(self.begin_us) };
            match cursor.claim(since_us) {
                Claim::Yours { number, due_us } => {
                    context.free.pop();
                    let request = self.ahead.take(number).unwrap_or_else(|| context.source.prepare(number, 0));
                    streams[place].send(request, self.begin_us + due_us, context);
                }
                Claim::Later(due_us) => return self.alarm.set(self.begin_us + due_us),
                Claim::Over => {
                    let free = std::mem::take(&mut context.free);
                    return free.into_iter().for_each(|place| streams[place].end(context));
                }
            }
        }
    }
}

/// What woke the thread.
#[derive(Clone, Copy, Default)]
struct Woken {
    by_timer: bool,
    by_alarm: bool,
    by_streams: bool,
}

impl Turns {
    /// Opens the connections.
    fn open(&mut self, streams: &mut [Stream], context: &mut Context<'_>, control: &Control) {
        let mut next_check_us = 0;
        while !control.stop.load(Ordering::Acquire) {
            let opening = streams.iter().filter(|stream| stream.is_connecting()).count();
            let new = streams.iter_mut().filter(|stream| stream.is_new());
            new.take(OPENING_AT_ONCE.saturating_sub(opening)).for_each(|stream| stream.open(context));
            if !streams.iter().any(|stream| stream.is_new() || stream.is_connecting()) {
                return;
            }
            self.wait(Some(FLAG_LOOK), streams, context);
            let now_us = context.clock.now_us();
            if now_us >= next_check_us {
                next_check_us = now_us + CHECK_TICKS as u64 * PERIOD_US;
                streams.iter_mut().for_each(|stream| stream.check(now_us, context));
            }
        }
    }

    /// Sends the first requests, and goes on until all streams have ended or are told to.
    fn run(&mut self, start_us: u64, streams: &mut [Stream], context: &mut Context<'_>, control: &Control) {
        // Without a timer the limits aren't watched and the client doesn't know itself: better no streams.
        let Ok(ticker) = Ticker::start(context.clock) else { return };
        if epoll::add(&context.epoll, &ticker, epoll::EventData::new_u64(TIMER), epoll::EventFlags::IN).is_err() {
            return;
        }
        self.ticker = Some(ticker);
        let cursor = context.work.cursor();
        if cursor.is_none() {
            streams.iter_mut().for_each(|stream| stream.begin(start_us, context));
        } else if let Some(due) = &mut self.due {
            due.begin_us = control.begin_us.load(Ordering::Acquire);
        } else {
            // Without an alarm nothing would ever be due.
            return;
        }
        // Some may have ended in their beginning.
        self.tell(context, control);
        let (mut ticks, mut places) = (0, Vec::new());
        while context.ended < streams.len() && !control.stop.load(Ordering::Acquire) {
            let ahead = self.due.as_ref().zip(cursor).is_some_and(|(due, cursor)| due.ahead.is_short(cursor));
            let idle = context.to_read.is_empty() && context.to_send.is_empty() && context.to_prepare.is_empty();
            let working = !idle || context.freed || ahead;
            let woken = self.wait(working.then_some(Duration::ZERO), streams, context);
            // Everything that has arrived is read before anything is sent, and sent before anything is prepared.
            std::mem::swap(&mut context.to_read, &mut places);
            places.drain(..).for_each(|place| streams[place].read(true, context));
            std::mem::swap(&mut context.to_send, &mut places);
            for place in places.drain(..) {
                let due_us = streams[place].ended_us();
                if context.work.take() {
                    streams[place].begin(due_us, context);
                } else {
                    streams[place].end(context);
                }
            }
            if let Some((due, cursor)) = self.due.as_mut().zip(cursor) {
                if woken.by_alarm {
                    due.alarm.heard();
                }
                if woken.by_alarm || context.freed {
                    due.send(cursor, streams, context);
                }
                (0..PREPARED_A_TURN).for_each(|_| due.ahead.prepare(cursor, context.source));
            }
            for _ in 0..PREPARED_A_TURN {
                let Some(place) = context.to_prepare.pop() else { break };
                streams[place].prepare(context);
            }
            if let Some(ticker) = &mut self.ticker {
                if woken.by_timer {
                    ticker.fired(context.clock.now_us(), !woken.by_streams && !working);
                    ticks += 1;
                } else {
                    ticker.interrupted();
                }
            }
            if ticks >= CHECK_TICKS {
                ticks = 0;
                if let Some(text) = &mut context.text {
                    text.flush();
                }
                let now_us = context.clock.now_us();
                streams.iter_mut().for_each(|stream| stream.check(now_us, context));
            }
            self.tell(context, control);
        }
    }

    /// Tells how many streams have ended.
    fn tell(&mut self, context: &Context<'_>, control: &Control) {
        if context.ended > self.told {
            control.alive.fetch_sub(context.ended - self.told, Ordering::Release);
            self.told = context.ended;
        }
    }

    /// Waits until a socket or the timer is ready, at most for `limit`, and lets the streams do what they can.
    fn wait(&mut self, limit: Option<Duration>, streams: &mut [Stream], context: &mut Context<'_>) -> Woken {
        let limit = limit.map(|limit| Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) });
        self.events.clear();
        let mut woken = Woken::default();
        // Interrupted or not, the next turn looks again.
        if epoll::wait(&context.epoll, spare_capacity(&mut self.events), limit.as_ref()).is_err() {
            return woken;
        }
        let over = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        for event in &self.events {
            let (place, flags) = (event.data.u64(), event.flags);
            match usize::try_from(place).ok().and_then(|place| streams.get_mut(place)) {
                Some(stream) => {
                    woken.by_streams = true;
                    stream.ready(flags.intersects(over), context);
                }
                None => {
                    woken.by_timer |= place == TIMER;
                    woken.by_alarm |= place == ALARM;
                }
            }
        }
        woken
    }
}

/// Streams that are open.
#[derive(Debug)]
pub struct Streams {
    clock: Clock,
    count: u32,
    progress: Arc<[Progress]>,
    control: Arc<Control>,
    worked: Worked,
    done: Vec<oneshot::Receiver<Done>>,
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Streams {
    /// Lets all streams send. When a schedule begins, microseconds on the run's clock; any other begins now.
    pub fn start(&self) -> u64 {
        let begin_us = self.clock.now_us() + SCHEDULE_LEAD_US;
        self.control.begin_us.store(begin_us, Ordering::Release);
        self.control.start.store(true, Ordering::Release);
        begin_us
    }

    /// Cuts all streams.
    pub fn stop(&self) {
        self.control.stop.store(true, Ordering::Release);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How far each stream is.
    #[must_use]
    pub fn progress(&self) -> &[Progress] {
        &self.progress
    }

    /// Whether every stream has ended by itself.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.control.alive.load(Ordering::Acquire) == 0
    }

    /// Waits until every stream has ended by itself.
    pub async fn ended(&self) {
        while !self.all_ended() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Cuts what still runs and collects the records, stream 0 first. What a thread doesn't hand over within
    /// `limit` is given up: those records are empty.
    pub async fn join(mut self, limit: Duration) -> (Vec<StreamRecord>, ClientHealth) {
        self.stop();
        let until = tokio::time::Instant::now() + limit;
        let mut records: Vec<StreamRecord> = (0..self.count).map(|stream| StreamRecord { stream, ..StreamRecord::default() }).collect();
        let threads = u32::try_from(self.done.len()).unwrap_or(u32::MAX);
        let mut health = ClientHealth { threads, ..ClientHealth::default() };
        let (mut stamped, mut unstamped, mut tick_cpu_us) = (0, None, Some(0));
        for done in std::mem::take(&mut self.done) {
            let Ok(Ok(done)) = tokio::time::timeout_at(until, done).await else { continue };
            for record in done.records {
                if let Some(place) = records.get_mut(record.stream as usize) {
                    *place = record;
                }
            }
            health.ticks.push(done.ticks);
            health.load_cpu_us += done.cpu_us;
            health.span_us = health.span_us.max(done.span_us);
            health.busy_share = health.busy_share.max(done.cpu_us as f64 / done.span_us.max(1) as f64);
            health.reads += done.reads;
            stamped += done.stamped;
            unstamped = unstamped.or(done.unstamped);
            tick_cpu_us = tick_cpu_us.zip(done.tick_cpu_us).map(|(sum, more)| sum + more);
        }
        let sent = records.iter().flat_map(|record| &record.requests).filter(|request| request.sent_us.is_some());
        self.worked.until(sent.map(|request| request.ended_us).max().unwrap_or(0));
        health.tick_cpu_us = tick_cpu_us;
        health.stamp = match (health.reads, health.reads - stamped) {
            (0, _) => StampSource::Nothing,
            (_, 0) => StampSource::Kernel,
            (all, bare) => StampSource::Read(unstamped.unwrap_or_else(|| format!("{bare} of {all} reads came without the kernel's time"))),
        };
        health.count(&records);
        (records, health)
    }
}
