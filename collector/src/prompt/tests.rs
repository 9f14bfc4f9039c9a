#![allow(clippy::unwrap_used)]
use super::*;
use std::collections::HashSet;

fn cell(mode: PromptMode, index: u32) -> CellPrompts {
    let address = "http://h:1/base".parse().unwrap();
    let credentials = crate::target::Credentials::bearer("secret", "--api-key");
    let document = Arc::new(Document::new(&prose(1, 9_000), 9_000));
    let model = "a \"model\"".to_owned();
    let run_id = "abcdefghijkl".to_owned();
    let place = Place { tag: Tag::Shared, run_id: &run_id, context: 2048, seed: 1 };
    let shared = Bytes::from(body_start(&model, &document.json(&place)));
    let own = OwnTexts { model, run_id: run_id.clone(), seed: 1, context: 2048, cell: index, document };
    CellPrompts {
        head: RequestHead::post(&address, &credentials, CHAT_PATH),
        shared: if mode == PromptMode::Distinct { Bytes::new() } else { shared },
        own: (mode == PromptMode::Distinct).then(|| Arc::new(own)),
        end: body_end(&Shape { accepted: Accepted::default(), max_tokens: 7, ignore_eos: true, temperature: None }),
        id_prefix: format!("abc-{index}"),
        ending: 1 + index,
        kind: Kind::Streams { alike: mode == PromptMode::Identical },
    }
}

fn body(p: &PreparedRequest) -> serde_json::Value {
    serde_json::from_slice(&[&p.shared[..], &p.tail].concat()).unwrap()
}

fn content(p: &PreparedRequest) -> String {
    body(p)["messages"][0]["content"].as_str().unwrap().to_owned()
}

const MODES: [PromptMode; 3] = [PromptMode::Shared, PromptMode::Distinct, PromptMode::Identical];
const PLACES: [(u32, u32); 5] = [(0, 0), (0, 1), (1, 0), (1, 1), (5, 0)];

#[test]
fn a_request_is_valid_json_with_the_length_its_head_says() {
    for mode in MODES {
        let p = cell(mode, 3).prepare(2, 5);
        let body = body(&p);
        assert_eq!(body["model"], "a \"model\"");
        let content = content(&p);
        assert!(content.contains("] Read the document below, then do the task that follows it.\n\n"));
        let task = if mode == PromptMode::Identical { "Task 0000-0000-0000" } else { "Task 0004-0003-0006" };
        assert!(content.contains(&format!("\n\nThe document ends here. {task}")), "{mode:?}");
        assert_eq!(body["max_tokens"], 7);
        assert_eq!(body["ignore_eos"], true);
        assert_eq!(body["stream_options"]["continuous_usage_stats"], true);
        assert!(body.get("temperature").is_none());
        let head = String::from_utf8(p.head.clone()).unwrap();
        assert!(head.starts_with("POST /base/v1/chat/completions HTTP/1.1\r\nHost: h:1\r\n"));
        assert!(head.contains("x-request-id: abc-3-2-5\r\n"));
        assert!(head.contains("Authorization: Bearer secret\r\n"));
        let length = p.shared.len() + p.tail.len();
        assert!(head.contains(&format!("Content-Length: {length}\r\n")));
    }
    assert!(!format!("{:?}", cell(PromptMode::Shared, 3)).contains("secret"));
}

#[test]
fn shared_prompts_have_the_same_beginning_and_an_ending_of_their_own() {
    let mut tails = HashSet::new();
    // Another cell of that context, as a repeat of the matrix has, sends nothing that the first one sent.
    let (cell, another) = (cell(PromptMode::Shared, 3), cell(PromptMode::Shared, 4));
    for (stream, ordinal) in PLACES {
        for p in [cell.prepare(stream, ordinal), another.prepare(stream, ordinal)] {
            assert_eq!(p.shared, cell.shared);
            assert!(tails.insert(p.tail));
        }
    }
    let shape = Shape { accepted: Accepted::default(), max_tokens: 7, ignore_eos: false, temperature: Some(0.0) };
    let scout = cell.scout(&shape).prepare(0, 0);
    assert_eq!(body(&scout)["max_tokens"], 1);
    assert_eq!(scout.id, "abc-3-scout-0");
    assert!(tails.insert(scout.tail));
}

#[test]
fn identical_prompts_are_the_same_to_the_byte_and_so_is_the_one_ahead() {
    let cell = cell(PromptMode::Identical, 3);
    let all: HashSet<String> = PLACES.iter().map(|(stream, ordinal)| content(&cell.prepare(*stream, *ordinal))).collect();
    assert_eq!(all.len(), 1);
    let shape = Shape { accepted: Accepted::default(), max_tokens: 7, ignore_eos: false, temperature: None };
    assert!(all.contains(&content(&cell.scout(&shape).prepare(0, 0))));
    assert!(all.iter().all(|text| text.contains("abcdefghijkl")));
}

#[test]
fn distinct_prompts_share_no_beginning_within_a_cell_or_between_cells() {
    let shape = Shape { accepted: Accepted::default(), max_tokens: 7, ignore_eos: false, temperature: None };
    let mut texts: Vec<String> = Vec::new();
    for index in [0, 3] {
        let cell = cell(PromptMode::Distinct, index);
        texts.extend(PLACES.iter().map(|(stream, ordinal)| content(&cell.prepare(*stream, *ordinal))));
        texts.push(content(&cell.scout(&shape).prepare(0, 0)));
        assert_eq!(content(&cell.prepare(1, 0)), texts[texts.len() - 4], "the same again");
    }
    for (at, one) in texts.iter().enumerate() {
        assert!(one.contains("abcdefghijkl"), "the run's id is in it");
        for other in &texts[at + 1..] {
            let alike = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
            assert!(alike < 16, "{alike} characters of the beginning are alike");
            assert!(one.len().abs_diff(other.len()) < 20, "and they have about the same length");
        }
    }
}

#[test]
fn a_run_id_is_twelve_lowercase_letters_and_stands_in_every_prompt() {
    let id = new_run_id();
    assert_eq!(id.len(), 12);
    assert!(id.bytes().all(|b| b.is_ascii_lowercase()));
    assert_ne!(id, new_run_id());
    for (context, chars) in [(0, 0), (100, 20), (8192, 5_000)] {
        let document = Document::new(&prose(1, 6_000), chars);
        for tag in [Tag::Shared, Tag::Own { cell: 0, stream: 0, ordinal: 0 }, Tag::Repeat(1), Tag::Warmup(0)] {
            assert!(document.plain(&Place { tag, run_id: &id, context, seed: 1 }).contains(&id));
        }
    }
}
