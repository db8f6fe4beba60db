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

    /// Who has left the barrier at which this shell is refused now. A second shell, which was started
    /// because nothing says any more that there was a first, begins with a barrier that the others
    /// have left.
    pub(in crate::adapter::sim) fn left_before(&self, id: ShellId) -> Option<String> {
        let shell = self.shell(id);
        let firsts = self.ranks.iter().flat_map(|rank| rank.shells_of(&shell.digest).take(1));
        let firsts: Vec<&Shell> = firsts.collect();
        let is_first = firsts.iter().any(|first| first.writer() == shell.writer());
        let other = firsts.into_iter().find(|other| other.released >= shell.entered);
        other.filter(|_| is_first).map(|other| other.unit.to_string())
    }

    /// Checks, at the end of the world, that each shell that was refused could be: its job has
    /// failed, or nobody had left the barrier.
    pub(super) fn check_refused(&mut self) {
        let mut seen = Vec::new();
        for (id, job) in &self.manager.jobs {
            let Some(allocation) = job.allocation.as_ref().filter(|_| !job.failed) else {
                continue;
            };
            if self.messages.deceived.contains(id) {
                continue;
            }
            for shell in self.ranks.iter().flat_map(|rank| rank.shells_of(&allocation.digest)) {
                if let Some(other) = &shell.refused_after {
                    let (unit, number) = (&shell.unit, shell.entered);
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
