//! **barrier**: no shell leaves a barrier before every shell of the job has entered it. No shell is
//! refused at a barrier that another has left.

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

    /// Checks, at the end of the world, that each shell that was refused could be: its job has failed,
    /// or nobody has left the barrier. A second shell, which was started because nothing says any
    /// more that there was a first, begins with a barrier that the others have left.
    pub(super) fn check_refused(&mut self) {
        let mut seen = Vec::new();
        for (id, job) in &self.manager.jobs {
            let Some(digest) = job.allocation.as_ref().map(|allocation| &allocation.digest) else {
                continue;
            };
            if job.failed || self.messages.deceived.contains(id) {
                continue;
            }
            let shells = || self.ranks.iter().flat_map(|rank| rank.shells_of(digest).take(1));
            for refused in shells().filter(|shell| shell.refused) {
                let number = refused.entered;
                if let Some(other) = shells().find(|shell| shell.released >= number) {
                    let (unit, other) = (&refused.unit, &other.unit);
                    seen.push(format!(
                        "{unit} is refused at barrier {number}, which {other} has left"
                    ));
                }
            }
        }
        for seen in seen {
            self.violate("barrier", seen);
        }
    }
}
