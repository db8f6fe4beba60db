//! Oracles: each file checks an invariant of `rfc/0001-scope.md`, and begins with its clause. An
//! oracle sees the real state of the world (shells, disks, systemd), the responses to the job
//! manager and the contents of the KVS. Of the machines it sees only their effects.

mod always_an_end;
mod barrier;
mod bounded;
mod channel_once;
mod commit_once;
mod drained_for_cause;
mod epilog_follows;
mod no_orphan;
mod no_release_while_alive;
mod nobody_gets_in;
mod nothing_lost;
mod once;
mod only_ours;
mod oom_told;
mod prologs_first;
mod reason_outlives;
mod released_once;
mod script_told;
mod silence_told;
mod true_status;
mod unknown_is_not_dead;
mod usage_kept;
mod waiting_kept;

use job_exec_rs::proto::{JobId, ReleasedRanks, Response};

use super::world::World;

impl World {
    /// Checks a response to the job manager: it must be true, and in order.
    pub(super) fn check_response(&mut self, id: JobId, response: &Response) {
        let allocation = self.manager.jobs.get(&id).and_then(|job| job.allocation.clone());
        if let Some(job) = allocation {
            match response {
                Response::Finish { status } => {
                    self.check_status(&job, *status);
                    self.check_finished(&job);
                }
                Response::Release { ranks, is_final } => {
                    self.check_told(id, ranks);
                    if *is_final {
                        self.check_reason(&job);
                    }
                    let ranks = match ranks {
                        ReleasedRanks::These(ranks) if !is_final => ranks.clone(),
                        ReleasedRanks::All | ReleasedRanks::These(_) => job.ranks.clone(),
                    };
                    self.check_release(&job, &ranks);
                    self.check_epilogs(&job, &ranks);
                }
                Response::Exception(exception) => {
                    self.check_loss(&job, exception);
                    self.check_early_end(&job, exception);
                    self.check_refusal(&job, exception);
                    self.check_oom(&job, exception);
                }
                Response::Reattached {} | Response::Start {} => (),
            }
        }
        self.check_order(id, response);
    }

    /// Checks the end of the world: faults are over, and all jobs had time to end.
    pub(super) fn check_end(&mut self) {
        self.check_refused();
        self.check_talks();
        self.check_jobs();
        self.check_units();
        self.check_all_epilogs();
        self.check_memory();
        self.check_answers();
    }
}
