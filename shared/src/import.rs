//! What a file is: a report of any version, a report of another tool, a checkpoint, or nothing of the kind.
//! Bytes in, a report or a reason out; it never looks at a file's name.

use crate::field::{Findings, Json, Reader};
use crate::report::{Report, SCHEMA};
use serde_json::{Map, Value};

/// A report as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// The report.
    pub report: Report,
    /// What couldn't be read as the schema says.
    pub findings: Findings,
}

/// Why a file isn't opened as a report. Each says what it is and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OpenError {
    /// No byte in it.
    #[error("the file is empty (0 bytes): copy it again from where it was made")]
    Empty,
    /// Neither UTF-8 nor UTF-16.
    #[error("not a text file: byte {at} is no UTF-8 (a report is JSON; is it compressed?)")]
    NotText {
        /// First byte that isn't text, from 0.
        at: usize,
    },
    /// Not JSON.
    #[error("line {line}, column {column}: {reason}{}", if *.cut { " (the file ends too early: copy it again from where it was made)" } else { "" })]
    Syntax {
        /// From 1.
        line: usize,
        /// From 1, in bytes.
        column: usize,
        /// The parser's reason.
        reason: String,
        /// Whether the file just stops.
        cut: bool,
    },
    /// JSON, but not a report.
    #[error("JSON, but no report: {what} (a report has `metadata` and `results`)")]
    NotAReport {
        /// What was found instead.
        what: String,
    },
    /// A report of another tool.
    #[error("a report of {}, with {}: Tokscope doesn't read those yet", .0.tool, .0.holds)]
    Foreign(Foreign),
    /// A checkpoint of an unfinished run.
    #[error("a checkpoint of an unfinished run ({cells} cell{}), not a report: continue it with --resume", if *cells == 1 { "" } else { "s" })]
    Checkpoint {
        /// Cells it holds.
        cells: usize,
    },
    /// A report of a later Tokscope.
    #[error("a Tokscope report of schema {schema}; this version reads up to {SCHEMA}: update Tokscope")]
    TooNew {
        /// Schema of the file.
        schema: i64,
    },
}

/// A file of another tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Foreign {
    /// Name of the tool.
    pub tool: &'static str,
    /// What the file holds, in words.
    pub holds: String,
}

/// Opens a report.
///
/// # Errors
/// Says what the file is instead.
pub fn open(bytes: &[u8]) -> Result<Opened, OpenError> {
    let text = decode(bytes)?;
    if text.trim().is_empty() {
        return Err(OpenError::Empty);
    }
    let (value, non_finite) = parse(&text)?;
    let value = match value {
        Value::Object(map) => map,
        other => return Err(foreign_list(&other).unwrap_or_else(|| not_a_report(&other))),
    };
    if let Some(error) = recognise(&value) {
        return Err(error);
    }
    let mut reader = Reader::default();
    match Report::read(Value::Object(value), &mut reader) {
        Ok(report) => Ok(Opened { report, findings: Findings { non_finite, ..reader.findings } }),
        Err(other) => Err(not_a_report(&other)),
    }
}

/// UTF-8 with or without a mark, or UTF-16 with one.
fn decode(bytes: &[u8]) -> Result<std::borrow::Cow<'_, str>, OpenError> {
    let wide = |rest: &[u8], join: fn([u8; 2]) -> u16| {
        if rest.len() % 2 == 1 {
            return Err(OpenError::NotText { at: rest.len() + 1 });
        }
        let units = rest.chunks_exact(2).map(|pair| join([pair[0], pair[1]]));
        let text: Result<String, _> = char::decode_utf16(units).collect();
        text.map(Into::into).map_err(|_| OpenError::NotText { at: 2 })
    };
    match bytes {
        [] => Err(OpenError::Empty),
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        _ => {
            let body = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            std::str::from_utf8(body)
                .map(Into::into)
                .map_err(|error| OpenError::NotText { at: bytes.len() - body.len() + error.valid_up_to() })
        }
    }
}

/// The first JSON value of the text. Others may follow only where each stands on a line of its own.
fn parse(text: &str) -> Result<(Value, usize), OpenError> {
    let first = match serde_json::from_str(text) {
        Ok(value) => return Ok((value, 0)),
        Err(error) => error,
    };
    let (mended, replaced) = without_non_finite(text);
    let error = if replaced.is_empty() {
        first
    } else {
        match serde_json::from_str(&mended) {
            Ok(value) => return Ok((value, replaced.len())),
            Err(error) => error,
        }
    };
    if let Some(Ok(value)) = serde_json::Deserializer::from_str(&mended).into_iter::<Value>().next()
        && mended.lines().filter(|line| !line.trim().is_empty()).all(|line| serde_json::from_str::<Value>(line).is_ok())
    {
        return Ok((Value::Array(vec![value]), replaced.len()));
    }
    // Places in the mended text become places in the file.
    let line = error.line();
    let before: usize = mended.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let at = before + error.column();
    let shift: isize = replaced.iter().filter(|(start, _)| *start >= before && *start < at).map(|(_, by)| by).sum();
    let reason = error.to_string();
    if reason.starts_with("recursion limit") {
        return Err(OpenError::NotAReport { what: "values nested more than 127 deep".to_owned() });
    }
    let reason = reason.split(" at line ").next().unwrap_or_default().to_owned();
    Err(OpenError::Syntax { line, column: error.column().saturating_add_signed(-shift), reason, cut: error.is_eof() })
}

/// The text with bare NaN and Infinity as null, and where each stood, with the bytes it grew by.
fn without_non_finite(text: &str) -> (String, Vec<(usize, isize)>) {
    const NAMES: [&str; 6] = ["-Infinity", "Infinity", "-NaN", "NaN", "-nan", "nan"];
    let mut out = String::with_capacity(text.len());
    let mut replaced = Vec::new();
    let (mut rest, mut quoted) = (text, false);
    while let Some(c) = rest.chars().next() {
        if quoted {
            let step = if c == '\\' { rest.char_indices().nth(2).map_or(rest.len(), |(i, _)| i) } else { c.len_utf8() };
            quoted = c != '"';
            out.push_str(&rest[..step]);
            rest = &rest[step..];
        } else if let Some(name) = NAMES.iter().find(|name| rest.starts_with(**name)) {
            replaced.push((out.len(), 4 - name.len() as isize));
            out.push_str("null");
            rest = &rest[name.len()..];
        } else {
            quoted = c == '"';
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    (out, replaced)
}

/// `None` where the object is a report that this version reads.
fn recognise(map: &Map<String, Value>) -> Option<OpenError> {
    let has = |key: &str| map.contains_key(key);
    if has("signature") && (has("prefill_results") || has("burst_results")) && !has("metadata") {
        return Some(OpenError::Checkpoint { cells: len(map, "results") });
    }
    if let Some(foreign) = foreign(map) {
        return Some(OpenError::Foreign(foreign));
    }
    if let Some(schema) = map.get("tokscope").and_then(|own| own.get("schema")?.as_i64()).filter(|s| *s > SCHEMA) {
        return Some(OpenError::TooNew { schema });
    }
    let meta = map.get("metadata").and_then(Value::as_object);
    let known = meta.is_some_and(|meta| {
        meta.contains_key("mode")
            || map.get("results").is_some_and(Value::is_array)
            || (map.get("prefill").is_some_and(Value::is_object) && meta.contains_key("model"))
    });
    (!known).then(|| not_a_report(&Value::Object(map.clone())))
}

/// Files of other tools, by the keys that only they have.
fn foreign(map: &Map<String, Value>) -> Option<Foreign> {
    let has = |key: &str| map.contains_key(key);
    let inner = |outer: &str, key: &str| map.get(outer).is_some_and(|value| value.get(key).is_some());
    let (tool, holds) = if has("aiperf_version") {
        ("AIPerf", format!("{} requests at request level", number(map.get("request_count").and_then(|v| v.get("avg")))))
    } else if inner("metadata", "guidellm_version") {
        ("GuideLLM", format!("{} benchmarks", len(map, "benchmarks")))
    } else if has("load_summary") && has("successes") {
        ("inference-perf", format!("{} requests of one stage", number(map.get("load_summary").and_then(|v| v.get("count")))))
    } else if has("build_commit") && has("n_gen") {
        ("llama-bench", "one test".to_owned())
    } else if has("latency_mode") && has("benchmarks") {
        ("llama-benchy", format!("{} benchmarks", len(map, "benchmarks")))
    } else if has("endpoint_type") && has("total_token_throughput") || has("tokenizer_id") && has("num_prompts") {
        ("vllm bench serve", format!("{} prompts, {} completed", number(map.get("num_prompts")), number(map.get("completed"))))
    } else if has("total_output_tokens_retokenized") || has("random_range_ratio") && has("output_throughput") {
        ("SGLang bench_serving", format!("{} requests", number(map.get("completed"))))
    } else {
        return None;
    };
    Some(Foreign { tool, holds })
}

/// A list is a report of another tool or nothing.
fn foreign_list(value: &Value) -> Option<OpenError> {
    let items = value.as_array()?;
    let mut found = foreign(items.first()?.as_object()?)?;
    if found.tool == "llama-bench" {
        found.holds = "a line for each test".to_owned();
    }
    Some(OpenError::Foreign(found))
}

fn not_a_report(value: &Value) -> OpenError {
    let what = match value {
        Value::Object(map) if map.is_empty() => "an empty object".to_owned(),
        Value::Object(map) => {
            let keys: Vec<&str> = map.keys().take(4).map(String::as_str).collect();
            let more = if map.len() > keys.len() { ", …" } else { "" };
            format!("an object with {}{more}", keys.join(", "))
        }
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::String(_) => "a text".to_owned(),
        Value::Number(_) => "a number".to_owned(),
        Value::Bool(_) | Value::Null => value.to_string(),
    };
    OpenError::NotAReport { what }
}

fn len(map: &Map<String, Value>, key: &str) -> usize {
    map.get(key).and_then(Value::as_array).map_or(0, Vec::len)
}

fn number(value: Option<&Value>) -> String {
    value.and_then(Value::as_f64).map_or_else(|| "an unknown number of".to_owned(), |n| format!("{n}"))
}
