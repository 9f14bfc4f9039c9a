//! The guard against answers that repeat themselves: a thread that reads the texts of a cell's streams while they
//! flow. The load threads only copy bytes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::oneshot;

use super::measurement::{LoopFinding, Loops};
use crate::event::{CellId, Event, Events};
use crate::load::chunk;
use crate::load::text::{Channel, Piece, TextReader, TextTap, text_tap};
use crate::repetition::{Detector, Repetition};

/// Findings that are kept; of more, the first ones, and what was confirmed.
const MOST_FINDINGS: usize = 64;
/// Characters in the memory of all detectors together; texts beyond are passed over.
const MOST_CHARS: usize = 64 << 20;
/// For the thread's end, once the load threads have given their texts away.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Guards one cell.
#[derive(Debug)]
pub(super) struct LoopGuard {
    tap: TextTap,
    groups: u32,
    confirmed: Arc<AtomicBool>,
    done: oneshot::Receiver<Loops>,
}

impl LoopGuard {
    /// Starts the guard of a cell; `None` where the system gives no thread.
    pub(super) fn start(cell: CellId, events: &Events) -> Option<Self> {
        let (tap, reader) = text_tap();
        let confirmed = Arc::new(AtomicBool::new(false));
        let (tell, done) = oneshot::channel();
        let mut watch =
            Watch { cell, events: events.clone(), confirmed: Arc::clone(&confirmed), texts: HashMap::new(), loops: Loops::default() };
        let thread = std::thread::Builder::new().name("loop-guard".to_owned()).spawn(move || {
            watch.read(&reader);
            // Whoever asked may have given it up.
            let _ = tell.send(watch.loops);
        });
        thread.ok()?;
        Some(Self { tap, groups: 0, confirmed, done })
    }

    /// For the next group of streams of the cell.
    pub(super) fn tap(&mut self) -> TextTap {
        self.groups += 1;
        self.tap.of_group(self.groups - 1)
    }

    /// Whether a loop is sure.
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed.load(Relaxed)
    }

    /// What was found, when all streams are over. Without an answer in time there is no guard to speak of.
    pub(super) async fn found(self) -> Option<Loops> {
        let Self { tap, groups, done, .. } = self;
        drop(tap);
        let mut loops = tokio::time::timeout(END_LIMIT, done).await.ok()?.ok()?;
        loops.last_group = groups.saturating_sub(1);
        Some(loops)
    }
}

/// The thread's side.
struct Watch {
    cell: CellId,
    events: Events,
    confirmed: Arc<AtomicBool>,
    texts: HashMap<(u32, u32, Channel), Text>,
    loops: Loops,
}

/// A channel of the request that a stream is at.
struct Text {
    request: u32,
    detector: Detector,
    /// When its newest piece came, and the tokens by then.
    t_us: u64,
    tokens: Option<u32>,
    /// The newest suspicion's, or that of what was confirmed.
    found_at: Option<(u64, Option<u32>)>,
    detected_at: u64,
}

impl Text {
    fn new(request: u32) -> Self {
        Self { request, detector: Detector::new(), t_us: 0, tokens: None, found_at: None, detected_at: 0 }
    }

    /// Remembers when it was that something new was found.
    fn stamp(&mut self) {
        if let Some(found) = self.detector.found().filter(|found| found.detected_at != self.detected_at) {
            self.detected_at = found.detected_at;
            self.found_at = Some((self.t_us, self.tokens));
        }
    }
}

impl Watch {
    fn read(&mut self, reader: &TextReader) {
        while let Some(block) = reader.next() {
            if block.lost > 0 {
                // What comes now doesn't follow what was read: every text begins anew.
                self.loops.lost_bytes += block.lost;
                self.end_all();
            }
            for (piece, text) in block.pieces() {
                self.take(block.group, piece, text);
            }
            reader.give_back(block);
        }
        self.end_all();
        self.loops.findings.sort_by_key(|found| (found.group, found.stream, found.request, found.channel));
    }

    fn take(&mut self, group: u32, piece: &Piece, raw: &[u8]) {
        let key = (group, piece.stream, piece.channel);
        if self.texts.get(&key).is_none_or(|text| text.request != piece.request) {
            if let Some(over) = self.texts.remove(&key) {
                self.end(key, over);
            }
            if self.texts.values().map(|text| text.detector.held()).sum::<usize>() > MOST_CHARS {
                self.loops.lost_bytes += raw.len() as u64;
                return;
            }
            self.texts.insert(key, Text::new(piece.request));
        }
        let Some(text) = self.texts.get_mut(&key) else { return };
        (text.t_us, text.tokens) = (piece.t_us, piece.tokens());
        let sure = text.detector.push(&chunk::text(raw));
        text.stamp();
        if let Some(found) = text.detector.found().filter(|_| sure) {
            let (channel, period, cycles) = (piece.channel.as_str().to_owned(), found.period, found.cycles());
            if !self.confirmed.swap(true, Relaxed) {
                self.events.emit(Event::LoopFound { cell: self.cell, channel, period, cycles });
            }
        }
    }

    fn end_all(&mut self) {
        for (key, text) in std::mem::take(&mut self.texts) {
            self.end(key, text);
        }
    }

    fn end(&mut self, (group, stream, channel): (u32, u32, Channel), mut text: Text) {
        text.stamp();
        let (t_us, tokens) = text.found_at.unwrap_or((text.t_us, text.tokens));
        let request = text.request;
        let Some(repetition) = text.detector.finish() else { return };
        let at_the_end = repetition.detected_at != text.detected_at;
        let (t_us, tokens) = if at_the_end { (text.t_us, text.tokens) } else { (t_us, tokens) };
        if repetition.confirmed && at_the_end && !self.confirmed.swap(true, Relaxed) {
            let (period, cycles) = (repetition.period, repetition.cycles());
            self.events.emit(Event::LoopFound { cell: self.cell, channel: channel.as_str().to_owned(), period, cycles });
        }
        self.keep(LoopFinding { group, stream, request, channel, t_us, tokens, repetition });
    }

    fn keep(&mut self, finding: LoopFinding) {
        let Loops { findings, omitted, .. } = &mut self.loops;
        if findings.len() < MOST_FINDINGS {
            findings.push(finding);
            return;
        }
        *omitted += 1;
        if let Some(last) = findings.last_mut().filter(|_| finding.repetition.confirmed) {
            *last = finding;
        }
    }
}

/// Why the cell is no measurement, if something is sure.
pub(super) fn failure(loops: &Loops) -> Option<String> {
    let LoopFinding { stream, request, channel, repetition, .. } = loops.confirmed()?;
    let Repetition { period, repeated, .. } = repetition;
    let (channel, cycles) = (channel.as_str(), repetition.cycles());
    Some(format!(
        "the {channel} of stream {stream}, request {request}, repeats itself: {cycles} cycles of {period} characters, {repeated} in all"
    ))
}
