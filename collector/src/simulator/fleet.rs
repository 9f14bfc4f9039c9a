//! One engine or several beside each other (data parallel), and what the truth keeps of them as a whole: how many
//! requests ran and waited at any time, and every decode step. Pure like the engine.

use super::counters::{Counters, Gauges};
use super::engine::{Arrival, Emission, Engine, Occupied};
use super::history::History;
use super::model::Settings;
use super::tokens::mix;

#[derive(Debug)]
pub(crate) struct Fleet {
    engines: Vec<Engine>,
    /// Requests that wait do so unseen.
    hides_waiting: bool,
    pub(crate) history: History,
}

impl Fleet {
    pub(crate) fn new(settings: &Settings) -> Self {
        let engine = |at: u32| {
            let seed = if at == 0 { settings.seed } else { mix(settings.seed ^ mix(u64::from(at) ^ 0xd9)) };
            Engine::new(Settings { seed, ..settings.clone() })
        };
        let engines = (0..settings.data_parallel).map(engine).collect();
        Self { engines, hides_waiting: settings.quirks.serial, history: History::default() }
    }

    pub(crate) fn overhead_ns(&self) -> u64 {
        self.engines.first().map_or(0, Engine::overhead_ns)
    }

    /// Takes a request in, at the engine that has the fewest, and says which one that is.
    pub(crate) fn arrive(&mut self, arrival: Arrival, now_ns: u64) -> u32 {
        let least = self.engines.iter_mut().enumerate().min_by_key(|(at, engine)| (engine.requests(), *at));
        let at = least.map_or(0, |(at, engine)| {
            engine.arrive(arrival);
            at as u32
        });
        self.watch(now_ns);
        at
    }

    pub(crate) fn cancel(&mut self, key: u64, now_ns: u64) {
        self.engines.iter_mut().for_each(|engine| engine.cancel(key, now_ns));
        self.watch(now_ns);
    }

    pub(crate) fn next_due(&self) -> Option<u64> {
        self.engines.iter().filter_map(Engine::next_due).min()
    }

    /// Does the one thing that is due next, if it is due by `now_ns`. Says whether there was one.
    pub(crate) fn advance(&mut self, now_ns: u64, out: &mut Vec<Emission>) -> bool {
        let next = self.engines.iter_mut().enumerate().filter_map(|(at, engine)| Some((engine.next_due()?, at, engine)));
        let Some((_, at, engine)) = next.min_by_key(|(due, at, _)| (*due, *at)) else {
            return false;
        };
        let did = engine.advance(now_ns, out);
        if let Some(step) = engine.take_step() {
            self.history.step(at as u32, step);
        }
        if did {
            self.watch(now_ns);
        }
        did
    }

    fn watch(&mut self, now_ns: u64) {
        let (running, waiting) = self.load();
        self.history.load(now_ns, running, waiting);
    }

    fn load(&self) -> (u32, u32) {
        let add = |sum: (u32, u32), engine: &Engine| (sum.0 + engine.running() as u32, sum.1 + engine.waiting() as u32);
        self.engines.iter().fold((0, 0), add)
    }

    /// Forgets what was, but for what is now.
    pub(crate) fn forget(&mut self, now_ns: u64) {
        self.history = History::default();
        self.watch(now_ns);
    }

    /// What each engine tells of itself.
    pub(crate) fn told(&self) -> Vec<(Counters, Gauges)> {
        let gauges = |engine: &Engine| {
            let gauges = engine.gauges();
            if self.hides_waiting { Gauges { waiting: 0, ..gauges } } else { gauges }
        };
        self.engines.iter().map(|engine| (engine.counters().clone(), gauges(engine))).collect()
    }

    pub(crate) fn occupied(&self) -> Vec<Occupied> {
        self.engines.iter().flat_map(Engine::occupied).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::tokens::Prompt;
    use super::*;

    fn arrival(key: u64) -> Arrival {
        Arrival { key, received_ns: 0, prompt: Prompt { tokens: 10, blocks: Vec::new() }, max_output: 20, ignore_eos: true }
    }

    #[test]
    fn requests_go_where_the_fewest_are_and_every_engine_counts_its_own() {
        let mut fleet = Fleet::new(&Settings { data_parallel: 3, spec_accept: vec![0.6], ..Settings::default() });
        let at: Vec<u32> = (0..7).map(|key| fleet.arrive(arrival(key), 0)).collect();
        assert_eq!(at, [0, 1, 2, 0, 1, 2, 0]);
        let mut out = Vec::new();
        while fleet.advance(u64::MAX, &mut out) {}
        let counted: Vec<u64> = fleet.told().iter().map(|(counters, _)| counters.generation_tokens).collect();
        assert_eq!(counted, [60, 40, 40]);
        let steps = &fleet.history.truth(0).steps;
        assert_eq!(steps.tokens.iter().sum::<u32>(), 140 - 7, "the first tokens come with the prompts");
        let drafts: u64 = fleet.told().iter().map(|(counters, _)| counters.drafts).sum();
        let accepted: u64 = fleet.told().iter().map(|(counters, _)| counters.accepted_tokens).sum();
        assert_eq!(u64::from(steps.drafts.iter().sum::<u32>()), drafts);
        assert_eq!(u64::from(steps.accepted.iter().sum::<u32>()), accepted);
    }

    #[test]
    fn the_history_tells_how_many_ran_and_waited() {
        let mut fleet = Fleet::new(&Settings { slots: 1, ..Settings::default() });
        fleet.arrive(arrival(1), 5);
        fleet.arrive(arrival(2), 6);
        fleet.cancel(2, 7);
        let load = fleet.history.truth(0).load;
        assert_eq!((load.at_ns, load.running, load.waiting), (vec![5, 6, 7], vec![1, 1, 1], vec![0, 1, 0]));
        let since = fleet.history.truth(7).load;
        assert_eq!(since.at_ns, [6, 7], "with what held at that instant");
        fleet.forget(9);
        assert_eq!(fleet.history.truth(0).load.at_ns, [9]);
    }

    #[test]
    fn a_serial_server_runs_one_and_tells_of_none_that_waits() {
        let quirks = super::super::Quirks { serial: true, ..Default::default() };
        let mut fleet = Fleet::new(&Settings { quirks, ..Settings::default() });
        (0..3).for_each(|key| {
            fleet.arrive(arrival(key), key);
        });
        let mut out = Vec::new();
        let mut most = 0;
        while fleet.advance(u64::MAX, &mut out) {
            let gauges = fleet.told()[0].1;
            most = most.max(gauges.running);
            assert_eq!(gauges.waiting, 0);
        }
        assert_eq!(most, 1);
        let order: Vec<u64> = out.iter().map(|emission| emission.key).collect();
        assert!(order.is_sorted(), "one after the other");
        assert_eq!(fleet.history.truth(0).load.waiting.iter().max(), Some(&2), "the truth knows them");
    }
}
