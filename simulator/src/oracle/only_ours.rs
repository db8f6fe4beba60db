//! **only-ours**: a unit of another instance is never touched.

use job_exec_rs::supervisor::tracker::Ask;

use crate::rank::instance;
use crate::world::World;

impl World {
    /// Checks a call to the systemd of a rank before it is made.
    pub(crate) fn check_ask(&mut self, rank: u32, ask: &Ask) {
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
