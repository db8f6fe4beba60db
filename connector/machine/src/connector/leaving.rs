//! The client closes its connection, and has answered requests of other shells. An answer can have
//! been lost with the sender's broker. So each sender that is a shell is asked whether it has its
//! answers.

use serde_json::json;

use crate::channel::{NEEDED, Needed, Peer, WhichNeeded};
use crate::connector::channels::{
    BACK_AFTER, SHELL_RUNS, SURELY_BACK_AFTER, has_ended, is_unknown_method, job_payload, runs_for,
};
use crate::connector::{Connector, Phase};
use crate::errnum::{NO_PROCESS, NO_SERVICE, is_unreachable};
use crate::packet::{Header, Packet};
use crate::wire::Own;

/// Seconds for which senders are waited for: the default of `exec.peer-timeout`, after which job-exec
/// gives up a rank whose broker is away.
const WAIT: f64 = 120.0;
/// What a sender needs that has no such channel any more: no answer at all.
const ALL_DONE: u64 = i64::MAX as u64;

impl<P: Packet> Connector<P> {
    /// Asks all senders that may need an answer, from now on for [`WAIT`].
    pub(crate) fn begin_leaving(&mut self, now: f64) {
        self.client.is_closing = true;
        self.leaves_by = Some(now + WAIT);
        self.inboxes.ask_all(now);
        if self.phase == Phase::Live {
            self.ask_senders(now);
        }
    }

    /// Whether senders may need answers. The leader shell ends when all tasks have ended, or are not
    /// waited for: nobody needs any then.
    pub(crate) fn is_owing(&self) -> bool {
        self.client.is_closing && !self.leader_ended && self.inboxes.is_owing()
    }

    /// The client has a channel to this shell. Each follower has one to the leader shell of its job,
    /// which is on the job's lowest rank.
    pub(crate) fn may_be_leader(&mut self, peer: &Peer) {
        let is_own = self.client.run.as_ref().is_some_and(|run| peer.job() == Some(run.job));
        let is_below = self.client.rank.is_some_and(|own| peer.rank < own);
        if is_own && is_below && self.leader.as_ref().is_none_or(|known| peer.rank < known.rank) {
            self.leader = Some(peer.clone());
            // What is known, or being asked, is of another shell.
            self.leader_ended = false;
            self.wire.retain(|own| *own != Own::LeaderShell);
        }
    }

    /// A sender cannot be reached. Its rank may have been given up, and then it never can. So a
    /// follower asks whether the leader shell has ended, and the leader shell asks its own module,
    /// which leads the job.
    fn sender_unreachable(&mut self, now: f64, client: &str) {
        let leader = self.leader.as_ref().and_then(|peer| Some((peer.rank, peer.job()?)));
        let own = self.client.run.as_ref().map(|run| run.job).zip(self.client.rank);
        let Some((home, inquiry)) = self.inboxes.inquiry(client) else { return };
        match (leader, own) {
            (Some((rank, id)), _) => {
                inquiry.ask_later(now);
                self.wire.retain(|own| *own != Own::LeaderShell);
                self.wire.ask(Own::LeaderShell, SHELL_RUNS, &job_payload(id), rank);
            }
            (None, Some((id, rank))) if home.job() == Some(id) => {
                inquiry.asked(now);
                let question = json!({ "id": id, "rank": home.rank }).to_string();
                let own = Own::SenderShell(client.to_string(), false);
                self.wire.ask(own, SHELL_RUNS, &question, rank);
            }
            _ => inquiry.ask_later(now),
        }
    }

    /// The module of the leader shell's rank has said whether that runs.
    pub(crate) fn leader_shell(&mut self, answer: &P) {
        self.leader_ended |= answer.header().errnum == NO_PROCESS;
    }

    /// When [`Connector::ask_senders`] has something to do.
    pub(crate) fn next_inquiry(&self) -> Option<f64> {
        let asks = self.inboxes.next_question().filter(|_| self.phase == Phase::Live);
        [asks, self.leaves_by].into_iter().flatten().reduce(f64::min).filter(|_| self.is_owing())
    }

    /// Gives up on senders if it has waited for long enough.
    pub(crate) fn give_up_on_senders(&mut self, now: f64) {
        if self.leaves_by.is_some_and(|at| at <= now) {
            self.inboxes.forget_answers();
        }
    }

    /// Asks the senders whose time has come.
    pub(crate) fn ask_senders(&mut self, now: f64) {
        if !self.is_owing() {
            return;
        }
        for (client, peer, question) in self.inboxes.ask_due(now) {
            // Only the answer to the last question counts.
            self.wire.retain(|own| own.sender() != Some(&client));
            let question = serde_json::to_string(&question).unwrap_or_default();
            let topic = format!("{}{NEEDED}", peer.service);
            self.wire.ask(Own::Needed(client), &topic, &question, peer.rank);
        }
    }

    /// A sender has said which answers it needs, or could not be asked.
    pub(crate) fn needed(&mut self, now: f64, client: &str, answer: &P) {
        let Some((home, inquiry)) = self.inboxes.inquiry(client) else { return };
        inquiry.answered();
        let Header { errnum, .. } = answer.header();
        if is_unreachable(answer) {
            return self.sender_unreachable(now, client);
        }
        if errnum == NO_SERVICE && !is_unknown_method(answer) {
            inquiry.asked(now);
            let rank = home.rank;
            let own = Own::SenderRuns(client.to_string());
            self.wire.ask(own, "state-machine.get", "{}", rank);
            return;
        }
        // One of an earlier release does not say what it needs.
        let done =
            serde_json::from_slice(answer.payload()).map_or(ALL_DONE, |Needed { done }| done);
        inquiry.ask_later(now);
        for again in self.inboxes.needed(client, done) {
            self.wire.send(again);
        }
    }

    /// The broker of a sender has said since when it is in RUN, because the service is missing.
    pub(crate) fn sender_runs(&mut self, now: f64, client: &str, answer: &P) {
        let Some((home, inquiry)) = self.inboxes.inquiry(client) else { return };
        inquiry.answered();
        match (runs_for(answer), home.job()) {
            (Some(duration), Some(id)) if duration < SURELY_BACK_AFTER => {
                inquiry.asked(now);
                let own = Own::SenderShell(client.to_string(), duration >= BACK_AFTER);
                let rank = home.rank;
                self.wire.ask(own, SHELL_RUNS, &job_payload(id), rank);
            }
            (Some(duration), _) if duration >= BACK_AFTER => self.sender_gone(client),
            _ => inquiry.ask_later(now),
        }
    }

    /// A module has said whether the sender runs.
    pub(crate) fn sender_shell(&mut self, now: f64, client: &str, is_back: bool, answer: &P) {
        let Some((_, inquiry)) = self.inboxes.inquiry(client) else { return };
        inquiry.answered();
        if has_ended(answer, is_back) {
            self.sender_gone(client);
        } else {
            inquiry.ask_later(now);
        }
    }

    /// The sender has ended.
    fn sender_gone(&mut self, client: &str) {
        self.inboxes.needed(client, ALL_DONE);
    }

    /// A receiver asks which answers of this client's requests it has to keep.
    pub(crate) fn asked_what_it_needs(&mut self, packet: &P) -> bool {
        let question = serde_json::from_slice::<WhichNeeded>(packet.payload()).ok();
        let Some(WhichNeeded { from }) = question.filter(|_| packet.is_trusted()) else {
            return false;
        };
        let outbox = self.outboxes.values().find(|outbox| outbox.is_named(&from));
        let done = outbox.map_or(ALL_DONE, |outbox| outbox.done());
        let answer = serde_json::to_string(&Needed { done }).unwrap_or_default();
        self.wire.send(packet.answer(&answer));
        true
    }
}
