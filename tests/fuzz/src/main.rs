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

use load::body::Framing;
use load::chunk::ChunkReader;

// The first byte says what the rest is: a chunked body, a body as it is, or events on lines of their own. The
// second one says where the body is cut.
fuzz_target!(|data: &[u8]| {
    let [way, cut, rest @ ..] = data else { return };
    let cut = usize::from(*cut);
    let cuts = [cut, cut * 2 + 1, cut * 5 + 2, cut * 5 + 3];
    match way % 3 {
        0 => drop(differential::stream(rest, Framing::chunked, &cuts)),
        1 => drop(differential::stream(rest, || Framing::UntilClose, &cuts)),
        _ => {
            let mut reader = ChunkReader::new();
            for event in rest.split(|b| *b == b'\n') {
                let _ = differential::event(&mut reader, event);
            }
        }
    }
});
