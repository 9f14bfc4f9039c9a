//! The list of keys.

use super::markup::Markup;

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
    let mut out = Markup::default();
    out.put(r#"<section class="help" role="dialog" aria-label="Keys"><h2>Keys</h2><dl class="facts">"#, &[]);
    for (key, what) in KEYS {
        out.put("<dt>{}</dt><dd>{}</dd>", &[key, what]);
    }
    out.put("</dl></section>", &[]);
    out
}
