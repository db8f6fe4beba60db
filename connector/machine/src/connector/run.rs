//! Whether a job's guest namespace is that of the client's own run of the job.
//!
//! If the KVS goes back to a time before the job got its resources, the job gets others, and runs a
//! second time. Until clients of the first run are ended they find a namespace of the same name, which
//! lacks what they have committed. It is not theirs.

use serde_json::Value;

use crate::connector::Connector;
use crate::errnum::NO_NAMESPACE;
use crate::ledger::{Found, RUN_KEY, Settling};
use crate::packet::Packet;
use crate::question::PAUSE_MAX;
use crate::wire::Own;

/// Requests that change a job. Their payload names it as `id` (flux-core `job-manager/raise.c`, `kill.c`,
/// `memo` in `annotate.c`).
const CHANGES: [&str; 3] = ["job-manager.kill", "job-manager.memo", "job-manager.raise"];

impl<P: Packet> Connector<P> {
    /// Whether it must be asked whose this namespace is, and what it holds, before the first commit.
    pub(crate) fn doubts(&self, namespace: &str) -> bool {
        let is_own = || self.cx.client.run.as_ref().is_some_and(|run| run.namespace() == namespace);
        self.was_down || !self.cx.client.met_its_broker && is_own()
    }

    /// Asks whose namespace this is, if the client's run has one of this name. Returns false if
    /// there is nothing to be asked.
    pub(crate) fn ask_whose(&mut self, namespace: &str) -> bool {
        if self.cx.client.run.as_ref().is_none_or(|run| run.namespace() != namespace) {
            return false;
        }
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return false };
        ledger.settling = Settling::Asking;
        let look = ledger.look_up(RUN_KEY);
        self.cx.wire.ask(
            Own::Whose(namespace.to_string()),
            "kvs.lookup-plus",
            &look,
            self.cx.client.home(),
        );
        true
    }

    pub(crate) fn whose(&mut self, now: f64, namespace: &str, packet: &P) {
        let found = Some(packet).filter(|packet| packet.header().errnum == 0);
        let Some(found) = found.and_then(|packet| Found::parse(packet.payload())) else {
            return self.wait_for(now, namespace, packet.header().errnum);
        };
        let waited = self.ledgers.get(namespace).map_or(0.0, |ledger| ledger.waited);
        // A leader can end between making the namespace and saying whose it is, and the next one is as
        // far away as its broker. One of an earlier release never says it.
        let patience = self.cx.client.limits.patience - PAUSE_MAX;
        let own = self.cx.client.run.as_ref().map(|run| run.digest.clone());
        match found.text() {
            None if waited < patience => self.wait_for(now, namespace, NO_NAMESPACE),
            Some(digest) if Some(&digest) != own.as_ref() => {
                if let Some(ledger) = self.ledgers.get_mut(namespace) {
                    ledger.settling = Settling::Foreign;
                    ledger.answer = found.as_answer();
                }
                self.discard(namespace);
                self.settle(now);
            }
            _ => self.look(namespace),
        }
    }

    /// A request that would change another run of the client's job is not done, and answered as if it
    /// were, like a commit. Returns false if this is none.
    pub(crate) fn spare_other_run(&mut self, tag: u32) -> bool {
        let Some(run) = &self.cx.client.run else { return false };
        let ledger = self.ledgers.get(&run.namespace());
        if ledger.is_none_or(|ledger| ledger.settling != Settling::Foreign) {
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

    /// Commits to another run's namespace are not done. The client is told that they were: it is
    /// about to be ended, and the error that it would raise would be one of the other run.
    pub(crate) fn discard(&mut self, namespace: &str) -> bool {
        let Some(ledger) = self.ledgers.get(namespace) else { return false };
        if ledger.settling != Settling::Foreign {
            return false;
        }
        let answer = ledger.answer.clone();
        for number in ledger.unanswered(u64::MAX) {
            self.answer_commit(namespace, number, &answer);
        }
        if let Some(ledger) = self.ledgers.get_mut(namespace) {
            ledger.clear();
        }
        true
    }
}
