//! Holds: a job in CLEANUP keeps its resources over a restart of rank 0.
//!
//! The job manager asks again only for jobs that run. A job in CLEANUP it frees at once when it
//! comes up, although its shells may still be there. An `epilog-start` in the job's eventlog keeps
//! it from that until the `epilog-finish` (flux-core `job-manager/event.c`). A job that comes to its
//! end between two checkpoints needs none: after a crash it runs again. So a hold is posted only for
//! a job that a checkpoint is going to have in CLEANUP, or that the module leaves behind when it is
//! unloaded. The checkpoint waits until the KVS has the holds, because the job manager commits its
//! events later than it answers. For the same reason it waits for the release of a job that has
//! ended without a hold: it would have that job in CLEANUP as well.

use std::collections::BTreeSet;

use crate::machine::effect::{Effect, Effects};
use crate::machine::mono_time::MonoTime;
use crate::proto::{JobEvent, JobId};

/// How long a checkpoint waits for holds, in seconds. It waits as long only if the job manager or the
/// KVS hangs. A KVS on a busy machine was seen to hang for more than 5 s.
const PATIENCE: f64 = 60.0;
/// How long a checkpoint that waits takes in further jobs, in seconds. Users who cancel one job after
/// the other do not keep it from beginning.
const JOINS: f64 = 1.0;

/// A job that the job manager has back.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Released {
    id: JobId,
    /// A checkpoint waits until the KVS has it.
    is_awaited: bool,
}

/// The jobs in CLEANUP.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Holds {
    /// Those that are not held.
    wanted: BTreeSet<JobId>,
    /// Those whose hold the KVS may not have yet.
    asked: BTreeSet<JobId>,
    held: BTreeSet<JobId>,
    /// The last job that has ended and whose release the KVS may not have yet. The job manager commits
    /// its events in order, so when the KVS has this one it has those of earlier jobs.
    released: Option<Released>,
    /// Until when a checkpoint waits.
    until: Option<MonoTime>,
}

impl Holds {
    /// This job is in CLEANUP.
    pub(super) fn want(&mut self, id: JobId) {
        if !self.asked.contains(&id) && !self.held.contains(&id) {
            self.wanted.insert(id);
        }
    }

    /// This job was held by an earlier coordinator.
    pub(super) fn find(&mut self, id: JobId) {
        self.held.insert(id);
    }

    /// Holds all jobs in CLEANUP.
    pub(super) fn ask(&mut self, out: &mut Effects) {
        for id in std::mem::take(&mut self.wanted) {
            out.push(Effect::Hold { id });
            self.asked.insert(id);
        }
    }

    /// Holds a job that has come to CLEANUP while a checkpoint waits: that one would have it.
    pub(super) fn join(&mut self, now: MonoTime, out: &mut Effects) {
        if self.until.is_some_and(|until| now < until + (JOINS - PATIENCE)) {
            self.ask(out);
        }
    }

    /// A checkpoint is about to begin. Returns whether it has to wait.
    pub(super) fn keep_waiting(&mut self, now: MonoTime, out: &mut Effects) -> bool {
        if self.until.is_none() {
            self.ask(out);
        }
        if let Some(released) = self.released.as_mut().filter(|released| !released.is_awaited) {
            released.is_awaited = true;
            out.push(Effect::AwaitRelease { id: released.id });
        }
        let until = *self.until.get_or_insert(now + PATIENCE);
        let waits = until > now && (!self.asked.is_empty() || self.released.is_some());
        if !waits {
            (self.until, self.released) = (None, None);
        }
        waits
    }

    /// No checkpoint waits any more.
    pub(super) fn stop_waiting(&mut self) {
        self.until = None;
    }

    /// A checkpoint waits.
    pub(super) fn is_waiting(&self) -> bool {
        self.until.is_some()
    }

    /// When a checkpoint waits no longer.
    pub(super) fn next_timeout(&self) -> Option<MonoTime> {
        self.until
    }

    /// A hold has ended. One that could not be made is not tried again: the job manager does not
    /// know the job.
    pub(super) fn handle_held(&mut self, id: JobId, is_held: bool) {
        if self.asked.remove(&id) && is_held {
            self.held.insert(id);
        }
    }

    /// The KVS has the release of this job, or will never have it: it does not know the job any more.
    pub(super) fn handle_release_kept(&mut self, id: JobId) {
        self.released = self.released.filter(|released| released.id != id);
    }

    /// The job manager has all ranks of this job back, and may free it.
    pub(super) fn end(&mut self, id: JobId, out: &mut Effects) {
        let is_held = self.held.contains(&id);
        if is_held || self.asked.contains(&id) {
            out.push(Effect::Post { id, event: JobEvent::EpilogFinish });
        }
        self.forget(id);
        if !is_held {
            self.released = Some(Released { id, is_awaited: false });
        }
    }

    /// This job is over, or runs again.
    pub(super) fn forget(&mut self, id: JobId) {
        self.wanted.remove(&id);
        self.asked.remove(&id);
        self.held.remove(&id);
        self.handle_release_kept(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_that_waits_takes_in_further_jobs_for_a_while() {
        let [first, second, late] = [1, 2, 3].map(JobId);
        let (mut holds, mut out) = (Holds::default(), Effects::default());
        holds.want(first);
        assert!(holds.keep_waiting(MonoTime(10.0), &mut out));
        holds.want(second);
        holds.join(MonoTime(10.9), &mut out);
        holds.want(late);
        holds.join(MonoTime(11.1), &mut out);
        assert_eq!(out.list, [first, second].map(|id| Effect::Hold { id }));
        holds.handle_held(first, true);
        assert!(holds.keep_waiting(MonoTime(12.0), &mut out));
        holds.handle_held(second, true);
        assert!(!holds.keep_waiting(MonoTime(13.0), &mut out));
        assert!(holds.keep_waiting(MonoTime(14.0), &mut out), "the third is the next one's");
    }
}
