//! Numbers, tables and charts as people see them.
#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::{Value, json};
use tokscope_shared::chart::{self, Line, Lines, Theme};
use tokscope_shared::metric::{ALL, Reading, by_id, format_number};
use tokscope_shared::stats::{mean, percentile, smallest_sample, sorted, weighted_percentile};
use tokscope_shared::verdict::review;
use tokscope_shared::{import, render};

#[test]
fn numbers_have_fixed_decimals_and_thin_spaces() {
    let cases = [(0.0, 1, "0.0"), (999.94, 1, "999.9"), (999.95, 1, "1\u{2009}000.0"), (1234567.0, 0, "1\u{2009}234\u{2009}567")];
    for (value, decimals, text) in cases {
        assert_eq!(format_number(value, decimals), text);
    }
    assert_eq!(format_number(-1234.5, 1), "−1\u{2009}234.5");
    assert_eq!(format_number(-0.01, 1), "0.0", "a zero has no sign");
}

#[test]
fn percentiles_interpolate_between_order_statistics() {
    let values = sorted([4.0, 1.0, f64::NAN, 3.0, 2.0]);
    assert_eq!(values, [1.0, 2.0, 3.0, 4.0]);
    // As numpy.percentile(…, method="linear") gives.
    for (p, expected) in [(0.0, 1.0), (50.0, 2.5), (90.0, 3.7), (99.0, 3.97), (100.0, 4.0)] {
        assert!((percentile(&values, p).unwrap() - expected).abs() < 1e-12);
    }
    assert_eq!((percentile(&[], 50.0), mean(&[])), (None, None));
    assert_eq!([50.0, 90.0, 95.0, 99.0].map(smallest_sample), [2, 10, 20, 100]);
}

proptest::proptest! {
    #[test]
    fn a_weighted_percentile_is_that_of_the_values_written_out(mut pairs in proptest::collection::vec((0u8..50, 0u64..5), 0..30), p in 0.0f64..100.0) {
        pairs.sort_unstable();
        let pairs: Vec<(f64, u64)> = pairs.into_iter().map(|(value, weight)| (value.into(), weight)).collect();
        let written: Vec<f64> = pairs.iter().flat_map(|(value, weight)| std::iter::repeat_n(*value, *weight as usize)).collect();
        match (weighted_percentile(&pairs, p), percentile(&written, p)) {
            (Some(a), Some(b)) => proptest::prop_assert!((a - b).abs() < 1e-9, "{a} {b}"),
            (a, b) => proptest::prop_assert_eq!(a, b),
        }
    }
}

#[test]
fn metric_ids_are_unique_and_found() {
    for metric in ALL {
        assert_eq!(by_id(metric.id), Some(metric));
        assert!(metric.definition.ends_with('.'), "{}", metric.id);
    }
}

#[test]
fn percentiles_of_the_window_are_preferred_to_the_old_keys() {
    let cell = |own: Value| {
        let mut cell = json!({ "ttft_p50": 0.1, "ttft_p90": 0.2, "ttft_p99": 0.3, "chunk_inter_token_latency_p50": 0.01,
            "chunk_inter_token_latency_p99": 0.02, "request_latency_p50": 4.0, "inter_token_latency_p50": 0.005 });
        if !own.is_null() {
            cell["tokscope"] = json!({ "distributions": own });
        }
        import::open(json!({ "metadata": { "model": "m" }, "results": [cell] }).to_string().as_bytes()).unwrap().report
    };
    let read = |own: Value, ids: &[&str]| {
        let report = cell(own);
        let cell = report.cells().next().unwrap();
        ids.iter().map(|id| by_id(id).unwrap().read(cell)).collect::<Vec<_>>()
    };
    let ids = ["ttft-p50", "ttft-p90", "ttft-p99", "chunk-gap-p50", "chunk-gap-p99", "latency-p50", "itl-p50", "itl-p99", "tpot-p50"];
    let values = |values: [f64; 9]| values.map(Reading::Value).to_vec();
    let all = json!({
        "ttft_s": { "p50": 0.5, "p90": 0.75, "p99": 1.5 }, "chunk_gap_s": { "p50": 0.25, "p99": 2.5 },
        "itl_s": { "p50": 0.125, "p99": 0.375 }, "request_latency_s": { "p50": 8.0 },
    });
    assert_eq!(read(all, &ids), values([500.0, 750.0, 1500.0, 250.0, 2500.0, 8000.0, 125.0, 375.0, 5.0]));
    let old = [100.0, 200.0, 300.0, 10.0, 20.0, 4000.0].map(Reading::Value);
    assert_eq!(read(Value::Null, &ids[..6]), old);
    assert_eq!(read(json!({ "ttft_s": { "p50": null, "p90": null, "p99": null } }), &ids[..6]), old, "a sample too small for it");
    assert_eq!(read(json!({ "itl_s": { "p50": null } }), &["itl-p50"]), [Reading::Null]);
    assert_eq!(read(Value::Null, &["itl-p50", "itl-p99"]), [Reading::Absent; 2]);
}

#[test]
fn a_matrix_marks_what_cannot_be_believed() {
    let opened = import::open(include_bytes!("fixtures/v0.6.json")).unwrap();
    let review = review(&opened.report, &opened.findings);
    let table = render::matrix_table(&opened.report, &review, by_id("aggregate-tps").unwrap());
    insta::assert_snapshot!(table.text(), @r"
    context    C=1  C=2  C=4
    ────────────────────────
    0        150.0    ✗    ✗
    ");
    insta::assert_snapshot!(table.markdown(), @r"
    | context | C=1 | C=2 | C=4 |
    |---|--:|--:|--:|
    | 0 | 150.0 | ✗ | ✗ |
    ");
    assert_eq!(render::legend(&table), "✗ invalid");
}

#[test]
fn lengths_of_answers_stand_beside_rates_and_unlike_contexts_in_no_common_row() {
    let limits = |meta: Value, own: [Value; 3]| {
        let cell = |(context, max): (i64, Value)| json!({ "context_tokens": context, "concurrency": 1, "aggregate_tps": 10.0, "tokscope": { "prompt": { "max_tokens": max } } });
        let cells: Vec<Value> = [0, 16_384, 32_768].into_iter().zip(own).map(cell).collect();
        let report = json!({ "metadata": { "max_tokens": meta, "model": "m" }, "results": cells }).to_string();
        let report = import::open(report.as_bytes()).unwrap().report;
        let matrix = tokscope_shared::matrix::Matrix::new(&report);
        assert_eq!((matrix.contexts, matrix.levels), (vec![0, 16_384, 32_768], vec![1]), "a row for each context");
        render::answer_limits(&report, report.cells())
    };
    assert_eq!(limits(json!(512), [json!(512), json!(512), json!(512)]), "answers up to 512 tokens");
    assert_eq!(limits(json!(512), [json!(512), json!(100), Value::Null]), "answers up to 512 tokens at 0, 32k; up to 100 tokens at 16k");
    assert_eq!(limits(json!(512), [Value::Null, Value::Null, Value::Null]), "answers up to 512 tokens", "as the run had it");
    assert_eq!(limits(Value::Null, [Value::Null, Value::Null, Value::Null]), "answers of a length that is not known");
    let prompt = json!({ "mode": "dataset", "max_tokens": 8192 });
    let cell = json!({ "context_tokens": 0, "concurrency": 1, "aggregate_tps": 10.0, "tokscope": { "prompt": prompt } });
    let report = json!({ "metadata": { "max_tokens": 8192, "model": "m" }, "results": [cell] }).to_string();
    let report = import::open(report.as_bytes()).unwrap().report;
    let words = render::answer_limits(&report, report.cells());
    assert_eq!(words, "answers as the dataset says, else up to 8192 tokens", "lines may have limits of their own");
}

#[test]
fn prefill_rows_are_shown_with_their_sample() {
    let opened = import::open(include_bytes!("fixtures/prefill-only.json")).unwrap();
    insta::assert_snapshot!(render::prefill_table(&opened.report).unwrap().text().replace('\u{2009}', " "), @r"
    context  prompt tok  TTFT s  tok/s  server tok/s  n
    ───────────────────────────────────────────────────
    8k            8 192   1.200  6 827             —  8
    ");
}

fn spec() -> Lines {
    Lines {
        y_head: "tok/s".into(),
        x_head: "context".into(),
        ticks: vec![(0.0, "0".into()), (32768.0, "32k".into())],
        lines: vec![
            Line { label: "C=1".into(), points: vec![(0.0, 150.0, true), (32768.0, 140.0, false)] },
            Line { label: "C=2 <&>".into(), points: vec![(0.0, 151.0, true), (32768.0, 141.0, true)] },
        ],
    }
}

#[test]
fn a_chart_tells_where_its_points_are() {
    let chart = chart::lines(&spec(), &Theme::LIGHT, 640, 300);
    assert!(chart.svg.starts_with("<svg") && chart.svg.trim_end().ends_with("</svg>"));
    assert!(chart.svg.contains("C=2 &lt;&amp;&gt;"), "labels are escaped");
    assert_eq!(chart.marks.len(), 4);
    let at = |line, index| *chart.marks.iter().find(|mark| (mark.line, mark.index) == (line, index)).unwrap();
    assert!(at(0, 0).x < at(0, 1).x && (at(0, 0).x - at(1, 0).x).abs() < 1e-9);
    assert!(at(0, 0).y < at(0, 1).y, "more is higher");
    assert!(chart.marks.iter().all(|mark| (0.0..640.0).contains(&mark.x) && (0.0..300.0).contains(&mark.y)));
    // From the zero baseline, heights are proportional to values.
    let base = 300.0 - 38.0;
    let ratio = (base - at(0, 0).y) / (base - at(1, 0).y);
    assert!((ratio - 150.0 / 151.0).abs() < 1e-9, "{ratio}");
}

#[test]
fn a_chart_of_nothing_says_so() {
    let empty = Lines { lines: Vec::new(), ..spec() };
    let chart = chart::lines(&empty, &Theme::DARK, 300, 200);
    assert!(chart.svg.contains("no values to draw") && chart.marks.is_empty());
}

#[test]
fn the_same_chart_is_drawn_twice_alike_in_both_themes() {
    assert_eq!(chart::lines(&spec(), &Theme::DARK, 640, 300), chart::lines(&spec(), &Theme::DARK, 640, 300));
    assert_ne!(chart::lines(&spec(), &Theme::DARK, 640, 300).svg, chart::lines(&spec(), &Theme::LIGHT, 640, 300).svg);
}
