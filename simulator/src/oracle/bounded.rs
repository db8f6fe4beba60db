//! **bounded**: nothing is kept for a job that is over, or for a request that nobody waits for.
//! Nothing is left of it in the KVS but its data.

use job_exec_rs::machine::Node;

use crate::world::World;

impl World {
    pub(super) fn check_memory(&mut self) {
        for rank in 0..self.ranks.len() {
            let left = self.ranks[rank].node.as_ref().map(Node::left_over).unwrap_or_default();
            if !left.is_empty() {
                self.violate("bounded", format!("rank {rank} still keeps {left}"));
            }
        }
        for id in self.kvs.stray_roots() {
            self.violate("bounded", format!("{id}: the KVS still has its guest-checkpoint"));
        }
        for id in self.kvs.stray_guests() {
            self.violate("bounded", format!("{id}: the KVS still has its guest namespace"));
        }
    }
}
