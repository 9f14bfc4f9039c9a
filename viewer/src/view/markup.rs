//! Markup as text, for what doesn't change once it is drawn: tables, lists, lines. Typed views of such parts
//! would make the page many times larger. All text and all values of attributes are escaped.

use tokscope_shared::chart::Chart;

/// A piece of markup; it can only be made here, so that nothing unescaped gets in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Markup(String);

/// Attributes: names are the page's own, values may be anything.
pub(super) type Attributes<'a> = &'a [(&'static str, &'a str)];

/// Text.
pub(super) fn text(text: &str) -> Markup {
    let mut out = String::with_capacity(text.len());
    escape(text, &mut out);
    Markup(out)
}

/// An element.
pub(super) fn el(tag: &'static str, attributes: Attributes<'_>, inside: &Markup) -> Markup {
    let mut out = String::with_capacity(inside.0.len() + 48);
    out.push('<');
    out.push_str(tag);
    for (name, value) in attributes {
        out.push(' ');
        out.push_str(name);
        out.push_str("=\"");
        escape(value, &mut out);
        out.push('"');
    }
    out.push('>');
    out.push_str(&inside.0);
    out.push_str("</");
    out.push_str(tag);
    out.push('>');
    Markup(out)
}

/// An element with nothing but text in it.
pub(super) fn tel(tag: &'static str, attributes: Attributes<'_>, inside: &str) -> Markup {
    el(tag, attributes, &text(inside))
}

impl Markup {
    /// A chart, which the shared crate has written as markup with its texts escaped.
    pub(super) fn of_chart(chart: &Chart) -> Self {
        Markup(chart.svg.clone())
    }

    /// Adds what follows.
    pub(super) fn add(&mut self, other: &Markup) -> &mut Self {
        self.0.push_str(&other.0);
        self
    }

    /// Adds an element with nothing but text in it.
    pub(super) fn tel(&mut self, tag: &'static str, attributes: Attributes<'_>, inside: &str) -> &mut Self {
        self.add(&tel(tag, attributes, inside))
    }

    /// Adds text.
    pub(super) fn text(&mut self, inside: &str) -> &mut Self {
        escape(inside, &mut self.0);
        self
    }

    /// For the document.
    pub(super) fn into_html(self) -> String {
        self.0
    }
}

impl FromIterator<Markup> for Markup {
    fn from_iter<I: IntoIterator<Item = Markup>>(pieces: I) -> Self {
        let mut all = Markup::default();
        for piece in pieces {
            all.add(&piece);
        }
        all
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
        let evil = "\"><script>alert(1)</script>&";
        let html = tel("b", &[("title", evil)], evil).into_html();
        assert_eq!(html.matches('<').count(), 2, "{html}");
        assert_eq!(html.matches('"').count(), 2, "{html}");
        assert!(html.ends_with("&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;</b>"), "{html}");
    }

    #[test]
    fn pieces_follow_each_other() {
        let mut line = Markup::default();
        line.tel("b", &[], "1").text(" < ").add(&["2", "3"].into_iter().map(|n| tel("i", &[("class", "n")], n)).collect());
        assert_eq!(el("p", &[], &line).into_html(), "<p><b>1</b> &lt; <i class=\"n\">2</i><i class=\"n\">3</i></p>");
    }
}
