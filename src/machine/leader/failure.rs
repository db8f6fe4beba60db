//! The failure of a job.

use super::kill::Kill;
use crate::proto::WaitStatus;

/// A fatal exception in progress.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Failure {
    /// Status that the exception asks for.
    pub(super) wait_status: Option<WaitStatus>,
    /// It is that a shell has ended before the first barrier.
    pub(super) before_barrier: bool,
    /// The kill escalation, once shells may run.
    pub(super) kill: Option<Kill>,
}
