//! Messages to an instance from other threads.

use std::sync::mpsc::Sender;

use job_exec_rs::port::supervisor::SupervisorEvent;
use job_exec_rs::proto::{BrokerRank, JobId};

/// A message from another thread.
#[derive(Debug)]
pub(super) enum Inward {
    /// Cancel a job, or all jobs.
    Cancel(Option<JobId>, String),
    /// Kill all processes of all jobs.
    Kill,
    /// Return from all waiting.
    Leave,
    /// A supervisor reports.
    Supervisor(BrokerRank, SupervisorEvent),
}

/// Controls an instance from another thread, or from its observer.
#[derive(Clone, Debug)]
pub struct Control(pub(super) Sender<Inward>);

impl Control {
    /// Raises a `cancel` exception on a job, or on all active jobs.
    pub fn cancel(&self, id: Option<JobId>, note: &str) {
        self.send(Inward::Cancel(id, note.to_string()));
    }

    /// Kills every process of every job at once.
    pub fn kill(&self) {
        self.send(Inward::Kill);
    }

    /// Makes [`wait`](super::Instance::wait) and [`stop`](super::Instance::stop) of the instance
    /// return, even if jobs still run.
    pub fn leave(&self) {
        self.send(Inward::Leave);
    }

    fn send(&self, inward: Inward) {
        // If the instance is gone, there is nothing to control.
        drop(self.0.send(inward));
    }
}
