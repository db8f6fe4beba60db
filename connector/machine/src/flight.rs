//! A request of the client's that waits for its answer.

use crate::policy::Policy;
use crate::watch::Seen;

/// A request that was sent, or will be when the broker is back.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Flight<P> {
    /// As it is sent.
    pub(crate) request: P,
    pub(crate) policy: Policy,
    /// Requests are asked again in the order in which they were asked.
    pub(crate) order: u64,
    /// What the client was given of a watch.
    pub(crate) seen: Option<Seen>,
    /// The client has asked to end the watch.
    pub(crate) is_cancelled: bool,
    /// A commit's place in the ledger of its namespace.
    pub(crate) commit: Option<(String, u64)>,
    /// An error that may come of the broker's own end: it is held back until that is known.
    pub(crate) doubtful: Option<P>,
    /// It was asked again after a loss, and services may not be ready for it yet.
    pub(crate) again: Option<Again>,
}

/// A request that was asked again, or for the first time soon after the broker came back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Again {
    /// Until then, an answer such as "no such namespace" is not believed.
    pub(crate) until: f64,
    /// When to ask once more.
    pub(crate) retry_at: Option<f64>,
    pub(crate) tries: u32,
    /// It was asked before the broker went: what it needs was there.
    pub(crate) was_asked: bool,
}

impl Again {
    pub(crate) fn new(until: f64, was_asked: bool) -> Self {
        Self { until, retry_at: None, tries: 0, was_asked }
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
            doubtful: None,
            again: None,
        }
    }

    /// Whether this error can mean that a service is not ready yet, after a restart.
    pub(crate) fn is_premature(&self, errnum: i32, now: f64) -> bool {
        let Some(again) = &self.again else { return false };
        let known = self.seen.as_ref().is_some_and(|seen| !seen.is_empty());
        let premature = match errnum {
            NO_NAMESPACE => true,
            NO_SERVICE | NO_HOST => again.was_asked,
            // Of something that was there before.
            NO_ENTRY => known,
            _ => false,
        };
        premature && now < again.until
    }
}

/// Linux errno values, which the wire has.
pub(crate) const NO_ENTRY: i32 = 2;
pub(crate) const NO_SERVICE: i32 = 38;
pub(crate) const NO_DATA: i32 = 61;
pub(crate) const BAD_ANSWER: i32 = 71;
pub(crate) const NO_NAMESPACE: i32 = 95;
pub(crate) const RESET: i32 = 104;
pub(crate) const NO_HOST: i32 = 113;
pub(crate) const TIMED_OUT: i32 = 110;
pub(crate) const NOT_PERMITTED: i32 = 1;
