//! All commits of the client that may have to be done again, by KVS namespace.

use std::collections::BTreeMap;

use crate::context::Context;
use crate::flight::Flight;
use crate::ledger::{Ledger, Treatment, treatment};
use crate::namespace::{Namespace, Settling};
use crate::packet::{ANY_RANK, Packet};
use crate::policy::Policy;
use crate::run::Run;
use crate::wire::Own;

/// The namespaces that the client has committed to.
#[derive(Clone, Debug)]
pub(crate) struct Ledgers<P> {
    namespaces: BTreeMap<String, Namespace<P>>,
    /// The broker has been away at least once since this connection was opened.
    was_down: bool,
}

impl<P: Packet> Ledgers<P> {
    pub(crate) fn new(was_down: bool) -> Self {
        Self { namespaces: BTreeMap::new(), was_down }
    }

    /// The client commits. What may have to be done again goes into a ledger, which sends it.
    pub(crate) fn commit(&mut self, cx: &mut Context<P>, flight: &mut Flight<P>) {
        flight.policy = Policy::Refuse;
        let name = match treatment(flight.request.payload()) {
            Treatment::Ledger(name) => name,
            Treatment::Repeat => return flight.policy = Policy::Repeat,
            Treatment::Refuse => return,
        };
        // Before the first commit it may have to be asked whose the namespace is, and what it holds: if
        // the broker was away, or may not be the one that started the run.
        let is_runs = || cx.client.run.as_ref().is_some_and(|run| run.namespace() == name);
        let is_doubtful = self.was_down || (!cx.client.met_its_broker && is_runs());
        let settling = if is_doubtful { Settling::Unknown } else { Settling::Done };
        let new = || Namespace::new(Ledger::new(&name, &cx.client.name()), settling);
        let namespace = self.namespaces.entry(name.clone()).or_insert_with(new);
        if let Some(sent) = namespace.commit(cx, &flight.request) {
            (flight.commit, flight.request) = (Some(name), sent);
        }
    }

    /// A commit has its answer.
    pub(crate) fn answered(&mut self, cx: &mut Context<P>, name: &str, tag: u32, errnum: i32) {
        if let Some(namespace) = self.namespaces.get_mut(name) {
            namespace.answered(cx, tag, errnum);
        }
    }

    /// There is an answer about a namespace. `is_whole`: no commit of the client waits elsewhere.
    pub(crate) fn heard(&mut self, cx: &mut Context<P>, own: &Own, answer: &P, is_whole: bool) {
        let (Own::Ledger(name) | Own::Cover(name, _) | Own::Replay(name)) = own else { return };
        let Some(namespace) = self.namespaces.get_mut(name) else { return };
        let errnum = answer.header().errnum;
        match own {
            Own::Cover(_, mark) => namespace.covered(cx, *mark, errnum),
            Own::Replay(_) => namespace.replayed(cx, errnum),
            _ => namespace.heard(cx, answer, is_whole),
        }
    }

    /// The connection was lost.
    pub(crate) fn lost(&mut self, cx: &Context<P>) {
        self.was_down = true;
        self.namespaces.values_mut().for_each(|namespace| namespace.lost(cx));
    }

    /// Asks namespaces what they hold.
    pub(crate) fn settle(&mut self, cx: &mut Context<P>) {
        self.namespaces.values_mut().for_each(|namespace| namespace.settle(cx));
    }

    /// Whether nothing has to be asked before messages are passed on.
    pub(crate) fn are_settled(&self) -> bool {
        self.namespaces.values().all(Namespace::is_settled)
    }

    /// Answers to commits of the client that the connector gives itself, with their matchtags.
    /// To be called after each event. Namespaces that are over are forgotten.
    pub(crate) fn take_answers(&mut self) -> Vec<(u32, P)> {
        let answers = self.namespaces.values_mut().flat_map(Namespace::take_answers).collect();
        self.forget_over();
        answers
    }

    fn forget_over(&mut self) {
        self.namespaces.retain(|_, namespace| !namespace.is_over());
    }

    /// When to call [`Ledgers::settle`]; if the connection is live, [`Ledgers::timeout`].
    pub(crate) fn next(&self, is_live: bool) -> Option<f64> {
        let each = self.namespaces.values().filter_map(|namespace| namespace.next(is_live));
        each.reduce(f64::min)
    }

    /// Repeats requests that have failed.
    pub(crate) fn timeout(&mut self, cx: &mut Context<P>) {
        self.namespaces.values_mut().for_each(|namespace| namespace.timeout(cx));
        self.forget_over();
    }

    /// The client is about to end: hands over what no checkpoint has.
    pub(crate) fn bequeath(&mut self, cx: &mut Context<P>) {
        self.namespaces.values_mut().for_each(|namespace| namespace.bequeath(cx));
        self.forget_over();
    }

    /// Whether a job's namespace has commits that were not handed over.
    pub(crate) fn has_unsaved(&self) -> bool {
        let mut ledgers = self.namespaces.values().map(Namespace::ledger);
        ledgers.any(|ledger| ledger.job().is_some() && !ledger.is_empty())
    }

    /// Whether the namespace of this run's job is another run's.
    pub(crate) fn is_foreign(&self, run: &Run) -> bool {
        self.namespaces.get(&run.namespace()).is_some_and(Namespace::is_foreign)
    }

    /// The client closes the connection: removes its keys from namespaces that are no job's. The
    /// end of a job removes those in its guest namespace.
    pub(crate) fn farewell(&mut self, cx: &mut Context<P>) {
        let namespaces = std::mem::take(&mut self.namespaces);
        let ledgers = namespaces.values().map(Namespace::ledger);
        for ledger in ledgers.filter(|ledger| ledger.job().is_none()) {
            cx.wire.ask(Own::Farewell, "kvs.commit", &ledger.farewell(), ANY_RANK);
        }
    }

    /// Forgets all commits.
    pub(crate) fn clear(&mut self) {
        self.namespaces.clear();
    }

    /// Bytes that count against [`crate::Limits::retained_max`].
    pub(crate) fn kept(&self) -> usize {
        self.namespaces.values().map(Namespace::kept).sum()
    }

    /// Encoded size of all commits that are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.namespaces.values().map(|namespace| namespace.ledger().bytes).sum()
    }
}
