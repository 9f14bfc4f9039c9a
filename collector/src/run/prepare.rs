//! All that comes before the first measurement: the server is asked, prompts are made, the plan is drawn up.

use super::{Kept, PromptMode, RunError, RunOptions};
use crate::cell::{Bench, Isolation};
use crate::clock::Clock;
use crate::event::{Event, Events, context_label};
use crate::load::endpoint::Endpoint;
use crate::load::stop::Stop;
use crate::load::{Load, LoadLimits};
use crate::plan::{LeftOut, LeftOutCode, MIN_OUTPUT_TOKENS, Plan, PlanInput, PlannedCell, plan};
use crate::prefill::{self, PrefillContexts, PrefixCache, prefix_cache};
use crate::prompt::{self, PromptOptions, Prompts};
use crate::report::{DatasetUse, Options, RunRecord, Server, Status};
use crate::scrape::Scraper;
use crate::target::{MetricsAccess, Target, TargetError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// For the server's name to be looked up.
const RESOLVE_LIMIT: Duration = Duration::from_secs(10);

/// A run that is ready to measure: the server is known, the prompts are made, and so is the plan.
#[derive(Debug)]
pub struct Prepared {
    /// The server.
    pub target: Target,
    /// What is asked.
    pub prompts: Prompts,
    /// What will be measured, and what won't.
    pub plan: Plan,
    /// Which contexts have a row of prefill.
    pub prefill: PrefillContexts,
    /// Whether the server keeps the beginnings of prompts; none where no context asks for it.
    pub prefix_cache: Option<PrefixCache>,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) load: Load,
    pub(super) scraper: Option<Scraper>,
    pub(super) isolation: Isolation,
}

/// Prepares a run: nothing is sent but questions and probes. `None` where it was stopped
/// when the server was known already.
///
/// # Errors
/// The server can't be measured, with the reason.
pub async fn prepare(options: &RunOptions, clock: Clock, events: &Events, stop: Stop, kept: &Kept) -> Result<Option<Prepared>, RunError> {
    let target = known_server(options, clock, events, stop.clone(), kept).await?;
    let prefill = match (options.prefill.skip, options.prefill.standalone) {
        (true, _) => PrefillContexts::default(),
        (false, alone) => prefill::contexts(options.matrix_contexts(), &options.prefill.contexts, target.max_model_len(), alone),
    };
    events.emit(Event::Startup(prefill_line(options, &prefill)));
    let Some(prompts) = prompts(options, &prefill, &target, stop.clone()).await else { return Ok(None) };
    prompts.startup_lines.iter().for_each(|line| events.emit(Event::Startup(line.clone())));
    prompts.warnings.iter().for_each(|line| events.emit(Event::Warning(line.clone())));
    let load = Load::start(clock, 1).map_err(RunError::Threads)?;
    let endpoint = Arc::new(Endpoint::resolve(&target.address, &target.roots, RESOLVE_LIMIT).await?);
    let scraper = matches!(target.metrics, MetricsAccess::Available).then(|| Scraper::start(clock, &target));
    let mut prepared = Prepared {
        target,
        prompts,
        plan: Plan::default(),
        prefill,
        prefix_cache: None,
        endpoint,
        load,
        scraper,
        isolation: Isolation::new(),
    };
    if options.matrix_contexts().iter().chain(&prepared.prefill.recorded).any(|context| *context > 0) {
        let found = prefix_cache::find(&prepared.bench(events), LoadLimits::default(), &stop).await;
        if stop.is_stopped() {
            return Ok(None);
        }
        events.emit(Event::Startup(format!("prefix cache: {} ({})", found.finding.as_str(), found.evidence)));
        kept.with(|record| record.server.prefix_cache = Some(found.clone()));
        prepared.prefix_cache = Some(found);
    }
    prepared.plan = plan(&plan_input(options, &prepared));
    let too_long = prepared.prefill.too_long.iter().filter(|_| options.prefill.named);
    prepared.plan.left_out.extend(too_long.map(|(context, most)| prefill_left_out(*context, *most)));
    kept.prompts_made(&prepared.prompts.run_id);
    kept.with(|record| {
        record.left_out.clone_from(&prepared.plan.left_out);
        record.planned = prepared.plan.cells.iter().map(PlannedCell::place).collect();
    });
    Ok(Some(prepared))
}

/// What is asked: the user's own prompts, or some that are made to length. `None` where it was stopped meanwhile.
async fn prompts(options: &RunOptions, prefill: &PrefillContexts, target: &Target, mut stop: Stop) -> Option<Prompts> {
    if let Some(dataset) = &options.dataset {
        return tokio::select! {
            made = prompt::own(target, dataset, options.seed) => Some(made),
            () = stop.stopped() => None,
        };
    }
    let wanted = PromptOptions { contexts: wanted(options, prefill, target), seed: options.seed, mode: options.prompts };
    tokio::select! {
        made = prompt::make(target, &wanted) => Some(made),
        () = stop.stopped() => None,
    }
}

/// The server, and what it takes; the record begins with it.
async fn known_server(options: &RunOptions, clock: Clock, events: &Events, mut stop: Stop, kept: &Kept) -> Result<Target, RunError> {
    let mut waiting = |text: &str| events.emit(Event::Startup(text.to_owned()));
    let mut target = tokio::select! {
        found = Target::detect(&options.target, &mut waiting) => found?,
        () = stop.stopped() => return Err(RunError::Stopped),
    };
    announce(options, &target, events);
    tokio::select! {
        agreed = target.negotiate(options.max_tokens, !options.respect_eos, options.temperature) => match agreed {
            // A server that fails by itself fails in each cell, and the report says so.
            Err(error @ TargetError::ChatFailed { .. }) => events.emit(Event::Warning(error.to_string())),
            agreed => agreed?,
        },
        () = stop.stopped() => return Err(RunError::Stopped),
    }
    target.accepted.notes.iter().for_each(|line| events.emit(Event::Warning(line.clone())));
    kept.begin(record(options, clock, &target))?;
    if let (Some(dataset), Some(used)) = (&options.dataset, kept.with(|record| record.dataset.as_ref().map(|of_record| of_record.used))) {
        dataset.go_on_after(used);
    }
    Ok(target)
}

/// Where prefill is measured, in the predecessor's words.
fn prefill_line(options: &RunOptions, prefill: &PrefillContexts) -> String {
    let labels = |contexts: &mut dyn Iterator<Item = u32>| {
        let labels: Vec<String> = contexts.map(|context| format!("'{}'", context_label(context))).collect();
        format!("[{}]", labels.join(", "))
    };
    let recorded = || prefill.recorded.iter().copied();
    if options.prefill.skip {
        return "prefill tests: skipped".to_owned();
    }
    if options.prefill.standalone {
        return format!("prefill tests: standalone cold profile {}", labels(&mut recorded()));
    }
    let scouts = labels(&mut recorded().filter(|context| !prefill.extras.contains(context)));
    let extras = labels(&mut prefill.extras.iter().copied());
    let besides = if prefill.extras.is_empty() { String::new() } else { format!("; scout-only extras {extras}") };
    format!("prefill tests: integrated from decode scout requests {scouts}{besides}")
}

/// All contexts for which prompts are needed; one that can't fit the model has none.
fn wanted(options: &RunOptions, prefill: &PrefillContexts, target: &Target) -> Vec<u32> {
    let limit = target.max_model_len().unwrap_or(u64::MAX);
    let all = options.matrix_contexts().iter().chain(&prefill.recorded).copied();
    let fitting = all.filter(|context| u64::from(*context) + MIN_OUTPUT_TOKENS <= limit);
    fitting.collect::<BTreeSet<_>>().into_iter().collect()
}

/// A prefill that has no room.
fn prefill_left_out(context_tokens: u32, most: u64) -> LeftOut {
    let text = format!(
        "a prefill of {} leaves no room for an answer, or is more than is measured: the most is {most} tokens",
        context_label(context_tokens)
    );
    LeftOut {
        layer: "prefill",
        context_tokens,
        concurrency: 1,
        code: LeftOutCode::ContextLimit,
        missing_tokens: Some(u64::from(context_tokens).saturating_sub(most)),
        text,
    }
}

fn plan_input(options: &RunOptions, prepared: &Prepared) -> PlanInput {
    let Prepared { target, prompts, .. } = prepared;
    let found = prepared.prefix_cache.as_ref();
    let shared = found.is_some_and(|found| found.not_shared().is_none());
    let alike = options.prompts != PromptMode::Distinct;
    PlanInput {
        contexts: options.matrix_contexts().to_vec(),
        concurrency: options.concurrency.clone(),
        layers: options.layers(),
        repeats: options.repeat,
        max_tokens: options.max_tokens,
        kv_budget_tokens: target.kv_budget_tokens(),
        kv_block_tokens: target.kv_block_tokens(),
        engines: target.data_parallel_engines().unwrap_or(1),
        kv_budget_per_engine: target.kv_budget_per_engine(),
        max_running: target.max_running(),
        max_model_len: target.max_model_len(),
        max_tokens_limit: target.accepted.max_tokens_limit,
        prompt_tokens: prompts.longest_own.map_or_else(|| prompts.prompt_tokens(), |(longest, _)| BTreeMap::from([(0, longest)])),
        shared_tokens: if shared { prompts.shared_tokens() } else { BTreeMap::new() },
        not_shared: found.filter(|_| alike).and_then(PrefixCache::not_shared),
        own_prompts: options.dataset.is_some(),
    }
}

impl Prepared {
    pub(super) fn bench<'a>(&'a self, events: &'a Events) -> Bench<'a> {
        Bench {
            target: &self.target,
            endpoint: &self.endpoint,
            load: &self.load,
            prompts: &self.prompts,
            scraper: self.scraper.as_ref(),
            events,
            isolation: &self.isolation,
        }
    }
}

/// The start-up block of the log.
fn announce(options: &RunOptions, target: &Target, events: &Events) {
    let startup = |text: String| events.emit(Event::Startup(text));
    let list = |values: &mut dyn Iterator<Item = String>| values.collect::<Vec<_>>().join(",");
    events.emit(Event::BenchmarkStart { engine: target.engine.as_str().to_owned() });
    startup(format!("server={} model={}", target.address.url(""), target.model));
    if !options.prefill.only {
        startup(format!(
            "decode concurrency={} contexts={}",
            list(&mut options.concurrency.iter().map(ToString::to_string)),
            list(&mut options.contexts.iter().map(|tokens| context_label(*tokens))),
        ));
    }
    target.startup_lines.iter().for_each(|line| startup(line.clone()));
    target.warnings.iter().for_each(|line| events.emit(Event::Warning(line.clone())));
}

/// A record without measurements; interrupted until it is known to be complete.
fn record(options: &RunOptions, clock: Clock, target: &Target) -> RunRecord {
    RunRecord {
        clock,
        status: Status::Interrupted,
        calibration: Vec::new(),
        run_id: String::new(),
        options: Options::of(options, target),
        server: Server {
            engine: target.engine.as_str().to_owned(),
            version: target.version.clone(),
            display: target.display().to_owned(),
            url: target.address.url(""),
            address: None,
            refused: target.accepted.notes.clone(),
            prefix_cache: None,
            limits: target.limits.iter().map(|limit| (limit.name.to_owned(), limit.value, limit.source.clone())).collect(),
            metrics_warning: target.metrics_warning().map(str::to_owned),
        },
        cpus: std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
        left_out: Vec::new(),
        events: Vec::new(),
        scrapes: Vec::new(),
        earlier_series: tokscope_shared::report::own::RunSeries::default(),
        stretches: Vec::new(),
        planned: Vec::new(),
        skipped: Vec::new(),
        decode_warmup_context: None,
        decode_warmup_loops: Vec::new(),
        dataset: options.dataset.as_ref().map(DatasetUse::of),
        prefill: Vec::new(),
        cells: Vec::new(),
    }
}
