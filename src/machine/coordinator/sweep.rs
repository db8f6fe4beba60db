//! Whose guest namespace has its turn.
//!
//! Shells write to their job's guest namespace without telling anybody. So checkpoints also take
//! the namespaces of running jobs in turn, a bounded number every [`PAUSE`].

use crate::machine::mono_time::MonoTime;
use crate::proto::JobId;

/// How often guest namespaces of running jobs are put into a checkpoint unasked, in seconds.
const PAUSE: f64 = 10.0;
/// How many of them at most.
const JOBS_MAX: usize = 512;

/// The turns of running jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sweep {
    /// When the next jobs have their turn, if there are any.
    due: Option<MonoTime>,
    /// The last one that had its turn.
    last: Option<JobId>,
}

impl Sweep {
    /// Jobs have their turn while there are any.
    pub(super) fn go_on_while(&mut self, now: MonoTime, are_jobs: bool) {
        self.due = are_jobs.then_some(self.due.unwrap_or(now + PAUSE));
    }

    pub(super) fn due(&self) -> Option<MonoTime> {
        self.due
    }

    /// Takes those of the running jobs whose turn it is.
    pub(super) fn take_due(
        &mut self,
        now: MonoTime,
        running: impl Iterator<Item = JobId> + Clone,
    ) -> Vec<JobId> {
        if self.due.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let after = running.clone().filter(|id| Some(*id) > self.last);
        let round = after.chain(running.filter(|id| Some(*id) <= self.last));
        let jobs: Vec<JobId> = round.take(JOBS_MAX).collect();
        self.last = jobs.last().copied();
        self.due = (!jobs.is_empty()).then_some(now + PAUSE);
        jobs
    }
}
