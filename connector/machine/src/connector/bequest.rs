//! Commits that no checkpoint has are handed over to the rank's module before the client ends,
//! because nobody else could do them again.
//!
//! A job shell hands them over when it gives its service up. What it still does after that takes
//! about as long as the answer, so it does not have to wait when it closes its connection.

use serde_json::json;

use crate::connector::Connector;
use crate::connector::channels::is_unknown_method;
use crate::connector::restore::{Own, PAUSE_FIRST, PAUSE_MAX, RANK_0, job_of};
use crate::flight::{NO_ENTRY, NO_SERVICE, NO_SPACE, TOO_LARGE, is_unreachable};
use crate::ledger::{Handed, Ledger};
use crate::packet::{ANY_RANK, Packet};

/// How often commits are offered to a module that is not there, with growing pauses. A reload, and
/// the end of a broker after its modules, take less.
pub(crate) const TRIES_MAX: u32 = 16;

impl<P: Packet> Connector<P> {
    /// The client is about to end.
    pub(crate) fn bequeath_all(&mut self) {
        let namespaces: Vec<String> = self.ledgers.keys().cloned().collect();
        for namespace in namespaces {
            self.bequeath(&namespace);
        }
    }

    pub(crate) fn bequeath(&mut self, namespace: &str) {
        let is_closing = self.is_closing();
        let is_shells = self.standing.was_shell();
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return };
        if ledger.handed.is_of(ledger.version) {
            if is_closing && ledger.handed.is_kept {
                self.ledgers.remove(namespace);
            }
            return;
        }
        let payload = job_of(namespace).and_then(|id| ledger.bequest(id, is_shells));
        if let Some(payload) = payload.filter(|_| !ledger.covering) {
            ledger.handed = Handed::of(ledger.version);
            let own = Own::Bequest(namespace.to_string(), ledger.version);
            // Else a broker whose module is away would pass it on to another rank's.
            let rank = self.rank.unwrap_or(ANY_RANK);
            self.ask_rank(own, "job-exec.keep-commits", &payload, rank);
        }
    }

    pub(crate) fn bequeathed(&mut self, now: f64, namespace: &str, version: u64, answer: &P) {
        let is_own = self.run.as_ref().is_some_and(|run| job_of(namespace) == Some(run.job));
        let is_closing = self.is_closing();
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return };
        if !ledger.handed.is_of(version) {
            return; // more was handed over since
        }
        if version != ledger.version {
            ledger.handed = Handed::default();
            return; // it has committed more since, and waits for a checkpoint before it offers that
        }
        let errnum = answer.header().errnum;
        if errnum == 0 && !is_closing {
            ledger.handed.is_kept = true;
            return;
        }
        ledger.handed = Handed::default();
        if !is_closing {
            return; // they are offered again when it closes its connection
        }
        // The module is being reloaded, or the broker is stopping. A client that does not know its
        // rank may have been answered by the module of another one, which does not know the job.
        let is_early = match errnum {
            _ if is_unreachable(answer) => true,
            NO_SERVICE => !is_unknown_method(answer),
            NO_ENTRY => is_own && self.rank.is_none(),
            _ => false,
        };
        match errnum {
            _ if is_early && ledger.tries < TRIES_MAX => {
                let pause = PAUSE_FIRST * f64::from(1u32 << ledger.tries.min(10));
                ledger.cover_at = Some(now + pause.min(PAUSE_MAX));
                ledger.tries += 1;
            }
            // The module has no room for them. A checkpoint takes longer, and has.
            NO_SPACE | TOO_LARGE => {
                ledger.covering = true;
                let id = job_of(namespace);
                let own = Own::Cover(namespace.to_string(), ledger.mark());
                self.ask_rank(own, "job-exec.checkpoint", &json!({ "id": id }).to_string(), RANK_0);
            }
            // Kept; or this is no rank of the job.
            _ => drop(self.ledgers.remove(namespace)),
        }
    }

    /// Whether commits wait for the broker.
    pub(crate) fn has_unsent_commits(&self) -> bool {
        self.unsent.iter().any(|packet| packet.header().topic == "kvs.commit")
    }

    /// Whether a client that closes its connection has commits that are not handed over yet.
    pub(crate) fn is_bequeathing(&self) -> bool {
        let left = |(namespace, ledger): (&String, &Ledger<P>)| {
            job_of(namespace).is_some() && !ledger.is_empty()
        };
        self.is_closing() && self.ledgers.iter().any(left)
    }
}
