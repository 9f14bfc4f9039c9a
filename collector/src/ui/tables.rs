//! The tables after a run, in the width that there is. A number whose verdict isn't `valid` never stands bare.

use std::collections::BTreeSet;

use tokscope_shared::field::{Field, Num};
use tokscope_shared::metric::{self, format_number};
use tokscope_shared::render::Table;
use tokscope_shared::report::Report;
use tokscope_shared::report::cell::Cell;
use tokscope_shared::report::identity::context_label;
use tokscope_shared::stats::percentile;
use tokscope_shared::verdict::{Judgement, Verdict};

/// The cells of a matrix with their verdicts, and the places that were left out.
pub(super) struct Part<'a> {
    cells: Vec<(&'a Cell, Verdict)>,
    left_out: Vec<Place>,
}

/// Context and concurrency.
type Place = (i64, i64);

impl<'a> Part<'a> {
    /// Of these cells, and of what the report left out of these layers.
    pub(super) fn new(report: &Report, layers: &[&str], cells: impl Iterator<Item = &'a Cell>, judged: &[Judgement]) -> Self {
        let verdicts = judged.iter().map(|judgement| judgement.verdict);
        let own = report.tokscope.get();
        let left_out = own.into_iter().flat_map(|own| own.left_out.items());
        Self {
            cells: cells.zip(verdicts).collect(),
            left_out: left_out
                .filter(|left| left.layer.str().is_some_and(|layer| layers.contains(&layer)))
                .filter_map(|left| Some((left.context_tokens.i64()?, left.concurrency.i64()?)))
                .collect(),
        }
    }

    /// Whether any cell has a value.
    pub(super) fn any<T>(&self, of: impl Fn(&Cell) -> Option<T>) -> bool {
        self.cells.iter().any(|(cell, _)| of(cell).is_some())
    }

    /// Contexts by concurrency, with what `show` makes of each cell; `None` is a dash.
    pub(super) fn matrix(&self, show: impl Fn(&Cell) -> Option<String>) -> Table {
        let place = |cell: &Cell| Some((cell.context_tokens.i64()?, cell.concurrency.i64()?));
        let places: BTreeSet<Place> = self.cells.iter().filter_map(|(cell, _)| place(cell)).chain(self.left_out.iter().copied()).collect();
        let levels: BTreeSet<i64> = places.iter().map(|(_, level)| *level).collect();
        let contexts: BTreeSet<i64> = places.iter().map(|(context, _)| *context).collect();
        let at = |at: Place| match self.cells.iter().rev().find(|(cell, _)| place(cell) == Some(at)) {
            Some((cell, verdict)) => marked(show(cell), *verdict),
            None if self.left_out.contains(&at) => "∅".to_owned(),
            None => "—".to_owned(),
        };
        Table {
            head: std::iter::once("context".to_owned()).chain(levels.iter().map(|level| format!("C={level}"))).collect(),
            rows: contexts
                .iter()
                .map(|context| std::iter::once(context_label(*context)).chain(levels.iter().map(|level| at((*context, *level)))).collect())
                .collect(),
        }
    }

    /// The matrix of a metric; `None` where no cell has it.
    pub(super) fn metric(&self, id: &str) -> Option<(String, Table)> {
        let metric = metric::by_id(id)?;
        let read = |cell: &Cell| metric.read(cell).value();
        self.any(read).then(|| (metric.head(), self.matrix(|cell| read(cell).map(|value| metric.format(value)))))
    }

    /// Whether there is anything at all.
    pub(super) fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.left_out.is_empty()
    }
}

fn marked(shown: Option<String>, verdict: Verdict) -> String {
    match (shown, verdict) {
        (None, Verdict::Invalid) => "✗".to_owned(),
        (None, _) => "—".to_owned(),
        (Some(text), Verdict::Valid) => text,
        (Some(text), Verdict::Suspect) => text + "?",
        (Some(text), Verdict::Limited) => text + "*",
        (Some(text), Verdict::Invalid) => text + "✗",
    }
}

/// Tokens a second, and how many requests ran where those were fewer than asked for.
pub(super) fn rate(cell: &Cell) -> Option<String> {
    let rate = format_number(cell.aggregate_tps.f64().filter(|rate| *rate > 0.0)?, 1);
    let (running, asked) = (cell.avg_running_reqs.f64(), cell.concurrency.i64()? as f64);
    let few = running.filter(|running| *running > 0.0 && *running < 0.98 * asked);
    Some(few.map_or_else(|| rate.clone(), |running| format!("{rate} ({}/{asked:.0})", requests(running))))
}

/// A mean number of requests: whole where it is.
fn requests(mean: f64) -> String {
    if (mean - mean.round()).abs() < 0.05 { format!("{mean:.0}") } else { format!("{mean:.1}") }
}

/// Median times to the first token and by token, in ms.
pub(super) fn ttft_itl(cell: &Cell) -> Option<String> {
    let distributions = cell.tokscope.get().and_then(|own| own.distributions.get());
    let median = |own: Option<f64>, old: Option<f64>| own.or(old.filter(|seconds| *seconds > 0.0));
    let own_ttft = distributions.and_then(|d| d.ttft_s.get()?.p50.f64());
    let own_itl = distributions.and_then(|d| d.itl_s.get()?.p50.f64());
    let (ttft, itl) = (median(own_ttft, cell.ttft_p50.f64()), median(own_itl, cell.inter_token_latency_p50.f64()));
    (ttft.is_some() || itl.is_some()).then(|| format!("{} / {}", ms(ttft), ms(itl)))
}

/// Median and 90th percentile of whole requests, in ms.
pub(super) fn latency(cell: &Cell) -> Option<String> {
    let (p50, p90) = (cell.request_latency_p50.f64(), cell.request_latency_p90.f64());
    let known = |seconds: Option<f64>| seconds.filter(|seconds| *seconds > 0.0);
    known(p50).map(|_| format!("{} / {}", ms(known(p50)), ms(known(p90))))
}

/// Steps a second, the acceptance length, and the rate at the reference length.
pub(super) fn steps(cell: &Cell) -> Option<String> {
    let steps = cell.server_steps_per_s.f64().filter(|steps| *steps > 0.0)?;
    let length = cell.server_accept_len_effective.f64().filter(|length| *length > 0.0)?;
    let at = cell.accept_norm_tps.f64().filter(|rate| *rate > 0.0).map_or_else(String::new, |rate| format!(" →{}", format_number(rate, 0)));
    Some(format!("{} ({length:.2}){at}", format_number(steps, 1)))
}

/// Of a finite cell: tokens a second, and requests done of those wanted.
pub(super) fn finite(cell: &Cell) -> Option<String> {
    let rate = format_number(cell.aggregate_tps.f64().filter(|rate| *rate > 0.0)?, 1);
    let done = cell.completed_request_count.i64().map_or_else(|| "—".to_owned(), |done| done.to_string());
    Some(format!("{rate} ({done}/{})", cell.request_count_target.i64()?))
}

/// Seconds as ms with three digits that matter: `0.42`, `12.3`, `182`, `12.3k`.
fn ms(seconds: Option<f64>) -> String {
    let Some(ms) = seconds.map(|seconds| seconds * 1e3) else { return "—".to_owned() };
    match ms {
        _ if ms < 9.995 => format!("{ms:.2}"),
        _ if ms < 99.95 => format!("{ms:.1}"),
        _ if ms < 9_999.5 => format!("{ms:.0}"),
        _ => format!("{:.1}k", ms / 1e3),
    }
}

/// The open loop, a line a rate; `None` where it was not measured.
pub(super) fn open_loop(report: &Report) -> Option<Table> {
    let cells = report.tokscope.get()?.open_loop.items();
    let rows: Vec<Vec<String>> = cells
        .map(|cell| {
            let verdict = tokscope_shared::verdict::judge(cell).verdict;
            let p = |value: Option<f64>| ms(value.filter(|seconds| *seconds > 0.0));
            let pair = |p50: &Field<Num>, p99: &Field<Num>| format!("{} / {}", p(p50.f64()), p(p99.f64()));
            let tokens = cell.aggregate_tps.f64().filter(|rate| *rate > 0.0).map(|rate| format_number(rate, 1));
            vec![
                cell.context_tokens.i64().map_or_else(|| "—".to_owned(), context_label),
                asked_rate(cell).map_or_else(|| "—".to_owned(), |rate| rate.to_string()),
                cell.request_count.i64().map_or_else(|| "—".to_owned(), |n| n.to_string()),
                marked(tokens, verdict),
                pair(&cell.ttft_p50, &cell.ttft_p99),
                pair(&cell.request_latency_p50, &cell.request_latency_p99),
            ]
        })
        .collect();
    let head = ["context", "requests/s", "requests", "tok/s", "TTFT p50 / p99", "latency p50 / p99"].map(str::to_owned).to_vec();
    (!rows.is_empty()).then_some(Table { head, rows })
}

/// Requests a second that a cell of the open loop asked for.
pub(super) fn asked_rate(cell: &Cell) -> Option<f64> {
    cell.tokscope.get().and_then(|own| own.open_loop.get()?.asked_per_s.f64())
}

/// Layer, context, and concurrency where the load has one.
type Repeated = (String, i64, Option<i64>);

/// Of each cell that was measured more than once: lowest, median and highest rate.
pub(super) fn repeats(report: &Report) -> Option<Table> {
    let own = report.tokscope.get()?;
    let mut cells: Vec<(Repeated, Vec<Option<f64>>)> = Vec::new();
    for repeat in own.repeats.items() {
        let cell = repeat.cell.get()?;
        let (context, level) = (cell.context_tokens.i64()?, cell.concurrency.i64()?);
        let key = match asked_rate(cell) {
            // Rates are loads of their own, with the same most under way.
            Some(rate) => (format!("open loop {rate}/s"), context, None),
            None if cell.benchmark_mode.str() == Some("duration") => ("sustained".to_owned(), context, Some(level)),
            None => ("finite".to_owned(), context, Some(level)),
        };
        match cells.iter_mut().find(|(known, _)| *known == key) {
            Some((_, rates)) => rates.push(cell.aggregate_tps.f64()),
            None => cells.push((key, vec![cell.aggregate_tps.f64()])),
        }
    }
    let rows: Vec<Vec<String>> = cells.into_iter().map(|(key, rates)| spread(&key, &rates)).collect();
    let head = ["context", "C", "layer", "n", "lowest", "median", "highest", "range"].map(str::to_owned).to_vec();
    (!rows.is_empty()).then_some(Table { head, rows })
}

fn spread((layer, context, level): &Repeated, rates: &[Option<f64>]) -> Vec<String> {
    let mut known: Vec<f64> = rates.iter().flatten().copied().collect();
    known.sort_by(f64::total_cmp);
    let shown = |rate: Option<&f64>| rate.map_or_else(|| "—".to_owned(), |rate| format_number(*rate, 1));
    // Of an even number the mean of the two in the middle.
    let median = percentile(&known, 50.0);
    let range = match (known.first(), median, known.last()) {
        (Some(low), Some(median), Some(high)) if known.len() > 1 && median > 0.0 => format!("{:.1} %", (high - low) / median * 100.0),
        _ => "—".to_owned(),
    };
    let n = if known.len() == rates.len() { known.len().to_string() } else { format!("{} of {}", known.len(), rates.len()) };
    vec![
        context_label(*context),
        level.map_or_else(|| "—".to_owned(), |level| level.to_string()),
        layer.clone(),
        n,
        shown(known.first()),
        shown(median.as_ref()),
        shown(known.last()),
        range,
    ]
}

/// The table as text; where it is wider than `width`, its columns go into several tables, each with the first `keys`
/// columns, by which its lines are told apart.
pub(super) fn within(table: &Table, keys: usize, width: usize) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut from = keys;
    while from < table.head.len() {
        let mut to = table.head.len();
        while to > from + 1 && width_of(&columns(table, keys, from, to)) > width {
            to -= 1;
        }
        parts.push(columns(table, keys, from, to).text());
        from = to;
    }
    parts.join("\n").trim_end().to_owned()
}

fn columns(table: &Table, keys: usize, from: usize, to: usize) -> Table {
    let pick = |row: &Vec<String>| row.iter().take(keys).chain(row.iter().take(to).skip(from)).cloned().collect();
    Table { head: pick(&table.head), rows: table.rows.iter().map(pick).collect() }
}

fn width_of(table: &Table) -> usize {
    table.text().lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// Two titled blocks beside each other where both fit, else one after the other.
pub(super) fn beside(left: &str, right: &str, width: usize) -> String {
    const GAP: usize = 6;
    let wide = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let at = wide(left);
    if at + GAP + wide(right) > width {
        return format!("{left}\n\n{right}");
    }
    let rows = left.lines().count().max(right.lines().count());
    let (mut l, mut r) = (left.lines(), right.lines());
    let lines = (0..rows).map(|_| {
        let (a, b) = (l.next().unwrap_or(""), r.next().unwrap_or(""));
        let gap = " ".repeat(at - a.chars().count() + GAP);
        format!("{a}{gap}{b}").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn table(columns: usize) -> Table {
        let row = |name: &str| std::iter::once(name.to_owned()).chain((0..columns).map(|n| format!("{n:05}"))).collect();
        Table { head: row("context"), rows: vec![row("0"), row("16k")] }
    }

    #[test]
    fn a_table_wider_than_the_terminal_is_split_and_no_column_is_lost() {
        let text = within(&table(8), 1, 40);
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert_eq!(text.matches("16k").count(), 2, "{text}");
        for n in 0..8 {
            assert_eq!(text.matches(&format!("{n:05}")).count(), 3, "{text}");
        }
        assert_eq!(within(&table(2), 1, 200), table(2).text().trim_end());
        // A column that can't fit stands alone.
        assert_eq!(within(&table(3), 1, 1).matches("16k").count(), 3);
        let two = within(&table(8), 2, 40);
        assert_eq!((two.matches("context  00000").count(), two.matches("00007").count()), (3, 3), "{two}");
    }

    #[test]
    fn two_blocks_stand_beside_each_other_only_where_both_fit() {
        let both = beside("ab\nc", "x\ny\nz", 20);
        assert_eq!(both, "ab      x\nc       y\n        z");
        assert_eq!(beside("ab", "x", 8), "ab\n\nx");
    }

    #[test]
    fn what_stands_beside_a_rate_is_no_zero_where_it_is_missing_and_no_one_where_it_is_less() {
        let mut cell = Cell { aggregate_tps: Field::num(1234.5), concurrency: Field::count(1), ..Cell::default() };
        cell.avg_running_reqs = Field::num(0.9);
        assert_eq!(rate(&cell).unwrap(), format!("{} (0.9/1)", format_number(1234.5, 1)));
        cell.request_count_target = Field::count(5);
        assert_eq!(finite(&cell).unwrap(), format!("{} (—/5)", format_number(1234.5, 1)));
        cell.server_steps_per_s = Field::num(1168.0);
        cell.server_accept_len_effective = Field::num(2.93);
        assert_eq!(steps(&cell).unwrap(), format!("{} (2.93)", format_number(1168.0, 1)));
        assert!(!steps(&cell).unwrap().contains("1168"), "as in every other table");
    }

    /// A cell of the open loop.
    fn asked(per_s: f64) -> Cell {
        use tokscope_shared::report::own::{CellOwn, OpenLoop};
        let own =
            CellOwn { open_loop: Field::Is(OpenLoop { asked_per_s: Field::num(per_s), ..OpenLoop::default() }), ..CellOwn::default() };
        Cell {
            context_tokens: Field::count(0),
            concurrency: Field::count(1024),
            request_count: Field::count(6),
            aggregate_tps: Field::num(118.0),
            avg_running_reqs: Field::num(1.4),
            ttft_p50: Field::num(0.012),
            ttft_p99: Field::num(0.345),
            request_latency_p50: Field::num(1.0),
            tokscope: Field::Is(own),
            ..Cell::default()
        }
    }

    #[test]
    fn the_open_loop_says_the_rate_asked_for_and_names_each_percentile() {
        use tokscope_shared::field::List;
        use tokscope_shared::report::own::{Repeat, RunOwn};
        let cells = || [asked(6.0), asked(0.5)].into_iter();
        let repeats = cells().chain(cells()).map(|cell| Field::Is(Repeat { cell: Field::Is(cell), ..Repeat::default() }));
        let own = RunOwn {
            open_loop: Field::Is(List(cells().map(Field::Is).collect())),
            repeats: Field::Is(List(repeats.collect())),
            ..RunOwn::default()
        };
        let report = Report { tokscope: Field::Is(own), ..Report::default() };
        let table = open_loop(&report).unwrap();
        assert_eq!(table.head, ["context", "requests/s", "requests", "tok/s", "TTFT p50 / p99", "latency p50 / p99"]);
        let rates: Vec<&str> = table.rows.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(rates, ["6", "0.5"]);
        let values: Vec<&str> = table.rows[0][3..].iter().map(|text| text.trim_end_matches(['?', '*', '✗'])).collect();
        assert_eq!(values, ["118.0", "12.0 / 345", "1000 / —"]);
        assert!(table.text().lines().all(|line| line.chars().count() <= 80), "{}", table.text());
        // Unlike rates are no repeats of each other.
        let table = super::repeats(&report).unwrap();
        let keys: Vec<&[String]> = table.rows.iter().map(|row| &row[1..4]).collect();
        assert_eq!(keys, [["—", "open loop 6/s", "2"], ["—", "open loop 0.5/s", "2"]]);
    }

    #[test]
    fn milliseconds_have_three_digits() {
        let shown = [0.000_4, 0.012_34, 0.182, 1.5, 12.34].map(|seconds| ms(Some(seconds)));
        assert_eq!(shown, ["0.40", "12.3", "182", "1500", "12.3k"]);
        assert_eq!(ms(None), "—");
    }

    #[test]
    fn repeats_are_summed_up_with_those_that_failed() {
        let key = ("sustained".to_owned(), 16_384, Some(4));
        let row = spread(&key, &[Some(100.0), None, Some(110.0), Some(105.0)]);
        assert_eq!(row, ["16k", "4", "sustained", "3 of 4", "100.0", "105.0", "110.0", "9.5 %"]);
        let row = spread(&key, &[Some(100.0), Some(130.0), Some(110.0), Some(104.0)]);
        assert_eq!(row[3..], ["4", "100.0", "107.0", "130.0", "28.0 %"], "of four the mean of the two in the middle");
        assert_eq!(spread(&key, &[None])[3..], ["0 of 1", "—", "—", "—", "—"]);
    }
}
