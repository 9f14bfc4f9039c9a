//! The key numbers of reports that have no matrix: profiles, comparisons, tool-use evaluations, diagnostics.

use tokscope_shared::field::{Field, Int, Num};
use tokscope_shared::metric::format_number;
use tokscope_shared::report::Report;
use tokscope_shared::report::extras::Method;
use tokscope_shared::report::profile::{ProfileSummary, Spread};

/// A number with its name, or a state in words.
pub type Fact = (&'static str, String);

/// A heading with facts under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The heading.
    pub title: &'static str,
    /// The facts; never empty.
    pub facts: Vec<Fact>,
}

/// What a report without a matrix says; empty where it says nothing that is known here.
pub fn groups(report: &Report) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut add = |title, facts: Vec<Option<Fact>>| {
        let facts: Vec<Fact> = facts.into_iter().flatten().collect();
        if !facts.is_empty() {
            groups.push(Group { title, facts });
        }
    };
    add("Task", task(report));
    if let Some(accuracy) = report.accuracy.get() {
        let interval = accuracy.wilson95_low.f64().zip(accuracy.wilson95_high.f64());
        add(
            "Accuracy",
            vec![
                percent("accuracy", &accuracy.accuracy),
                interval.map(|(low, high)| {
                    ("95 % interval", format!("{} – {} %", format_number(low * 100.0, 1), format_number(high * 100.0, 1)))
                }),
                whole("right answers", &accuracy.correct),
                whole("judged", &accuracy.scored),
                whole("not readable", &accuracy.unparseable),
                whole("errors", &accuracy.errors),
            ],
        );
    }
    if let Some(summary) = report.selected_summary.get().or(report.all_summary.get()) {
        add("Answers", answers(report, summary));
        add("Speed of one stream", speed(summary));
    }
    if let Some(comparison) = report.comparison.get() {
        add(
            "Comparison",
            vec![
                text("not compared", &comparison.error),
                whole("paired items", &comparison.paired_items),
                percent("baseline", &comparison.baseline_accuracy),
                percent("candidate", &comparison.candidate_accuracy),
                number("difference, percentage points", &comparison.delta_pp, 1),
                number("McNemar p", &comparison.mcnemar_exact_p, 4),
            ],
        );
    }
    if let Some(tool) = report.tool_eval.get() {
        add(
            "Tool use",
            vec![text("status", &tool.status), number("seconds", &tool.duration_seconds, 1), whole("exit code", &tool.exit_code)],
        );
    }
    add("Machine", machine(report));
    groups
}

fn task(report: &Report) -> Vec<Option<Fact>> {
    let Some(meta) = report.metadata.get() else { return Vec::new() };
    vec![
        text("profile", &meta.test_profile),
        text("what it asks", &meta.test_profile_description),
        whole("prompt, characters", &meta.prompt_chars),
    ]
}

fn answers(report: &Report, summary: &ProfileSummary) -> Vec<Option<Fact>> {
    vec![
        whole("concurrency taken", &report.selected_concurrency),
        whole("attempted", &summary.attempted),
        whole("with output", &summary.completed),
        summary.score_available.yes().then(|| percent("right", &summary.correct_rate)).flatten(),
        summary.score_available.yes().then(|| whole("right answers", &summary.correct)).flatten(),
        summary.score_available.yes().then(|| whole("wrong answers", &summary.wrong)).flatten(),
        whole("errors", &summary.errors),
        whole("reached the output limit", &summary.hit_max_tokens),
    ]
}

fn speed(summary: &ProfileSummary) -> Vec<Option<Fact>> {
    let spread = |label, field: &Field<Spread>, decimals| {
        let spread = field.get()?;
        let median = spread.p50.f64().filter(|value| *value > 0.0)?;
        let ends = spread.min.f64().zip(spread.max.f64());
        let ends =
            ends.map_or_else(String::new, |(low, high)| format!(" ({} – {})", format_number(low, decimals), format_number(high, decimals)));
        Some((label, format_number(median, decimals) + &ends))
    };
    vec![
        spread("tok/s, median (range)", &summary.gen_tok_s, 1),
        spread("tok/s with first token", &summary.e2e_tok_s, 1),
        spread("TTFT, s", &summary.ttft, 2),
        spread("seconds an answer", &summary.elapsed, 1),
        spread("tokens an answer", &summary.completion_tokens, 0),
    ]
}

fn machine(report: &Report) -> Vec<Option<Fact>> {
    let start = report.startup_diagnostics.get();
    vec![
        start.and_then(|start| text("system", &start.uname)),
        report.p2pmark.get().and_then(|test| text("GPU peer-to-peer test", &test.status)),
        report.amd_fabric.get().and_then(|test| text("CPU fabric test", &test.status)),
        report.nvidia_p2p_override.get().and_then(|settings| text("NVIDIA P2P override", &settings.status)),
        report.hardware_run_summary.get().and_then(|hardware| number("mean power, W", &hardware.power_total_avg_w, 0)),
        report.hardware_run_summary.get().and_then(|hardware| number("GPU temperature, max, °C", &hardware.temp_max_c, 0)),
    ]
}

/// How the numbers were made, as the report says it: a heading and sentences.
pub fn methods(report: &Report) -> Vec<(&'static str, Vec<String>)> {
    let Some(all) = report.methodology.get() else { return Vec::new() };
    let said = |field: &Field<Method>| match field.get() {
        Some(Method::Text(text)) => vec![text.clone()],
        Some(Method::Entry(entry)) => {
            let parts = [&entry.status, &entry.formula, &entry.notes, &entry.purpose, &entry.request_contract, &entry.limitation];
            parts.into_iter().filter_map(|part| part.str().filter(|text| !text.is_empty()).map(str::to_owned)).collect()
        }
        None => Vec::new(),
    };
    [
        ("Prefill", &all.prefill),
        ("Sustained decode", &all.sustained_decode),
        ("Burst", &all.burst_e2e_decode),
        ("Acceptance", &all.acceptance_normalization),
        ("Forced token", &all.fixed_token_route),
        ("Coding peak", &all.coding_peak),
        ("Mixed prefill", &all.mixed_prefill),
        ("Concurrency", &all.adaptive_concurrency),
        ("Token need", &all.token_need),
        ("Correctness", &all.correctness),
    ]
    .into_iter()
    .map(|(title, field)| (title, said(field)))
    .filter(|(_, said)| !said.is_empty())
    .collect()
}

/// What happened, a line each: Tokscope's own events, else the log of the predecessor.
pub fn events(report: &Report) -> Vec<String> {
    let own = report.tokscope.get();
    let own: Vec<String> = own
        .into_iter()
        .flat_map(|own| own.events.items())
        .filter_map(|event| Some(format!("{:>10} s  {}", format_number(event.t_us.i64()? as f64 / 1e6, 3), event.text.str()?)))
        .collect();
    if own.is_empty() { report.event_log.items().cloned().collect() } else { own }
}

/// The settings as they stand in the file, each with its key; none where the file isn't plain JSON.
pub fn settings(bytes: &[u8]) -> Vec<(String, String)> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let file: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let settings = file.get("metadata").and_then(serde_json::Value::as_object);
    settings.into_iter().flatten().map(|(key, value)| (key.clone(), value.to_string())).collect()
}

fn text(label: &'static str, field: &Field<String>) -> Option<Fact> {
    let text = field.str().filter(|text| !text.is_empty())?;
    Some((label, text.replace("not_run", "not run")))
}

fn whole(label: &'static str, field: &Field<Int>) -> Option<Fact> {
    Some((label, format_number(field.i64()? as f64, 0)))
}

fn number(label: &'static str, field: &Field<Num>, decimals: usize) -> Option<Fact> {
    Some((label, format_number(field.f64()?, decimals)))
}

fn percent(label: &'static str, field: &Field<Num>) -> Option<Fact> {
    Some((label, format!("{} %", format_number(field.f64()? * 100.0, 1))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokscope_shared::import;

    fn facts(json: &str, title: &str) -> Vec<Fact> {
        let report = import::open(json.as_bytes()).unwrap().report;
        groups(&report).into_iter().find(|group| group.title == title).map(|group| group.facts).unwrap_or_default()
    }

    #[test]
    fn a_profile_says_how_many_answers_were_right_and_how_fast() {
        let text = r#"{"metadata": {"mode": "completion_stats", "model": "m"}, "selected_concurrency": 30, "selected_summary": {
            "attempted": 30, "completed": 30, "correct": 28, "wrong": 2, "errors": 0, "correct_rate": 0.9333, "score_available": true,
            "gen_tok_s": {"p50": 75.7, "min": 60.0, "max": 80.0}}}"#;
        let answers = facts(text, "Answers");
        assert!(answers.contains(&("right", "93.3 %".to_owned())) && answers.contains(&("attempted", "30".to_owned())));
        assert_eq!(facts(text, "Speed of one stream"), [("tok/s, median (range)", "75.7 (60.0 – 80.0)".to_owned())]);
    }

    #[test]
    fn answers_that_were_not_judged_have_no_score() {
        let text = r#"{"metadata": {"mode": "completion_stats"}, "all_summary": {"attempted": 3, "correct": 0, "score_available": false}}"#;
        assert_eq!(facts(text, "Answers"), [("attempted", "3".to_owned())]);
    }

    #[test]
    fn methods_and_events_of_the_sample_are_told() {
        let report = import::open(crate::data::sample()).unwrap().report;
        let titles: Vec<_> = methods(&report).into_iter().map(|method| method.0).collect();
        assert_eq!(titles, ["Prefill", "Sustained decode", "Burst", "Acceptance"]);
        assert_eq!(events(&report)[0], "06:43:54 benchmark start engine=vllm");
        assert!(settings(crate::data::sample()).contains(&("duration_per_test".to_owned(), "10.0".to_owned())));
        assert!(settings(b"{\"metadata\": NaN}").is_empty());
    }

    #[test]
    fn our_own_events_come_before_the_log() {
        let text = r#"{"metadata": {"model": "m"}, "results": [], "event_log": ["06:00:00 old"],
            "tokscope": {"schema": 1, "events": [{"t_us": 1500000, "kind": "cell", "text": "ready"}]}}"#;
        let report = import::open(text.as_bytes()).unwrap().report;
        assert_eq!(events(&report), ["     1.500 s  ready"]);
    }

    #[test]
    fn a_diagnostics_report_says_what_state_the_tests_are_in() {
        let text = r#"{"metadata": {"mode": "p2pmark_only"}, "p2pmark": {"status": "ok"}, "amd_fabric": {"status": "not_run"}}"#;
        assert_eq!(facts(text, "Machine"), [("GPU peer-to-peer test", "ok".to_owned()), ("CPU fabric test", "not run".to_owned())]);
    }
}
