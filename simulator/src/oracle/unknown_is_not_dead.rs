//! **unknown-is-not-dead**: the shells of a rank that does not answer are not counted as exited
//! until the rank answers, its node has booted again, or `exec.peer-timeout` is over. After the
//! timeout the rank is drained. Until then a rank that is another release is no reason either to end
//! a job.

use job_exec_rs::proto::Exception;

use crate::manager::Allocation;
use crate::shell::Shell;
use crate::world::{OTHER_RELEASE, World};

impl World {
    /// Checks an exception.
    pub(super) fn check_refusal(&mut self, job: &Allocation, exception: &Exception) {
        let is_drained = |rank| self.drained.contains(&(job.digest.clone(), rank));
        if exception.note.contains(OTHER_RELEASE) && !job.ranks.iter().any(is_drained) {
            let seen = format!("{}: {}", job.id, exception.note);
            self.violate("unknown-is-not-dead", seen);
        }
    }

    /// Checks `finish`, which says that all shells have ended.
    pub(super) fn check_finished(&mut self, job: &Allocation) {
        for rank in job.ranks.iter() {
            let running = self.ranks[rank as usize].shells_of(&job.digest).any(Shell::runs);
            if running && !self.drained.contains(&(job.digest.clone(), rank)) {
                let seen =
                    format!("{}: finish is sent while the shell on rank {rank} runs", job.id);
                self.violate("unknown-is-not-dead", seen);
            }
        }
    }
}
