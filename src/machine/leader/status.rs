//! The status of a job.

use super::failure::Failure;
use super::rank::Ranks;
use crate::proto::WaitStatus;

/// What is known of a job's status before all its shells have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Status {
    /// The largest one of shells that have ended, also of ranks that are not there any more.
    pub(super) largest: WaitStatus,
    /// What this leader has posted of it as `debug.status`.
    pub(super) logged: WaitStatus,
    /// The one that an earlier leader has told the job manager: it stays.
    pub(super) promised: Option<WaitStatus>,
    /// The one that is posted as `complete`, by an earlier leader or by the job's user.
    pub(super) posted: Option<WaitStatus>,
}

impl Status {
    /// A shell has ended with `status`.
    pub(super) fn add(&mut self, status: WaitStatus) {
        self.largest = self.largest.max(status);
    }

    /// All shells have ended. What was said stays. Else the shells are believed. The exec
    /// eventlog, which the job's user can write, is believed only where a shell's end was not
    /// seen, or did not count.
    pub(super) fn settle(&self, ranks: &Ranks, failure: Option<&Failure>) -> WaitStatus {
        let seen = ranks.largest_status().filter(|_| failure.is_none());
        if let Some(status) = self.promised.or(seen).or(self.posted) {
            return status;
        }
        match failure {
            Some(Failure { wait_status: Some(status), .. }) => *status,
            Some(_) if self.largest == WaitStatus::default() => WaitStatus::exited(1),
            _ => self.largest,
        }
    }
}
