//! Which inputs the roles met in which states: so that "no failure" can be believed.

use std::collections::BTreeMap;

use crate::machine::{Event, Node, Now, Position, ROLES};

/// How often a role in a state met an input.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    met: BTreeMap<(Position, &'static str), u64>,
}

impl Coverage {
    /// A node is about to handle an event.
    pub(super) fn met(&mut self, node: &Node, now: Now, event: &Event) {
        let name = event.name();
        for position in node.positions(now, event) {
            *self.met.entry((position, name)).or_default() += 1;
        }
    }

    /// Adds what another world has met.
    pub fn add(&mut self, other: &Self) {
        for (pair, times) in &other.met {
            *self.met.entry(*pair).or_default() += times;
        }
    }

    /// Every pair there could be, and how often it was met.
    pub fn table(&self) -> Vec<(Position, &'static str, u64)> {
        let mut table = Vec::new();
        for (role, states, inputs) in ROLES {
            for state in states {
                let position = Position { role, state };
                for input in inputs {
                    let times = self.met.get(&(position, input)).copied().unwrap_or(0);
                    table.push((position, *input, times));
                }
            }
        }
        table
    }
}
