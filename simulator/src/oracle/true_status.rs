//! **true-status**: `finish` carries the largest wait status of the real shells, even if modules or
//! brokers were away when the shells exited. An exception can ask for another status.

use job_exec_rs::proto::{BrokerRank, Exception, WaitStatus};

use crate::manager::Allocation;
use crate::shell::Shell;
use crate::world::World;

impl World {
    /// Checks an exception that says that shells have not come through the first barrier. On a full
    /// disk a rank can lose how often its shell has entered. If nothing says any more that a shell
    /// has run, a second one begins with the first barrier.
    pub(super) fn check_early_end(&mut self, job: &Allocation, exception: &Exception) {
        let is_through = |rank: u32| {
            let state = &self.ranks[rank as usize];
            let mut shells = state.shells_of(&job.digest);
            let first = shells.next().is_some_and(|shell| shell.released > 0);
            first && shells.next().is_none() && !state.facts_lost
        };
        if exception.note.ends_with("terminated before first barrier")
            && job.ranks.iter().all(is_through)
            && !self.messages.deceived.contains(&job.id)
        {
            let seen = format!("{}: {}, but all shells came through it", job.id, exception.note);
            self.violate("true-status", seen);
        }
    }

    /// Checks an exception that says that a shell is lost. The shell must be lost, or must never
    /// have existed.
    pub(super) fn check_loss(&mut self, job: &Allocation, exception: &Exception) {
        let Some(rank) = lost_rank(&exception.note) else { return };
        let state = &self.ranks[rank as usize];
        // Without its record it is not known whether it was. A program that could not be executed
        // may be known to nobody who lives.
        if exception.note.ends_with(NO_TRACE)
            && state.shells_of(&job.digest).next().is_none()
            && !state.files_lost
            && !state.not_executed.contains(&job.digest)
        {
            let seen = format!("{}: {}, but it was never executed", job.id, exception.note);
            self.violate("true-status", seen);
        }
        let state = &self.ranks[rank as usize];
        // What was lost with its node may have been started again since, and the exception said again.
        let was_lost: Vec<bool> = state
            .shells_of(&job.digest)
            .map(|shell| shell.unit_lost || shell.record_damaged)
            .collect();
        let truly = was_lost.is_empty() || was_lost.contains(&true);
        if !truly && !self.drained.contains(&(job.digest.clone(), rank)) {
            let seen = format!("{}: {}, but the shell was not lost", job.id, exception.note);
            self.violate("true-status", seen);
        }
    }

    pub(super) fn check_status(&mut self, job: &Allocation, status: WaitStatus) {
        if self.manager.jobs.get(&job.id).is_none_or(|job| job.failed) {
            return;
        }
        // The last shell of each rank counts. A node that is powered off can lose the whole record of
        // a shell, which is then started again. If its status is in the exec eventlog it counts as well.
        let ranks = || job.ranks.iter().map(|rank| &self.ranks[rank as usize]);
        let shells = ranks().filter_map(|rank| rank.shells_of(&job.digest).last());
        let statuses: Vec<Option<WaitStatus>> = shells.map(|shell| shell.exited).collect();
        let truth = statuses.iter().flatten().max().copied().unwrap_or_default();
        let had = |shell: &Shell| shell.exited == Some(status);
        let may_be_logged =
            status > truth && ranks().any(|rank| rank.shells_of(&job.digest).any(had));
        if truth != status && !may_be_logged {
            let seen = format!(
                "{}: finish has {status}, the largest status of the shells is {truth}",
                job.id
            );
            self.violate("true-status", seen);
        } else if (statuses.len() < job.ranks.len() || statuses.contains(&None))
            // The job's user may have said that the job does without some shells.
            && !self.messages.deceived.contains(&job.id)
            && !job.ranks.iter().any(|rank| self.is_unheard(job, rank))
        {
            let seen = format!("{}: not all shells have exited, and no exception says so", job.id);
            self.violate("true-status", seen);
        }
    }
}

impl World {
    /// It was released, and systemd is silent there: its shell may not have exited, and the job does
    /// without it.
    fn is_unheard(&self, job: &Allocation, rank: u32) -> bool {
        let released = &self.manager.jobs[&job.id].released;
        released.contains_rank(BrokerRank(rank)) && self.was_silent(rank)
    }
}

/// Why a shell is lost that systemd does not know any more.
const NO_TRACE: &str = "no trace of it is left on the node";

/// The rank in `job shell lost on HOST (rank RANK): WHY`.
fn lost_rank(note: &str) -> Option<u32> {
    let (_, rest) = note.strip_prefix("job shell lost")?.split_once("(rank ")?;
    rest.split_once(')')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_names_its_rank() {
        assert_eq!(lost_rank("job shell lost on n3 (rank 3): node was rebooted"), Some(3));
        assert_eq!(lost_rank("node failure on n3 (rank 3)"), None);
    }
}
