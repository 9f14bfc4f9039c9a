//! Recorded answers, read in every way there is.

use std::path::{Path, PathBuf};

use super::differential;
use super::load::body::Framing;

/// The bodies of all recorded streams below a folder.
fn bodies(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(bodies(&path));
        } else if name.contains("stream-") && name.ends_with(".response.http") {
            let bytes = std::fs::read(&path).unwrap();
            let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
            let is_chunked = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase().contains("transfer-encoding: chunked");
            if is_chunked {
                found.push((path, bytes[head + 4..].to_vec()));
            }
        }
    }
    found
}

#[test]
fn every_recorded_stream_is_read_the_same_however_it_is_cut() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/transcripts")];
    if let Some(corpus) = std::env::var_os("TOKSCOPE_CORPUS") {
        folders.extend(Some(Path::new(&corpus).join("../transcripts")).filter(|path| path.is_dir()));
    }
    let all: Vec<_> = folders.iter().flat_map(|folder| bodies(folder)).collect();
    assert!(all.len() >= 8, "only {} streams below {folders:?}", all.len());
    for (path, body) in all {
        let third = body.len() / 3;
        let seen = differential::stream(&body, Framing::chunked, &[1, third, third + 1, 2 * third]);
        assert!(seen.is_done && seen.left == 0, "{}", path.display());
        let bad = seen.events.iter().zip(&seen.chunks).filter(|(data, chunk)| chunk.is_err() && *data != b"[DONE]").count();
        assert_eq!(bad, 0, "{}", path.display());
    }
}

#[test]
fn what_the_fuzzer_found_worth_keeping_still_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&corpus).unwrap() {
        differential::input(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 100, "only {inputs} inputs in {}", corpus.display());
}
