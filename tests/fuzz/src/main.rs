//! libFuzzer on the reader of chat streams: what must hold of any bytes is in collector/tests/reader.
//! The reader's own files are compiled in, so that coverage guides by them and not by all of the program.
#![no_main]
#![allow(dead_code, unused_imports, reason = "the files serve others too")]

use libfuzzer_sys::fuzz_target;

mod load;

/// Stands for the module of that name, which has nothing to do with reading.
mod secrets {
    pub(crate) fn beginning(text: &str, bytes: usize) -> String {
        text.chars().take(bytes).collect()
    }
}

#[path = "../../../collector/tests/reader/differential.rs"]
mod differential;
#[path = "../../../collector/tests/reader/reference.rs"]
mod reference;

fuzz_target!(|data: &[u8]| differential::input(data));
