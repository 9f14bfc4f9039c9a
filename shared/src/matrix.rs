//! The cells of a report laid out as contexts by concurrency. Which number is shown in them is `metric`'s.

use crate::metric::{Metric, Reading};
use crate::report::Report;
use crate::report::cell::Cell;
use crate::verdict::{Review, Verdict};

/// Contexts by concurrency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Context lengths, rising: the rows.
    pub contexts: Vec<i64>,
    /// Levels of concurrency, rising: the columns.
    pub levels: Vec<i64>,
    slots: Vec<Slot>,
}

/// What stands at a context and a concurrency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A cell: its index in `results`.
    Cell(usize),
    /// Left out, with the reason in words.
    LeftOut(String),
    /// Asked for and not there.
    Missing,
}

impl Matrix {
    /// Of the sustained cells. Where a file has two cells in one place the later one counts.
    pub fn new(report: &Report) -> Self {
        let place = |cell: &Cell| Some((cell.context_tokens.i64()?, cell.concurrency.i64()?));
        let left_out: Vec<_> = report
            .tokscope
            .get()
            .into_iter()
            .flat_map(|own| own.left_out.items())
            .filter(|left| left.layer.str() == Some("sustained_decode"))
            .filter_map(|left| {
                Some(((left.context_tokens.i64()?, left.concurrency.i64()?), left.text.str().unwrap_or_default().to_owned()))
            })
            .collect();
        let measured: Vec<_> = report.cells().map(place).collect();
        let places = || measured.iter().flatten().chain(left_out.iter().map(|(place, _)| place));
        // Few different values: kept in order as they come, which is less code than a sort.
        let rising = |values: Vec<i64>| {
            let mut rising = Vec::new();
            for value in values {
                if let Err(at) = rising.binary_search(&value) {
                    rising.insert(at, value);
                }
            }
            rising
        };
        let contexts = rising(places().map(|place| place.0).collect());
        let levels = rising(places().map(|place| place.1).collect());
        let slots = contexts
            .iter()
            .flat_map(|context| levels.iter().map(move |level| (*context, *level)))
            .map(|at| match measured.iter().rposition(|place| *place == Some(at)) {
                Some(index) => Slot::Cell(index),
                None => left_out.iter().find(|(place, _)| *place == at).map_or(Slot::Missing, |(_, text)| Slot::LeftOut(text.clone())),
            })
            .collect();
        Matrix { contexts, levels, slots }
    }

    /// What stands in a row and a column; missing beyond the edges.
    pub fn at(&self, row: usize, column: usize) -> &Slot {
        if column >= self.levels.len() {
            return &Slot::Missing;
        }
        self.slots.get(row * self.levels.len() + column).unwrap_or(&Slot::Missing)
    }

    /// The rows, each with its slots.
    pub fn rows(&self) -> impl Iterator<Item = (i64, &[Slot])> {
        self.contexts.iter().copied().zip(self.slots.chunks(self.levels.len().max(1)))
    }
}

/// A number as a table shows it, with the mark of its verdict: `∅` left out, `—` absent, `*` limited,
/// `?` suspect, `✗` invalid. A number whose verdict isn't `valid` never stands bare.
pub fn shown(metric: &Metric, cell: &Cell, verdict: Verdict) -> String {
    let number = match metric.read(cell) {
        Reading::Value(value) => metric.format(value),
        _ if verdict == Verdict::Invalid => return "✗".to_owned(),
        _ => return "—".to_owned(),
    };
    match verdict {
        Verdict::Valid => number,
        Verdict::Suspect => number + "?",
        Verdict::Limited => number + "*",
        Verdict::Invalid => number + "✗",
    }
}

/// A slot as a table shows it.
pub fn shown_at(metric: &Metric, slot: &Slot, report: &Report, review: &Review) -> String {
    match slot {
        Slot::Cell(index) => match (report.cells().nth(*index), review.cells.get(*index)) {
            (Some(cell), Some(judgement)) => shown(metric, cell, judgement.verdict),
            _ => "—".to_owned(),
        },
        Slot::LeftOut(_) => "∅".to_owned(),
        Slot::Missing => "—".to_owned(),
    }
}
