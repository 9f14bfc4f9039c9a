//! Markup as text. Typed views of all the tables and lists would make the page many times larger. Templates are
//! written in the page's own code; everything else gets in escaped.

use tokscope_shared::chart::Chart;

/// A piece of markup; it can only be made here, so that nothing unescaped gets in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Markup(String);

impl Markup {
    /// A chart, which the shared crate has written as markup with its texts escaped.
    pub(super) fn of_chart(chart: &Chart) -> Self {
        Markup(chart.svg.clone())
    }

    /// Adds a template, with a value in place of each `{}`: as text, or as an attribute's value inside quotes.
    pub(super) fn put(&mut self, template: &'static str, values: &[&str]) {
        let mut values = values.iter();
        let mut rest = template;
        while let Some(at) = rest.find("{}") {
            self.0.push_str(&rest[..at]);
            escape(values.next().copied().unwrap_or_default(), &mut self.0);
            rest = &rest[at + 2..];
        }
        self.0.push_str(rest);
        debug_assert!(values.next().is_none(), "{template} has too few places");
    }

    /// Adds what follows.
    pub(super) fn add(&mut self, other: &Markup) {
        self.0.push_str(&other.0);
    }

    /// Whether nothing was added yet.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For the document.
    pub(super) fn into_html(self) -> String {
        self.0
    }
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_cannot_become_markup() {
        let evil = "\"><script>alert(1)</script>&{}";
        let mut markup = Markup::default();
        markup.put("<b title=\"{}\">{}</b>", &[evil, evil]);
        let html = markup.into_html();
        assert_eq!(html.matches('<').count(), 2, "{html}");
        assert_eq!(html.matches('"').count(), 2, "{html}");
        assert!(html.ends_with("&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;{}</b>"), "{html}");
    }

    #[test]
    fn pieces_follow_each_other() {
        let mut line = Markup::default();
        assert!(line.is_empty());
        line.put("<b>{}</b>", &["1"]);
        let mut more = Markup::default();
        more.put("<i>{} of {}</i>", &["2", "3"]);
        line.add(&more);
        assert_eq!(line.into_html(), "<b>1</b><i>2 of 3</i>");
    }
}
