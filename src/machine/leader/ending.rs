//! The end: status, release of ranks, and the last commit.

use super::Leader;
use super::rank::Rank;
use super::state::State;
use super::timer::{LeaderTimer, TimerTable};
use crate::machine::context::Context;
use crate::machine::effect::{Effect, Effects, KvsOp, Level};
use crate::machine::event::{Fault, Role};
use crate::proto::peer::{CoveredRequest, KnownRequest, LeadNote, Question, StreamEnd};
use crate::proto::{BrokerRank, ExecEvent, Idset, ReleasedRanks, Response, WaitStatus};

impl Leader {
    /// All shells have ended (RFC 32 `finish`, RFC 50 `complete`). What they left behind is
    /// being ended on their nodes; that has a limit, too.
    pub(super) fn complete(&mut self, cx: Context, out: &mut Effects) {
        self.timers.cancel(LeaderTimer::ShellExit);
        self.timers.cancel(LeaderTimer::Expiration);
        if !self.is_killing() {
            let limit = cx.config.effective_max_kill_timeout();
            self.timers.arm(LeaderTimer::Leftover, cx.now.mono + limit);
        }
        let status = self.status.settle(&self.ranks, self.failure.as_ref());
        if let Some(posted) = self.status.posted.filter(|posted| *posted != status) {
            let text = format!("{}: exec.eventlog has {posted}, but it is {status}", self.id);
            out.log(Level::Warning, text);
        }
        let timeline = self.timeline.as_ref().and_then(|launch| launch.show(&self.start.r));
        if let Some(timeline) = timeline {
            self.post(ExecEvent::timeline(cx.now.wall, timeline));
        }
        if self.status.posted != Some(status) {
            self.post(ExecEvent::complete(cx.now.wall, status));
        }
        self.state.enter(State::Exited(status));
        self.replies.say(Response::Finish { status }, out);
        self.start_epilogs(out);
    }

    /// Commits the last events, and then has the job's data put in its place.
    pub(super) fn move_namespace(&mut self, cx: Context, out: &mut Effects) {
        self.timers.keep_only(LeaderTimer::Commit);
        if !self.journal.is_open() {
            return self.end(cx, self.state.finish(), out);
        }
        self.post(ExecEvent::bare(cx.now.wall, "done"));
        self.journal.is_closed = true;
        if !self.timers.is_armed(LeaderTimer::Commit) && self.journal.log.finish(self.id, out) {
            let usage = self.job_usage(cx);
            out.push(Effect::Kvs { id: self.id, op: KvsOp::Move { usage } });
        }
    }

    /// The job manager may ask for the job again until a checkpoint holds its end: whoever
    /// knows of the job keeps it until then.
    pub(super) fn end(&mut self, cx: Context, status: Option<WaitStatus>, out: &mut Effects) {
        self.state.enter(State::Ended(status));
        self.timers.arm(LeaderTimer::Ended, cx.now.mono + cx.config.peer_timeout);
        self.say_ended(out);
    }

    pub(super) fn say_ended(&mut self, out: &mut Effects) {
        let ranks = self.release.last();
        self.replies.say(Response::Release { ranks, is_final: true }, out);
        self.replies.end(StreamEnd::Forgotten, out);
    }

    /// The coordinator may have forgotten, or never heard, that the job has ended.
    pub(super) fn ask_whether_known(&mut self, cx: Context, out: &mut Effects) {
        let job = (self.id, self.command.digest.clone());
        out.ask_known(BrokerRank(0), Role::Leader, Question::Manager, job);
        self.timers.arm(LeaderTimer::Ended, cx.now.mono + cx.config.peer_timeout);
    }

    /// The coordinator's answer.
    pub(in crate::machine) fn handle_known(
        &mut self,
        asked: &KnownRequest,
        result: Result<bool, Fault>,
        out: &mut Effects,
    ) {
        let is_mine = asked.digest == self.command.digest;
        if is_mine && result == Ok(false) && matches!(self.state, State::Ended(_)) {
            self.let_go(out);
        }
    }

    /// A checkpoint holds what was committed up to a mark, and perhaps the job's end.
    pub(in crate::machine) fn handle_covered(
        &mut self,
        cx: Context,
        request: &CoveredRequest,
        out: &mut Effects,
    ) {
        if request.digest != self.command.digest {
            return;
        }
        let cover = &mut self.journal.cover;
        let status = cover.status();
        self.replies.ask_for_cover(cover.handle_covered(request.mark), out);
        if cover.status() > status {
            self.release.arm(cx.now.mono, &mut self.timers);
        }
        if request.ended && matches!(self.state, State::Ended(_)) {
            self.let_go(out);
        }
    }

    /// An agent has said that a later leader has taken over, or that the job is over. This leader
    /// does nothing more: it would say, log and drain what is not so. If its coordinator still
    /// listens, that asks again, and then a leader takes over anew.
    pub(super) fn step_down(&mut self, out: &mut Effects) {
        let text = format!("{}: a later leader has taken over", self.id);
        out.log(Level::Info, text);
        self.replies.end(StreamEnd::superseded("a later leader has taken over"), out);
        self.timers = TimerTable::default();
        self.state.enter(State::Superseded);
    }

    fn let_go(&mut self, out: &mut Effects) {
        self.order_to_forget(out);
        self.state.enter(State::Released);
    }

    /// Releases the ranks that are gone, but never the last ones.
    pub(super) fn release_partly(&mut self, cx: Context, out: &mut Effects) {
        if self.must_keep_ranks()
            && let Some(listening) = self.state.listening()
        {
            listening.release_missed = true;
            return;
        }
        let ready = self.release.ready(&self.ranks.select(Rank::is_gone));
        if let Some(ranks) = ready
            && !self.must_save_status(cx)
        {
            self.release.take(&ranks);
            let (ranks, status) = (ReleasedRanks::These(ranks), self.status.largest);
            self.replies.note(LeadNote::Progress { status }, out);
            self.replies.say(Response::Release { ranks, is_final: false }, out);
        }
    }

    /// Ranks wait for a checkpoint that holds the job's status so far. A later leader may not reach
    /// them any more.
    fn must_save_status(&mut self, cx: Context) -> bool {
        let status = self.status.largest;
        if self.journal.is_closed || status <= self.journal.cover.status() {
            return false;
        }
        if status > self.status.logged {
            self.status.logged = status;
            self.journal.log.post_status(cx.now.wall, status);
        }
        true
    }

    /// Has ranks drained. They are not given back before the resource module has answered.
    pub(super) fn drain(
        &mut self,
        ranks: impl Into<Idset>,
        reason: impl Into<String>,
        out: &mut Effects,
    ) {
        let (ranks, reason) = (ranks.into(), reason.into());
        self.release.await_drain(&ranks);
        out.push(Effect::Drain { waits: Some(self.id), ranks, reason });
    }

    /// The resource module has answered.
    pub(in crate::machine) fn handle_drained(
        &mut self,
        cx: Context,
        ranks: &Idset,
        out: &mut Effects,
    ) {
        self.release.handle_drained(ranks);
        self.release.arm(cx.now.mono, &mut self.timers);
        self.advance(cx, out);
    }

    /// Nothing is left of the rank's shell, or nothing more can be learned.
    pub(super) fn set_gone(&mut self, cx: Context, rank: BrokerRank) {
        if let Some(known) = self.ranks.get_mut(rank).filter(|known| !known.is_gone()) {
            known.set_gone();
            self.release.arm(cx.now.mono, &mut self.timers);
        }
    }
}
