//! When each role of each job wants to be called again.

use std::collections::{BTreeMap, BTreeSet};

use crate::machine::event::StreamId;
use crate::machine::mono_time::MonoTime;
use crate::proto::JobId;

/// Who waits for a timer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Waiter {
    Agent(JobId),
    Checkpoint,
    Coordinator(JobId),
    Leader(JobId),
    /// The account of what was found after a restart.
    Ledger,
    /// A stream on which nothing has come yet.
    Stream(StreamId),
    /// systemd, which does not answer.
    Systemd,
}

/// Timers of all jobs, sorted, so that an event costs no more with many jobs than with one.
#[derive(Default)]
pub(super) struct Schedule {
    due: BTreeSet<(MonoTime, Waiter)>,
    at: BTreeMap<Waiter, MonoTime>,
}

impl Schedule {
    pub(super) fn set(&mut self, waiter: Waiter, at: Option<MonoTime>) {
        if let Some(old) = self.at.remove(&waiter) {
            self.due.remove(&(old, waiter));
        }
        if let Some(at) = at {
            self.at.insert(waiter, at);
            self.due.insert((at, waiter));
        }
    }

    pub(super) fn next(&self) -> Option<MonoTime> {
        self.due.first().map(|(at, _)| *at)
    }

    pub(super) fn due(&self, now: MonoTime) -> Vec<Waiter> {
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, waiter)| *waiter).collect()
    }
}
