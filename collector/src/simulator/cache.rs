//! The KV cache of the simulated server: a budget of blocks, and computed prompt blocks kept for
//! reuse, the least recently used given up first. Blocks of generated tokens are not kept.

use std::collections::{BTreeMap, HashMap};

use super::tokens::Prompt;

/// What one request holds of the cache.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// Kept blocks that the request uses, in the order of the prompt.
    shared: Vec<u64>,
    /// Blocks that are its own.
    private: u32,
}

impl Lease {
    pub(crate) fn shared_blocks(&self) -> u32 {
        self.shared.len() as u32
    }
}

#[derive(Debug)]
struct Kept {
    users: u32,
    /// Its key in `idle` while nobody uses it.
    idle_since: u64,
}

#[derive(Debug)]
pub(crate) struct KvCache {
    total: u32,
    block_tokens: u32,
    keeps: bool,
    private: u32,
    kept: HashMap<u64, Kept>,
    idle: BTreeMap<u64, u64>,
    tick: u64,
}

impl KvCache {
    pub(crate) fn new(total: u32, block_tokens: u32, keeps: bool) -> Self {
        Self { total, block_tokens, keeps, private: 0, kept: HashMap::new(), idle: BTreeMap::new(), tick: 0 }
    }

    /// Blocks used by several or by one through the prefix cache.
    pub(crate) fn shared_in_use(&self) -> u32 {
        (self.kept.len() - self.idle.len()) as u32
    }

    /// Leading blocks of the prompt that are kept. The last token is always computed.
    fn hits(&self, prompt: &Prompt) -> usize {
        let most = prompt.tokens.saturating_sub(1) / self.block_tokens;
        let candidates = prompt.blocks.iter().take(most as usize);
        candidates.take_while(|hash| self.kept.contains_key(hash)).count()
    }

    /// Takes blocks for a prompt and `output_tokens` more. Gives the lease and how many prompt
    /// tokens need not be computed, or nothing where it does not fit now.
    pub(crate) fn reserve(&mut self, prompt: &Prompt, output_tokens: u32) -> Option<(Lease, u32)> {
        let hits = self.hits(prompt);
        let whole = (prompt.tokens + output_tokens).div_ceil(self.block_tokens);
        let needed = whole - hits as u32;
        let is_idle = |hash: &&u64| self.kept.get(*hash).is_some_and(|kept| kept.users == 0);
        let woken = prompt.blocks[..hits].iter().filter(is_idle).count() as u32;
        if self.private + self.shared_in_use() + woken + needed > self.total {
            return None;
        }
        for hash in &prompt.blocks[..hits] {
            if let Some(kept) = self.kept.get_mut(hash) {
                if kept.users == 0 {
                    self.idle.remove(&kept.idle_since);
                }
                kept.users += 1;
            }
        }
        self.private += needed;
        while self.private as usize + self.kept.len() > self.total as usize {
            let Some((_, oldest)) = self.idle.pop_first() else {
                break;
            };
            self.kept.remove(&oldest);
        }
        let lease = Lease { shared: prompt.blocks[..hits].to_vec(), private: needed };
        Some((lease, hits as u32 * self.block_tokens))
    }

    /// The prompt is computed: its blocks may be reused from now on.
    pub(crate) fn publish(&mut self, lease: &mut Lease, prompt: &Prompt) {
        if !self.keeps {
            return;
        }
        for hash in &prompt.blocks[lease.shared.len()..] {
            if self.kept.contains_key(hash) {
                continue;
            }
            let kept = Kept { users: 1, idle_since: 0 };
            self.kept.insert(*hash, kept);
            lease.shared.push(*hash);
            lease.private -= 1;
            self.private -= 1;
        }
    }

    /// Gives everything back. Kept blocks stay until their room is needed, the end of a prompt
    /// going before its beginning.
    pub(crate) fn release(&mut self, lease: &Lease) {
        self.private -= lease.private;
        for hash in lease.shared.iter().rev() {
            if let Some(kept) = self.kept.get_mut(hash) {
                kept.users -= 1;
                if kept.users == 0 {
                    self.tick += 1;
                    kept.idle_since = self.tick;
                    self.idle.insert(self.tick, *hash);
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A prompt of `tokens` tokens whose blocks (of 4) continue `family`.
    fn prompt(family: u64, tokens: u32) -> Prompt {
        let blocks = (0..u64::from(tokens / 4)).map(|i| family * 1000 + i).collect();
        Prompt { tokens, blocks }
    }

    #[test]
    fn a_prompt_is_found_again_but_for_its_last_token() {
        let mut cache = KvCache::new(100, 4, true);
        for (tokens, cached_then) in [(8, 4), (9, 8), (3, 0)] {
            let prompt = prompt(u64::from(tokens), tokens);
            let (mut lease, cached) = cache.reserve(&prompt, 4).unwrap();
            assert_eq!(cached, 0);
            assert_eq!(cache.reserve(&prompt, 4).unwrap().1, 0, "not computed yet");
            cache.publish(&mut lease, &prompt);
            cache.release(&lease);
            assert_eq!(cache.reserve(&prompt, 4).unwrap().1, cached_then);
        }
    }

    #[test]
    fn the_least_recently_used_goes_first_and_from_its_end() {
        let mut cache = KvCache::new(6, 4, true);
        for family in [1, 2] {
            let prompt = prompt(family, 9);
            let (mut lease, _) = cache.reserve(&prompt, 3).unwrap();
            cache.publish(&mut lease, &prompt);
            cache.release(&lease);
        }
        // Four blocks are kept; three new ones need one of them.
        let (lease, _) = cache.reserve(&prompt(3, 9), 3).unwrap();
        cache.release(&lease);
        assert_eq!(cache.hits(&prompt(1, 9)), 1);
        assert_eq!(cache.hits(&prompt(2, 9)), 2);
    }

    #[test]
    fn without_a_prefix_cache_nothing_is_found() {
        let mut cache = KvCache::new(100, 4, false);
        let prompt = prompt(1, 9);
        let (mut lease, _) = cache.reserve(&prompt, 3).unwrap();
        cache.publish(&mut lease, &prompt);
        assert_eq!(cache.reserve(&prompt, 3).unwrap().1, 0);
    }

    proptest! {
        #[test]
        fn never_over_budget_and_all_comes_back(
            requests in proptest::collection::vec((0_u64..4, 1_u32..60, 1_u32..30, 0_usize..4), 1..80)
        ) {
            let mut cache = KvCache::new(30, 4, true);
            let mut held = Vec::new();
            for (family, tokens, output, release) in requests {
                let prompt = prompt(family, tokens);
                if let Some((mut lease, cached)) = cache.reserve(&prompt, output) {
                    prop_assert!(cached < tokens);
                    cache.publish(&mut lease, &prompt);
                    held.push(lease);
                }
                prop_assert!(cache.private as usize + cache.kept.len() <= 30);
                for _ in 0..release.min(held.len()) {
                    cache.release(&held.swap_remove(0));
                }
            }
            for lease in held {
                cache.release(&lease);
            }
            prop_assert_eq!(cache.private, 0);
            prop_assert_eq!(cache.shared_in_use(), 0);
            prop_assert!(cache.reserve(&prompt(9, 100), 20).is_some(), "all of it can be had");
        }
    }
}
