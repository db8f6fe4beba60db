//! The failure of a job.

use super::kill::Kill;
use crate::proto::{EndReason, WaitStatus, WallTime};

/// A fatal exception in progress.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    /// The exception, for the records of the shells that are ended for it.
    pub(super) reason: EndReason,
    /// When it was raised, or this leader has heard of it.
    pub(super) since: WallTime,
    /// Status that the exception asks for.
    pub(super) wait_status: Option<WaitStatus>,
    /// It is that a shell has ended before the first barrier.
    pub(super) before_barrier: bool,
    /// The kill escalation, once shells may run.
    pub(super) kill: Option<Kill>,
}

impl Failure {
    pub(super) fn new(reason: EndReason, since: WallTime) -> Self {
        let wait_status = reason.wait_status.map(WaitStatus::to_shell_exit);
        Self { reason, since, wait_status, before_barrier: false, kill: None }
    }
}
