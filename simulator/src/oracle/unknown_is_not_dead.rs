//! **unknown-is-not-dead**: the shells of a rank that does not answer are not counted as exited
//! until the rank answers, its node has booted again, or `exec.peer-timeout` is over. After the
//! timeout the rank is drained. Until then a rank that is another release is no reason either to end
//! a job. A rank is given up only if it did not answer when it was asked last.

use job_exec_rs::proto::peer::LeadRequest;
use job_exec_rs::proto::{Exception, Idset, JobDigest};

use crate::manager::Allocation;
use crate::shell::Shell;
use crate::world::{OTHER_RELEASE, World};

/// How long a rank that was asked last may have been back when it is given up, in seconds: the pause
/// between two tries, and the time after which it is asked whether it has got the request.
const BACK_MAX: f64 = 30.0;

impl World {
    /// Checks the ranks on which the coordinator has given up before it asks another one to lead.
    pub(crate) fn check_leaders_given_up(&mut self, lead: &LeadRequest) {
        let digest = JobDigest::new(lead.start.id, lead.start.userid, &lead.start.r).to_string();
        for rank in lead.lost.iter() {
            if self.given_up.insert((digest.clone(), rank)) {
                self.check_unheard(0, rank);
            }
        }
    }

    /// Checks the ranks that a leader drains because it has given up on them. Some the coordinator has
    /// named, perhaps long ago. Rank 0 leads the jobs of others only if that has named all.
    pub(crate) fn check_given_up(&mut self, leader: u32, ranks: &Idset, digests: &[String]) {
        for rank in ranks.iter() {
            let is_named = |digest: &String| {
                let job = self.allocations.get(digest);
                let is_last = leader == 0 && job.is_none_or(|job| job.ranks.first() != Some(0));
                is_last || self.given_up.contains(&(digest.clone(), rank))
            };
            if !digests.iter().any(is_named) {
                self.check_unheard(leader, rank);
            }
        }
    }

    fn check_unheard(&mut self, asker: u32, rank: u32) {
        let (own, other) = (&self.ranks[asker as usize], &self.ranks[rank as usize]);
        let since = own.ready_at.max(other.ready_at).max(other.stalled_until);
        let is_back = other.node.is_some() && !self.are_different(asker, rank);
        if is_back && self.now - since > BACK_MAX {
            let seen = format!("rank {asker} gives up on rank {rank}, which would answer");
            self.violate("unknown-is-not-dead", seen);
        }
    }

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
