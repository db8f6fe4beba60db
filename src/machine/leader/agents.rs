//! What the leader asks of the agents: shells, orders, and again when one does not answer.

use std::ops::Bound;

use super::Leader;
use super::failure::Failure;
use super::rank::{Heard, ShellPhase};
use super::state::State;
use super::timer::LeaderTimer;
use crate::machine::away::Away;
use crate::machine::context::Context;
use crate::machine::effect::Effects;
use crate::machine::event::{Role, StreamId};
use crate::machine::peer_request::PeerRequest;
use crate::machine::tree;
use crate::proto::peer::{
    Mode, Order, OrderRequest, OutputPosition, Reports, ShellsRequest, StreamEnd, StreamName,
    Version,
};
use crate::proto::{BrokerRank, Idset, Stream};

impl Leader {
    /// Asks the agents of `ranks` for shells: one message, to the lowest rank, which is the root
    /// of their tree.
    pub(super) fn ask(&mut self, cx: Context, ranks: &Idset, mode: Mode, out: &mut Effects) {
        let Some(root) = ranks.first() else { return };
        let asked = self.ranks.iter().filter(|(rank, _)| ranks.contains_rank(*rank));
        let output = asked.flat_map(|(rank, known)| {
            [Stream::Stdout, Stream::Stderr].map(|stream| {
                let offset = known.in_log.streams[stream as usize].durable;
                OutputPosition { rank, stream, offset }
            })
        });
        let request = ShellsRequest {
            version: Version,
            stream: StreamName::default(),
            id: self.id,
            parent: cx.facts.rank,
            leader: cx.facts.rank,
            issued: cx.now.wall,
            generation: self.generation(),
            ranks: ranks.clone(),
            arity: cx.config.fanout,
            mode,
            command: self.command.clone(),
            output: output.filter(|position| position.offset > 0).collect(),
        };
        let (stream, to) = (out.stream(), BrokerRank(root));
        self.agents.insert(stream, (to, ranks.clone()));
        let (role, shells) = (Role::Leader, Box::new(request));
        out.send(to, PeerRequest::Shells { role, stream, shells });
    }

    /// The leader asks ranks itself, in subtrees: their parent is lost.
    fn ask_subtrees(&mut self, cx: Context, ranks: &Idset, mode: Mode, out: &mut Effects) {
        for (_, ranks) in tree::split(ranks, cx.config.fanout) {
            self.ask(cx, &ranks, mode, out);
        }
    }

    /// Asks ranks again. What never ran may be started as long as the job is being launched; what
    /// was seen running, was released, or has ended with all others, is never started a second time.
    pub(super) fn ask_again(&mut self, cx: Context, ranks: &Idset, out: &mut Effects) {
        let launches = matches!(self.state, State::Launching(_)) && self.status.posted.is_none();
        let fresh = if launches && !self.start.reattach && !self.has_failed() {
            let pending = self.ranks.select(|known| known.phase == ShellPhase::Pending);
            pending.intersection(ranks).difference(self.release.released())
        } else {
            Idset::new()
        };
        let starting = if self.is_preparing() { Mode::Prepare } else { Mode::Start };
        self.ask_subtrees(cx, &fresh, starting, out);
        self.ask_subtrees(cx, &ranks.difference(&fresh), self.finding_mode(), out);
    }

    /// Sends an order down the tree to the agents of `ranks`.
    pub(super) fn order(&self, ranks: &Idset, order: &Order, out: &mut Effects) {
        for (root, subtree) in self.agents.values() {
            let ranks = ranks.intersection(subtree);
            if !ranks.is_empty() {
                self.send_order(*root, ranks, order.clone(), out);
            }
        }
    }

    fn send_order(&self, to: BrokerRank, ranks: Idset, order: Order, out: &mut Effects) {
        let (id, generation, digest) = (self.id, self.generation(), self.command.digest.clone());
        let request = OrderRequest { version: Version, id, digest, generation, ranks, order };
        out.send(to, PeerRequest::Order(request));
    }

    /// Tells every agent that the job is over, also those that no stream leads to any more. A
    /// rank that does not hear it asks for itself later.
    pub(super) fn order_to_forget(&self, out: &mut Effects) {
        if self.test.is_some() {
            return;
        }
        let all = self.start.r.ranks();
        self.order(all, &Order::Forget, out);
        let streams = self.agents.values();
        let reached = Idset::union_of(streams.map(|(_, ranks)| ranks));
        for rank in all.difference(&reached).ranks() {
            self.send_order(rank, rank.into(), Order::Forget, out);
        }
    }

    /// A rank has the request for its shell, which is slow to start: it is there. One whose shell has run
    /// says at once what that does, if it can.
    pub(in crate::machine) fn handle_present(&mut self, stream: StreamId) {
        if let Some((root, _)) = self.agents.get(&stream)
            && let Some(known) = self.ranks.get_mut(*root)
            && known.phase == ShellPhase::Pending
            && known.heard != Heard::Unsure
        {
            known.away = None;
        }
    }

    /// A stream to an agent has brought reports, or has ended.
    pub(in crate::machine) fn handle_reports(
        &mut self,
        cx: Context,
        stream: StreamId,
        result: Result<Reports, StreamEnd>,
        out: &mut Effects,
    ) {
        let Some(agent) = self.agents.get(&stream).cloned() else { return };
        match result {
            Ok(reports) => self.read_reports(cx, stream, reports, out),
            Err(end) => {
                self.agents.remove(&stream);
                self.handle_stream_end(cx, stream, agent, &end, out);
            }
        }
        self.advance(cx, out);
    }

    fn handle_stream_end(
        &mut self,
        cx: Context,
        stream: StreamId,
        (root, mut ranks): (BrokerRank, Idset),
        end: &StreamEnd,
        out: &mut Effects,
    ) {
        match end {
            StreamEnd::Superseded { .. } => self.step_down(out),
            StreamEnd::AskedAgain => self.ask_unless_covered(cx, stream, &ranks),
            end => {
                ranks.remove(root.0);
                self.handle_unreachable(cx, root, end, out);
                self.ask_again(cx, &ranks, out);
            }
        }
    }

    /// Another stream of this leader has taken the place of this one for these ranks. If it is an older
    /// one, whose request was longer on its way, it may lead to them no longer. After a pause: two
    /// leaders of one generation would go on for ever.
    pub(super) fn ask_unless_covered(&mut self, cx: Context, stream: StreamId, ranks: &Idset) {
        let newer = self.agents.range((Bound::Excluded(stream), Bound::Unbounded));
        let covered = Idset::union_of(newer.map(|(_, (_, ranks))| ranks));
        self.ask_later(cx, &ranks.difference(&covered));
    }

    /// A rank's module, or its whole broker, does not answer.
    pub(super) fn handle_unreachable(
        &mut self,
        cx: Context,
        rank: BrokerRank,
        end: &StreamEnd,
        out: &mut Effects,
    ) {
        let survives = self.shells_survive(cx);
        let Some(known) = self.ranks.get_mut(rank).filter(|known| !known.is_gone()) else { return };
        // A rank that was never heard may just not be there yet.
        let is_lost = !survives || !cx.facts.brokers_return && known.is_heard();
        match end {
            // Nothing has a time limit there.
            StreamEnd::Forgotten if matches!(known.phase, ShellPhase::Epilog(_)) => {
                self.set_gone(cx, rank);
            }
            StreamEnd::Forgotten => (), // as it was told to
            // A child of the broker has ended with it; a unit may well run on. But nothing can be
            // placed where no broker comes back.
            StreamEnd::BrokerGone if is_lost => self.fail_node(cx, rank, out),
            StreamEnd::AskedAgain
            | StreamEnd::BrokerGone
            | StreamEnd::Failed { .. }
            | StreamEnd::Incompatible { .. }
            | StreamEnd::NotLoaded { .. }
            | StreamEnd::ParentGone
            | StreamEnd::Superseded { .. }
            | StreamEnd::Unloaded => {
                let level = Away::note(&mut known.away, cx.now.mono, end);
                out.log(level, format!("{}: rank {rank} does not answer: {end}", self.id));
                self.timers.try_again(LeaderTimer::Retry, cx.now.mono);
            }
        }
    }

    /// Nobody looks after these ranks at the moment.
    fn ask_later(&mut self, cx: Context, ranks: &Idset) {
        for rank in ranks.ranks() {
            if let Some(known) = self.ranks.get_mut(rank).filter(|known| !known.is_gone()) {
                known.away.get_or_insert(Away::new(cx.now.mono));
                self.timers.try_again(LeaderTimer::Retry, cx.now.mono);
            }
        }
    }

    /// Asks the ranks whose modules are away again, and gives up on the longest gone.
    pub(super) fn retry(&mut self, cx: Context, out: &mut Effects) {
        let away = self.ranks.select(|known| known.away.is_some());
        for rank in away.ranks() {
            // Another one may have taken it along.
            let away = self.ranks.get_mut(rank).and_then(|known| known.away.as_mut());
            let Some(away) = away else { continue };
            if away.is_over(cx.now.mono, cx.config.peer_timeout) {
                self.drain_unseen(cx, rank, out);
                self.fail_node(cx, rank, out);
            } else {
                self.ask_again(cx, &rank.into(), out);
            }
        }
        if away.is_empty() {
            self.timers.succeed(LeaderTimer::Retry);
        }
    }

    /// Has agents run, or find, the shells of all ranks but those that are lost: one message, to
    /// this rank's agent. Ranks that were released are another job's by now: nothing is started
    /// there, whatever is left of their records.
    pub(super) fn launch(&mut self, cx: Context, lost: &Idset, mode: Mode, out: &mut Effects) {
        if self.test.is_some() {
            return self.launch_test();
        }
        for rank in lost.ranks() {
            self.drain_unseen(cx, rank, out);
            self.fail_node(cx, rank, out);
        }
        let mode = match mode {
            Mode::Start if !self.has_failed() => self.starting_mode(),
            _ => self.finding_mode(),
        };
        if mode == Mode::Start || self.start.reattach {
            self.expect_status();
        }
        if let State::Launching(launching) = &mut self.state {
            launching.prepares = mode == Mode::Prepare;
        }
        let present = self.start.r.ranks().difference(lost);
        let released = self.release.released().intersection(&present);
        self.ask(cx, &present.difference(&released), mode, out);
        self.ask(cx, &released, self.finding_mode(), out);
    }

    /// Shells were asked for, or found: when they have ended there is a status to tell.
    pub(super) fn expect_status(&mut self) {
        if let State::Launching(launching) = &mut self.state {
            launching.has_status = true;
        }
    }

    /// A fatal exception is known, or something for which there will be one.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some() || self.has_suspicion()
    }

    /// Whether the kill escalation is under way.
    pub(super) fn is_killing(&self) -> bool {
        matches!(self.failure, Some(Failure { kill: Some(_), .. }))
    }
}
