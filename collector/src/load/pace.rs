//! What makes the next request due: the end of the one before, a number that is still to be sent, or the time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::answer::End;
use super::record::Outcome;
use super::request::{PreparedRequest, RequestSource};
use super::schedule::{Cursor, Schedule};

/// Chunks that an answer may have beyond twice its limit of tokens before it is taken for one without an end.
const BEYOND_LIMIT: u32 = 64;

/// What makes streams send.
#[derive(Clone, Debug, Default)]
pub enum Pace {
    /// Each stream sends its next request when the one before is over, until it is told to stop or one fails.
    #[default]
    Closed,
    /// So many requests in all: a stream that is free takes the next one, also after an answer that was a failure.
    Counted(u32),
    /// Each request when it is due, on any connection that is free. The request of number n is the source's first of
    /// stream n, so that what is sent doesn't depend on which connection carries it.
    Scheduled(Arc<Schedule>),
}

/// The pace of a group of streams while they run, over all threads.
#[derive(Debug)]
pub(super) enum Work {
    /// So many requests a stream; `None`: until stopped.
    Closed(Option<u32>),
    Counted {
        total: u32,
        /// Each stream's first one is taken already.
        taken: AtomicU32,
    },
    Scheduled(Cursor),
}

impl Work {
    /// Of `count` streams.
    pub(super) fn new(pace: &Pace, count: u32, each: Option<u32>) -> Self {
        match pace {
            Pace::Closed => Self::Closed(each),
            Pace::Counted(total) => Self::Counted { total: *total, taken: AtomicU32::new(count) },
            Pace::Scheduled(schedule) => Self::Scheduled(Cursor::new(schedule.as_ref().clone())),
        }
    }

    /// Whether a stream may have another request to send after its request `ordinal`.
    pub(super) fn may_go_on(&self, ordinal: u32) -> bool {
        match self {
            Self::Closed(each) => each.is_none_or(|most| ordinal + 1 < most),
            Self::Counted { total, taken } => taken.load(Ordering::Relaxed) < *total,
            // Those are prepared by number, not by stream.
            Self::Scheduled(_) => false,
        }
    }

    /// Whether a stream goes on after a request that ended so.
    pub(super) fn survives(&self, outcome: Outcome) -> bool {
        match self {
            Self::Closed(_) => outcome == Outcome::Finished,
            // Where nobody answers, the rest would only wait just as long.
            Self::Counted { .. } => !matches!(outcome, Outcome::CutByUs | Outcome::Connect | Outcome::Timeout | Outcome::Stalled),
            Self::Scheduled(_) => outcome != Outcome::CutByUs,
        }
    }

    /// The end of an answer that goes on far beyond the limit that was asked for. Where streams go on until they are told
    /// to stop anyway, it may; where its end is waited for, nothing else would end it.
    pub(super) fn too_long(&self, chunks: u32, max_tokens: u32) -> Option<End> {
        if chunks <= max_tokens.saturating_mul(2).saturating_add(BEYOND_LIMIT) {
            return None;
        }
        match self {
            Self::Closed(None) => None,
            Self::Closed(Some(_)) => Some(End::cut()),
            Self::Counted { .. } | Self::Scheduled(_) => {
                let text = format!("the answer goes on beyond max_tokens={max_tokens}: cut after {chunks} chunks");
                Some(End::failed(Outcome::InStreamError, text))
            }
        }
    }

    /// Takes a request for a stream whose last one is over; whether there was one.
    pub(super) fn take(&self) -> bool {
        match self {
            Self::Closed(_) => true,
            Self::Counted { total, taken } => taken.fetch_add(1, Ordering::Relaxed) < *total,
            Self::Scheduled(_) => false,
        }
    }

    pub(super) fn cursor(&self) -> Option<&Cursor> {
        match self {
            Self::Scheduled(cursor) => Some(cursor),
            _ => None,
        }
    }
}

/// Requests prepared before they are due.
const AHEAD: usize = 64;

/// The next requests of a schedule, prepared by a thread ahead of their time.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    ready: VecDeque<(u32, PreparedRequest)>,
    /// The first number that was not prepared.
    next: u32,
}

impl Ahead {
    /// Whether there is something to prepare.
    pub(super) fn is_short(&self, cursor: &Cursor) -> bool {
        self.ready.len() < AHEAD && self.next.max(cursor.next()) < cursor.schedule().len()
    }

    /// Prepares one more.
    pub(super) fn prepare(&mut self, cursor: &Cursor, source: &dyn RequestSource) {
        if self.is_short(cursor) {
            let number = self.next.max(cursor.next());
            self.ready.push_back((number, source.prepare(number, 0)));
            self.next = number + 1;
        }
    }

    /// The request of this number, if it was prepared; those before it went to other threads.
    pub(super) fn take(&mut self, number: u32) -> Option<PreparedRequest> {
        while self.ready.front().is_some_and(|(ready, _)| *ready < number) {
            self.ready.pop_front();
        }
        self.ready.pop_front_if(|(ready, _)| *ready == number).map(|(_, request)| request)
    }
}
