//! The figures of a benchmark: computed from what each client used, printed as tables and written as JSON. What
//! each means stands in [`super`].

use serde::Serialize;
use tokscope_shared::render::Table;

use super::server::Sent;
use super::{BenchOptions, Client, Used};
use crate::simulator::{Firehose, Lateness};

/// A figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Median; of an even number, the mean of the middle two.
    pub median: f64,
    /// Lowest.
    pub min: f64,
    /// Highest.
    pub max: f64,
}

impl Spread {
    /// `None` without values.
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { median, min, max })
    }
}

/// One number of streams, paced.
#[derive(Clone, Debug, Serialize)]
pub struct PacedResult {
    /// Streams at once.
    pub streams: u32,
    /// Tokens each client read, over all rounds; none was lost.
    pub tokens: u64,
    /// Events that carried them.
    pub events: u64,
    /// CPU seconds per million tokens: our load thread.
    pub ours_cpu_s_per_mtok: Option<Spread>,
    /// The 2 ms tick is not in it.
    pub tick_apart: bool,
    /// The tick's own CPU seconds per second, where it is told apart.
    pub tick_busy_share: Option<Spread>,
    /// The bare reader.
    pub bare_cpu_s_per_mtok: Option<Spread>,
    /// The Python client; absent without python3.
    pub python_cpu_s_per_mtok: Option<Spread>,
    /// What reads HTTP in it.
    pub python_library: Option<String>,
    /// How many times the bare reader's.
    pub ours_over_bare: Option<f64>,
    /// How many times ours Python's is.
    pub python_over_ours: Option<f64>,
    /// The simulator's own lateness, ns: the worst round, of ours and the bare reader.
    pub simulator_late_ns: Lateness,
    /// How late it took requests up, ns: the worst round, of the same.
    pub simulator_taken_late_ns: Lateness,
}

/// One client in the firehose.
#[derive(Clone, Debug, Serialize)]
pub struct FirehoseFigures {
    /// Tokens read over all rounds; none was lost. One event each.
    pub tokens: u64,
    /// Tokens a second.
    pub tokens_s: Option<Spread>,
    /// Megabytes a second, as the client counts bytes.
    pub mb_s: Option<Spread>,
    /// CPU time over time, 0 to 1.
    pub busy_share: Option<Spread>,
    /// Tokens a second of CPU time.
    pub tokens_busy_s: Option<Spread>,
    /// Megabytes a second of CPU time.
    pub mb_busy_s: Option<Spread>,
    /// Microseconds of CPU time an event.
    pub cpu_us_per_event: Option<Spread>,
}

/// One way of writing, as fast as it goes.
#[derive(Clone, Debug, Serialize)]
pub struct FirehoseResult {
    /// `blocks` or `events`.
    pub mode: &'static str,
    /// Streams at once.
    pub streams: u32,
    /// Our client.
    pub ours: FirehoseFigures,
    /// The bare reader.
    pub bare: FirehoseFigures,
    /// Our core was at least 95 % busy: `tokens_s` is what our client can do.
    pub client_is_the_limit: bool,
    /// Our tokens a second over the bare reader's tokens a busy second.
    pub of_bare: Option<f64>,
    /// Our tokens a busy second over the bare reader's.
    pub of_bare_busy: Option<f64>,
    /// Our CPU time an event over the bare reader's.
    pub event_cost_over_bare: Option<f64>,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// Of the program.
    pub version: &'static str,
    /// Built with optimization; else the figures mean little.
    pub optimized: bool,
    /// CPUs this process may use.
    pub cpus: usize,
    /// Client and simulator each had one of their own.
    pub pinned: bool,
    /// Version of python3.
    pub python: Option<String>,
    /// Why there is no Python client.
    pub python_missing: Option<String>,
    /// What was asked for.
    pub options: BenchOptions,
    /// Always true: else there would be no report.
    pub nothing_lost: bool,
    /// Steps of a fixed length.
    pub paced: Vec<PacedResult>,
    /// As fast as it goes.
    pub firehose: Vec<FirehoseResult>,
}

pub(super) fn mode_name(mode: Firehose) -> &'static str {
    match mode {
        Firehose::Blocks => "blocks",
        Firehose::Events => "events",
    }
}

/// What the clients used, round by round.
#[derive(Debug, Default)]
pub(super) struct Rounds(Vec<(Client, Used, Sent)>);

impl Rounds {
    pub(super) fn add(&mut self, client: Client, (used, sent): (Used, Sent)) {
        self.0.push((client, used, sent));
    }

    fn of(&self, client: Client) -> impl Iterator<Item = &(Client, Used, Sent)> {
        self.0.iter().filter(move |round| round.0 == client)
    }

    fn spread(&self, client: Client, figure: impl Fn(&Used, &Sent) -> f64) -> Option<Spread> {
        Spread::of(self.of(client).map(|(_, used, sent)| figure(used, sent)))
    }

    /// The worst round, without those of the Python client, which takes CPU time from nobody but falls behind.
    fn worst(&self, which: impl Fn(&Sent) -> &Lateness) -> Lateness {
        let rounds = self.0.iter().filter(|round| round.0 != Client::Python);
        rounds.map(|(_, _, sent)| which(sent)).max_by_key(|late| (late.p99, late.max)).cloned().unwrap_or_default()
    }
}

fn ratio(upper: Option<Spread>, lower: Option<Spread>) -> Option<f64> {
    let ratio = upper?.median / lower?.median;
    ratio.is_finite().then_some(ratio)
}

pub(super) fn paced_result(streams: u32, rounds: &Rounds) -> PacedResult {
    // CPU µs per token are CPU seconds per million tokens.
    let cost =
        |client| rounds.spread(client, |used, sent| (used.cpu_us - used.tick_us.unwrap_or(0).min(used.cpu_us)) as f64 / sent.tokens as f64);
    let (ours, bare, python) = (cost(Client::Ours), cost(Client::Bare), cost(Client::Python));
    let ticks = rounds.of(Client::Ours).filter_map(|(_, used, _)| Some(used.tick_us? as f64 / used.span_us.max(1) as f64));
    PacedResult {
        streams,
        tokens: rounds.of(Client::Ours).map(|(_, _, sent)| sent.tokens).sum(),
        events: rounds.of(Client::Ours).map(|(_, _, sent)| sent.chunks).sum(),
        ours_cpu_s_per_mtok: ours,
        tick_apart: rounds.of(Client::Ours).all(|(_, used, _)| used.tick_us.is_some()),
        tick_busy_share: Spread::of(ticks),
        bare_cpu_s_per_mtok: bare,
        python_cpu_s_per_mtok: python,
        python_library: rounds.of(Client::Python).find_map(|(_, used, _)| used.library.clone()),
        ours_over_bare: ratio(ours, bare),
        python_over_ours: ratio(python, ours),
        simulator_late_ns: rounds.worst(|sent| &sent.late),
        simulator_taken_late_ns: rounds.worst(|sent| &sent.taken_late),
    }
}

fn firehose_figures(rounds: &Rounds, client: Client) -> FirehoseFigures {
    let spread = |figure: fn(&Used, f64) -> f64| rounds.spread(client, |used, sent| figure(used, sent.tokens as f64));
    FirehoseFigures {
        tokens: rounds.of(client).map(|(_, _, sent)| sent.tokens).sum(),
        tokens_s: spread(|used, tokens| tokens * 1e6 / used.span_us as f64),
        mb_s: spread(|used, _| used.bytes as f64 / used.span_us as f64),
        busy_share: spread(|used, _| used.cpu_us as f64 / used.span_us as f64),
        tokens_busy_s: spread(|used, tokens| tokens * 1e6 / used.cpu_us as f64),
        mb_busy_s: spread(|used, _| used.bytes as f64 / used.cpu_us as f64),
        cpu_us_per_event: spread(|used, tokens| used.cpu_us as f64 / tokens),
    }
}

/// Below this the simulator is the limit.
const BUSY_SHARE: f64 = 0.95;

pub(super) fn firehose_result(mode: Firehose, streams: u32, rounds: &Rounds) -> FirehoseResult {
    let (ours, bare) = (firehose_figures(rounds, Client::Ours), firehose_figures(rounds, Client::Bare));
    FirehoseResult {
        mode: mode_name(mode),
        streams,
        client_is_the_limit: ours.busy_share.is_some_and(|share| share.median >= BUSY_SHARE),
        of_bare: ratio(ours.tokens_s, bare.tokens_busy_s),
        of_bare_busy: ratio(ours.tokens_busy_s, bare.tokens_busy_s),
        event_cost_over_bare: ratio(ours.cpu_us_per_event, bare.cpu_us_per_event),
        ours,
        bare,
    }
}

const NONE: &str = "—";

fn shown(spread: Option<Spread>, digits: usize, scale: f64) -> [String; 2] {
    spread.map_or_else(
        || [NONE.to_owned(), NONE.to_owned()],
        |s| {
            let number = |value: f64| format!("{:.digits$}", value * scale);
            [number(s.median), format!("{} to {}", number(s.min), number(s.max))]
        },
    )
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| NONE.to_owned(), |ratio| format!("{ratio:.2}"))
}

fn late(late: &Lateness) -> String {
    let ms = |ns: Option<u64>| ns.map_or_else(|| NONE.to_owned(), |ns| format!("{:.2}", ns as f64 / 1e6));
    format!("{} {} {}", ms(late.p50), ms(late.p99), ms(late.max))
}

impl BenchReport {
    /// For a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        if !self.paced.is_empty() {
            out += &format!(
                "paced: one event of {} a stream every {} ms\n{}",
                tokens(self.options.chunk_tokens),
                self.options.step_ms,
                self.paced_table().text()
            );
            let tick = if self.paced.iter().all(|paced| paced.tick_apart) { "without" } else { "with (this load does not tell it apart)" };
            out += &format!("ours is {tick} the 2 ms tick; simulator late: the worst round's p50, p99 and max\n");
        }
        if let (Some(version), Some(library)) = (&self.python, self.paced.iter().find_map(|paced| paced.python_library.as_ref())) {
            out += &format!("python is {version} with {library}; x ours: so many times our cost\n");
        }
        if let Some(reason) = &self.python_missing {
            out += &format!("no Python client: {reason}\n");
        }
        if !self.firehose.is_empty() {
            out += &format!(
                "\nfirehose: {} streams, as fast as it goes, an event a token\n{}",
                self.options.firehose_streams,
                self.firehose_table().text()
            );
            for result in &self.firehose {
                out += &result.sentence();
            }
        }
        out += &format!("\nnothing lost; tokscope {}, {} CPUs", self.version, self.cpus);
        out += if self.pinned { ", client and simulator on one each" } else { ", client and simulator share one" };
        out += if self.optimized { "\n" } else { "; built without optimization, so that the figures mean little\n" };
        out
    }

    fn paced_table(&self) -> Table {
        let head = ["streams, client", "CPU s / Mtok", "range", "x bare", "x ours", "tokens", "simulator late, ms"];
        let mut rows = Vec::new();
        for paced in &self.paced {
            let mut row = |name: &str, cost, bare: Option<f64>, ours: Option<f64>| {
                let [median, range] = shown(cost, 2, 1.0);
                let is_first = name == "ours";
                rows.push(vec![
                    format!("{} {name}", paced.streams),
                    median,
                    range,
                    times(bare),
                    times(ours),
                    paced.tokens.to_string(),
                    if is_first { late(&paced.simulator_late_ns) } else { String::new() },
                ]);
            };
            row("ours", paced.ours_cpu_s_per_mtok, paced.ours_over_bare, None);
            row("bare", paced.bare_cpu_s_per_mtok, None, None);
            if paced.python_cpu_s_per_mtok.is_some() {
                row("python", paced.python_cpu_s_per_mtok, None, paced.python_over_ours);
            }
        }
        Table { head: head.map(str::to_owned).to_vec(), rows }
    }

    fn firehose_table(&self) -> Table {
        let head = ["writes, client", "ktok/s", "range", "MB/s", "busy %", "ktok / busy s", "MB / busy s", "CPU us / event", "Mtok"];
        let row = |mode: &str, name: &str, f: &FirehoseFigures| {
            let median = |spread, digits, scale| {
                let [median, _] = shown(spread, digits, scale);
                median
            };
            let [rate, range] = shown(f.tokens_s, 0, 1e-3);
            vec![
                format!("{mode} {name}"),
                rate,
                range,
                median(f.mb_s, 0, 1.0),
                median(f.busy_share, 1, 100.0),
                median(f.tokens_busy_s, 0, 1e-3),
                median(f.mb_busy_s, 0, 1.0),
                median(f.cpu_us_per_event, 3, 1.0),
                format!("{:.1}", f.tokens as f64 / 1e6),
            ]
        };
        let rows = self.firehose.iter().flat_map(|r| [row(r.mode, "ours", &r.ours), row(r.mode, "bare", &r.bare)]);
        Table { head: head.map(str::to_owned).to_vec(), rows: rows.collect() }
    }
}

impl FirehoseResult {
    fn sentence(&self) -> String {
        let limit = if self.client_is_the_limit {
            format!("our client is the limit and reaches {} of what the bare reader could", times(self.of_bare))
        } else {
            "the simulator is the limit, not our client".to_owned()
        };
        format!(
            "{}: {limit}; per busy second {} of it, CPU an event {} times its\n",
            self.mode,
            times(self.of_bare_busy),
            times(self.event_cost_over_bare)
        )
    }
}

fn tokens(number: u32) -> String {
    if number == 1 { "a token".to_owned() } else { format!("{number} tokens") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn round(cpu_us: u64, tick_us: Option<u64>) -> (Used, Sent) {
        let used = Used { cpu_us, tick_us, span_us: 1_000_000, bytes: 350_000, ..Used::default() };
        let sent = Sent {
            tokens: 1_000,
            chunks: 1_000,
            by_id: std::collections::HashMap::new(),
            late: Lateness { count: 1, p99: Some(cpu_us), ..Lateness::default() },
            taken_late: Lateness::default(),
        };
        (used, sent)
    }

    fn rounds(ours: &[u64], tick_us: Option<u64>, bare: &[u64]) -> Rounds {
        let mut rounds = Rounds::default();
        ours.iter().for_each(|cpu_us| rounds.add(Client::Ours, round(*cpu_us, tick_us)));
        bare.iter().for_each(|cpu_us| rounds.add(Client::Bare, round(*cpu_us, None)));
        rounds
    }

    #[test]
    fn a_paced_figure_is_cpu_without_the_tick_over_tokens_and_ratios_are_of_medians() {
        let result = paced_result(4, &rounds(&[4_100, 5_100, 9_100], Some(100), &[2_000, 4_000]));
        assert_eq!(result.ours_cpu_s_per_mtok, Some(Spread { median: 5.0, min: 4.0, max: 9.0 }));
        assert_eq!(result.bare_cpu_s_per_mtok, Some(Spread { median: 3.0, min: 2.0, max: 4.0 }));
        assert_eq!(result.ours_over_bare, Some(5.0 / 3.0));
        assert_eq!((result.python_cpu_s_per_mtok, result.python_over_ours), (None, None));
        assert!(result.tick_apart && result.tokens == 3_000);
        assert_eq!(result.simulator_late_ns.p99, Some(9_100), "the worst round");
        assert!(!paced_result(4, &rounds(&[1], None, &[1])).tick_apart);
    }

    #[test]
    fn a_firehose_is_the_clients_limit_only_when_the_client_is_busy() {
        let busy = firehose_result(Firehose::Blocks, 4, &rounds(&[960_000], None, &[100_000]));
        assert!(busy.client_is_the_limit);
        // 1000 tokens in a second, beside 1000 in 0.1 s of CPU.
        assert!((busy.of_bare.unwrap() - 0.1).abs() < 1e-9, "{busy:?}");
        assert!((busy.event_cost_over_bare.unwrap() - 9.6).abs() < 1e-9);
        let idle = firehose_result(Firehose::Events, 4, &rounds(&[940_000], None, &[100_000]));
        assert!(!idle.client_is_the_limit);
        assert!(idle.sentence().contains("the simulator is the limit"));
    }
}
