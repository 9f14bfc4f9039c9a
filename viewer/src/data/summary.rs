//! A report in one line of the list: identity, ranges, the best rate, how many cells can be believed.

use tokscope_shared::metric;
use tokscope_shared::report::Report;
use tokscope_shared::report::identity::{Identity, context_label};
use tokscope_shared::verdict::{Review, Verdict};

/// One line of the list; a part is empty where the report has nothing of the kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Who measured what, where and when.
    pub identity: Identity,
    /// Levels of concurrency, as `1–64`.
    pub levels: String,
    /// Context lengths, as `0–128k`.
    pub contexts: String,
    /// The highest rate of a cell that isn't invalid, with the mark of that cell's verdict.
    pub best: String,
    /// Cells by verdict, as `16 valid · 23 limited`.
    pub verdicts: String,
    /// The worst verdict of any cell; none without cells.
    pub worst: Option<Verdict>,
    /// When it was saved, as people read it.
    pub date: String,
}

impl Summary {
    /// Of a report and what was found about it.
    pub fn new(report: &Report, review: &Review) -> Self {
        let identity = report.identity();
        let counts: Vec<String> = Verdict::ALL
            .into_iter()
            .filter(|verdict| review.count(*verdict) > 0)
            .map(|verdict| format!("{} {verdict}", review.count(verdict)))
            .collect();
        Summary {
            levels: range(report.cells().filter_map(|cell| cell.concurrency.i64()), |level| level.to_string()),
            contexts: range(report.cells().filter_map(|cell| cell.context_tokens.i64()), context_label),
            best: best(report, review),
            verdicts: counts.join(" · "),
            worst: review.cells.iter().map(|judgement| judgement.verdict).max(),
            date: identity.timestamp.as_deref().map(date).unwrap_or_default(),
            identity,
        }
    }
}

fn best(report: &Report, review: &Review) -> String {
    let Some(metric) = metric::by_id("aggregate-tps") else { return String::new() };
    report
        .cells()
        .zip(&review.cells)
        .filter(|(_, judgement)| judgement.verdict != Verdict::Invalid)
        .filter_map(|(cell, judgement)| Some((metric.read(cell).value()?, cell, judgement.verdict)))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(String::new, |(_, cell, verdict)| tokscope_shared::matrix::shown(metric, cell, verdict))
}

fn range(values: impl Iterator<Item = i64>, label: impl Fn(i64) -> String) -> String {
    let values: Vec<i64> = values.collect();
    match (values.iter().copied().min(), values.iter().copied().max()) {
        (Some(low), Some(high)) if low == high => label(low),
        (Some(low), Some(high)) => format!("{}–{}", label(low), label(high)),
        _ => String::new(),
    }
}

/// The parts of the line under the model's name, each only where the file has it.
pub fn identity_line(summary: &Summary) -> Vec<String> {
    let identity = &summary.identity;
    let engine = identity.engine.as_ref().map(|engine| match &identity.engine_version {
        Some(version) => format!("{engine} {version}"),
        None => engine.clone(),
    });
    let saved = (!summary.date.is_empty()).then(|| summary.date.clone());
    let window = identity.duration_s.filter(|seconds| *seconds > 0.0).map(|seconds| format!("{seconds} s a cell"));
    let tool = match &identity.tool_version {
        Some(version) => format!("{} {version}", identity.tool),
        None => format!("{}, version not recorded", identity.tool),
    };
    let parts = [
        engine,
        identity.gpus.clone(),
        identity.driver.as_ref().map(|driver| format!("driver {driver}")),
        saved,
        window,
        Some(tool),
        Some(identity.kind.to_owned()),
    ];
    parts.into_iter().flatten().collect()
}

/// `2026-08-28T06:45:45.924` as `28 Aug 2026 06:45`; anything else as it is. The zone is left out: the raw
/// text stands beside it.
pub fn date(text: &str) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let read = || {
        let (day, time) = text.split_once(['T', ' '])?;
        let mut parts = day.split('-');
        let (year, month, day) = (parts.next()?, parts.next()?.parse::<usize>().ok()?, parts.next()?.parse::<u32>().ok()?);
        let month = MONTHS.get(month.checked_sub(1)?)?;
        Some(format!("{day} {month} {year} {}", time.get(..5)?))
    };
    read().unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokscope_shared::{import, verdict};

    fn summary(text: &str) -> Summary {
        let report = import::open(text.as_bytes()).unwrap().report;
        Summary::new(&report, &verdict::review(&report, &tokscope_shared::field::Findings::default()))
    }

    #[test]
    fn dates_are_readable_and_odd_ones_stay_as_they_are() {
        for (text, shown) in [
            ("2026-08-28T06:45:45.924295", "28 Aug 2026 06:45"),
            ("2026-08-28T06:45:45+02:00", "28 Aug 2026 06:45"),
            ("2026-05-14 11:02:33", "14 May 2026 11:02"),
            ("2026-13-01T00:00:00", "2026-13-01T00:00:00"),
            ("yesterday", "yesterday"),
        ] {
            assert_eq!(date(text), shown);
        }
    }

    #[test]
    fn the_sample_says_what_it_is() {
        let summary = summary(std::str::from_utf8(crate::data::sample()).unwrap());
        assert_eq!((summary.levels.as_str(), summary.contexts.as_str()), ("1", "0–64k"));
        assert_eq!((summary.best.as_str(), summary.verdicts.as_str()), ("151.5", "3 valid"));
    }

    #[test]
    fn the_line_under_the_name_has_only_what_the_file_has() {
        let line = identity_line(&summary(std::str::from_utf8(crate::data::sample()).unwrap()));
        for part in ["28 Aug 2026 06:45", "10 s a cell", "llm_decode_bench 0.4.29", "decode report", "driver 610.57.04"] {
            assert!(line.iter().any(|found| found == part), "{part} in {line:?}");
        }
        let bare = identity_line(&summary(r#"{"metadata": {"model": "m"}, "results": []}"#));
        assert_eq!(bare, ["llm_decode_bench, version not recorded", "report without measurements"]);
    }

    #[test]
    fn an_invalid_rate_is_never_the_best_and_a_limited_one_is_marked() {
        let cell = |c: u32, rate: f64, more: &str| {
            format!(
                r#"{{"context_tokens": 0, "concurrency": {c}, "aggregate_tps": {rate}, "aggregate_source": "openai_continuous_usage"{more}}}"#
            )
        };
        let cells = [cell(1, 10.0, ""), cell(2, 20.0, r#", "underfilled": true"#), cell(4, 99.0, r#", "num_errors": 1"#)];
        let summary = summary(&format!(r#"{{"metadata": {{"model": "m"}}, "results": [{}]}}"#, cells.join(",")));
        assert_eq!(summary.best, "20.0*");
        assert_eq!(summary.verdicts, "1 valid · 1 limited · 1 invalid");
        assert_eq!(summary.worst, Some(Verdict::Invalid));
    }

    #[test]
    fn a_report_without_cells_leaves_its_parts_empty() {
        let summary = summary(r#"{"metadata": {"mode": "completion_stats"}}"#);
        assert_eq!((summary.levels.as_str(), summary.best.as_str(), summary.worst), ("", "", None));
    }
}
