//! Requests that are sent again: after a restart, and when a service was not ready.

use serde_json::{Value, json};

use crate::connector::Connector;
use crate::errnum::NO_NAMESPACE;
use crate::flight::{Again, Flight};
use crate::packet::Packet;
use crate::question::{PAUSE_MAX, doubled};
use crate::wire::Own;

/// The first pause before a service is asked again, in seconds.
const RETRY_FIRST: f64 = 0.1;

/// A watch of a job's log.
pub(crate) const EVENTLOG_WATCH: &str = "job-info.eventlog-watch";

/// Requests that change a job. Their payload names it as `id` (flux-core `job-manager/raise.c`, `kill.c`,
/// `memo` in `annotate.c`).
const CHANGES: [&str; 3] = ["job-manager.kill", "job-manager.memo", "job-manager.raise"];

impl Again {
    /// The service is not ready.
    pub(crate) fn pause(&mut self, now: f64) {
        let pause = doubled(RETRY_FIRST, PAUSE_MAX, self.tries);
        self.tries += 1;
        self.retry_at = Some(now + pause);
    }

    /// Whether it waits for the answer to [`Own::Watch`].
    fn is_asked(&self) -> bool {
        self.retry_at == Some(f64::INFINITY)
    }
}

impl<P: Packet> Flight<P> {
    /// Whether it watches a log of this job.
    fn watches(&self, job: u64) -> bool {
        let payload = || serde_json::from_slice::<Value>(self.request.payload()).ok();
        self.request.header().topic == EVENTLOG_WATCH
            && payload().is_some_and(|payload| payload["id"].as_u64() == Some(job))
    }
}

impl<P: Packet> Connector<P> {
    /// Sends a request again. For a watch of the client's own job it asks first whether the job's guest
    /// namespace is there, which the job's leader sees to: flux-core's job-info logs an error for each
    /// watch that finds none (`modules/job-info/guest_watch.c`, `main_namespace_watch_continuation()`).
    pub(crate) fn repeat(&mut self, tag: u32) {
        let Some(flight) = self.flights.get_mut(&tag) else { return };
        if let Some(run) = self.cx.client.run.as_ref().filter(|run| flight.watches(run.job))
            && let Some(again) = &mut flight.again
        {
            again.retry_at = Some(f64::INFINITY);
            let payload = json!({ "namespace": run.namespace() }).to_string();
            self.cx.wire.ask(Own::Watch(tag), "kvs.getroot", &payload, self.cx.client.home());
            return;
        }
        self.send_repeated(tag);
    }

    fn send_repeated(&mut self, tag: u32) {
        let Some(flight) = self.flights.get_mut(&tag) else { return };
        if let Some(seen) = &mut flight.seen {
            seen.resume();
        }
        let request = flight.request.clone();
        self.cx.wire.send(request);
    }

    /// The KVS has said whether there is the namespace that a watch needs.
    pub(crate) fn namespace_found(&mut self, now: f64, tag: u32, errnum: i32) {
        let again = self.flights.get_mut(&tag).and_then(|flight| flight.again.as_mut());
        // Else the client has cancelled it.
        let Some(again) = again.filter(|again| again.is_asked()) else { return };
        if errnum == NO_NAMESPACE && now < again.until {
            return again.pause(now);
        }
        again.retry_at = None;
        self.send_repeated(tag);
    }

    /// A request that would change another run of the client's job is not done, and answered as if it
    /// were, like a commit. Returns false if this is none.
    pub(crate) fn spare_other_run(&mut self, tag: u32) -> bool {
        let Some(run) = &self.cx.client.run else { return false };
        if !self.ledgers.is_foreign(run) {
            return false;
        }
        let Some(flight) = self.flights.get(&tag) else { return false };
        let payload: Value = serde_json::from_slice(flight.request.payload()).unwrap_or_default();
        if !CHANGES.contains(&flight.request.header().topic) || payload["id"] != run.job {
            return false;
        }
        let answer = flight.request.answer("{}");
        self.last_answer(tag, answer);
        true
    }
}
