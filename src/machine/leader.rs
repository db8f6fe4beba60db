//! The leader of one job: from the start request to the final release.
//!
//! [`state::State`] has the drawing. Inputs come in through the `handle_*` methods, and each ends
//! with [`Leader::advance`], which goes on as far as what is known allows.

use std::collections::BTreeMap;

use crate::machine::context::Context;
use crate::machine::effect::{Effect, Effects, KvsOp, Level};
use crate::machine::event::{RequestId, StreamId};
use crate::machine::mono_time::MonoTime;
use crate::proto::peer::{LeadNote, LeadRequest, ShellCommand, StreamEnd};
use crate::proto::{
    BrokerRank, Exception, ExecEvent, ExecMethod, Idset, JobDigest, JobException, JobId, Jobspec,
    ReleasedRanks, Response, StartRequest, WallTime,
};
use barrier::Barrier;
use failure::Failure;
use journal::{GuestLink, Journal};
use rank::{Rank, Ranks};
use release::Release;
use replies::Replies;
use state::{Launching, Opening, Running, State};
use status::Status;
use testexec::Test;
use timeline::{LaunchStage, Timeline};
use timer::{LeaderTimer, TimerTable};
use tolerance::Told;

mod agents;
mod barrier;
mod cover;
mod ending;
mod exec_log;
mod exits;
mod failure;
mod journal;
mod kill;
mod launch;
mod limits;
mod opening;
mod output;
mod prologs;
mod rank;
mod reason;
mod release;
mod replies;
mod reports;
mod retry;
mod scripts;
mod state;
mod stats;
mod status;
mod testexec;
mod timeline;
mod timer;
mod tolerance;
mod usage;

/// How long a job's last events wait for `done`, in seconds.
const FLUSH_PAUSE: f64 = 0.05;

/// The leader of one job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Leader {
    id: JobId,
    start: StartRequest,
    jobspec: Jobspec,
    command: ShellCommand,
    replies: Replies,
    state: State,
    journal: Journal,
    ranks: Ranks,
    /// Streams of reports, with the root of each and the ranks that it answers for.
    agents: BTreeMap<StreamId, (BrokerRank, Idset)>,
    /// Shell ranks that the job cannot do without.
    critical: Idset,
    barrier: Barrier,
    /// The shell on the job's first rank has ended.
    first_shell_ended: bool,
    failure: Option<Failure>,
    status: Status,
    release: Release,
    /// The job is mocked.
    test: Option<Test>,
    timers: TimerTable,
    /// Of a job that this leader has launched.
    timeline: Option<Timeline>,
    /// Degraded nodes of which the job was told.
    told: Told,
}

impl Leader {
    /// Takes the lead of a job.
    pub(super) fn new(
        cx: Context,
        coordinator: RequestId,
        request: LeadRequest,
        out: &mut Effects,
    ) -> Self {
        let start = request.start;
        let ranks = start.r.ranks();
        let opening = Opening { lost: request.lost, away: None };
        let (largest, promised) = (request.status, request.finish);
        let is_new = !start.reattach && !request.again;
        let mut leader = Self {
            id: start.id,
            jobspec: Jobspec::default(),
            command: launch::adopting_command(cx, &start),
            replies: Replies::new(coordinator),
            state: State::Opening(opening),
            journal: Journal::default(),
            ranks: Ranks::new(ranks),
            agents: BTreeMap::new(),
            critical: (0..ranks.len() as u32).collect(),
            barrier: Barrier::new(ranks),
            first_shell_ended: false,
            failure: None,
            status: Status { largest, promised, ..Status::default() },
            release: Release::new(ranks, &request.released),
            test: Test::of(&start),
            timers: TimerTable::default(),
            timeline: is_new.then(|| Timeline::new(cx.now.mono)),
            told: Told::default(),
            start,
        };
        // A job that cannot be run gets its guest namespace all the same, as users look there.
        leader.check(cx, out);
        if is_new {
            let userid = leader.start.userid;
            out.push(Effect::Kvs { id: leader.id, op: KvsOp::Create { userid } });
        } else {
            leader.open(out);
        }
        if let Some(exception) = &request.exception {
            leader.handle_exception(cx, exception, out);
        }
        leader.advance(cx, out);
        leader
    }

    /// For `coverage/`.
    #[cfg(any(test, feature = "coverage"))]
    pub(super) fn state_name(&self) -> &'static str {
        self.state.name()
    }

    /// It leads this very job.
    pub(super) fn has(&self, digest: &JobDigest) -> bool {
        self.command.digest == *digest
    }

    /// It is this very leader of this very job.
    pub(super) fn leads(&self, digest: &JobDigest, generation: u64) -> bool {
        self.has(digest) && self.generation() == generation
    }

    /// It has nothing more to do.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Released | State::Superseded)
    }

    pub(super) fn next_timeout(&self) -> Option<MonoTime> {
        self.timers.next()
    }

    /// Which of the job's leaders it is, counted from 1; 0 while the KVS has not told.
    fn generation(&self) -> u64 {
        self.journal.generation
    }

    /// Whether the shell on this rank has ended, or the rank was given up.
    pub(super) fn shell_has_ended(&self, rank: BrokerRank) -> bool {
        self.ranks.get(rank).is_some_and(|known| !known.is_active())
    }

    /// Whether this is the job of the request: its id may have been issued again.
    pub(super) fn is_same(&self, start: &StartRequest) -> bool {
        self.command.digest == JobDigest::new(start.id, start.userid, &start.r)
    }

    /// Another coordinator asks for a job that is led here already. It is told everything
    /// again; what the job manager knows, it does not pass on.
    pub(super) fn handle_lead(
        &mut self,
        cx: Context,
        coordinator: RequestId,
        reattach: bool,
        exception: Option<&JobException>,
        out: &mut Effects,
    ) {
        self.start.reattach = reattach;
        self.told.forget();
        self.replies.turn_to(coordinator, reattach, out);
        if let Some(status) = self.state.finish() {
            self.replies.say(Response::Finish { status }, out);
        }
        let released = self.release.released();
        if !released.is_empty() {
            let status = self.status.largest;
            self.replies.note(LeadNote::Progress { status }, out);
            let ranks = ReleasedRanks::These(released.clone());
            self.replies.say(Response::Release { ranks, is_final: false }, out);
        }
        self.replies.ask_for_cover(self.journal.cover.outstanding(), out);
        if matches!(self.state, State::Ended(_)) {
            return self.say_ended(out);
        }
        if let Some(exception) = exception.filter(|_| self.failure.is_none()) {
            self.handle_exception(cx, exception, out);
        }
        self.advance(cx, out);
    }

    /// Nobody listens to this request any more.
    pub(super) fn handle_disconnect(&mut self, request: RequestId, out: &mut Effects) {
        self.replies.handle_disconnect(request, out);
    }

    /// Another job has the id, after the KVS has gone back to a checkpoint. That job's leader takes
    /// the place of this one.
    pub(super) fn give_way(&mut self, out: &mut Effects) {
        self.replies.end(StreamEnd::superseded("another job has this id"), out);
    }

    /// The module is being unloaded. The job runs on.
    pub(super) fn shut_down(&mut self, out: &mut Effects) {
        self.replies.end(StreamEnd::Unloaded, out);
    }

    /// One or more timers are due.
    pub(super) fn handle_timeout(&mut self, cx: Context, out: &mut Effects) {
        while let Some(timer) = self.timers.pop_due(cx.now.mono) {
            match timer {
                LeaderTimer::Barrier => self.handle_barrier_timeout(cx, out),
                LeaderTimer::BarrierNotice => self.tell_who_is_waited_for(cx),
                LeaderTimer::Commit | LeaderTimer::Tell => (), // what follows does it again
                LeaderTimer::Ended => self.ask_whether_known(cx, out),
                LeaderTimer::Expiration => self.handle_time_limit(cx, out),
                LeaderTimer::Flush => self.flush(out),
                LeaderTimer::KillShells => self.kill_shells(cx, out),
                LeaderTimer::KillTasks => self.kill_tasks(cx, out),
                LeaderTimer::LastKill => self.give_up(cx, out),
                LeaderTimer::Leftover | LeaderTimer::MaxKill => self.kill_groups(cx, out),
                LeaderTimer::Open => self.open(out),
                LeaderTimer::Release => self.release_partly(cx, out),
                LeaderTimer::Retry => self.retry(cx, out),
                LeaderTimer::ShellExit => self.handle_shell_exit_timeout(cx, out),
                LeaderTimer::Test => self.handle_test_timeout(cx),
            }
        }
        self.advance(cx, out);
    }

    /// Goes on as far as what is known allows.
    fn advance(&mut self, cx: Context, out: &mut Effects) {
        self.conclude(cx, out);
        self.judge_prologs(cx, out);
        let awaits_link = self.journal.link == GuestLink::Awaited;
        let has_failed = self.failure.is_some();
        if let State::Launching(_) = self.state
            && !awaits_link
            && self.ranks.all_started(has_failed)
        {
            self.state
                .enter(State::Running(Running { began: cx.now.wall, expires: WallTime::UNSET }));
            self.arm_expiration(cx);
            self.replies.say_started(self.start.reattach, out);
            self.run_test(cx, out);
        }
        if let State::Launching(Launching { has_status: true, .. }) | State::Running(_) = self.state
            && !awaits_link
            && !self.ranks.any(Rank::is_active)
        {
            self.say_that_all_ran(out);
            self.complete(cx, out);
        }
        if let State::Launching(Launching { has_status: false, .. }) | State::Exited(_) = self.state
            && !awaits_link
            && self.ranks.all(Rank::is_gone)
            && self.release.undrained().is_empty()
        {
            self.tell_failed_epilogs(out);
            self.state.enter(State::Moving(self.state.finish()));
        }
        match self.state {
            State::Launching(_) | State::Running(_) => self.flush(out),
            State::Exited(_) => self.flush_soon(cx),
            State::Moving(_) => self.move_namespace(cx, out),
            State::Opening(_) | State::Ended(_) | State::Released | State::Superseded => (),
        }
    }

    /// The exec eventlog says that all shells have ended, but their ranks know nothing of them any more:
    /// they have run, and the job manager may not have heard of it.
    fn say_that_all_ran(&mut self, out: &mut Effects) {
        let is_unseen = matches!(self.state, State::Launching(_)) && self.failure.is_none();
        if is_unseen && self.status.posted.is_some() && !self.start.reattach {
            self.replies.say_started(false, out);
        }
    }

    /// Commits what waits for the exec eventlog.
    fn flush(&mut self, out: &mut Effects) {
        if !self.timers.is_armed(LeaderTimer::Commit) {
            self.journal.log.flush(self.id, out);
        }
    }

    /// After the status the last event usually follows at once: one commit serves both.
    fn flush_soon(&mut self, cx: Context) {
        if self.journal.log.is_waiting() && !self.timers.is_armed(LeaderTimer::Flush) {
            self.timers.arm(LeaderTimer::Flush, cx.now.mono + FLUSH_PAUSE);
        }
    }

    fn post(&mut self, event: ExecEvent) {
        self.journal.post(event);
    }

    /// A rank has reached this stage of the launch.
    fn reach(&mut self, cx: Context, stage: LaunchStage, rank: BrokerRank) {
        if let Some(timeline) = &mut self.timeline {
            timeline.reach(stage, cx.now.mono, rank);
        }
    }

    /// While rank 0's module is away the job manager is told directly: the job may have ended
    /// before the module is back.
    fn say_exception(&mut self, exception: Exception, out: &mut Effects) {
        let text = format!("job-exception: id={}: {}", self.id, exception.note);
        out.log(Level::Info, text);
        if self.replies.is_heard() {
            self.replies.say_exception(exception, out);
        } else {
            out.push(Effect::Raise { id: self.id, exception });
        }
    }

    /// A shell may run on when its broker is gone.
    fn shells_survive(&self, cx: Context) -> bool {
        cx.shells_survive && self.command.method != ExecMethod::Fork
    }

    fn is_multiuser(&self) -> bool {
        self.command.multiuser
    }

    /// Whose job it is.
    pub(super) fn userid(&self) -> u32 {
        self.start.userid
    }
}

fn plural(noun: &str, count: usize) -> String {
    if count == 1 { noun.to_string() } else { format!("{noun}s") }
}
