//! The page that reads Tokscope reports: what is loaded (`data`), what is chosen (`state`), how it is drawn
//! (`view`), and everything the browser does for it (`platform`). Every number comes from the shared crate.

pub mod data;
pub mod platform;
pub mod state;
pub mod view;
