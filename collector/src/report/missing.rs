//! What was to be measured and wasn't, with the reason.

use super::{RunRecord, Status};
use crate::plan::{LeftOut, LeftOutCode, Place};

/// Cells that were skipped, and those that a run which ended early did not come to.
pub(super) fn missing(run: &RunRecord) -> Vec<LeftOut> {
    let skipped = run.skipped.iter().map(|place| place.left_out(LeftOutCode::Skipped, "skipped by the user"));
    let (code, why) = match run.status {
        Status::Complete => return skipped.collect(),
        Status::Interrupted => (LeftOutCode::NotReached, "the run was stopped before it"),
        Status::Failed => (LeftOutCode::ServerGone, "the server could not be reached any more"),
    };
    skipped.chain(not_reached(run).into_iter().map(|(place, text)| place.left_out(code, &format!("{text}{why}")))).collect()
}

/// Each place once, however many of its repeats are missing.
fn not_reached(run: &RunRecord) -> Vec<(Place, String)> {
    let once = |place: &Place| Place { repeat: 1, ..*place };
    let mut places: Vec<(Place, u32)> = Vec::new();
    for place in run.planned.iter().filter(|place| !run.skipped.contains(place)) {
        if run.cells.iter().any(|cell| cell.place() == *place) {
            continue;
        }
        match places.iter_mut().find(|(known, _)| *known == once(place)) {
            Some((_, n)) => *n += 1,
            None => places.push((once(place), 1)),
        }
    }
    let all = run.options.repeat.max(1);
    places.into_iter().map(|(place, n)| (place, if n < all { format!("{n} of {all} repeats, ") } else { String::new() })).collect()
}
