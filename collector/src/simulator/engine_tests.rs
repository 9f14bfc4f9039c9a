#![allow(clippy::unwrap_used)]

use super::super::tokens::Prompt;
use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// Round numbers: 1 ms overhead, 1 ms a prompt token, 10 ms a step.
fn settings() -> Settings {
    Settings {
        request_overhead_us: 1_000.0,
        prefill_tok_s: 1_000.0,
        step_base_us: 10_000.0,
        step_per_sequence_us: 0.0,
        step_per_context_token_ns: 0.0,
        max_context: 4_000,
        kv_tokens: 4_096,
        block_tokens: 16,
        slots: 4,
        ..Settings::default()
    }
}

fn arrival(key: u64, received_ns: u64, prompt_tokens: u32, output: u32) -> Arrival {
    // Each key's prompt is its own but for keys that differ by a multiple of 100.
    let blocks = (0..u64::from(prompt_tokens / 16)).map(|i| mix(key % 100 * 1_000 + i)).collect();
    Arrival { key, received_ns, prompt: Prompt { tokens: prompt_tokens, blocks }, max_output: output, ignore_eos: true }
}

fn run_until(engine: &mut Engine, now_ns: u64) -> Vec<Emission> {
    let mut out = Vec::new();
    while engine.advance(now_ns, &mut out) {}
    out
}

fn run(engine: &mut Engine) -> Vec<Emission> {
    run_until(engine, u64::MAX)
}

fn due_ms(emissions: &[Emission], key: u64) -> Vec<u64> {
    emissions.iter().filter(|e| e.key == key).map(|e| e.due_ns / MS).collect()
}

#[test]
fn one_request_takes_overhead_then_prefill_then_steps() {
    let mut engine = Engine::new(settings());
    engine.arrive(arrival(1, 100 * MS, 50, 4));
    let emissions = run(&mut engine);
    assert_eq!(due_ms(&emissions, 1), [151, 161, 171, 181]);
    assert_eq!(emissions.last().unwrap().finish, Some(Finish::Length));
    assert_eq!(engine.next_due(), None);
    assert_eq!(engine.gauges(), Gauges { kv_blocks: 256, ..Gauges::default() });
}

#[test]
fn prompts_are_computed_one_after_the_other_and_their_answers_decode_together() {
    let mut engine = Engine::new(settings());
    engine.arrive(arrival(1, 0, 49, 4));
    engine.arrive(arrival(2, 0, 22, 3));
    assert_eq!(engine.gauges().waiting, 1);
    let emissions = run(&mut engine);
    // The second is computed from 50 to 72, and joins at the next step of the first.
    assert_eq!(due_ms(&emissions, 1), [50, 60, 70, 80]);
    assert_eq!(due_ms(&emissions, 2), [72, 90, 100]);
}

#[test]
fn a_repeated_prompt_costs_only_what_is_not_cached() {
    for (prefix_cache, first_due_ms) in [(true, 1001 + 1000 - 992), (false, 1001 + 1000)] {
        let mut engine = Engine::new(Settings { prefix_cache, ..settings() });
        engine.arrive(arrival(1, 0, 1000, 1));
        assert_eq!(due_ms(&run(&mut engine), 1), [1001]);
        engine.arrive(arrival(101, 1000 * MS, 1000, 1));
        let emissions = run(&mut engine);
        assert_eq!(due_ms(&emissions, 101), [first_due_ms]);
        assert_eq!(emissions[0].cached_tokens, if prefix_cache { 992 } else { 0 });
        let counters = engine.counters();
        assert_eq!(counters.prompt_tokens, 2000);
        assert_eq!(counters.cached_tokens, u64::from(emissions[0].cached_tokens));
        assert_eq!(counters.computed_tokens.sum(), 2000.0 - counters.cached_tokens as f64);
    }
}

#[test]
fn more_requests_than_slots_wait_in_order() {
    let mut engine = Engine::new(Settings { slots: 2, ..settings() });
    for key in 1..=4 {
        engine.arrive(arrival(key, 0, 1, 3));
    }
    let emissions = run_until(&mut engine, 5 * MS);
    assert_eq!(emissions.len(), 2);
    assert_eq!((engine.gauges().running, engine.gauges().waiting), (2, 2));
    let emissions = run(&mut engine);
    // The first ends at 22 (its first token at 2, then two steps); the second joined a step later.
    assert_eq!(due_ms(&emissions, 1), [12, 22]);
    assert_eq!(due_ms(&emissions, 3)[0], 23);
    assert_eq!(due_ms(&emissions, 2).last(), Some(&32));
    assert_eq!(due_ms(&emissions, 4)[0], 33);
}

#[test]
fn a_request_waits_until_its_prompt_and_answer_fit_the_kv_budget() {
    let mut engine = Engine::new(Settings { prefix_cache: false, ..settings() });
    engine.arrive(arrival(1, 0, 100, 2_900));
    engine.arrive(arrival(2, 0, 100, 1_500));
    run_until(&mut engine, 20_000 * MS);
    assert_eq!((engine.gauges().running, engine.gauges().waiting), (1, 1));
    let emissions = run(&mut engine);
    let last = *due_ms(&emissions, 1).last().unwrap();
    assert_eq!(due_ms(&emissions, 2)[0], last + 100);
}

#[test]
fn a_client_that_goes_frees_its_place() {
    let mut engine = Engine::new(Settings { slots: 1, ..settings() });
    engine.arrive(arrival(1, 0, 9, 100));
    engine.arrive(arrival(2, 0, 9, 2));
    engine.arrive(arrival(3, 0, 9, 2));
    run_until(&mut engine, 35 * MS);
    engine.cancel(3, 35 * MS);
    assert_eq!(engine.gauges().waiting, 1, "a waiting one is gone at once");
    engine.cancel(1, 35 * MS);
    assert_eq!(engine.gauges().running, 1, "a decoding one stays to the end of the step");
    let emissions = run(&mut engine);
    assert_eq!(due_ms(&emissions, 1), [0; 0], "and gets nothing any more");
    assert_eq!(due_ms(&emissions, 2), [49, 59]);
    assert_eq!(engine.counters().aborted, 2);
    engine.cancel(2, 60 * MS);
    assert_eq!(engine.counters().aborted, 2, "an ended one cannot go");
}

#[test]
fn a_prompt_given_up_lets_the_next_begin_at_once_and_leaves_nothing_cached() {
    let mut engine = Engine::new(settings());
    engine.arrive(arrival(1, 0, 1000, 5));
    engine.arrive(arrival(101, 0, 1000, 1));
    engine.cancel(1, 400 * MS);
    let emissions = run(&mut engine);
    assert_eq!(due_ms(&emissions, 101), [1400]);
    assert_eq!(emissions[0].cached_tokens, 0);
    engine.arrive(arrival(2, 2_000 * MS, 96, 4_000));
    assert_eq!(engine.gauges().running, 1, "its room is free");
}

#[test]
fn drafts_are_accepted_as_often_as_the_settings_say() {
    let spec_accept = vec![0.75, 0.5, 0.3];
    let mut engine = Engine::new(Settings { spec_accept: spec_accept.clone(), ..settings() });
    for key in 0..4 {
        engine.arrive(arrival(key, 0, 5, 900));
    }
    let chunks = run(&mut engine);
    let mut later = 0;
    for key in (4..64).step_by(4) {
        for key in key..key + 4 {
            engine.arrive(arrival(key, 1_000_000 * MS * key, 5, 900));
        }
        later += run(&mut engine).len();
    }
    let counters = engine.counters();
    let drafts = counters.drafts as f64;
    assert!(drafts > 10_000.0);
    for (at, share) in spec_accept.iter().enumerate() {
        let seen = counters.accepted_per_pos[at] as f64 / drafts;
        // Five standard deviations.
        let room = 5.0 * (share * (1.0 - share) / drafts).sqrt();
        assert!((seen - share).abs() < room, "position {at}: {seen} for {share}");
    }
    assert_eq!(counters.accepted_tokens, counters.accepted_per_pos.iter().sum::<u64>());
    assert_eq!(counters.draft_tokens, 3 * counters.drafts);
    assert_eq!(counters.drafts as usize, chunks.len() + later - 64, "none for first tokens");
}

#[test]
fn the_recent_rate_is_that_of_the_last_steps_and_0_when_idle() {
    let mut engine = Engine::new(settings());
    engine.arrive(arrival(1, 5_000 * MS, 9, 200));
    run_until(&mut engine, 5_700 * MS);
    assert_eq!(engine.counters().recent_tok_s, 100.0);
    run(&mut engine);
    assert_eq!(engine.counters().recent_tok_s, 0.0);
}

#[test]
fn answers_end_by_themselves_at_about_the_mean_length() {
    let mut engine = Engine::new(Settings { mean_output_tokens: 50.0, ..settings() });
    let mut total = 0;
    for key in 0..2_000 {
        let open = Arrival { ignore_eos: false, ..arrival(key, key * 1_000_000 * MS, 5, 3_000) };
        engine.arrive(open);
        let emissions = run(&mut engine);
        assert_eq!(emissions.last().unwrap().finish, Some(Finish::Stop));
        total += emissions.len();
    }
    let mean = total as f64 / 2_000.0;
    assert!((45.0..55.0).contains(&mean), "{mean}");
    assert_eq!(engine.counters().ended_stop, 2_000);
}

#[test]
fn the_same_seed_gives_the_same_tokens_and_another_others() {
    let emissions = |seed| {
        let mut engine = Engine::new(Settings { seed, spec_accept: vec![0.6, 0.4], ..settings() });
        for key in 0..6 {
            let open = Arrival { ignore_eos: key % 2 == 0, ..arrival(key, key * MS, 40, 200) };
            engine.arrive(open);
        }
        run(&mut engine)
    };
    assert_eq!(emissions(7), emissions(7));
    assert_ne!(emissions(7), emissions(8));
}

proptest! {
    #[test]
    fn whatever_comes_and_goes_every_token_is_due_in_order_and_nothing_stays_behind(
        events in proptest::collection::vec((0_u64..30, 0_u64..50, 1_u32..200, 1_u32..60, any::<bool>()), 1..60),
        spec in any::<bool>(),
    ) {
        let spec_accept = if spec { vec![0.7, 0.5] } else { vec![] };
        let mut engine = Engine::new(Settings { spec_accept, kv_tokens: 4_000, ..settings() });
        let (mut now_ns, mut emissions, mut gone) = (0, Vec::new(), Vec::new());
        let mut planned = std::collections::HashMap::new();
        let mut keys = Vec::new();
        for (at, (gap_ms, prompts, prompt, output, ignore_eos)) in events.into_iter().enumerate() {
            now_ns += gap_ms * MS;
            emissions.extend(run_until(&mut engine, now_ns));
            let key = at as u64 * 100 + prompts;
            engine.arrive(Arrival { ignore_eos, ..arrival(key, now_ns, prompt, output) });
            keys.push(key);
            planned.insert(key, output);
            if at % 5 == 4 {
                let victim = keys[at - 2];
                engine.cancel(victim, now_ns);
                gone.push(victim);
            }
            let gauges = engine.gauges();
            prop_assert!(gauges.running <= 4);
            prop_assert!(gauges.kv_blocks_used <= gauges.kv_blocks);
        }
        emissions.extend(run(&mut engine));
        prop_assert!(emissions.windows(2).all(|pair| pair[0].due_ns <= pair[1].due_ns));
        for (key, output) in planned {
            let own: Vec<_> = emissions.iter().filter(|e| e.key == key).collect();
            let tokens: u32 = own.iter().map(|e| e.tokens).sum();
            prop_assert!(tokens <= output);
            if !gone.contains(&key) {
                prop_assert_eq!(tokens, own[0].planned_tokens);
                prop_assert!(own.last().is_some_and(|e| e.finish.is_some()));
            }
        }
        let all: u32 = emissions.iter().map(|e| e.tokens).sum();
        prop_assert_eq!(u64::from(all), engine.counters().generation_tokens);
        let gauges = engine.gauges();
        prop_assert_eq!((gauges.running, gauges.waiting, gauges.kv_blocks_used), (0, 0, 0));
        engine.arrive(arrival(9_999_999, now_ns, 100, 3_900));
        prop_assert_eq!(engine.gauges().running, 1, "all of the cache can be had again");
    }
}
