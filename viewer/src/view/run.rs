//! One report: who measured what, whether to believe it, then the numbers.

use super::chart::Chart;
use super::matrix::Matrix;
use super::sections::{Cells, Facts, Notes, Prefill};
use crate::data::findings::{Finding, findings};
use crate::data::library::Entry;
use crate::data::summary::identity_line;
use crate::state::State;
use leptos::prelude::*;
use std::sync::Arc;
use tokscope_shared::verdict::Verdict;

/// One report.
#[component]
pub(super) fn Run(entry: Arc<Entry>) -> impl IntoView {
    let state = expect_context::<State>();
    let of = entry.clone();
    let metric = Memo::new(move |_| state.metric.with(|id| of.metric_or_first(id)));
    let has_matrix = !entry.metrics().is_empty();
    view! {
        <article class="run" data-test="run">
            <Head entry=entry.clone() />
            {has_matrix
                .then(|| {
                    view! {
                        <div class="panes">
                            <Matrix entry=entry.clone() metric />
                            <Chart entry=entry.clone() metric />
                        </div>
                    }
                })}
            <Prefill entry=entry.clone() />
            {(!has_matrix).then(|| view! { <Facts entry=entry.clone() /> })}
            <Cells entry=entry.clone() />
            <Notes entry />
        </article>
    }
}

#[component]
fn Head(entry: Arc<Entry>) -> impl IntoView {
    let summary = &entry.summary;
    let model = summary.identity.model.clone().unwrap_or_else(|| "model not recorded".to_owned());
    let parts = identity_line(summary).into_iter().map(|part| view! { <span>{part}</span> }).collect_view();
    let raw_date = summary.identity.timestamp.clone().map(|text| format!("saved {text}"));
    let found = findings(&entry);
    let (hints, reasons): (Vec<Finding>, Vec<Finding>) = found.into_iter().partition(|finding| finding.verdict == Verdict::Valid);
    let doubts: Vec<_> = entry.review.doubts.iter().map(|doubt| doubt.text.clone()).collect();
    let any = !(hints.is_empty() && reasons.is_empty() && doubts.is_empty());
    let judged = !(entry.review.cells.is_empty() && entry.review.burst.is_empty());
    view! {
        <header class="head">
            <h1 data-test="model">{model}</h1>
            <p class="identity" data-test="identity" title=raw_date>{parts}<span class="faint">{entry.name.clone()}</span></p>
            {judged.then(|| view! { <p class="sentence" data-test="verdict-sentence">{entry.review.sentence()}"."</p> })}
            {any.then(|| view! {
                <ul class="findings" data-test="hints">
                    {doubts.into_iter().map(|text| view! { <li data-verdict="suspect"><b>"file"</b><span>{text}"."</span></li> }).collect_view()}
                    {reasons.into_iter().chain(hints).map(|finding| view! { <Line finding /> }).collect_view()}
                </ul>
            })}
        </header>
    }
}

#[component]
fn Line(finding: Finding) -> impl IntoView {
    let verdict = if finding.verdict == Verdict::Valid { "hint" } else { finding.verdict.name() };
    let all = finding.seen(usize::MAX);
    view! {
        <li data-verdict=verdict data-code=finding.code.clone()>
            <b>{verdict}</b>
            <span>{finding.meaning.clone()}" "<small title=all>{finding.seen(2)}</small></span>
        </li>
    }
}
