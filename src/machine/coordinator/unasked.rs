//! Jobs that the job manager has, and has not asked for: it may ask yet, so nobody may end them.

use std::collections::BTreeSet;

use crate::machine::event::Listing;
use crate::proto::JobId;

/// What the job manager may still ask for, or this coordinator may still find in CLEANUP.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Unasked {
    /// Jobs in RUN that wait for their prolog. None: the job manager has not listed its jobs yet.
    waiting: Option<BTreeSet<JobId>>,
    /// Jobs in CLEANUP that are still being read, or cannot be read.
    unread: BTreeSet<JobId>,
}

impl Unasked {
    /// The job manager has asked for all jobs that ran, but for those that wait, and has listed all.
    pub(super) fn list(&mut self, listing: Listing, is_asked: impl Fn(&JobId) -> bool) {
        let Listing { run, cleanup } = listing;
        self.waiting = Some(run.into_iter().filter(|id| !is_asked(id)).collect());
        self.unread = cleanup.into_iter().collect();
    }

    /// Whether an earlier coordinator may have had this job started, which the job manager asks for
    /// now. It does not list as running what it allocates later.
    pub(super) fn may_have_run(&self, id: JobId) -> bool {
        self.waiting.as_ref().is_none_or(|waiting| waiting.contains(&id))
    }

    /// Whether this job is certainly none that the job manager will ask for.
    pub(super) fn leaves_out(&self, id: JobId) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| !waiting.contains(&id))
            && !self.unread.contains(&id)
    }

    /// The job manager has asked for this job.
    pub(super) fn ask(&mut self, id: JobId) {
        self.cancel(id);
        self.read(id);
    }

    /// A job that waits for its prolog is not asked for after a fatal exception.
    pub(super) fn cancel(&mut self, id: JobId) {
        self.waiting.as_mut().map(|waiting| waiting.remove(&id));
    }

    /// What there is to know about this job in CLEANUP is known.
    pub(super) fn read(&mut self, id: JobId) {
        self.unread.remove(&id);
    }
}
