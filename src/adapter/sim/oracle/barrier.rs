//! **barrier**: no shell leaves a barrier before every shell of the job has entered it.

use crate::adapter::sim::shell::{Shell, ShellId};
use crate::adapter::sim::world::World;

impl World {
    /// Checks that a shell may leave its barrier of this number.
    pub(in crate::adapter::sim) fn check_barrier(&mut self, id: ShellId, number: u32) {
        let Shell { unit, digest, .. } = self.shell(id).clone();
        if self.messages.deceived.contains(&unit.job()) {
            return;
        }
        let has_entered = |rank: &u32| {
            let mut shells = self.ranks[*rank as usize].shells_of(&digest);
            shells.any(|shell| shell.entered >= number)
        };
        if let Some(rank) = self.ranks_of(&digest).iter().find(|rank| !has_entered(rank)) {
            let seen = format!("{unit} leaves barrier {number}, which rank {rank} has not entered");
            self.violate("barrier", seen);
        }
    }
}
