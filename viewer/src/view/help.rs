//! The list of keys.

use super::markup::{Markup, tel, text};
use super::sections::definitions;

const KEYS: [(&str, &str); 10] = [
    ("arrows", "move in the matrix and along the chart"),
    ("Enter", "open the cell"),
    ("Esc", "close"),
    ("m", "choose the metric"),
    ("[  ]", "report before, report after"),
    ("l", "library"),
    ("r", "run"),
    ("o", "open files"),
    ("t", "colours: system, light, dark"),
    ("?", "these keys"),
];

/// The keys.
pub(super) fn keys() -> Markup {
    let mut all = tel("h2", &[], "Keys");
    all.add(&definitions(KEYS.map(|(key, what)| (key, text(what)))));
    all
}
