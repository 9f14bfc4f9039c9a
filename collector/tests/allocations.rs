//! Reading a stream allocates for what it remembers, never for an event. The counting allocator is that of
//! this whole binary, so this stands alone.
#![allow(clippy::unwrap_used)]

use tokscope_collector::load;
use tokscope_collector::load::text::text_tap;

#[path = "reader/ordinary.rs"]
#[allow(dead_code, reason = "only what reads and what is read is needed here")]
mod ordinary;

#[test]
fn no_event_allocates() {
    for ordinary in ordinary::all() {
        let stateless = allocation_counter::measure(|| assert_eq!(ordinary::stateless(&ordinary.events), ordinary.events.len()));
        assert_eq!(stateless.count_total, 0, "{}: without a memory", ordinary.server);
        let few = allocation_counter::measure(|| assert!(ordinary::pipeline(&ordinary.body[..ordinary.body.len() / 8]) > 0)).count_total;
        let many = allocation_counter::measure(|| assert_eq!(ordinary::pipeline(&ordinary.body), ordinary.events.len())).count_total;
        // The beginning of an event, and the part of a line that waits for the next read, which may grow.
        assert!(many <= 8, "{}: {many} allocations for {} events", ordinary.server, ordinary.events.len());
        assert!(many <= few + 4, "{}: {few} allocations for an eighth of the events, {many} for all", ordinary.server);
    }
}

#[test]
fn no_text_that_is_kept_allocates() {
    for ordinary in ordinary::all() {
        let (tap, reader) = text_tap();
        let mut writer = tap.writer();
        let bare = allocation_counter::measure(|| assert!(ordinary::pipeline(&ordinary.body) > 0)).count_total;
        let keeping =
            allocation_counter::measure(|| assert_eq!(ordinary::keeping(&ordinary.body, Some(&mut writer)), ordinary.events.len()));
        drop((writer, tap));
        let (mut blocks, mut texts) = (0, 0);
        while let Some(block) = reader.next() {
            (blocks, texts) = (blocks + 1, texts + block.pieces().count());
        }
        assert_eq!(texts, ordinary.events.len(), "{}: every text is there", ordinary.server);
        // A list of blocks on their way grows with them, not with the events.
        assert!(keeping.count_total <= bare + blocks, "{}: {bare} allocations without, {keeping:?} with {blocks} blocks", ordinary.server);
    }
}

#[test]
fn the_counter_counts() {
    let events = &ordinary::all()[0].events;
    assert!(allocation_counter::measure(|| assert_eq!(ordinary::trees(events), events.len())).count_total >= events.len() as u64);
}
