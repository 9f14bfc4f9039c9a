//! A report laid beside what the simulator knows to be true: tokens handed over between the same two instants,
//! and times to first token, request by request. It judges nothing.

use crate::simulator::Truth;
use std::collections::HashMap;
use tokscope_shared::field::Int;
use tokscope_shared::metric::format_number;
use tokscope_shared::render::Table;
use tokscope_shared::report::Report;
use tokscope_shared::report::cell::Cell;
use tokscope_shared::report::identity::context_label;
use tokscope_shared::stats::{percentile, sorted};

/// One cell beside the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Tokens that the report counts in the window.
    pub counted: i64,
    /// Tokens that the simulator handed over between the window's edges.
    pub handed: u64,
    /// Median of measured less true times to first token, µs; `None` without requests.
    pub ttft_off_us: Option<f64>,
}

/// Compares a cell; `None` where it has no window.
pub fn compare(cell: &Cell, origin_ns: u64, truth: &Truth) -> Option<Compared> {
    let own = cell.tokscope.get()?;
    let window = own.window.get()?;
    let edge = |us: Option<i64>| Some(origin_ns + u64::try_from(us?).ok()? * 1000);
    let (start, end) = (edge(window.start_us.i64())?, edge(window.end_us.i64())?);
    let handed = truth
        .requests
        .iter()
        .flat_map(|request| request.handed_ns.iter().zip(&request.tokens))
        .filter(|(at, _)| (start..end).contains(at))
        .map(|(_, tokens)| u64::from(*tokens))
        .sum();
    let by_id: HashMap<&str, _> = truth.requests.iter().map(|request| (request.id.trim_start_matches("chatcmpl-"), request)).collect();
    let columns = own.series.get().and_then(|series| series.requests.get());
    let off = columns.into_iter().flat_map(|columns| {
        let sent = columns.sent_us.get().map(|list| list.0.as_slice()).unwrap_or_default();
        let first = columns.first_token_us.get().map(|list| list.0.as_slice()).unwrap_or_default();
        columns.id.items().zip(sent.iter().zip(first)).filter_map(|(id, (sent, first))| {
            let request = by_id.get(id.as_str())?;
            let true_us = request.handed_ns.first()?.checked_sub(request.received_ns)? as f64 / 1e3;
            Some((first.get().map(Int::i64)? - sent.get().map(Int::i64)?) as f64 - true_us)
        })
    });
    Some(Compared { counted: cell.client_output_tokens.i64()?, handed, ttft_off_us: percentile(&sorted(off), 50.0) })
}

/// The comparison of all cells, with the simulator's own lateness in the last column's head.
pub fn table(report: &Report, truth: &Truth) -> Table {
    let own = report.tokscope.get();
    let origin_ns = own.and_then(|own| u64::try_from(own.client.get()?.origin_ns.i64()?).ok()).unwrap_or(0);
    let late_ms = |ns: Option<u64>| ns.map_or_else(|| "—".to_owned(), |ns| format!("{:.2}", ns as f64 / 1e6));
    let rows = report.cells().filter_map(|cell| {
        let compared = compare(cell, origin_ns, truth)?;
        let off = (compared.counted as f64 / compared.handed as f64 - 1.0) * 100.0;
        Some(vec![
            format!("C={} at {}", cell.concurrency.i64()?, context_label(cell.context_tokens.i64()?)),
            format_number(compared.counted as f64, 0),
            format_number(compared.handed as f64, 0),
            if off.is_finite() { format!("{off:+.3} %") } else { "—".to_owned() },
            compared.ttft_off_us.map_or_else(|| "—".to_owned(), |us| format!("{:+.2}", us / 1e3)),
        ])
    });
    let late = format!("TTFT off, ms (simulator late by {} p50, {} max)", late_ms(truth.late_ns.p50), late_ms(truth.late_ns.max));
    Table { head: ["cell", "tokens", "handed over", "off"].map(str::to_owned).into_iter().chain([late]).collect(), rows: rows.collect() }
}
