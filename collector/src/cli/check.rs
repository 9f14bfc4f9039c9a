//! `tokscope check`: what each file is and how far it can be believed, a line a file.

use super::exit::Exit;
use crate::host::reports_in;
use crate::ui::{fitted, in_line, print_summary, say};
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tokscope_shared::import::{self, OpenError, Opened};
use tokscope_shared::report::cell::Cell;
use tokscope_shared::report::identity::context_label;
use tokscope_shared::verdict::{Judgement, Review, Verdict, review};

/// Say what report files are, and how many of their cells can be believed.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 all files read, no cell invalid; 1 a file can't be read; 3 a cell is invalid.")]
pub struct CheckArgs {
    /// Report files, or folders of them.
    #[arg(required = true, value_name = "FILE-OR-FOLDER")]
    paths: Vec<PathBuf>,
    /// Print a JSON list instead: one object a file, with every reason of every cell.
    #[arg(long)]
    json: bool,
    /// Print the tables of each report as well, as after a run.
    #[arg(long, conflicts_with = "json")]
    tables: bool,
}

/// Why a file can't be read.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error("a folder without reports: they end in .json or .jsonl, and stand in it, not in folders below")]
    Folder,
    #[error("{0}")]
    Unreadable(String),
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Checks the files; prints to standard output.
pub fn check(args: &CheckArgs) -> Exit {
    let mut exit = Exit::Ok;
    let mut list = Vec::new();
    for path in files(&args.paths) {
        let name = path.display().to_string();
        match read(&path) {
            Ok(opened) => {
                let review = review(&opened.report, &opened.findings);
                if review.any_invalid() && exit == Exit::Ok {
                    exit = Exit::Invalid;
                }
                if args.json {
                    list.push(as_json(&name, &opened, &review));
                } else {
                    say(&fitted(&format!("{name}: {}", sentence(&opened, &review))));
                    if args.tables {
                        print_summary(&opened.report, &review);
                    }
                }
            }
            Err(error) => {
                exit = Exit::Failed;
                if args.json {
                    list.push(error_json(&name, &error));
                } else {
                    say(&fitted(&format!("{name}{}", place_and_reason(&error))));
                }
            }
        }
    }
    if args.json {
        say(&serde_json::to_string_pretty(&Value::Array(list)).unwrap_or_default());
    }
    exit
}

/// The files named, and in the place of each folder the reports in it, none of them a second time. A folder without any
/// stays.
fn files(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for path in paths {
        let within = if path.is_dir() { reports_in(path) } else { Vec::new() };
        if within.is_empty() {
            files.push(path.clone());
        }
        for file in within {
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    files
}

fn read(path: &Path) -> Result<Opened, CheckError> {
    if path.is_dir() {
        std::fs::read_dir(path).map_err(|error| CheckError::Unreadable(format!("a folder that can't be read: {error}")))?;
        return Err(CheckError::Folder);
    }
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(CheckError::Unreadable("a device or a pipe: name a file".to_owned()));
    }
    let bytes = std::fs::read(path).map_err(|error| {
        CheckError::Unreadable(match error.kind() {
            std::io::ErrorKind::NotFound => "no such file: check the path".to_owned(),
            std::io::ErrorKind::PermissionDenied => "not readable for this user: check its permissions".to_owned(),
            _ => format!("can't be read: {error}"),
        })
    })?;
    Ok(import::open(&bytes)?)
}

/// `:line:column: reason` where the place is known, `: reason` elsewhere.
fn place_and_reason(error: &CheckError) -> String {
    match error {
        CheckError::Open(OpenError::Syntax { line, column, .. }) => {
            let text = error.to_string();
            let reason = text.split_once(": ").map_or(text.as_str(), |(_, reason)| reason);
            format!(":{line}:{column}: not JSON: {reason}")
        }
        other => format!(": {other}"),
    }
}

fn sentence(opened: &Opened, review: &Review) -> String {
    let id = opened.report.identity();
    let mut what = format!("{}, {} {}", id.kind, id.tool, id.tool_version.as_deref().unwrap_or("of unknown version"));
    let engine = [id.engine.as_deref(), id.engine_version.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    for part in [id.model.as_deref(), Some(engine.as_str())].into_iter().flatten().filter(|part| !part.is_empty()) {
        what += &format!(", {}", in_line(part));
    }
    let mut parts = vec![format!("{what}: {}", review.sentence())];
    let rows = opened.report.prefill.entries().count();
    if rows > 0 {
        parts[0] += &format!(", {rows} prefill {}", if rows == 1 { "row" } else { "rows" });
    }
    let answers = opened.report.runs.items().count();
    if answers > 0 {
        let right = opened.report.runs.items().filter(|run| run.correct.yes()).count();
        let word = if answers == 1 { "answer" } else { "answers" };
        parts[0] += &format!(", {answers} {word}, {right} of them right");
    }
    parts.extend(review.doubts.iter().map(|doubt| doubt.text.clone()));
    parts.extend(grouped(&opened.report.cells().collect::<Vec<_>>(), &review.cells));
    parts.join("; ")
}

/// Each reason once, with the cells that it holds for and the words of the first.
fn grouped(cells: &[&Cell], judgements: &[Judgement]) -> Vec<String> {
    let mut groups: Vec<(Verdict, String, String, Vec<String>)> = Vec::new();
    for (cell, judgement) in cells.iter().zip(judgements) {
        for reason in &judgement.reasons {
            let place = place(cell);
            match groups.iter_mut().find(|group| group.1 == reason.code) {
                Some(group) => group.3.push(place),
                None => groups.push((reason.verdict, reason.code.clone(), reason.text.clone(), vec![place])),
            }
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.0));
    let line = |(verdict, code, text, places): (Verdict, String, String, Vec<String>)| {
        let word = if verdict == Verdict::Valid { "hint" } else { verdict.name() };
        let n = places.len();
        let (listed, more) = if n > 3 { (2, format!(" and {} more", n - 2)) } else { (n, String::new()) };
        let first = if n == 1 { text } else { format!("e.g. {text}") };
        format!("{word} ({code}) {}{more}: {first}", places[..listed].join(", "))
    };
    groups.into_iter().map(line).collect()
}

fn place(cell: &Cell) -> String {
    let number = |n: Option<i64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
    format!("C={} at {}", number(cell.concurrency.i64()), cell.context_tokens.i64().map_or_else(|| "?".to_owned(), context_label))
}

fn as_json(path: &str, opened: &Opened, review: &Review) -> Value {
    let id = opened.report.identity();
    let cells = opened.report.cells().zip(&review.cells).map(|(cell, judgement)| cell_json(cell, judgement));
    let burst = opened.report.burst_results.items().zip(&review.burst).map(|(cell, judgement)| cell_json(cell, judgement));
    let counts: serde_json::Map<String, Value> =
        Verdict::ALL.into_iter().map(|verdict| (verdict.name().to_owned(), review.count(verdict).into())).collect();
    let doubts = review.doubts.iter().map(|doubt| json!({ "code": doubt.code, "text": doubt.text }));
    json!({
        "path": path, "readable": true, "kind": id.kind, "tool": id.tool, "tool_version": id.tool_version,
        "model": id.model, "engine": id.engine, "engine_version": id.engine_version, "counts": counts,
        "doubts": doubts.collect::<Vec<_>>(), "cells": cells.collect::<Vec<_>>(), "burst": burst.collect::<Vec<_>>(),
        "unknown_keys": opened.findings.unknown,
    })
}

fn cell_json(cell: &Cell, judgement: &Judgement) -> Value {
    let reason =
        |reason: &tokscope_shared::verdict::Reason| json!({ "code": reason.code, "verdict": reason.verdict.name(), "text": reason.text });
    json!({
        "concurrency": cell.concurrency.i64(), "context_tokens": cell.context_tokens.i64(),
        "aggregate_tps": tokscope_shared::metric::rate(cell).value(), "verdict": judgement.verdict.name(),
        "reasons": judgement.reasons.iter().map(reason).collect::<Vec<_>>(),
    })
}

fn error_json(path: &str, error: &CheckError) -> Value {
    let (kind, place) = match error {
        CheckError::Folder => ("folder", None),
        CheckError::Unreadable(_) => ("unreadable", None),
        CheckError::Open(error) => match error {
            OpenError::Empty => ("empty", None),
            OpenError::NotText { .. } => ("not-text", None),
            OpenError::Syntax { line, column, .. } => ("syntax", Some((*line, *column))),
            OpenError::NotAReport { .. } => ("no-report", None),
            OpenError::Foreign(_) => ("other-tool", None),
            OpenError::Checkpoint { .. } => ("checkpoint", None),
            OpenError::TooNew { .. } => ("too-new", None),
        },
    };
    let mut out = json!({ "path": path, "readable": false, "error": kind, "text": error.to_string() });
    if let CheckError::Open(OpenError::Foreign(foreign)) = error {
        out["tool"] = foreign.tool.into();
        out["holds"] = foreign.holds.clone().into();
    }
    if let Some((line, column)) = place {
        out["line"] = line.into();
        out["column"] = column.into();
    }
    out
}
