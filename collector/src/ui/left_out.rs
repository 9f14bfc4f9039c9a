//! Cells that were left out, in words: those of one reason in one line.

use std::collections::BTreeSet;

use tokscope_shared::report::identity::context_label;

/// A cell that was left out, as a plan or a report has it.
#[derive(Clone, Copy, Debug)]
pub struct Left<'a> {
    /// The layer, as the report writes it.
    pub layer: &'a str,
    /// Context, tokens.
    pub context: Option<i64>,
    /// Streams at once.
    pub level: Option<i64>,
    /// Why, as a code.
    pub code: &'a str,
    /// Why, in words, with or without the cell's place before them.
    pub text: &'a str,
}

/// Cells of one reason.
struct Group<'a> {
    layer: &'a str,
    code: &'a str,
    /// What a place says beside context and concurrency.
    more: &'a str,
    contexts: Vec<i64>,
    levels: Vec<i64>,
    texts: Vec<&'a str>,
}

/// `C=4, 8 at 64k, 128k: why (code)`, a line a reason. Where the words differ only by concurrency, those of the first.
pub fn left_out_lines<'a>(cells: impl Iterator<Item = Left<'a>>) -> Vec<String> {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for group in over_contexts(over_levels(cells)) {
        let (place, reason) = (place(&group), reason(&group));
        match lines.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, places)) => places.push(place),
            None => lines.push((reason, vec![place])),
        }
    }
    lines.into_iter().map(|(reason, places)| format!("{}: {reason}", places.join("; "))).collect()
}

/// Cells of one layer, context and code.
fn over_levels<'a>(cells: impl Iterator<Item = Left<'a>>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for cell in cells {
        let (more, text) = without_place(&cell);
        let key = (cell.layer, cell.code, more, Vec::from_iter(cell.context));
        match groups.iter_mut().find(|group| (group.layer, group.code, group.more) == (key.0, key.1, key.2) && group.contexts == key.3) {
            Some(group) => {
                group.levels.extend(cell.level.filter(|level| !group.levels.contains(level)));
                group.texts.extend(Some(text).filter(|text| !group.texts.contains(text)));
            }
            None => {
                let (layer, code, more, contexts) = key;
                groups.push(Group { layer, code, more, contexts, levels: Vec::from_iter(cell.level), texts: vec![text] });
            }
        }
    }
    groups
}

/// Contexts at which the same concurrencies are left out in the same words.
fn over_contexts(rows: Vec<Group<'_>>) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for row in rows {
        let same = |group: &&mut Group<'_>| {
            (group.layer, group.code, group.more) == (row.layer, row.code, row.more)
                && group.levels == row.levels
                && group.texts == row.texts
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.contexts.extend(row.contexts),
            None => groups.push(row),
        }
    }
    groups
}

fn place(group: &Group<'_>) -> String {
    let list = |of: &[i64], label: fn(i64) -> String| {
        let sorted: BTreeSet<i64> = of.iter().copied().collect();
        sorted.into_iter().map(label).collect::<Vec<_>>().join(", ")
    };
    let (levels, contexts) = (list(&group.levels, |level| level.to_string()), list(&group.contexts, context_label));
    let more = if group.more.is_empty() && group.layer == "burst_e2e_decode" { ", burst" } else { group.more };
    // The most that may be under way in an open loop names no cell.
    let place = match group.layer {
        "open_loop" => format!("open loop at {contexts}"),
        _ if levels.is_empty() => contexts,
        _ => format!("C={levels} at {contexts}"),
    };
    place + more
}

fn reason(group: &Group<'_>) -> String {
    let example = if group.texts.len() > 1 { "e.g. " } else { "" };
    let text = group.texts.first().copied().unwrap_or_default();
    format!("{example}{text} ({})", group.code)
}

/// What the place before the words says beside context and concurrency, and the words.
fn without_place<'a>(cell: &Left<'a>) -> (&'a str, &'a str) {
    let place = cell.level.zip(cell.context).map(|(level, context)| format!("C={level} at {}", context_label(context)));
    let rest = place.and_then(|place| cell.text.strip_prefix(&place)).filter(|rest| rest.starts_with([':', ',']));
    rest.and_then(|rest| rest.split_once(": ")).unwrap_or(("", cell.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(layer: &'static str, context: i64, level: i64, code: &'static str, text: &'static str) -> Left<'static> {
        Left { layer, context: Some(context), level: Some(level), code, text }
    }

    #[test]
    fn cells_left_out_for_one_reason_are_one_line_that_names_them() {
        let (sustained, burst) = ("sustained_decode", "burst_e2e_decode");
        let cells = [
            left(sustained, 131_072, 1, "context-limit", "128k does not fit"),
            left(sustained, 0, 64, "max-running", "more than 8"),
            left(sustained, 131_072, 2, "context-limit", "128k does not fit"),
            left(sustained, 65_536, 4, "kv-budget", "4 x 65600 > 100000"),
            left(sustained, 65_536, 8, "kv-budget", "8 x 65600 > 100000"),
            left(sustained, 16_384, 64, "max-running", "more than 8"),
            left(burst, 131_072, 2, "context-limit", "128k does not fit"),
        ];
        let lines = left_out_lines(cells.into_iter());
        let want = [
            "C=1, 2 at 128k; C=2 at 128k, burst: 128k does not fit (context-limit)",
            "C=64 at 0, 16k: more than 8 (max-running)",
            "C=4, 8 at 64k: e.g. 4 x 65600 > 100000 (kv-budget)",
        ];
        assert_eq!(lines, want);
    }

    #[test]
    fn words_that_name_their_place_name_it_once() {
        let cells = [
            left("sustained_decode", 0, 2, "not-reached", "C=2 at 0: ended by Ctrl-C"),
            left("sustained_decode", 0, 4, "not-reached", "C=4 at 0: ended by Ctrl-C"),
            left("sustained_decode", 0, 2, "not-reached", "C=2 at 0, repeat 2: ended by Ctrl-C"),
            left("burst_e2e_decode", 0, 2, "skipped", "C=2 at 0, burst: on request: key s"),
            left("open_loop", 0, 1024, "not-reached", "C=1024 at 0, 6 requests/s: ended by Ctrl-C"),
        ];
        let want = [
            "C=2, 4 at 0; C=2 at 0, repeat 2; open loop at 0, 6 requests/s: ended by Ctrl-C (not-reached)",
            "C=2 at 0, burst: on request: key s (skipped)",
        ];
        assert_eq!(left_out_lines(cells.into_iter()), want);
    }
}
