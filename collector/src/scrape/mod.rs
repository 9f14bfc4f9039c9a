//! The server's own metrics: reading their text, picking the values that matter, scraping on a
//! clock of their own. It never touches a token's path.

pub mod engines;
mod scraper;
pub mod snapshot;
pub mod text;
pub mod window;

pub use scraper::{Scrape, Scraper};
pub use window::restarts;
