//! What the scrapes of a window say together: gauges over those inside it, counters between the two
//! nearest to its edges, each with its own times. Pure.

use super::scraper::Scrape;
use super::snapshot::{CounterDelta, Gap, GaugeStats, ServerWindow, Snapshot, SpecDelta, Values};

/// An edge scrape further away than this from its edge does not stand for it.
const NEAR_US: u64 = 3_000_000;

/// From all scrapes around the window `[start_us, end_us)`, in order of time.
#[must_use]
pub fn server_window(scrapes: &[Scrape], start_us: u64, end_us: u64) -> ServerWindow {
    let inside = |t_us: u64| (start_us..end_us).contains(&t_us);
    let all: Vec<&Snapshot> = scrapes.iter().filter_map(|s| s.as_ref().ok()).collect();
    let within: Vec<&Snapshot> = all.iter().copied().filter(|s| inside(s.t_us)).collect();
    let gaps = scrapes.iter().filter_map(|s| s.as_ref().err());
    let mut gaps: Vec<Gap> = gaps.filter(|g| inside(g.t_us)).cloned().collect();
    let gauge = |get: fn(&Values) -> Option<f64>| gauge(&within, get);
    let edges = nearest(&all, start_us).zip(nearest(&all, end_us)).filter(|(a, b)| a.t_us < b.t_us);
    let counter = |get: fn(&Values) -> Option<f64>| delta(edges?, get);
    if within.is_empty() && gaps.is_empty() {
        // One that is still under way is no gap yet, but what it would have told is missing all the same.
        gaps.push(Gap { t_us: end_us, reason: "none came back inside the window".to_owned() });
    }
    gaps.extend(edges.and_then(went_back));
    let throughput = |s: &&Snapshot| s.values.gen_throughput;
    ServerWindow {
        unavailable: None,
        running: gauge(|v| v.running),
        waiting: gauge(|v| v.waiting),
        kv_usage: gauge(|v| v.kv_usage),
        gen_throughput: gauge(|v| v.gen_throughput),
        gen_throughput_median: median(within.iter().filter_map(throughput).collect()),
        generation_tokens: counter(|v| v.generation_tokens),
        prompt_tokens: counter(|v| v.prompt_tokens),
        cached_prompt_tokens: counter(|v| v.cached_prompt_tokens),
        preemptions: counter(|v| v.preemptions),
        spec: edges.and_then(spec),
        // Without drafts these gauges stand at 0, which is no length and no rate.
        spec_accept_length: gauge(|v| v.spec_accept_length.filter(|length| *length > 0.0)),
        spec_accept_rate: gauge(|v| v.spec_accept_rate.filter(|_| v.spec_accept_length.is_none_or(|length| length > 0.0))),
        steps_per_s: within.iter().filter_map(|s| steps(&s.values)).collect(),
        client_tokens_between_scrapes: None,
        samples: u32::try_from(within.len()).unwrap_or(u32::MAX),
        longest_scrape_us: within.iter().map(|s| s.t_us - s.sent_us).max(),
        gaps,
        snapshots: within.into_iter().cloned().collect(),
    }
}

fn nearest<'a>(all: &[&'a Snapshot], t_us: u64) -> Option<&'a Snapshot> {
    let best = all.iter().min_by_key(|s| s.t_us.abs_diff(t_us))?;
    (best.t_us.abs_diff(t_us) <= NEAR_US).then_some(best)
}

fn gauge(within: &[&Snapshot], get: fn(&Values) -> Option<f64>) -> Option<GaugeStats> {
    let values: Vec<f64> = within.iter().filter_map(|s| get(&s.values)).collect();
    let (first, n) = (*values.first()?, values.len() as f64);
    Some(GaugeStats {
        samples: u32::try_from(values.len()).unwrap_or(u32::MAX),
        mean: values.iter().sum::<f64>() / n,
        max: values.iter().copied().fold(first, f64::max),
        min: values.iter().copied().fold(first, f64::min),
        above_zero: values.iter().filter(|v| **v > 0.0).count() as f64 / n,
    })
}

/// A counter that shrank was reset: there is no increase to tell.
fn delta((a, b): (&Snapshot, &Snapshot), get: fn(&Values) -> Option<f64>) -> Option<CounterDelta> {
    let delta = get(&b.values)? - get(&a.values)?;
    (delta >= 0.0).then_some(CounterDelta { delta, from_us: a.t_us, to_us: b.t_us })
}

/// A count of tokens that shrank: nothing of the window can be compared with it.
fn went_back((a, b): (&Snapshot, &Snapshot)) -> Option<Gap> {
    let shrank = b.values.generation_tokens? < a.values.generation_tokens?;
    let reason = "the server's count of tokens went back: it began anew, or another server answered".to_owned();
    shrank.then_some(Gap { t_us: b.t_us, reason })
}

/// How often the server's count of tokens went back.
#[must_use]
pub fn restarts(scrapes: &[Snapshot]) -> usize {
    let counts: Vec<f64> = scrapes.iter().filter_map(|scrape| scrape.values.generation_tokens).collect();
    counts.windows(2).filter(|pair| pair[1] < pair[0]).count()
}

fn spec((a, b): (&Snapshot, &Snapshot)) -> Option<SpecDelta> {
    let get = |get: fn(&Values) -> Option<f64>| delta((a, b), get).map(|d| d.delta);
    let position = |i: usize| {
        let before = a.values.spec_accepted_per_pos.get(i).copied();
        let after = b.values.spec_accepted_per_pos.get(i).copied();
        (after.unwrap_or(0.0) - before.unwrap_or(0.0)).max(0.0)
    };
    Some(SpecDelta {
        drafts: get(|v| v.spec_drafts)?,
        draft_tokens: get(|v| v.spec_draft_tokens)?,
        accepted_tokens: get(|v| v.spec_accepted_tokens)?,
        accepted_per_pos: (0..b.values.spec_accepted_per_pos.len()).map(position).collect(),
        from_us: a.t_us,
        to_us: b.t_us,
    })
}

/// Steps a second from a rate and an acceptance length of the same scrape.
fn steps(values: &Values) -> Option<f64> {
    let rate = values.gen_throughput.filter(|r| *r > 0.0)?;
    let length = values.spec_accept_length.filter(|l| *l > 1.0)?;
    Some(rate / length)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let mid = values.len() / 2;
    let upper = *values.get(mid)?;
    if values.len().is_multiple_of(2) { Some(f64::midpoint(*values.get(mid - 1)?, upper)) } else { Some(upper) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const S: u64 = 1_000_000;

    fn at(t_us: u64, running: f64, generated: f64) -> Scrape {
        Ok(Snapshot {
            sent_us: t_us - 1000,
            t_us,
            values: Values { running: Some(running), generation_tokens: Some(generated), ..Values::default() },
        })
    }

    fn gap(t_us: u64) -> Scrape {
        Err(Gap { t_us, reason: "HTTP 502".into() })
    }

    #[test]
    fn gauges_look_inside_and_counters_at_the_edges() {
        let scrapes = [at(9 * S, 1.0, 10.0), at(10 * S + 20_000, 4.0, 100.0), at(11 * S, 4.0, 200.0), at(12 * S + 10_000, 0.0, 305.0)];
        let w = server_window(&scrapes, 10 * S, 12 * S);
        let running = w.running.unwrap();
        assert_eq!((running.samples, running.mean, running.max), (2, 4.0, 4.0));
        let generated = w.generation_tokens.unwrap();
        assert_eq!(generated.delta, 205.0);
        assert_eq!(generated.to_us - generated.from_us, 2 * S - 10_000);
        assert!((generated.per_second().unwrap() - 205.0 / 1.99).abs() < 1e-9);
    }

    #[test]
    fn a_failed_scrape_is_a_gap_and_never_zero() {
        let scrapes = [at(10 * S, 4.0, 100.0), gap(11 * S), at(12 * S, 4.0, 300.0)];
        let w = server_window(&scrapes, 10 * S, 12 * S + 1);
        assert_eq!(w.running.unwrap().min, 4.0);
        assert_eq!(w.gaps.len(), 1);
        let w = server_window(&[gap(10 * S), gap(12 * S)], 10 * S, 13 * S);
        assert_eq!((w.running, w.generation_tokens), (None, None));
    }

    #[test]
    fn without_a_scrape_near_an_edge_or_after_a_reset_there_is_no_increase() {
        let far = [at(10 * S, 1.0, 1.0), at(20 * S, 1.0, 5.0)];
        assert_eq!(server_window(&far, 10 * S, 40 * S).generation_tokens, None);
        let reset = [at(10 * S, 1.0, 900.0), at(12 * S, 1.0, 5.0)];
        assert_eq!(server_window(&reset, 10 * S, 12 * S).generation_tokens, None);
        let one = [at(11 * S, 1.0, 5.0)];
        assert_eq!(server_window(&one, 10 * S, 12 * S).generation_tokens, None);
    }

    #[test]
    fn a_window_without_a_scrape_or_with_a_count_that_went_back_says_so() {
        let reasons =
            |scrapes: &[Scrape]| server_window(scrapes, 10 * S, 12 * S).gaps.into_iter().map(|gap| gap.reason).collect::<Vec<_>>();
        assert!(reasons(&[at(10 * S, 1.0, 1.0), at(12 * S, 1.0, 1.0)]).is_empty(), "a count may stand still");
        assert!(reasons(&[at(9 * S, 1.0, 1.0)])[0].contains("none came back"), "one under way is no gap yet");
        assert_eq!(reasons(&[gap(11 * S)]), ["HTTP 502"], "where one failed there is nothing to add");
        assert!(reasons(&[at(10 * S, 1.0, 900.0), at(12 * S, 1.0, 5.0)])[0].contains("went back"));
    }

    #[test]
    fn speculation_comes_from_matched_counters() {
        let spec_at = |t_us, drafts: f64| {
            Ok(Snapshot {
                sent_us: t_us,
                t_us,
                values: Values {
                    spec_drafts: Some(drafts),
                    spec_draft_tokens: Some(drafts * 4.0),
                    spec_accepted_tokens: Some(drafts * 2.0),
                    spec_accepted_per_pos: vec![drafts, drafts],
                    ..Values::default()
                },
            })
        };
        let w = server_window(&[spec_at(10 * S, 5.0), spec_at(12 * S, 25.0)], 10 * S, 12 * S);
        let spec = w.spec.unwrap();
        assert_eq!((spec.drafts, spec.accepted_tokens), (20.0, 40.0));
        assert_eq!(spec.accepted_per_pos, [20.0, 20.0]);
    }
}
