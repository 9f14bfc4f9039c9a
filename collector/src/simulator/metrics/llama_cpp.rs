//! llama.cpp's page, as recorded. Its token counters move when a request ends or is cancelled, and not before.

use std::fmt::Write as _;

use super::Snapshot;

/// What the averages of the last scrape were made of; each scrape begins new ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scraped {
    prompt: (f64, f64),
    predicted: (f64, f64),
}

/// The page, and what the next one's averages begin from.
pub(crate) fn page(snapshot: &Snapshot, before: Scraped) -> (String, Scraped) {
    let (counters, gauges) = snapshot.first();
    let computed = (counters.prompt_tokens - counters.cached_tokens) as f64;
    let now = Scraped {
        prompt: (computed, counters.prefill_ns as f64 / 1e9),
        predicted: (counters.ended_tokens as f64, counters.ended_decode_ns as f64 / 1e9),
    };
    let rate = |now: (f64, f64), before: (f64, f64)| {
        let seconds = now.1 - before.1;
        if seconds > 0.0 { (now.0 - before.0) / seconds } else { 0.0 }
    };
    let busy = match counters.decodes {
        0 => 0.0,
        decodes => counters.busy_slots as f64 / decodes as f64,
    };
    let mut page = String::new();
    for (name, kind, help, value) in [
        ("prompt_tokens_total", "counter", "Prompt tokens computed, cached ones excluded.", computed),
        ("prompt_tokens_cached_total", "counter", "Prompt tokens taken from the cache.", counters.cached_tokens as f64),
        ("prompt_seconds_total", "counter", "Time in prompts.", now.prompt.1),
        ("tokens_predicted_total", "counter", "Tokens of answers that ended.", now.predicted.0),
        ("tokens_predicted_seconds_total", "counter", "Time they took.", now.predicted.1),
        ("n_decode_total", "counter", "Calls of the model.", counters.decodes as f64),
        ("n_tokens_max", "counter", "Longest prompt and answer so far.", counters.longest as f64),
        ("spec_decode_num_draft_tokens_total", "counter", "Tokens drafted.", counters.draft_tokens as f64),
        ("spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens accepted.", counters.accepted_tokens as f64),
        ("spec_decode_num_drafts_total", "counter", "Drafts made.", counters.drafts as f64),
        ("prompt_tokens_seconds", "gauge", "Prompt tokens a second since the last scrape.", rate(now.prompt, before.prompt)),
        ("predicted_tokens_seconds", "gauge", "Tokens a second since the last scrape.", rate(now.predicted, before.predicted)),
        ("requests_processing", "gauge", "Requests in a slot.", gauges.running as f64),
        ("requests_deferred", "gauge", "Requests without a slot.", gauges.waiting as f64),
        ("n_busy_slots_per_decode", "gauge", "Mean number of busy slots a call.", busy),
    ] {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "# HELP llamacpp:{name} {help}\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {}", six_digits(value));
    }
    (page, now)
}

/// A number as the C++ streams write it by default, which is six significant digits; whole ones as they are.
fn six_digits(value: f64) -> String {
    if value == value.trunc() || value == 0.0 {
        return format!("{value:.0}");
    }
    let before_point = value.abs().log10().floor() as i32 + 1;
    let places = (6 - before_point).clamp(0, 12);
    let text = format!("{value:.*}", places.unsigned_abs() as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_six_digits() {
        for (value, text) in [(0.0, "0"), (48_047.0, "48047"), (180.803_42, "180.803"), (0.180_449_1, "0.180449"), (3.5, "3.5")] {
            assert_eq!(six_digits(value), text);
        }
    }
}
