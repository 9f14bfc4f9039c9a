//! The loaded reports, and what the page says of one beyond what the shared crate says. Pure: no browser.

pub mod cell;
pub mod export;
pub mod facts;
pub mod findings;
pub mod geometry;
pub mod library;
pub mod summary;

/// The report that is part of the page, which the tests read too.
#[cfg(test)]
pub(crate) fn sample() -> &'static [u8] {
    let page = include_str!("../../index.html");
    let (_, rest) = page.split_once("id=\"sample\">").unwrap_or_default();
    rest.split_once("</script>").unwrap_or_default().0.as_bytes()
}
