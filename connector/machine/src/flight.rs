//! A request of the client that waits for its answer.

use crate::errnum::{NO_DATA, NO_ENTRY, NO_HOST, NO_NAMESPACE, NO_SERVICE};
use crate::policy::Policy;
use crate::watch::Seen;

/// A request that was sent, or will be sent when the broker is back.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Flight<P> {
    /// The request as it is sent.
    pub(crate) request: P,
    pub(crate) policy: Policy,
    /// Position in the order in which the client sent its requests; they are repeated in it.
    pub(crate) order: u64,
    /// Which answers of a watch the client has had.
    pub(crate) seen: Option<Seen>,
    /// The client has cancelled the watch.
    pub(crate) is_cancelled: bool,
    /// The namespace of a commit that a ledger has.
    pub(crate) commit: Option<String>,
    /// An error that a shutdown of the broker may have caused. It is held back until the broker has
    /// said whether it is in RUN.
    pub(crate) held_back: Option<P>,
    /// The broker has refused it, because it is only just starting.
    pub(crate) is_early: bool,
    /// Set after a restart of the broker, when services may not be ready yet.
    pub(crate) again: Option<Again>,
}

/// How a request is repeated that finds its service not ready.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Again {
    /// Until this time, an error such as "no such namespace" leads to another attempt.
    pub(crate) until: f64,
    /// When to ask again.
    pub(crate) retry_at: Option<f64>,
    pub(crate) tries: u32,
    /// It was first sent before the broker was lost, when its service existed.
    pub(crate) was_asked: bool,
    /// A log has ended, and was asked for again because of that.
    pub(crate) is_end_doubted: bool,
}

impl Again {
    pub(crate) fn new(until: f64, was_asked: bool) -> Self {
        Self { until, retry_at: None, tries: 0, was_asked, is_end_doubted: false }
    }
}

impl<P> Flight<P> {
    pub(crate) fn new(request: P, policy: Policy, order: u64) -> Self {
        Self {
            request,
            policy,
            order,
            seen: None,
            is_cancelled: false,
            commit: None,
            held_back: None,
            is_early: false,
            again: None,
        }
    }

    /// Whether the broker has not done it, although it has answered.
    pub(crate) fn is_undone(&self) -> bool {
        self.is_early || self.held_back.is_some()
    }

    /// Whether something other than its policy says what becomes of it when the connection is lost.
    pub(crate) fn is_kept(&self) -> bool {
        self.commit.is_some()
    }

    /// Whether the end of a job's log may come too early. flux-core's job-info reads the log of a job
    /// whose guest namespace it does not find from the primary one, where the job is over. If the
    /// namespace is restored just then, it gives what that holds so far, and an end
    /// (`modules/job-info/guest_watch.c`, `guest_namespace_watch_continuation()`).
    pub(crate) fn doubt_end(&mut self, errnum: i32, now: f64) -> bool {
        let Some(again) = self.again.as_mut().filter(|again| now < again.until) else {
            return false;
        };
        let is_end = errnum == NO_DATA && !self.is_cancelled;
        is_end && !std::mem::replace(&mut again.is_end_doubted, true)
    }

    /// Whether this error can mean that a service is not ready yet after a restart. `is_shell`: the
    /// client is a job shell.
    pub(crate) fn is_premature(&self, errnum: i32, now: f64, is_shell: bool) -> bool {
        let Some(again) = &self.again else { return false };
        let is_known = |seen: &Seen| !seen.is_empty() || again.was_asked || is_shell;
        let known = self.seen.as_ref().is_some_and(is_known);
        let premature = match errnum {
            NO_NAMESPACE => true,
            NO_SERVICE | NO_HOST => again.was_asked,
            // The key of a watch from before the restart existed. A shell watches keys of its own job
            // only, which another shell may have to write again.
            NO_ENTRY => known,
            _ => false,
        };
        premature && now < again.until
    }
}
