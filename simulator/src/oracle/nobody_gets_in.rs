//! **nobody-gets-in**: a guest does not reach another's job.

use crate::world::World;

impl World {
    /// Checks the answer to a request: if a guest sent it as a fault, it must be refused.
    pub(crate) fn check_intruder(&mut self, number: u64, ok: bool) {
        if self.intruders.remove(&number) && ok {
            self.violate("nobody-gets-in", format!("request {number} of a guest succeeds"));
        }
    }
}
