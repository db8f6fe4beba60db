//! Whether a job's guest namespace is that of the client's own run of the job.
//!
//! If the KVS goes back to a time before the job got its resources, the job gets others, and runs a
//! second time. Until clients of the first run are ended they find a namespace of the same name, which
//! lacks what they have committed. It is not theirs.

use serde_json::Value;

use crate::connector::Connector;
use crate::connector::restore::{Own, PAUSE_MAX};
use crate::flight::NO_NAMESPACE;
use crate::ledger::{Found, RUN_KEY, Settling};
use crate::packet::Packet;

/// Requests that change a job. Their payload names it as `id` (flux-core `job-manager/raise.c`, `kill.c`,
/// `memo` in `annotate.c`).
const CHANGES: [&str; 3] = ["job-manager.kill", "job-manager.memo", "job-manager.raise"];

/// Characters of a digest that tell runs of one job apart.
const MARK_LENGTH: usize = 16;

/// A run of a job.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Run {
    /// The job's id, as a decimal number.
    pub job: u64,
    /// What tells the job's runs apart: its digest (`rfc/0008-recovery.md`).
    pub digest: String,
}

impl Run {
    /// Reads `JOB-DIGEST`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (job, digest) = text.split_once('-')?;
        let digest = Some(digest).filter(|digest| !digest.is_empty())?;
        Some(Self { job: job.parse().ok()?, digest: digest.to_string() })
    }

    /// What tells it from the job's other runs in each message to a shell: a part of the digest.
    pub(crate) fn mark(&self) -> String {
        self.digest.chars().take(MARK_LENGTH).collect()
    }

    pub(crate) fn namespace(&self) -> String {
        format!("job-{}", self.job)
    }
}

impl<P: Packet> Connector<P> {
    /// The client belongs to this run of a job.
    #[must_use]
    pub fn of_run(mut self, run: Option<Run>) -> Self {
        self.run = run;
        self
    }

    /// Whether the client has met the broker that its run was started by, as far as is known. If
    /// not, the KVS may have gone back since, and the job runs a second time.
    #[must_use]
    pub fn met_its_broker(mut self, met: bool) -> Self {
        self.met_its_broker = met;
        self
    }

    /// Whether it must be asked whose this namespace is, and what it holds, before the first commit.
    pub(crate) fn doubts(&self, namespace: &str) -> bool {
        let is_own = || self.run.as_ref().is_some_and(|run| run.namespace() == namespace);
        self.was_down || !self.met_its_broker && is_own()
    }

    /// The client's broker has this rank, if that is known.
    #[must_use]
    pub fn on_rank(mut self, rank: Option<u32>) -> Self {
        self.rank = rank;
        self
    }

    /// Asks whose namespace this is, if the client's run has one of this name. Returns false if
    /// there is nothing to be asked.
    pub(crate) fn ask_whose(&mut self, namespace: &str) -> bool {
        if self.run.as_ref().is_none_or(|run| run.namespace() != namespace) {
            return false;
        }
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return false };
        ledger.settling = Settling::Asking;
        let look = ledger.look_up(RUN_KEY);
        self.ask_kvs(Own::Whose(namespace.to_string()), "kvs.lookup-plus", &look);
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
        let patience = self.limits.patience - PAUSE_MAX;
        let own = self.run.as_ref().map(|run| run.digest.clone());
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
        let Some(run) = &self.run else { return false };
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

    /// Whether a sender has the mark of another run of the client's job. One of the two is about to be
    /// ended, and what the other hears must not come from it. A client that belongs to no run, like
    /// `flux job attach`, has no mark.
    pub(crate) fn is_other_run(&self, mark: Option<&str>) -> bool {
        let own = self.run.as_ref().map(Run::mark);
        own.zip(mark).is_some_and(|(own, mark)| own != mark)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_a_job_and_a_digest() {
        let run = Run::parse("50331648-9bce76d4").expect("a run");
        assert_eq!((run.namespace().as_str(), run.digest.as_str()), ("job-50331648", "9bce76d4"));
        for text in ["", "50331648", "50331648-", "-9bce", "x-9bce"] {
            assert_eq!(Run::parse(text), None, "{text}");
        }
    }
}
