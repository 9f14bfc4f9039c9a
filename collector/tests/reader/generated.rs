//! Events and streams made up at random, near enough to real ones to reach every corner, and then damaged.

use proptest::prelude::*;

use super::differential;
use super::load::body::Framing;
use super::load::chunk::ChunkReader;

const KEYS: &str = "choices|usage|error|object|delta|finish_reason|text|message|type|index|role|content|reasoning|\
    reasoning_content|reasoning_text|tool_calls|function_call|completion_tokens|prompt_tokens|prompt_tokens_details|\
    cached_tokens|cont\\\\u0065nt|ch\\\\u006Fices||x";
const TEXTS: &str = "|a|error|stop|length|3|007|[^\"\\\\\\x00-\\x1f]{0,12}|\\\\n|\\\\u00e9|\\\\ud83d\\\\ude00|\\\\ud83d|a\\\\\"b|\\\\\\\\";
const NUMBERS: &str = "0|-0|3|17|4294967295|4294967296|-1|3\\.0|3\\.5|3e0|30E-1|1e400|99999999999999999999|0\\.1e1";

fn text() -> impl Strategy<Value = String> {
    TEXTS.prop_map(|text: String| format!("\"{text}\""))
}

fn leaf() -> impl Strategy<Value = String> {
    prop_oneof![Just("null".to_owned()), "true|false", NUMBERS, text(), "\\[ ?\\]|\\{\n?\\}"]
}

/// Any value; objects mostly have keys that mean something somewhere.
fn value() -> impl Strategy<Value = String> {
    leaf().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            object(prop::collection::vec((KEYS, inner), 0..5)),
        ]
    })
}

fn object(entries: impl Strategy<Value = Vec<(String, String)>>) -> impl Strategy<Value = String> {
    (entries, " ?|\n").prop_map(|(entries, space)| {
        let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{space}\"{key}\"{space}:{value}")).collect();
        format!("{{{}{space}}}", entries.join(","))
    })
}

/// An object with these keys, in any order and number, mostly with the values they should have.
fn shaped(keys: &'static str, right: impl Strategy<Value = String> + 'static) -> impl Strategy<Value = String> {
    let right = right.boxed();
    object(prop::collection::vec((keys, prop_oneof![4 => right, 1 => value()]), 0..5))
}

fn choices() -> impl Strategy<Value = String> {
    let delta = shaped("role|content|reasoning|reasoning_content|reasoning_text|tool_calls|function_call|cont\\\\u0065nt|x", leaf());
    let reason = prop_oneof![leaf(), shaped("type|message", leaf())];
    let choice = (delta, reason, leaf(), value()).prop_map(|(delta, reason, text, other)| {
        format!("{{\"index\":0,\"delta\":{delta},\"text\":{text},\"message\":{other},\"finish_reason\":{reason}}}")
    });
    prop::collection::vec(prop_oneof![9 => choice, 1 => value()], 0..3).prop_map(|all| format!("[{}]", all.join(",")))
}

fn usage() -> impl Strategy<Value = String> {
    let details = shaped("cached_tokens|x", leaf());
    shaped("completion_tokens|prompt_tokens|prompt_tokens_details|x", prop_oneof![3 => leaf(), 1 => details])
}

fn event() -> impl Strategy<Value = String> {
    let parts = [
        ("choices", choices().boxed()),
        ("ch\\u006Fices", choices().boxed()),
        ("usage", usage().boxed()),
        ("error", leaf().boxed()),
        ("object", text().boxed()),
        ("id", text().boxed()),
        ("other", value().boxed()),
    ];
    let entry = prop::sample::select(parts.to_vec())
        .prop_flat_map(|(key, right)| (Just(key.to_owned()), prop_oneof![9 => right, 1 => value().boxed()]));
    object(prop::collection::vec(entry, 0..6))
}

/// Bytes put over, into or out of a text.
fn damage() -> impl Strategy<Value = Vec<(u16, u8, u8)>> {
    let bytes = prop_oneof![any::<u8>(), prop::sample::select(b"{}[]\",:\\0-.e \n\x00\xFF\xE2".to_vec())];
    prop::collection::vec((any::<u16>(), 0..4_u8, bytes), 0..4)
}

fn damaged(text: &str, damage: &[(u16, u8, u8)]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for (place, way, byte) in damage {
        let at = usize::from(*place) % (bytes.len() + 1);
        match way {
            0 => bytes.insert(at, *byte),
            1 if at < bytes.len() => bytes[at] = *byte,
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            _ => {}
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_reading_of_an_event_agrees(event in event(), damage in damage()) {
        let mut reader = ChunkReader::new();
        // Before and after the damage, so that the reader has something to remember wrongly.
        let _ = differential::event(&mut reader, event.as_bytes());
        let _ = differential::event(&mut reader, &damaged(&event, &damage));
        let _ = differential::event(&mut reader, event.as_bytes());
    }

    #[test]
    fn a_remembered_beginning_changes_no_event(
        heads in prop::collection::vec(prop_oneof![
            "\\{\"id\":\"[ab]\",", "\\{", "\\{\"object\":\"(error|chunk)\",", "\\{\"usage\":(null|\\{\"prompt_tokens\":1\\}),",
            "\\{\"error\":(null|1),", "\\{\"choices\":\\[\\],",
        ], 1..3),
        events in prop::collection::vec((0..3_usize, choices(), "|,\"usage\":\\{\"completion_tokens\":5\\}|,\"object\":\"(x|error)\"|,\"choices\":\\[\\]", damage()), 1..8),
    ) {
        let mut reader = ChunkReader::new();
        for (head, choices, tail, damage) in events {
            let text = format!("{}\"choices\":{choices}{tail}}}", heads[head % heads.len()]);
            let _ = differential::event(&mut reader, text.as_bytes());
            let _ = differential::event(&mut reader, &damaged(&text, &damage));
        }
    }

    #[test]
    fn a_stream_says_the_same_however_it_is_cut_and_framed(
        events in prop::collection::vec((event(), damage(), "\n\n|\r\n\r\n|\r\r|\n|\r", "data: |data:|: |\u{feff}data: |event: x\ndata: "), 0..5),
        sizes in prop::collection::vec(1..80_usize, 1..4),
        line_end in "\r\n|\n|;x=1\r\n| \r\n",
        damage in damage(),
        cuts in prop::collection::vec(0..900_usize, 0..8),
    ) {
        let mut payload = Vec::new();
        for (event, damage, end, field) in &events {
            payload.extend_from_slice(field.as_bytes());
            payload.extend(damaged(event, damage));
            payload.extend_from_slice(end.as_bytes());
        }
        let plain = differential::stream(&payload, || Framing::UntilClose, &cuts);
        let mut body = Vec::new();
        let (mut rest, mut sizes) = (&payload[..], sizes.iter().cycle());
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at(sizes.next().map_or(1, |size| *size).min(rest.len()));
            body.extend_from_slice(format!("{:x}{line_end}", chunk.len()).as_bytes());
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
            rest = behind;
        }
        body.extend_from_slice(b"0\r\n\r\n");
        let chunked = differential::stream(&body, Framing::chunked, &cuts);
        prop_assert!(chunked.is_done && !chunked.is_broken);
        prop_assert_eq!(chunked.chunks, plain.chunks);
        let text = String::from_utf8_lossy(&body).into_owned();
        differential::stream(&damaged(&text, &damage), Framing::chunked, &cuts);
    }
}
