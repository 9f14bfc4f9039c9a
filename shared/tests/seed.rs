//! The seed, a real report, recomputed from its own numbers.
#![allow(clippy::unwrap_used, missing_docs)]

use tokscope_shared::field::{Findings, Num};
use tokscope_shared::import;
use tokscope_shared::metric;
use tokscope_shared::report::Report;
use tokscope_shared::stats::Speculation;
use tokscope_shared::verdict::{Verdict, review};

fn seed() -> Report {
    import::open(include_bytes!("fixtures/seed.json")).unwrap().report
}

fn close(a: f64, b: f64, relative: f64) {
    assert!((a / b - 1.0).abs() <= relative, "{a} is not {b} to {relative:e}");
}

#[test]
fn its_numbers_follow_from_each_other() {
    let report = seed();
    assert_eq!(report.cells().count(), 3);
    for cell in report.cells() {
        let rate = cell.aggregate_tps.f64().unwrap();
        let tokens = cell.client_output_tokens.i64().unwrap() as f64;
        close(tokens / cell.measurement_seconds.f64().unwrap(), rate, 1e-7);
        let [drafts, draft_tokens, accepted] =
            [&cell.server_spec_drafts, &cell.server_spec_draft_tokens, &cell.server_spec_accepted_tokens].map(|n| n.i64().unwrap() as f64);
        let spec = Speculation::new(drafts, draft_tokens, accepted, cell.server_output_tokens.i64().unwrap() as f64).unwrap();
        close(spec.accept_length, cell.server_spec_accept_length.f64().unwrap(), 1e-12);
        close(spec.accept_rate, cell.server_spec_accept_rate.f64().unwrap(), 1e-12);
        close(spec.effective_length, cell.server_accept_len_effective.f64().unwrap(), 1e-12);
        close(spec.engine_steps, cell.server_engine_steps.f64().unwrap(), 1e-12);
        close(spec.steps_per_s(rate), cell.server_steps_per_s.f64().unwrap(), 1e-12);
        close(1.0 / cell.inter_token_latency_p50.f64().unwrap(), cell.output_tps_per_user_p50.f64().unwrap(), 1e-12);
        let by_position: f64 = cell.server_spec_pos_accept.items().map(Num::f64).sum();
        assert!((by_position - (spec.accept_length - 1.0)).abs() <= 1e-3);
    }
}

#[test]
fn its_metrics_read_as_people_quote_them() {
    let report = seed();
    let shown = |id: &str| {
        let metric = metric::by_id(id).unwrap();
        report.cells().map(|cell| metric.format(metric.read(cell).value().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(shown("aggregate-tps"), ["145.5", "147.2", "151.5"]);
    assert_eq!(shown("steps-per-s"), ["52.5", "51.1", "50.4"]);
    assert_eq!(shown("accept-length"), ["2.77", "2.88", "3.00"]);
    assert_eq!(shown("ttft-p50"), ["123.9", "5\u{2009}372.6", "10\u{2009}824.4"]);
}

#[test]
fn its_cells_are_valid_and_the_prefix_cache_is_doubted() {
    let review = review(&seed(), &Findings::default());
    assert_eq!(review.sentence(), "3 of 3 cells valid");
    assert_eq!(review.count(Verdict::Valid), 3);
    assert!(review.doubts.is_empty(), "{:?}", review.doubts);
    let hinted: Vec<bool> = review.cells.iter().map(|cell| cell.hints().any(|hint| hint.code == "no-prefix-caching")).collect();
    assert_eq!(hinted, [false, true, true]);
}

#[test]
fn its_identity_is_found() {
    let identity = seed().identity();
    assert_eq!(identity.model.unwrap(), "GLM-5.3-Flash-EXL3-4bpw");
    assert_eq!(identity.engine.unwrap(), "vLLM");
    assert_eq!(identity.engine_version.unwrap(), "0.1.dev20111+g7f1e92bec.d20260827");
    assert_eq!(
        identity.gpus.unwrap(),
        "2× NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition + 2× NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
    );
    assert_eq!(identity.driver.unwrap(), "610.57.04");
    assert_eq!(identity.kind, "decode report");
}
