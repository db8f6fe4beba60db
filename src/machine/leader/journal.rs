//! The leader's part of the guest namespace: the exec eventlog, and how much of it a checkpoint
//! holds.

use super::cover::Cover;
use super::exec_log::ExecLog;
use crate::proto::{ExecEvent, JobDigest};

/// The guest namespace, once it is open.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Journal {
    /// Which of the job's leaders writes it, counted from 1. 0: it is not open.
    pub(super) generation: u64,
    pub(super) log: ExecLog,
    pub(super) cover: Cover,
    pub(super) link: GuestLink,
    /// Nothing is posted: it is not open, or `done` was posted by this leader or an earlier one.
    pub(super) is_closed: bool,
}

/// The link `guest` in the job's directory of the primary namespace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum GuestLink {
    /// It was asked for. The job is not said to have started before the answer.
    Awaited,
    /// It is there, or the job goes on to its end without it.
    Settled,
}

impl Journal {
    /// Of the leader of this generation.
    pub(super) fn new(
        generation: u64,
        link: GuestLink,
        is_closed: bool,
        run: Option<JobDigest>,
    ) -> Self {
        let (log, cover) = (ExecLog::of_run(run), Cover::new(generation));
        Self { generation, log, cover, link, is_closed }
    }

    pub(super) fn is_open(&self) -> bool {
        self.generation > 0
    }

    /// Posts an event, if it can be.
    pub(super) fn post(&mut self, event: ExecEvent) {
        if !self.is_closed {
            self.log.post(event);
        }
    }
}

impl Default for Journal {
    /// It is not open.
    fn default() -> Self {
        Self::new(0, GuestLink::Settled, true, None)
    }
}
