//! **usage-kept**: what a job has used is said of each rank whose shell has ended, once, and as the
//! kernel has counted it for that shell. Of other ranks there is a reason.

use job_exec_rs::proto::{JobId, JobUsage};

use crate::world::World;

impl World {
    /// Checks what is put beside a job.
    pub(crate) fn check_usage(&mut self, id: JobId, usage: Option<&JobUsage>) {
        let Some(job) = self.manager.jobs.get(&id).and_then(|job| job.allocation.clone()) else {
            return;
        };
        let mut seen = Vec::new();
        let Some(usage) = usage else { return };
        self.check_oom_usage(id, &job.digest, usage);
        for (rank, memory) in usage.ranks.ranks().zip(&usage.memory) {
            let shells = self.ranks[rank.0 as usize].shells_of(&job.digest);
            let counted: Vec<Option<u64>> =
                shells.map(|shell| u64::from_str_radix(&shell.invocation, 16).ok()).collect();
            // Where the program could not be executed, what systemd has forked was counted, and nothing
            // where systemd has forgotten the start.
            let is_none = counted.is_empty()
                && (*memory == Some(0)
                    || self.ranks[rank.0 as usize].not_executed.contains(&job.digest));
            if !counted.contains(memory) && !is_none {
                seen.push(format!("{id}: rank {rank} has {memory:?}, counted was {counted:?}"));
            }
        }
        for (rank, why) in &usage.unknown {
            let state = &self.ranks[rank.0 as usize];
            let last = state.shells_of(&job.digest).last();
            let is_seen = last
                .is_some_and(|shell| !shell.lives() && !shell.unit_lost && !shell.record_damaged);
            if is_seen && why == "not measured" && !state.facts_lost && !state.files_lost {
                seen.push(format!("{id}: usage of rank {rank}: {why}"));
            }
        }
        for seen in seen {
            self.violate("usage-kept", seen);
        }
    }
}
