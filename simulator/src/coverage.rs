//! Which inputs the roles met in which states: so that "no failure" can be believed.

use std::collections::BTreeMap;

use job_exec_rs::machine::{Event, Node, Now, Pair, all_pairs};

use super::Violation;

/// How often a role in a state met an input.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    met: BTreeMap<Pair, u64>,
    /// When a pair was met first that cannot occur, and the event.
    strange: BTreeMap<Pair, String>,
}

impl Coverage {
    /// A node is about to handle an event.
    pub(super) fn meet(&mut self, node: &Node, now: Now, event: &Event) {
        for pair in node.pairs(now, event) {
            if self.times(&pair) == 0 && pair.impossible().is_some() {
                let (at, rank) = (now.mono.0, node.facts().rank);
                self.strange.insert(pair, format!(" ({at:.6}, rank {rank}: {event:?})"));
            }
            self.count(pair);
        }
    }

    fn count(&mut self, pair: Pair) {
        *self.met.entry(pair).or_default() += 1;
    }

    /// Adds what another world has met.
    pub fn add(&mut self, other: &Self) {
        for (pair, times) in &other.met {
            *self.met.entry(*pair).or_default() += times;
        }
    }

    fn times(&self, pair: &Pair) -> u64 {
        self.met.get(pair).copied().unwrap_or(0)
    }

    /// Every possible pair, and how often it was met.
    pub fn possible(&self) -> Vec<(Pair, u64)> {
        let pairs = all_pairs().filter(|pair| pair.impossible().is_none());
        pairs.map(|pair| (pair, self.times(&pair))).collect()
    }

    /// Every impossible pair, and why it is.
    pub fn impossible(&self) -> Vec<(Pair, &'static str)> {
        all_pairs().filter_map(|pair| Some((pair, pair.impossible()?))).collect()
    }

    /// A pair that was met although the table says that it cannot occur, or does not have it.
    pub fn violation(&self) -> Option<Violation> {
        self.met.keys().find_map(|pair| {
            let why = match pair.impossible() {
                Some(why) => why,
                None if all_pairs().any(|known| known == *pair) => return None,
                None => "it is not in the table",
            };
            let seen = format!("{} {}: {why}", pair.position.machine.name(), pair.position.state);
            let at = self.strange.get(pair).map_or("", String::as_str);
            let seen = format!("{} met in {seen}{at}", pair.input.name());
            Some(Violation { invariant: "table", seen })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use job_exec_rs::machine::{Input, Machine, Position};

    fn met(state: &'static str, input: Input) -> Coverage {
        let mut coverage = Coverage::default();
        coverage.count(Pair { position: Position { machine: Machine::Leader, state }, input });
        coverage
    }

    #[test]
    fn a_pair_that_cannot_occur_is_a_violation_when_it_does() {
        assert_eq!(Coverage::default().violation(), None);
        assert_eq!(met("launching", Input::Linked).violation(), None);
        for coverage in [met("opening", Input::Linked), met("dreaming", Input::Linked)] {
            let violation = coverage.violation().expect("a violation");
            assert_eq!(violation.invariant, "table");
            assert!(violation.seen.starts_with("linked met in leader "), "{violation}");
        }
        assert!(met("running", Input::Output).violation().is_some(), "not an input of a leader");
    }

    #[test]
    fn every_pair_is_listed_once() {
        let coverage = met("launching", Input::Linked);
        let (possible, impossible) = (coverage.possible(), coverage.impossible());
        assert_eq!(possible.len() + impossible.len(), all_pairs().count());
        assert_eq!(possible.iter().map(|(_, times)| times).sum::<u64>(), 1);
    }
}
