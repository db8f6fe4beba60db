//! **only-ours**: a unit of another instance is never touched.

use crate::adapter::sim::rank::instance;
use crate::adapter::sim::world::World;
use crate::supervisor::tracker::Ask;

impl World {
    /// A call is about to be made to the systemd of a rank.
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
