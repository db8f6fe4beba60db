//! Commits that no checkpoint has are handed over to the rank's module before the client ends,
//! because nobody else could do them again.
//!
//! A job shell hands them over when it gives its service up. What it still does after that takes
//! about as long as the answer, so it does not have to wait when it closes its connection.

use serde_json::json;

use crate::connector::Connector;
use crate::connector::restore::{RANK_0, job_of};
use crate::errnum::{NO_ENTRY, NO_SERVICE, NO_SPACE, TOO_LARGE, is_unknown_method, is_unreachable};
use crate::ledger::{Handed, Ledger, Settling};
use crate::packet::Packet;
use crate::wire::Own;

/// How often commits are offered to a module that is not there, with growing pauses. A reload, and
/// the end of a broker after its modules, take less.
const TRIES_MAX: u32 = 16;
/// How often a client that ends asks its rank or rank 0, in all.
pub(crate) const ASKED_MAX: u32 = 2 * TRIES_MAX;

impl<P: Packet> Connector<P> {
    /// The client is about to end.
    pub(crate) fn bequeath_all(&mut self) {
        let namespaces: Vec<String> = self.ledgers.keys().cloned().collect();
        for namespace in namespaces {
            self.bequeath(&namespace);
        }
    }

    pub(crate) fn bequeath(&mut self, namespace: &str) {
        let is_closing = self.cx.client.is_closing;
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return };
        if ledger.handed.is_of(ledger.version) {
            if is_closing && ledger.handed.is_kept {
                self.ledgers.remove(namespace);
            }
            return;
        }
        if !ledger.covering {
            self.offer(namespace, false);
        }
    }

    /// Asks the client's rank to keep its commits. Returns false if there are none that it could keep.
    fn offer(&mut self, namespace: &str, again: bool) -> bool {
        let shell = self.cx.client.was_shell;
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return false };
        let payload = job_of(namespace).and_then(|id| ledger.bequest(id, shell, again));
        let Some(payload) = payload else { return false };
        ledger.handed = Handed::of(ledger.version);
        ledger.may_be_kept = !shell;
        let own = Own::Bequest(namespace.to_string(), ledger.version);
        // Else a broker whose module is away would pass it on to another rank's.
        self.cx.wire.ask(own, "job-exec.keep-commits", &payload, self.cx.client.home());
        true
    }

    /// The broker is back, and the answer to what was offered is lost: the rank may have it, and do
    /// the commits again. If the client did them as well, each could be done twice. So it leaves them
    /// to the rank, if that takes them. A rank waits for the end of a shell, so a shell does its own.
    ///
    /// Returns false if this is no such client.
    pub(crate) fn offers_again(&mut self, namespace: &str) -> bool {
        let is_whole = self.cx.client.is_closing && !self.has_unsent_commits();
        let may_be_kept = self.ledgers.get(namespace).is_some_and(|ledger| ledger.may_be_kept);
        is_whole && may_be_kept && self.offer(namespace, true)
    }

    fn offered_again(&mut self, now: f64, namespace: &str, answer: &P) {
        let is_early = self.is_early(namespace, answer);
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return };
        if answer.header().errnum == 0 {
            self.ledgers.remove(namespace);
        } else if is_early && ledger.tries < TRIES_MAX {
            ledger.settling = Settling::Due(now + ledger.next_pause());
        } else {
            // It does not have them.
            (ledger.may_be_kept, ledger.tries) = (false, 0);
            ledger.handed = Handed::default();
            ledger.settling = Settling::Due(now);
        }
        self.settle(now);
    }

    /// Whether the client's module was asked too early, or too late: it is being reloaded, or the
    /// broker is stopping. A client that does not know its rank may have been answered by the module
    /// of another one, which does not know the job.
    fn is_early(&self, namespace: &str, answer: &P) -> bool {
        let is_own =
            self.cx.client.run.as_ref().is_some_and(|run| job_of(namespace) == Some(run.job));
        match answer.header().errnum {
            _ if is_unreachable(answer) => true,
            NO_SERVICE => !is_unknown_method(answer),
            NO_ENTRY => is_own && self.cx.client.rank.is_none(),
            _ => false,
        }
    }

    pub(crate) fn bequeathed(&mut self, now: f64, namespace: &str, version: u64, answer: &P) {
        let is_closing = self.cx.client.is_closing;
        let is_early = self.is_early(namespace, answer);
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return };
        if ledger.settling == Settling::Offering {
            return self.offered_again(now, namespace, answer);
        }
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
        match errnum {
            _ if is_early && ledger.tries < TRIES_MAX => {
                ledger.cover_at = Some(now + ledger.next_pause());
            }
            // The module has no room for them, or stays away. A checkpoint takes longer, and has them.
            _ if is_early || matches!(errnum, NO_SPACE | TOO_LARGE) => {
                ledger.covering = true;
                let id = job_of(namespace);
                let own = Own::Cover(namespace.to_string(), ledger.mark());
                self.cx.wire.ask(
                    own,
                    "job-exec.checkpoint",
                    &json!({ "id": id }).to_string(),
                    RANK_0,
                );
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
        self.cx.client.is_closing && self.ledgers.iter().any(left)
    }
}
