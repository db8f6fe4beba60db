//! A request of the client that waits for its answer.

use serde_json::Value;

use crate::context::Client;
use crate::errnum::{NO_DATA, NO_ENTRY, NO_HOST, NO_NAMESPACE, NO_SERVICE};
use crate::packet::{ANY_RANK, Header, Packet};
use crate::policy::Policy;
use crate::question::Question;
use crate::watch::Seen;

/// A watch of a job's log.
const EVENTLOG_WATCH: &str = "job-info.eventlog-watch";
/// What job-info is asked about a job (flux-core `shell/info.c`, `shell/input/kvs.c`).
const ABOUT_JOB: [&str; 3] = ["job-info.lookup", "job-info.update-watch", EVENTLOG_WATCH];
/// The rank whose KVS has each commit first.
const ROOT: u32 = 0;
/// Requests that change a job. Their payload names it as `id` (flux-core `job-manager/raise.c`, `kill.c`,
/// `memo` in `annotate.c`).
const CHANGES: [&str; 3] = ["job-manager.kill", "job-manager.memo", "job-manager.raise"];

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
    pub(crate) asked: Asked,
    /// The namespace of a commit that a ledger has, which repeats it.
    pub(crate) commit: Option<String>,
    /// An error that a shutdown of the broker may have caused. It is held back until the broker has
    /// said whether it is in RUN.
    pub(crate) held_back: Option<P>,
    /// The broker has refused it, because it is only just starting.
    pub(crate) is_early: bool,
    /// Set after a restart of the broker, when services may not be ready yet.
    pub(crate) again: Option<Again>,
}

/// Which rank's job-info service a request about the client's own job goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Asked {
    /// Where the client has sent it.
    #[default]
    Own,
    /// The rank above the shell's in the job's tree.
    Above,
    Root,
}

/// How a request is repeated that finds its service not ready.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Again {
    /// Until this time, an error such as "no such namespace" leads to another attempt.
    pub(crate) until: f64,
    /// When to send it again, and whether the namespace is there that it needs.
    pub(crate) question: Question,
    /// It was first sent before the broker was lost, when its service existed.
    was_asked: bool,
    /// A log has ended, and was asked for again because of that.
    is_end_doubted: bool,
}

impl Again {
    pub(crate) fn new(until: f64, was_asked: bool) -> Self {
        Self { until, question: Question::default(), was_asked, is_end_doubted: false }
    }
}

impl<P: Packet> Flight<P> {
    pub(crate) fn new(request: P) -> Self {
        let Header { topic, streaming, .. } = request.header();
        let (policy, seen) = match Policy::of(topic) {
            Policy::Watch(kind) => match kind.seen(request.payload(), streaming) {
                // It is answered once.
                None => (Policy::Repeat, None),
                seen => (Policy::Watch(kind), seen),
            },
            policy => (policy, None),
        };
        Self {
            request,
            policy,
            order: 0,
            seen,
            is_cancelled: false,
            asked: Asked::Own,
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

    /// Whether it is sent again after a loss, by its policy or by a ledger.
    pub(crate) fn is_repeated(&self) -> bool {
        self.policy != Policy::Refuse || self.commit.is_some()
    }

    /// Whether it watches a log of this job.
    pub(crate) fn watches(&self, job: u64) -> bool {
        self.request.header().topic == EVENTLOG_WATCH && self.id() == job
    }

    /// If it asks its own rank's job-info about the client's job, asks the rank above instead, if
    /// there is one.
    pub(crate) fn ask_above(&mut self, client: &Client) {
        if let Some(rank) = client.info
            && self.is_about_own_job(client)
        {
            self.ask(Asked::Above, rank);
        }
    }

    /// Asks another rank's job-info, if that can help against this error. Returns whether it can.
    pub(crate) fn ask_another(&mut self, errnum: i32, client: &Client) -> bool {
        match self.asked {
            Asked::Above => self.come_home(),
            // The KVS of another rank can be behind rank 0's.
            Asked::Own
                if errnum == NO_ENTRY
                    && client.rank.is_some_and(|rank| rank != ROOT)
                    && self.is_about_own_job(client) =>
            {
                self.ask(Asked::Root, ROOT);
            }
            Asked::Own | Asked::Root => return false,
        }
        true
    }

    /// From now on it goes to where the client has sent it.
    pub(crate) fn come_home(&mut self) {
        if self.asked != Asked::Own {
            self.ask(Asked::Own, ANY_RANK);
        }
    }

    fn ask(&mut self, asked: Asked, rank: u32) {
        (self.asked, self.request) = (asked, self.request.to_rank(rank));
    }

    fn is_about_own_job(&self, client: &Client) -> bool {
        let Header { topic, rank: to, .. } = self.request.header();
        let is_own = || client.run.as_ref().is_some_and(|run| self.id() == run.job);
        ABOUT_JOB.contains(&topic) && to == ANY_RANK && is_own()
    }

    /// Whether it changes this job.
    pub(crate) fn changes(&self, job: u64) -> bool {
        CHANGES.contains(&self.request.header().topic) && self.id() == job
    }

    /// The job that the payload names.
    fn id(&self) -> Value {
        let payload: Value = serde_json::from_slice(self.request.payload()).unwrap_or_default();
        payload["id"].clone()
    }

    /// Whether the end of a job's log may come too early. flux-core's job-info reads the log of a job
    /// whose guest namespace it does not find from the primary one, where the job is over. If the
    /// namespace is restored just then, it gives what that holds so far, and an end
    /// (`modules/job-info/guest_watch.c`, `guest_namespace_watch_continuation()`).
    pub(crate) fn doubt_end(&mut self, errnum: i32, now: f64) -> bool {
        let is_log = self.request.header().topic == EVENTLOG_WATCH;
        let is_end = is_log && errnum == NO_DATA && !self.is_cancelled;
        let again = self.again.as_mut().filter(|again| is_end && now < again.until);
        again.is_some_and(|again| !std::mem::replace(&mut again.is_end_doubted, true))
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
