//! What the end-to-end tests share: the record of how `dist/` was built, a browser to drive, and a host
//! for static files. The tests themselves are in `tests/tests`.

pub mod browser;
pub mod dist;
mod driver;
pub mod faults;
pub mod fingerprint;
pub mod program;
pub mod static_server;
mod webdriver;

use std::path::PathBuf;

/// The folder of the checkout these tests were compiled in.
#[must_use]
pub fn checkout() -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    match package.parent() {
        Some(parent) => parent.to_owned(),
        None => package,
    }
}
