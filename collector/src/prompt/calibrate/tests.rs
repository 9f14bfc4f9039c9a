#![allow(clippy::unwrap_used)]
use super::*;
use std::cell::{Cell, RefCell};

fn prompts(contexts: &[u32], mode: PromptMode) -> Prompts {
    Prompts::begin(&PromptOptions { contexts: contexts.to_vec(), seed: 1, mode }, "abcdefghijkl".into())
}

/// A tokenizer that splits long words, with a template of 17 tokens.
fn words(text: &str) -> u64 {
    let pieces = text.split_whitespace().map(|w| w.len().div_ceil(5) as u64);
    17 + pieces.sum::<u64>()
}

/// One by bytes, with a template of 17 tokens.
fn bytes(text: &str) -> u64 {
    17 + text.len() as u64
}

const CONTEXTS: [u32; 5] = [0, 512, 8_192, 32_768, 131_072];

fn assert_as_wanted(p: &Prompts, tokens: fn(&str) -> u64) {
    for context in CONTEXTS.into_iter().filter(|context| *context > 0) {
        let text = p.context(context).unwrap();
        let tags = if p.mode == PromptMode::Distinct {
            [Tag::Own { cell: 0, stream: 0, ordinal: 0 }, Tag::Own { cell: 7, stream: 63, ordinal: 12 }]
        } else {
            [Tag::Shared, Tag::Repeat(3)]
        };
        for tag in tags {
            let real = tokens(&p.counted(tag, context, &text.document));
            let off = real.abs_diff(u64::from(context));
            assert!(off <= close_enough(context), "{context} has {real} of {:?}, told {}", p.mode, text.prompt_tokens);
        }
    }
}

#[tokio::test]
async fn prompts_come_within_the_bound_in_few_questions() {
    for tokens in [words, bytes] {
        for mode in [PromptMode::Shared, PromptMode::Distinct, PromptMode::Identical] {
            let (calls, long) = (Cell::new(0), Cell::new(0));
            let mut p = prompts(&CONTEXTS, mode);
            let count = async |text: &str| {
                calls.set(calls.get() + 1);
                long.set(long.get() + u32::from(tokens(text) > 100_000));
                Ok(tokens(text))
            };
            p.by_tokenize(&CONTEXTS, None, &count, &count).await.unwrap();
            assert_as_wanted(&p, tokens);
            let samples = if mode == PromptMode::Distinct { SAMPLE } else { 0 };
            assert!(calls.get() <= 3 + 8 + 4 * samples, "{} questions", calls.get());
            assert!(long.get() <= 2 + samples, "{} of the longest", long.get());
            assert!(p.warnings.is_empty(), "{:?}", p.warnings);
            assert_eq!(p.context(8_192).unwrap().counted_by, CountedBy::Tokenize);
        }
    }
}

#[tokio::test]
async fn without_tokenize_each_context_is_probed_and_corrected_where_it_was_off() {
    for tokens in [words, bytes] {
        let calls = RefCell::new(Vec::new());
        let mut p = prompts(&CONTEXTS, PromptMode::Shared);
        let count = async |text: &str| {
            calls.borrow_mut().push(text.split(' ').next().unwrap().to_owned());
            Ok(tokens(text))
        };
        p.by_probes(&CONTEXTS, None, &count).await;
        assert_as_wanted(&p, tokens);
        assert_eq!(p.context(32_768).unwrap().counted_by, CountedBy::Probe);
        let calls = calls.into_inner();
        assert!(calls.len() <= 2 + 2 * 4, "{} probes", calls.len());
        assert!(calls.iter().all(|tag| tag == "[P0"), "no prompt that is measured is sent before: {calls:?}");
    }
}

#[tokio::test]
async fn the_template_is_part_of_the_length() {
    let mut p = prompts(&CONTEXTS, PromptMode::Shared);
    let count = async |text: &str| Ok(words(text));
    p.by_tokenize(&CONTEXTS, None, &count, &count).await.unwrap();
    let bare = words(&p.counted(Tag::Probe(0), 0, &Document::default()));
    assert!(bare > 17);
    assert_eq!(p.overhead_tokens, Some(bare));
    assert_eq!(p.context(0).unwrap().prompt_tokens, bare, "a prompt without context is not empty");
}

#[tokio::test]
async fn a_tokenizer_that_disagrees_with_the_usage_is_not_believed() {
    let mut p = prompts(&CONTEXTS, PromptMode::Shared);
    // As one that leaves out the template.
    let tokenize = async |text: &str| Ok(words(text) - 17);
    let usage = async |text: &str| Ok(words(text));
    let reason = p.by_tokenize(&CONTEXTS, None, &tokenize, &usage).await.unwrap_err();
    assert!(reason.contains("where the server's usage has"), "{reason}");
    assert!(p.texts.is_empty(), "nothing of it is kept");
    p.by_probes(&CONTEXTS, None, &usage).await;
    assert_as_wanted(&p, words);
}

#[tokio::test]
async fn a_context_shorter_than_template_and_task_is_said_and_not_empty() {
    let contexts = [0, 1, 30, 512];
    let mut p = prompts(&contexts, PromptMode::Shared);
    let count = async |text: &str| Ok(words(text));
    p.by_tokenize(&contexts, None, &count, &count).await.unwrap();
    let least = p.overhead_tokens.unwrap();
    for context in [1, 30] {
        assert_eq!(p.context(context).unwrap().prompt_tokens, least, "as it is, not as asked for");
        let wanted = format!("context {context} is shorter than template and task alone: its prompts have {least} tokens");
        assert!(p.warnings.contains(&wanted), "{:?}", p.warnings);
    }
    assert_eq!(p.warnings.len(), 2);
    assert!(p.context(512).unwrap().prompt_tokens.abs_diff(512) <= 8);
}

#[tokio::test]
async fn contexts_just_longer_than_the_task_are_filled() {
    for context in 100..200 {
        let mut p = prompts(&[context], PromptMode::Shared);
        let count = async |text: &str| Ok(bytes(text) / 3);
        p.by_tokenize(&[context], None, &count, &count).await.unwrap();
        let tokens = p.context(context).unwrap().prompt_tokens;
        assert!(tokens.abs_diff(context.into()) <= 8, "{context}: {tokens}");
    }
}

#[tokio::test]
async fn a_server_that_tells_nothing_gets_assumed_lengths_and_a_warning() {
    let mut p = prompts(&[0, 1024], PromptMode::Shared);
    let count = async |_: &str| Err("HTTP 404".to_owned());
    p.by_probes(&[0, 1024], None, &count).await;
    assert_eq!(p.context(1024).unwrap().counted_by, CountedBy::Assumed);
    assert!(p.warnings[0].contains("HTTP 404"));
    assert_eq!(p.chars_per_token, None);
}

#[tokio::test]
async fn a_length_that_can_not_be_checked_is_reckoned_and_said() {
    let mut p = prompts(&CONTEXTS, PromptMode::Shared);
    let count = async |text: &str| if text.len() > 50_000 { Err("no answer".to_owned()) } else { Ok(words(text)) };
    p.by_probes(&CONTEXTS, None, &count).await;
    let long = p.context(131_072).unwrap();
    assert_eq!(long.counted_by, CountedBy::ProbeRatio);
    assert!(words(&p.counted(Tag::Shared, 131_072, &long.document)).abs_diff(131_072) < 1_500);
    assert!(p.warnings.iter().any(|text| text == "the length of context 128k could not be checked (no answer) and is reckoned"));
}

#[tokio::test]
async fn what_the_server_can_not_hold_is_not_sent() {
    let mut p = prompts(&CONTEXTS, PromptMode::Shared);
    let longest = Cell::new(0);
    let count = async |text: &str| {
        longest.set(longest.get().max(words(text)));
        Ok(words(text))
    };
    p.by_probes(&CONTEXTS, Some(32_768), &count).await;
    assert!(longest.get() < 16_384, "{}", longest.get());
    assert!(p.context(131_072).is_some() && p.warnings.is_empty());
}

#[tokio::test]
async fn a_count_that_never_moves_ends_and_is_said() {
    let mut p = prompts(&[4096], PromptMode::Shared);
    let calls = Cell::new(0);
    let count = async |_: &str| {
        calls.set(calls.get() + 1);
        Ok(40)
    };
    p.by_tokenize(&[4096], None, &count, &count).await.unwrap();
    assert!(p.warnings[0].contains("no closer length"), "{:?}", p.warnings);
    assert!(calls.get() < 10);
}

#[tokio::test]
async fn texts_of_their_own_are_sampled_and_their_spread_is_kept() {
    let mut p = prompts(&CONTEXTS, PromptMode::Distinct);
    let count = async |text: &str| Ok(words(text));
    p.by_tokenize(&CONTEXTS, None, &count, &count).await.unwrap();
    let sample = p.context(8_192).unwrap().sample.unwrap();
    assert_eq!((sample.count, sample.off), (u64::from(SAMPLE) + 1, 0));
    // A tokenizer to which the order matters.
    let mut p = prompts(&CONTEXTS, PromptMode::Distinct);
    let count = async |text: &str| Ok(words(text) + u64::from(text.contains("9999-0002")) * 100);
    p.by_tokenize(&CONTEXTS, None, &count, &count).await.unwrap();
    let sample = p.context(8_192).unwrap().sample.unwrap();
    assert!(sample.max >= sample.min + 90 && sample.off == 1, "{sample:?}");
    assert!(p.warnings.iter().any(|text| text.starts_with("1 of 3 prompts of context 8k")), "{:?}", p.warnings);
}

#[test]
fn shared_tokens_are_those_that_all_have() {
    let mut p = prompts(&[0, 8_192], PromptMode::Shared);
    for context in [0, 8_192] {
        p.keep(p.reckoned(context));
    }
    let shared = p.shared_tokens();
    assert_eq!(shared.keys().copied().collect::<Vec<_>>(), [8_192], "without a context there is nothing to share");
    assert!((8_000..8_192).contains(&shared[&8_192]), "{shared:?}");
    p.mode = PromptMode::Identical;
    assert_eq!(p.shared_tokens()[&8_192], p.context(8_192).unwrap().prompt_tokens - 1);
    p.mode = PromptMode::Distinct;
    assert!(p.shared_tokens().is_empty());
}
