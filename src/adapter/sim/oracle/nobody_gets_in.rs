//! **nobody-gets-in**: a guest does not reach another's job.

use crate::adapter::sim::world::World;

impl World {
    /// A request was answered.
    pub(in crate::adapter::sim) fn check_intruder(&mut self, number: u64, ok: bool) {
        if self.intruders.remove(&number) && ok {
            self.violate("nobody-gets-in", format!("request {number} of a guest succeeds"));
        }
    }
}
