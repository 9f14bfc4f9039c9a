//! What is copied out of the page.

use super::library::Entry;
use super::summary::identity_line;
use tokscope_shared::metric::Metric;
use tokscope_shared::render;

/// The matrix of a metric as Markdown, with the run it belongs to, what the number is, and the marks in words.
pub fn markdown(entry: &Entry, metric: &Metric) -> String {
    let table = render::matrix_table(&entry.report, &entry.review, metric);
    let model = entry.summary.identity.model.as_deref().unwrap_or(&entry.name);
    let legend = render::legend(&table);
    let legend = if legend.is_empty() { String::new() } else { format!("\n{legend}\n") };
    format!(
        "**{model}** · {}\n\n{}: {} With {}.\n\n{}{legend}",
        identity_line(&entry.summary).join(" · "),
        metric.head(),
        metric.definition,
        render::answer_limits(&entry.report, entry.report.cells()),
        table.markdown()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::data::library::Library;
    use tokscope_shared::metric;

    #[test]
    fn the_table_is_copied_with_the_run_and_what_its_numbers_are() {
        let mut library = Library::default();
        let id = library.add("a.json", None, crate::data::sample()).id().unwrap();
        let text = markdown(&library.get(id).unwrap(), metric::by_id("aggregate-tps").unwrap());
        assert!(text.starts_with("**GLM-5.3-Flash-EXL3-4bpw** · vLLM "), "{text}");
        assert!(text.contains(" With answers up to "), "{text}");
        assert!(text.contains("| context | C=1 |\n|---|--:|\n| 0 | 145.5 |\n| 32k | 147.2 |\n| 64k | 151.5 |\n"), "{text}");
    }
}
