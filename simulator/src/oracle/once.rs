//! **once**: at most one shell of a job lives on a rank at a time, and a shell that was started
//! is never started a second time for the same job. No shell of a job is started on a rank that the
//! job manager has back, as far as the service knows.

use job_exec_rs::proto::BrokerRank;

use crate::shell::Shell;
use crate::world::World;

/// Seconds that an order to start a shell is on its way, from the leader to systemd.
const ON_ITS_WAY: f64 = 0.1;

impl World {
    /// Checks a shell that was executed just now.
    pub(crate) fn check_once(&mut self, rank: u32, index: usize) {
        let state = &self.ranks[rank as usize];
        let shell = &state.shells[index];
        let (id, unit) = (shell.unit.job(), shell.unit.clone());
        let others = || state.shells.iter().take(index);
        // The other shell may belong to another allocation of the job, or to another job with the
        // same id.
        let alive = others().any(|other| other.unit.job() == id && other.runs());
        // A node that is powered off may lose the whole record of a shell. Such a shell may be
        // started again, unless the job manager knew, when that was decided, that the job has started.
        let now = self.now;
        let is_started = self.manager.jobs.get(&id).is_some_and(|job| {
            job.started_at.is_some_and(|at| at + ON_ITS_WAY < now)
                && job.allocation.as_ref().is_some_and(|its| its.digest == shell.digest)
        });
        let counts = |other: &Shell| is_started || !other.record_damaged;
        // A rank that was given up on is drained before it is released, and may start its shell late.
        let is_back = self.manager.jobs.get(&id).is_some_and(|job| {
            job.told.contains_rank(BrokerRank(rank))
                && job.allocation.as_ref().is_some_and(|its| its.digest == shell.digest)
                && !self.drained.contains(&(shell.digest.clone(), rank))
        });
        let again = others().any(|other| other.digest == shell.digest && counts(other));
        if alive {
            self.violate("once", format!("{unit} runs while another shell of {id} does"));
        } else if again {
            self.violate("once", format!("{unit} is started a second time"));
        } else if is_back {
            self.violate("once", format!("{unit} is started on a rank that was released"));
        }
    }
}
