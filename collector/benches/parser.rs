//! What reading ordinary events costs, beside a tree of the same bytes in the same run.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, Throughput, criterion_group};
use tokscope_collector::load;
use tokscope_collector::load::text::{TextReader, TextTap, text_tap};

#[path = "../tests/reader/ordinary.rs"]
mod ordinary;

fn parser(criterion: &mut Criterion) {
    for ordinary in ordinary::all() {
        let mut group = criterion.benchmark_group(ordinary.server);
        group.throughput(Throughput::Bytes(ordinary.body.len() as u64));
        group.bench_function("framing, events and JSON in reads of 64 kB", |b| b.iter(|| ordinary::pipeline(&ordinary.body)));
        group.bench_function("the same with the texts kept", |b| b.iter(|| kept(&ordinary.body)));
        group.throughput(Throughput::Bytes(ordinary.event_bytes() as u64));
        group.bench_function("JSON", |b| b.iter(|| ordinary::stateful(&ordinary.events)));
        group.bench_function("JSON without a memory", |b| b.iter(|| ordinary::stateless(&ordinary.events)));
        group.bench_function("serde_json::Value", |b| b.iter(|| ordinary::trees(&ordinary.events)));
        group.finish();
    }
}

/// Reads with the texts kept, as a cell does whose repetitions are looked for. The blocks go round as they do there.
fn kept(body: &[u8]) -> usize {
    thread_local! {
        static TAP: (TextTap, TextReader) = text_tap();
    }
    TAP.with(|(tap, reader)| {
        let outputs = ordinary::keeping(body, Some(&mut tap.writer()));
        while let Some(block) = reader.try_next() {
            reader.give_back(block);
        }
        outputs
    })
}

/// The figures that matter in one table: the least of interleaved rounds.
fn summary() {
    println!("{:<10} {:>42} {:>9} {:>7} {:>10}", "server", "read", "ns/event", "GB/s", "x Value");
    for ordinary in ordinary::all() {
        let (events, body) = (&ordinary.events, &ordinary.body);
        let names = ["framing, events and JSON", "the same with the texts kept", "JSON", "JSON without a memory", "serde_json::Value"];
        let bytes = [body.len(), body.len(), ordinary.event_bytes(), ordinary.event_bytes(), ordinary.event_bytes()];
        let ns = ordinary::least_ns(
            50,
            [&|| ordinary::pipeline(body), &|| kept(body), &|| ordinary::stateful(events), &|| ordinary::stateless(events), &|| {
                ordinary::trees(events)
            }],
        );
        for ((name, bytes), one) in names.iter().zip(bytes).zip(ns) {
            let (each, gb_s, ratio) = (one / events.len() as f64, bytes as f64 / one, ns[4] / one);
            println!("{:<10} {name:>42} {each:>9.1} {gb_s:>7.2} {ratio:>10.1}", ordinary.server);
        }
    }
}

criterion_group!(benches, parser);

/// For tests/parser-instructions.sh: the whole of the reading, so many times.
fn count(server: &str, times: &str) {
    let all = ordinary::all();
    let ordinary = all.iter().find(|ordinary| ordinary.server == server).unwrap();
    let mut events = 0;
    for _ in 0..times.parse().unwrap() {
        events += ordinary::pipeline(&ordinary.body);
    }
    println!("events {events}");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, mode, server, times] = &args[..]
        && mode == "count"
    {
        return count(server, times);
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
    summary();
}
