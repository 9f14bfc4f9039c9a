//! `tokscope plan`: what a run with these options would measure, what it would leave out and why, and how long it
//! would take. Nothing is sent but questions and probes.

use super::exit::Exit;
use super::measure_args::MeasureArgs;
use super::run::{stopped_or_failed, usage};
use crate::clock::Clock;
use crate::event::{Event, Events, context_label};
use crate::load::stop::stop_pair;
use crate::plan::{CellLoad, Layer, Plan, PlannedCell};
use crate::run::{Kept, Prepared, RunOptions, prepare};
use crate::secrets::Secrets;
use crate::target::thousands;
use crate::ui::{Left, complain, fitted, in_line, left_out_lines, say, say_table, span};
use clap::Args;
use tokio::sync::mpsc;
use tokscope_shared::render::Table;

/// Say what a run would measure: its cells, what is left out and why, tokens and time.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 there is something to measure; 1 the server can't be measured; 2 wrong usage; 3 everything is left out."
)]
pub struct PlanArgs {
    #[command(flatten)]
    measure: MeasureArgs,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Asks the server and prints the plan.
pub async fn plan_command(args: &PlanArgs) -> anyhow::Result<Exit> {
    let options = match args.measure.options() {
        Ok(options) => options,
        Err(text) => return Ok(usage(&text)),
    };
    let secrets = Secrets::of(&options.target.host, options.target.api_key.as_deref(), |name| std::env::var(name).ok());
    secrets.hide_from_terminal();
    let clock = Clock::start();
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let events = Events::new(clock, sender);
    let (stopper, stop) = stop_pair();
    let watch = tokio::spawn(async move {
        super::serve::interrupted().await;
        stopper.stop();
    });
    let prepared = prepare(&options, clock, &events, stop, &Kept::default()).await;
    watch.abort();
    drop(events);
    while let Some(stamped) = receiver.recv().await {
        if let Event::Warning(text) = stamped.event {
            complain(&format!("tokscope: {text}"));
        }
    }
    let prepared = match prepared {
        Ok(Some(prepared)) => prepared,
        Ok(None) => return Ok(Exit::Interrupted),
        Err(error) => return stopped_or_failed(error.into()),
    };
    if args.json {
        say(&json(&prepared, &options));
    } else {
        print(&prepared, &options);
    }
    Ok(if prepared.plan.cells.is_empty() && !options.prefill.only { Exit::Invalid } else { Exit::Ok })
}

/// What a cell will take.
struct Cost {
    /// Prompt tokens that are sent, at least; of the user's own prompts they are not known.
    prompt_tokens: Option<u64>,
    /// The most output tokens that can come; a window's output depends on the server's speed.
    most_output_tokens: Option<u64>,
    /// Seconds, as far as they are known before.
    seconds: Option<f64>,
}

/// A cell comes up and is drained in about so many seconds, where nothing is slow.
const AROUND_A_WINDOW_S: f64 = 6.0;

fn cost(cell: &PlannedCell, prepared: &Prepared, options: &RunOptions) -> Cost {
    let made = prepared.prompts.context(cell.context_tokens).map_or(u64::from(cell.context_tokens), |text| text.prompt_tokens);
    let prompt = Some(made).filter(|_| options.dataset.is_none());
    let (requests, seconds) = match cell.load {
        CellLoad::Sustained => (u64::from(cell.concurrency), Some(options.duration_s + AROUND_A_WINDOW_S)),
        CellLoad::Requests { count, warmup } => (u64::from(count) + u64::from(warmup), None),
        CellLoad::Rate { per_s, .. } => ((per_s * options.duration_s).ceil() as u64, Some(options.duration_s + AROUND_A_WINDOW_S)),
    };
    let finite = !matches!(cell.load, CellLoad::Sustained);
    let most_output_tokens = finite.then(|| requests * u64::from(cell.max_tokens));
    Cost { prompt_tokens: prompt.map(|prompt| requests * prompt), most_output_tokens, seconds }
}

fn print(prepared: &Prepared, options: &RunOptions) {
    let Plan { cells, left_out, kv_rule } = &prepared.plan;
    let target = &prepared.target;
    let version = target.version.as_deref().unwrap_or("of unknown version");
    say(&format!("{} · {} {version} · {}", in_line(&target.model), target.engine.name(), target.display()));
    for limit in &target.limits {
        say(&format!("  {} {} ({})", limit.name, thousands(limit.value), limit.source));
    }
    if let Some(dataset) = &options.dataset {
        say(&format!(
            "  prompts: {} of {}, in its order; no contexts, no prefill",
            thousands(dataset.len() as u64),
            dataset.file().display()
        ));
    }
    say(&fitted(&format!("  KV cache: {kv_rule}")));
    let rows: Vec<Vec<String>> = cells.iter().enumerate().map(|(index, cell)| row(index, cell, prepared, options)).collect();
    if !rows.is_empty() {
        let head = ["#", "layer", "context", "C", "load", "max_tokens", "prompt tokens, at least", "seconds"];
        say("");
        say_table(&Table { head: head.map(str::to_owned).to_vec(), rows }, 4);
    }
    let left = left_out.iter().map(|left| Left {
        layer: left.layer,
        context: Some(i64::from(left.context_tokens)),
        level: Some(i64::from(left.concurrency)),
        code: left.code.as_str(),
        text: &left.text,
    });
    for line in left_out_lines(left) {
        say(&fitted(&format!("left out: {line}")));
    }
    let contexts: Vec<String> = prepared.prefill.recorded.iter().map(|context| context_label(*context)).collect();
    if !contexts.is_empty() {
        let way = if options.prefill.standalone {
            format!("cold, {} s each", options.prefill.duration_s)
        } else {
            "one request ahead of the cells each".to_owned()
        };
        say(&fitted(&format!("\nprefill at {}: {way}", contexts.join(", "))));
    }
    let costs: Vec<Cost> = cells.iter().map(|cell| cost(cell, prepared, options)).collect();
    let own_phase = if options.prefill.standalone { prepared.prefill.recorded.len() as f64 * options.prefill.duration_s } else { 0.0 };
    let seconds = costs.iter().filter_map(|cost| cost.seconds).sum::<f64>() + own_phase;
    let unknown = costs.iter().filter(|cost| cost.seconds.is_none()).count();
    let tokens: Option<u64> = costs.iter().map(|cost| cost.prompt_tokens).sum();
    let tokens =
        tokens.map_or_else(|| "prompt tokens as the file has them".to_owned(), |n| format!("at least {} prompt tokens", thousands(n)));
    let as_fast = !options.prefill.standalone && !prepared.prefill.recorded.is_empty();
    let prefill = if as_fast { ", and prefill as fast as the server is" } else { "" };
    let more = match unknown {
        0 => String::new(),
        1 => ", and 1 burst that lasts as long as the server takes".to_owned(),
        n => format!(", and {n} bursts that last as long as the server takes"),
    };
    let n = cells.len();
    let s = if n == 1 { "" } else { "s" };
    let sum = format!("{n} cell{s}, {} left out; {tokens}; about {}{more}{prefill}", left_out.len(), span(seconds));
    say(&format!("\n{}", fitted(&sum)));
}

fn row(index: usize, cell: &PlannedCell, prepared: &Prepared, options: &RunOptions) -> Vec<String> {
    let cost = cost(cell, prepared, options);
    let layer = match cell.layer {
        Layer::Sustained => "sustained",
        Layer::Burst => "burst",
        Layer::OpenLoop => "open loop",
    };
    let load = match cell.load {
        CellLoad::Sustained => "streams".to_owned(),
        CellLoad::Requests { count, warmup } => format!("{count} requests after {warmup}"),
        CellLoad::Rate { per_s, poisson } => format!("{per_s} requests/s, {}", if poisson { "poisson" } else { "constant" }),
    };
    let max_tokens = match cell.clamped_from {
        Some(asked) => format!("{} (asked {asked})", cell.max_tokens),
        None => cell.max_tokens.to_string(),
    };
    vec![
        (index + 1).to_string(),
        layer.to_owned(),
        if options.dataset.is_some() { "own prompts".to_owned() } else { context_label(cell.context_tokens) },
        // The most that may be under way in an open loop is no load.
        if cell.layer == Layer::OpenLoop { "—".to_owned() } else { cell.concurrency.to_string() },
        load,
        max_tokens,
        cost.prompt_tokens.map_or_else(|| "—".to_owned(), thousands),
        cost.seconds.map_or_else(|| "—".to_owned(), |s| format!("{s:.0}")),
    ]
}

fn json(prepared: &Prepared, options: &RunOptions) -> String {
    let cells: Vec<_> = prepared
        .plan
        .cells
        .iter()
        .map(|cell| {
            let cost = cost(cell, prepared, options);
            serde_json::json!({
                "layer": cell.layer.as_str(),
                "context_tokens": cell.context_tokens,
                "concurrency": cell.concurrency,
                "max_tokens": cell.max_tokens,
                "max_tokens_asked": cell.clamped_from,
                "repeat": cell.repeat,
                "prompt_tokens_at_least": cost.prompt_tokens,
                "output_tokens_at_most": cost.most_output_tokens,
                "seconds": cost.seconds,
            })
        })
        .collect();
    let left_out: Vec<_> = prepared
        .plan
        .left_out
        .iter()
        .map(|left| {
            serde_json::json!({
                "layer": left.layer,
                "context_tokens": left.context_tokens,
                "concurrency": left.concurrency,
                "code": left.code.as_str(),
                "missing_tokens": left.missing_tokens,
                "text": left.text,
            })
        })
        .collect();
    let limits: Vec<_> = prepared
        .target
        .limits
        .iter()
        .map(|limit| serde_json::json!({"name": limit.name, "value": limit.value, "source": limit.source}))
        .collect();
    let engine = prepared.target.engine.as_str();
    let dataset = options.dataset.as_ref().map(
        |dataset| serde_json::json!({"file": dataset.file().display().to_string(), "prompts": dataset.len(), "sha256": dataset.sha256()}),
    );
    serde_json::json!({
        "engine": engine,
        "model": prepared.target.model,
        "limits": limits,
        "prompts": options.prompts(),
        "dataset": dataset,
        "kv_rule": prepared.plan.kv_rule,
        "cells": cells,
        "left_out": left_out,
    })
    .to_string()
}
