//! **only-ours**: a unit of another instance is never touched.

use crate::adapter::sim::rank::instance;
use crate::adapter::sim::world::World;
use crate::supervisor::tracker::Ask;

impl World {
    /// Checks a call to the systemd of a rank before it is made.
    pub(in crate::adapter::sim) fn check_ask(&mut self, rank: u32, ask: &Ask) {
        let strange = ask
            .call
            .unit()
            .filter(|unit| *unit.instance() != instance() || unit.rank().0 != rank)
            .cloned();
        if let Some(unit) = strange {
            self.violate("only-ours", format!("rank {rank} asks for {unit}: {ask:?}"));
        }
    }
}
