//! The leader shell of the client's job, as far as the client knows it.

use crate::channel::Peer;
use crate::context::Context;
use crate::errnum::NO_PROCESS;
use crate::inquiry::{SHELL_RUNS, job_payload};
use crate::packet::Packet;
use crate::question::Question;
use crate::wire::Own;

/// Each follower has a channel to the leader shell of its job, which is on the job's lowest rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leader {
    /// Its service: of all that the shell has sent to on ranks below its own, the one on the lowest.
    peer: Option<Peer>,
    has_ended: bool,
    question: Question,
}

impl Leader {
    /// The client has a channel to this shell.
    pub(crate) fn meet<P: Packet>(&mut self, cx: &mut Context<P>, peer: &Peer) {
        let is_below = cx.client.rank.is_some_and(|own| peer.rank < own);
        let is_lowest = self.peer.as_ref().is_none_or(|known| peer.rank < known.rank);
        if is_below && is_lowest && cx.client.is_of(peer.job()) {
            // What is known, or being asked, is of another shell.
            self.question.withdraw(cx);
            *self = Self { peer: Some(peer.clone()), ..Self::default() };
        }
    }

    pub(crate) fn is_known(&self) -> bool {
        self.peer.is_some()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// This shell has ended.
    pub(crate) fn gone(&mut self, peer: &Peer) {
        self.has_ended |= self.peer.as_ref() == Some(peer);
    }

    /// Asks the module of its rank whether it runs.
    pub(crate) fn ask<P: Packet>(&mut self, cx: &mut Context<P>) {
        let Some((rank, id)) = self.peer.as_ref().and_then(|peer| Some((peer.rank, peer.job()?)))
        else {
            return;
        };
        self.question.ask(cx, Own::Leader, (SHELL_RUNS, job_payload(id), rank));
    }

    /// That module has answered.
    pub(crate) fn answered<P: Packet>(&mut self, answer: &P) {
        self.question.answered();
        self.has_ended |= answer.header().errnum == NO_PROCESS;
    }
}
