//! What an instance is told from other threads.

use std::sync::mpsc::Sender;

use crate::port::supervisor::UnitEvent;
use crate::proto::{BrokerRank, JobId};

/// What comes from other threads.
#[derive(Debug)]
pub(super) enum Inward {
    /// Cancel a job, or all.
    Cancel(Option<JobId>, String),
    /// Kill what runs.
    Kill,
    /// Wait for nothing any more.
    Leave,
    /// A supervisor reports.
    Unit(BrokerRank, UnitEvent),
}

/// Controls an instance from another thread, or from its observer.
#[derive(Clone, Debug)]
pub struct Control(pub(super) Sender<Inward>);

impl Control {
    /// Raises a `cancel` exception on a job, or on all that run.
    pub fn cancel(&self, id: Option<JobId>, note: &str) {
        self.send(Inward::Cancel(id, note.to_string()));
    }

    /// Kills every process of every job at once.
    pub fn kill(&self) {
        self.send(Inward::Kill);
    }

    /// Makes [`wait`](super::Instance::wait) and [`stop`](super::Instance::stop) of the instance
    /// return, whatever still runs.
    pub fn leave(&self) {
        self.send(Inward::Leave);
    }

    fn send(&self, inward: Inward) {
        // An instance that is gone has nothing left to control.
        drop(self.0.send(inward));
    }
}
