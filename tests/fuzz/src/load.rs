//! The files of the reader, as they are.

#[path = "../../../collector/src/load/body.rs"]
pub(crate) mod body;
#[path = "../../../collector/src/load/chunk.rs"]
pub(crate) mod chunk;
#[path = "../../../collector/src/load/event.rs"]
mod event;
#[path = "../../../collector/src/load/json.rs"]
mod json;
#[path = "../../../collector/src/load/record.rs"]
pub(crate) mod record;
#[path = "../../../collector/src/load/repeat.rs"]
mod repeat;
#[path = "../../../collector/src/load/sse.rs"]
pub(crate) mod sse;
