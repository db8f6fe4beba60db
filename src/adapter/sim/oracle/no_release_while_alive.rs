//! **no-release-while-alive**: a rank is never released while a process of the job is left on
//! it, unless it was drained.

use crate::adapter::sim::manager::Allocation;
use crate::adapter::sim::shell::Shell;
use crate::adapter::sim::world::World;
use crate::proto::Idset;

impl World {
    pub(super) fn check_release(&mut self, job: &Allocation, ranks: &Idset) {
        for rank in ranks.iter() {
            let state = &self.ranks[rank as usize];
            let alive = state.shells_of(&job.digest).any(Shell::lives);
            if alive && !self.drained.contains(&(job.digest.clone(), rank)) {
                let seen = format!("{}: rank {rank} is released while its shell lives", job.id);
                self.violate("no-release-while-alive", seen);
            }
        }
    }
}
