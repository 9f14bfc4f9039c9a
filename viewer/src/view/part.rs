//! The one kind of view that the page is made of: a box of markup that is drawn anew when what it reads changes.
//! One kind, because each further kind of view is compiled anew and downloaded.

use super::markup::Markup;
use leptos::prelude::*;

type Html = Box<dyn Fn() -> Markup + Send + Sync>;
type Hidden = Box<dyn Fn() -> bool + Send + Sync>;

/// A box that is always there.
pub(super) fn part(class: &'static str, test: &'static str, html: impl Fn() -> Markup + Send + Sync + 'static) -> AnyView {
    build(class, test, Box::new(|| false), Box::new(html))
}

/// A box that is there sometimes.
pub(super) fn part_if(
    there: impl Fn() -> bool + Send + Sync + 'static,
    class: &'static str,
    test: &'static str,
    html: impl Fn() -> Markup + Send + Sync + 'static,
) -> AnyView {
    build(class, test, Box::new(move || !there()), Box::new(html))
}

fn build(class: &'static str, test: &'static str, hidden: Hidden, html: Html) -> AnyView {
    view! { <div class=class data-test=test hidden=hidden inner_html=move || html().into_html()></div> }.into_any()
}

/// A box of boxes.
pub(super) fn group(class: &'static str, there: impl Fn() -> bool + Send + Sync + 'static, inside: Vec<AnyView>) -> AnyView {
    let hidden: Hidden = Box::new(move || !there());
    view! { <div class=class hidden=hidden>{inside}</div> }.into_any()
}
