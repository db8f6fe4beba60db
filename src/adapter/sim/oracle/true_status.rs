//! **true-status**: `finish` carries the largest wait status of the real shells, whoever was away
//! when they exited, unless an exception asks for another.

use crate::adapter::sim::manager::Allocation;
use crate::adapter::sim::world::World;
use crate::proto::WaitStatus;

impl World {
    pub(super) fn check_status(&mut self, job: &Allocation, status: WaitStatus) {
        if self.manager.jobs.get(&job.id).is_none_or(|job| job.failed) {
            return;
        }
        // The last one of each rank: a node that is powered off can take all that there was of
        // an earlier one, and then it is started again.
        let ranks = job.ranks.iter();
        let shells =
            ranks.filter_map(|rank| self.ranks[rank as usize].shells_of(&job.digest).last());
        let statuses: Vec<Option<WaitStatus>> = shells.map(|shell| shell.exited).collect();
        let truth = statuses.iter().flatten().max().copied().unwrap_or_default();
        if truth != status {
            let seen = format!("{}: finish says {status}, the shells {truth}", job.id);
            self.violate("true-status", seen);
        } else if statuses.len() < job.ranks.len() || statuses.contains(&None) {
            let seen = format!("{}: not all shells have exited, and no exception says so", job.id);
            self.violate("true-status", seen);
        }
    }
}
