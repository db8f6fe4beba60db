//! The end: status, release of ranks, and the last commit.

use super::{Failure, Leader, Phase, State};
use crate::machine::Context;
use crate::machine::effect::{Effect, Effects, Level, Role};
use crate::machine::event::Fault;
use crate::machine::leader::timer::Timer;
use crate::planted::Bug;
use crate::proto::peer::{
    CoveredRequest, LeadNote, Order, OrderRequest, Question, StreamEnd, Version,
};
use crate::proto::{BrokerRank, ExecEvent, Idset, ReleasedRanks, Response, WaitStatus};

impl Leader {
    /// All shells have ended (RFC 32 `finish`, RFC 50 `complete`). What they left behind is
    /// being ended on their nodes; that has a limit, too.
    pub(super) fn complete(&mut self, cx: Context, out: &mut Effects) {
        self.timers.cancel(Timer::ShellExit);
        self.timers.cancel(Timer::Expiration);
        if self.kill.is_none() {
            let limit = cx.config.effective_max_kill_timeout();
            self.timers.arm(Timer::Leftover, cx.now.mono + limit);
        }
        self.status = self.final_status();
        if let Some(posted) = self.completed.filter(|posted| *posted != self.status) {
            let text =
                format!("{}: exec.eventlog has {posted}, but it is {}", self.id, self.status);
            out.log(Level::Warning, text);
        }
        if self.completed != Some(self.status) {
            self.log.post(ExecEvent::complete(cx.now.wall, self.status));
        }
        self.finish(self.status, out);
    }

    /// What was said stays. Else the shells are believed, and the exec eventlog, which the
    /// job's user can write, only where a shell's end was not seen or did not count.
    fn final_status(&self) -> WaitStatus {
        let seen = self.ranks.values().map(|rank| rank.exit).collect::<Option<Vec<_>>>();
        let seen = seen.and_then(|exits| exits.into_iter().max());
        let seen = seen.filter(|_| self.failure.is_none());
        if let Some(status) = self.promised.or(seen).or(self.completed) {
            return status;
        }
        match &self.failure {
            Some(Failure { wait_status: Some(status) }) => *status,
            Some(_) if self.status == WaitStatus::default() => WaitStatus::exited(1),
            _ => self.status,
        }
    }

    pub(super) fn finish(&mut self, status: WaitStatus, out: &mut Effects) {
        self.said.finish = Some(status);
        self.say(Response::Finish { status }, out);
    }

    pub(super) fn finish_log(&mut self, cx: Context, out: &mut Effects) {
        if !self.done_posted {
            self.done_posted = true;
            self.post(cx, "done");
        }
        self.log.finish(self.id, out);
    }

    /// The job's data is in place: give back what is left.
    pub(super) fn finished(&mut self, cx: Context, out: &mut Effects) {
        if self.state == State::Finishing {
            self.release_all(cx, out);
        }
    }

    /// The job manager may ask for the job again until a checkpoint holds its end: whoever
    /// knows of the job keeps it until then.
    pub(super) fn release_all(&mut self, cx: Context, out: &mut Effects) {
        self.enter(State::Ended);
        self.timers.arm(Timer::Ended, cx.now.mono + cx.config.peer_timeout);
        self.say_ended(out);
        if Bug::DuplicateStartAfterRollback.is_planted() {
            self.let_go(out);
        }
    }

    pub(super) fn say_ended(&mut self, out: &mut Effects) {
        let ranks = self.release.last();
        self.say(Response::Release { ranks, is_final: true }, out);
        if let Some(to) = self.coordinator.take() {
            out.end(to, StreamEnd::Forgotten);
        }
    }

    /// The coordinator may have forgotten, or never heard, that the job has ended.
    pub(super) fn ask_whether_known(&mut self, cx: Context, out: &mut Effects) {
        let (id, digest) = (self.id, self.command.digest.clone());
        let to = BrokerRank(0);
        let question = Question::Manager;
        out.push(Effect::Known { to, question, asker: Role::Leader, id, digest });
        self.timers.arm(Timer::Ended, cx.now.mono + cx.config.peer_timeout);
    }

    /// The answer.
    pub(in crate::machine) fn known(&mut self, result: Result<bool, Fault>, out: &mut Effects) {
        if result == Ok(false) && self.state == State::Ended {
            self.let_go(out);
        }
    }

    /// A checkpoint holds what was committed up to `mark`, and the job's end.
    pub(in crate::machine) fn covered(&mut self, request: &CoveredRequest, out: &mut Effects) {
        if request.digest != self.command.digest {
            return;
        }
        if let Some(mark) = self.cover.covered(request.mark) {
            self.note(LeadNote::Changed { mark }, out);
        }
        if request.ended && self.state == State::Ended {
            self.let_go(out);
        }
    }

    fn let_go(&mut self, out: &mut Effects) {
        self.forget(out);
        self.enter(State::Released);
    }

    /// Tells every agent, also those that no stream leads to any more: a rank that does not
    /// hear it asks for itself later.
    fn forget(&self, out: &mut Effects) {
        let all = self.start.r.ranks();
        self.order(all, &Order::Forget, out);
        let reached: Idset = self.streams.values().flat_map(|(_, ranks)| ranks.iter()).collect();
        for rank in all.difference(&reached).ranks() {
            let ranks = Idset::from_iter([rank]);
            let (generation, order) = (self.generation, Order::Forget);
            let request = OrderRequest { version: Version, id: self.id, generation, ranks, order };
            out.push(Effect::Order { to: rank, request });
        }
    }

    pub(super) fn release_partial(&mut self, out: &mut Effects) {
        let gone = self.ranks.iter().filter(|(_, rank)| rank.phase == Phase::Gone);
        let gone: Vec<BrokerRank> = gone.map(|(rank, _)| *rank).collect();
        if let Some(ranks) = self.release.partial(gone.into_iter()) {
            let ranks = ReleasedRanks::These(ranks);
            self.note(LeadNote::Progress { status: self.status }, out);
            self.say(Response::Release { ranks, is_final: false }, out);
        }
    }

    pub(super) fn set_gone(&mut self, cx: Context, rank: BrokerRank) {
        if let Some(known) = self.ranks.get_mut(&rank) {
            known.phase = Phase::Gone;
            known.away_since = None;
            self.release.gone(cx.now.mono, &mut self.timers);
        }
    }
}
