//! What a schedule asked for and what became of it, with times from the instant at which each request was due: a
//! request that had to wait for its turn has waited, whoever kept it waiting.

use super::distributions::distribution;
use crate::cell::OpenLoop;
use crate::cell::measurement::CellMeasurement;
use crate::load::record::{Outcome, RequestRecord};
use tokscope_shared::field::Field;
use tokscope_shared::report::own::{self, Distribution};

/// A request sent later than this after it was due was not sent when it was due.
const LATE_US: u64 = 50_000;

/// The section of a cell that was measured by a schedule.
pub(super) fn open_loop(measured: &CellMeasurement, asked: &OpenLoop) -> own::OpenLoop {
    let sent: Vec<&RequestRecord> = measured.requests().filter(|r| r.sent_us.is_some()).collect();
    let of = |is: fn(Outcome) -> bool| measured.requests().filter(|r| is(r.outcome)).count() as u64;
    let finished = of(|outcome| outcome == Outcome::Finished);
    let tokens: u64 = measured.requests().filter(|r| r.outcome == Outcome::Finished).map(|r| u64::from(r.output_tokens())).sum();
    let length_us = asked.schedule.length_us();
    // Requests that could only be sent after the schedule's end have taken longer to send than was asked for.
    let since_begin = |t_us: Option<u64>| t_us.map_or(0, |t_us| t_us.saturating_sub(asked.begin_us)).max(length_us) as f64 / 1e6;
    let sending_s = since_begin(sent.iter().filter_map(|r| r.sent_us).max());
    let answering_s = since_begin(measured.requests().filter_map(|r| r.last_us).max());
    let scheduled = asked.schedule.len();
    let delays = || sent.iter().filter_map(|r| r.sent_us?.checked_sub(r.due_us));
    own::OpenLoop {
        asked_per_s: Field::num(asked.per_s),
        arrivals: Field::text(if asked.poisson { "poisson" } else { "constant" }),
        scheduled: Field::int(scheduled),
        sent: Field::count(sent.len() as u64),
        unsent: Field::count(u64::from(scheduled).saturating_sub(measured.requests().count() as u64)),
        finished: Field::count(finished),
        failed: Field::count(of(Outcome::is_failure)),
        cut: Field::count(of(|outcome| outcome == Outcome::CutByUs)),
        late: Field::count(delays().filter(|delay_us| *delay_us > LATE_US).count() as u64),
        scheduled_per_s: Field::num(f64::from(scheduled) / (length_us as f64 / 1e6)),
        sent_per_s: Field::num(sent.len() as f64 / sending_s),
        finished_per_s: Field::num(finished as f64 / answering_s),
        goodput_tps: Field::num(tokens as f64 / answering_s),
        connections: Field::int(asked.connections),
        most_in_flight: Field::count(most_in_flight(&sent)),
        answer_limit_s: Field::num(asked.answer_limit_us as f64 / 1e6),
        answer_limit_reached: Field::Is(asked.limit_reached),
        schedule_delay_s: Field::Is(of_us(delays())),
        ttft_from_due_s: Field::Is(of_us(measured.requests().filter_map(|r| r.first_token_us?.checked_sub(r.due_us)))),
        latency_from_due_s: Field::Is(of_us(measured.requests().filter_map(latency_from_due_us))),
        ..own::OpenLoop::default()
    }
}

fn latency_from_due_us(r: &RequestRecord) -> Option<u64> {
    (r.outcome == Outcome::Finished).then(|| r.last_us?.checked_sub(r.due_us))?
}

fn of_us(values: impl Iterator<Item = u64>) -> Distribution {
    distribution(values.map(|us| (us as f64, 1)).collect())
}

/// Most requests that were sent and not over.
fn most_in_flight(sent: &[&RequestRecord]) -> u64 {
    let mut steps: Vec<(u64, i64)> = sent.iter().filter_map(|r| r.sent_us).map(|us| (us, 1)).collect();
    steps.extend(sent.iter().map(|r| (r.ended_us, -1)));
    // One that takes over a connection at the instant at which it gets free is not one more.
    steps.sort_unstable();
    let mut now = 0_i64;
    let most = steps.iter().map(|(_, step)| {
        now += step;
        now
    });
    most.max().and_then(|most| u64::try_from(most).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_follow_each_other_are_one_at_a_time() {
        let of = |sent_us, ended_us| RequestRecord { sent_us: Some(sent_us), ended_us, ..RequestRecord::due("x".into(), 0, 0, 0) };
        let (a, b, c) = (of(0, 10), of(10, 20), of(15, 30));
        assert_eq!(most_in_flight(&[&a, &b]), 1);
        assert_eq!(most_in_flight(&[&a, &b, &c]), 2);
        assert_eq!(most_in_flight(&[]), 0);
    }
}
