//! **no-release-while-alive**: a rank is never released while a process of the job is left on
//! it, unless it was drained before.

use job_exec_rs::proto::Idset;

use crate::manager::Allocation;
use crate::shell::Shell;
use crate::world::World;

impl World {
    pub(super) fn check_release(&mut self, job: &Allocation, ranks: &Idset) {
        let told = self.manager.jobs.get(&job.id).map(|job| job.told.clone()).unwrap_or_default();
        // A later leader may drain a rank again that was released before.
        for rank in ranks.iter().filter(|rank| !told.contains(*rank)) {
            let state = &self.ranks[rank as usize];
            let waits = self.undrained.get(&(job.digest.clone(), rank));
            if waits.is_some_and(|leader| self.is_alive(*leader)) {
                let seen = format!("{}: rank {rank} is released before it is drained", job.id);
                return self.violate("no-release-while-alive", seen);
            }
            let alive = state.shells_of(&job.digest).any(Shell::lives);
            if alive && !self.drain_answered.contains(&(job.digest.clone(), rank)) {
                let seen = format!("{}: rank {rank} is released while its shell lives", job.id);
                self.violate("no-release-while-alive", seen);
            }
        }
    }
}
