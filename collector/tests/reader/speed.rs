//! What reading costs, as ratios within one run.

use std::hint::black_box;

use super::load::sse::SseParser;
use super::ordinary::{self, least_ns};

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "says something of an optimized build only: cargo test --release -p tokscope-collector --test reader"
)]
fn an_ordinary_event_is_read_five_times_as_fast_as_into_a_tree() {
    for ordinary in ordinary::all() {
        let events = &ordinary.events;
        let jobs: [&dyn Fn() -> usize; 3] = [&|| ordinary::trees(events), &|| ordinary::stateful(events), &|| ordinary::stateless(events)];
        for job in jobs {
            assert_eq!(job(), events.len(), "{}", ordinary.server);
        }
        let [tree, stateful, stateless] = least_ns(20, jobs);
        let (with, without) = (tree / stateful, tree / stateless);
        println!("{}: {with:.1} times as fast as serde_json::Value, {without:.1} times without a memory", ordinary.server);
        assert!(with >= 5.0, "{}: only {with:.1} times", ordinary.server);
    }
}

/// An event of this many bytes fed in pieces of 1 kB.
fn long_event(bytes: usize) -> Vec<u8> {
    let mut stream = br#"data: {"choices":[{"index":0,"delta":{"content":""#.to_vec();
    stream.resize(bytes, b'x');
    stream.extend_from_slice(b"\"}}]}\n\n");
    stream
}

#[test]
fn a_line_of_5_mb_in_pieces_of_1_kb_takes_linear_time() {
    let (short, long) = (long_event(500_000), long_event(5_000_000));
    let read = |stream: &[u8]| {
        let mut sse = SseParser::new();
        let mut seen = 0;
        for piece in stream.chunks(1000) {
            let on_event = |data: &[u8]| seen += usize::from(super::load::chunk::parse(data).is_ok_and(|c| c.kinds.is_output()));
            sse.feed(piece, on_event).unwrap();
        }
        black_box(seen)
    };
    assert_eq!((read(&short), read(&long)), (1, 1));
    // As many bytes either way: the same where it is linear, ten times where each piece looks at the whole line again.
    let ten_short = || (0..10).map(|_| read(&short)).sum();
    let [short, long] = least_ns(5, [&ten_short, &|| read(&long)]);
    let ratio = long / short;
    assert!(ratio < 4.0, "a line of ten times the length took {ratio:.1} times as long as ten lines");
}
