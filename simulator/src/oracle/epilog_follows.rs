//! **epilog-follows**: a rank on which a prolog or a shell was begun gets its epilog, and not before
//! these have ended. **released-behind**: the rank is not released before its epilog has ended, or is
//! stuck, or the owner has released it. **failed-unled**: the rank of an epilog that has failed, or was
//! lost with its node, is drained, also if nobody led the job. Exempt are ranks whose records were lost, or whose disk did
//! not take them, and scripts that could not be executed.

use job_exec_rs::proto::{Idset, Place, Stage, UnitName, WaitStatus};

use crate::manager::Allocation;
use crate::rank::Rank;
use crate::script::Script;
use crate::shell::Shell;
use crate::world::World;

impl World {
    /// Checks an epilog that was executed just now.
    pub(super) fn check_epilog(&mut self, rank: u32, digest: &str, unit: &UnitName) {
        let state = &self.ranks[rank as usize];
        let prolog = state.scripts.iter().any(|s| s.is(Stage::Prolog, digest) && s.runs());
        if prolog || state.shells_of(digest).any(Shell::lives) {
            let what = if prolog { "prolog" } else { "shell" };
            self.violate("epilog-follows", format!("{unit} runs while a {what} of its job does"));
        }
    }

    /// Checks a release.
    pub(super) fn check_epilogs(&mut self, job: &Allocation, released: &Idset) {
        let is_over = |script: &Script| script.exited.is_some() || script.lost_with_manager;
        for rank in self.ranks_due(&job.digest).intersection(released).iter() {
            let has_epilog = self.epilogs(rank, &job.digest).any(is_over);
            let key = (job.digest.clone(), rank);
            let is_given_up = self.drained.contains(&key)
                || self.drained_for_script.contains(&key)
                || self.messages.released.contains(&job.id);
            if !is_given_up && !has_epilog {
                let seen = format!("{}: rank {rank} is released before its epilog ends", job.id);
                self.violate("released-behind", seen);
            }
        }
    }

    /// Checks all jobs, at the end of the world.
    pub(super) fn check_all_epilogs(&mut self) {
        let digests: Vec<String> = self.allocations.keys().cloned().collect();
        for digest in digests {
            let due = self.ranks_due(&digest);
            // It may have been lost with its node before it was executed. That is told by a drain, if
            // the rank was not drained for the job before.
            let is_drained = |rank: u32| {
                let key = (digest.clone(), rank);
                self.drained_for_script.contains(&key) || self.drained.contains(&key)
            };
            let has_epilog = |rank: u32| self.epilogs(rank, &digest).next().is_some();
            let missing = due.iter().find(|rank| !has_epilog(*rank) && !is_drained(*rank));
            if let Some(rank) = missing {
                let id = self.allocations[&digest].id;
                self.violate("epilog-follows", format!("{id}: rank {rank} never got its epilog"));
            }
            if let Some(rank) = due.iter().find(|rank| self.lacks_drain(*rank, &digest)) {
                let id = self.allocations[&digest].id;
                let seen = format!("{id}: rank {rank} is not drained, and its epilog has failed");
                self.violate("failed-unled", seen);
            }
        }
    }

    /// No epilog has ended well there, and the rank is not drained for that.
    fn lacks_drain(&self, rank: u32, digest: &str) -> bool {
        let key = (digest.to_string(), rank);
        let is_well = |script: &Script| script.exited == Some(WaitStatus(0));
        let epilog = self.site.as_ref().and_then(|site| site.epilog.as_ref());
        // One that was cancelled has not failed.
        epilog.is_some_and(|epilog| epilog.per_rank && !epilog.cancel_on_exception)
            && !self.epilogs(rank, digest).any(is_well)
            && !self.drained_for_script.contains(&key)
            && !self.drained.contains(&key)
            && !self.messages.released.contains(&self.allocations[digest].id)
    }

    fn epilogs(&self, rank: u32, digest: &str) -> impl Iterator<Item = &Script> {
        let scripts = self.ranks[rank as usize].scripts.iter();
        scripts.filter(move |script| script.is(Stage::Epilog, digest))
    }

    /// The ranks on which something was begun that an epilog follows.
    fn ranks_due(&self, digest: &str) -> Idset {
        let is_due = |rank: &u32| {
            let Rank { scripts, managers, disk_was_full, scripts_not_executed, .. } =
                &self.ranks[*rank as usize];
            // It can have been lost with its node. Of one for the whole job no rank is drained.
            let is_lost = *managers > 0 && self.place_of(Stage::Epilog) == Some(Place::FirstRank);
            let is_exempt = is_lost
                || *disk_was_full
                || self.unrecorded.contains(&(digest.to_string(), *rank))
                || scripts_not_executed.contains(digest);
            let begun = scripts.iter().any(|script| script.is(Stage::Prolog, digest))
                || self.ranks[*rank as usize].shells_of(digest).next().is_some();
            begun && !is_exempt
        };
        self.ranks_with(Stage::Epilog, digest).iter().filter(is_due).collect()
    }
}
