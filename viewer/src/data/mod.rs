//! The loaded reports, and what the page says of one beyond what the shared crate says. Pure: no browser.

pub mod cell;
pub mod export;
pub mod facts;
pub mod findings;
pub mod geometry;
pub mod library;
pub mod summary;
