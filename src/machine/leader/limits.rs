//! Exceptions, time limits and the kill escalation.

use std::collections::BTreeMap;

use super::failure::Failure;
use super::kill::Kill;
use super::rank::{Rank, ShellPhase};
use super::state::{Running, State};
use super::timer::LeaderTimer;
use super::{Leader, launch, plural, stats};
use crate::machine::context::Context;
use crate::machine::effect::{Effect, Effects, Level};
use crate::machine::event::Fault;
use crate::proto::peer::{self, Order};
use crate::proto::{
    BrokerRank, EndReason, Exception, ExecEvent, Idset, JobException, Signal, WaitStatus, WallTime,
    format_fsd,
};

/// After which part of `barrier-timeout` a job is told whom it waits for.
const NOTICE_PART: f64 = 0.1;

impl Leader {
    /// The job manager published an exception of this job.
    pub(in crate::machine) fn handle_exception(
        &mut self,
        cx: Context,
        exception: &JobException,
        out: &mut Effects,
    ) {
        let may_end = matches!(self.state, State::Opening(_)) || self.state.has_shells();
        if exception.severity != 0 || !may_end {
            return;
        }
        if self.failure.is_some() {
            if self.is_killing() {
                self.signal_running(cx, cx.config.term_signal.number(), out);
            }
            return;
        }
        let text = format!("exec aborted: id={} ({} exception)", self.id, exception.kind);
        out.log(Level::Debug, text);
        // The event has no note.
        let reason = EndReason::new(&exception.kind, "", exception.wait_status);
        self.failure = Some(Failure::new(reason, cx.now.wall));
        self.abort(cx, out);
        self.advance(cx, out);
    }

    /// The time limit has moved.
    ///
    /// # Errors
    /// What is no time.
    pub(in crate::machine) fn handle_expiration(
        &mut self,
        cx: Context,
        expiration: WallTime,
        out: &mut Effects,
    ) -> Result<(), Fault> {
        if expiration < WallTime::UNSET || !expiration.0.is_finite() {
            let message = format!("{}: invalid expiration {expiration}", self.id);
            return Err(Fault::new(libc::EINVAL, message));
        }
        self.start.r.set_expiration(expiration);
        self.arm_expiration(cx);
        let text = format!("updated expiration of {} to {expiration:.2}", self.id);
        out.log(Level::Debug, text);
        Ok(())
    }

    /// (Re)arms the time limit, while all shells run. A job whose start was delayed by a good
    /// part of its duration gets the delay back (flux-core issue 6781).
    pub(super) fn arm_expiration(&mut self, cx: Context) {
        let State::Running(Running { began, expires }) = &mut self.state else { return };
        self.timers.cancel(LeaderTimer::Expiration);
        *expires = WallTime::UNSET;
        let (starttime, mut expiration) = (self.start.r.starttime(), self.start.r.expiration());
        if expiration == WallTime::UNSET {
            return;
        }
        if starttime > WallTime::UNSET && !self.start.reattach {
            let delay = *began - starttime;
            let percent = delay / (expiration - starttime) * 100.0;
            if percent > cx.config.max_start_delay_percent {
                expiration = expiration + delay;
            }
        }
        *expires = expiration;
        let left = (expiration - cx.now.wall).max(0.0);
        self.timers.arm(LeaderTimer::Expiration, cx.now.mono + left);
    }

    /// The shells have so many seconds to enter the first barrier.
    pub(super) fn start_barrier_clock(&mut self, cx: Context, seconds: f64) {
        self.timers.arm(LeaderTimer::Barrier, cx.now.mono + seconds);
        self.timers.arm(LeaderTimer::BarrierNotice, cx.now.mono + seconds * NOTICE_PART);
    }

    pub(super) fn stop_barrier_clock(&mut self) {
        self.timers.cancel(LeaderTimer::Barrier);
        self.timers.cancel(LeaderTimer::BarrierNotice);
    }

    pub(super) fn handle_barrier_timeout(&mut self, cx: Context, out: &mut Effects) {
        let pending = self.barrier.pending();
        let reason = format!("job {} start timeout: possible node hang", self.id);
        self.drain(pending.clone(), reason, out);
        let note = format!(
            "start barrier timeout waiting for {}/{} nodes ({} {pending})",
            pending.len(),
            self.barrier.total(),
            plural("rank", pending.len()),
        );
        self.fail(cx, note, out);
    }

    /// Some shells have waited in the first barrier for a good part of the time that there is.
    pub(super) fn tell_who_is_waited_for(&mut self, cx: Context) {
        if self.failure.is_some() {
            return; // the job is not going to start
        }
        let (pending, total) = (self.barrier.pending(), self.barrier.total());
        let named = stats::first(&pending);
        let more = pending.len() - named.len();
        let hosts = self.start.r.hosts(&named);
        let text = format!(
            "start barrier: {} of {total} shells; waiting for {hosts}{}\n",
            total - pending.len(),
            if more > 0 { format!(" and {more} more") } else { String::new() },
        );
        let component = launch::component(&self.command);
        let (now, rank) = (cx.now.wall, self.start.r.first_rank());
        self.post(ExecEvent::barrier_waits(now, component, rank, pending.len(), &text));
    }

    pub(super) fn handle_time_limit(&mut self, cx: Context, out: &mut Effects) {
        if self.failure.is_some() {
            // Its shells are being ended for that. While rank 0 is away the job manager may hear of
            // a time limit first, and take it for the reason.
            return;
        }
        let note = "resource allocation expired".to_string();
        self.raise(cx, Exception { severity: 0, kind: "timeout".to_string(), note }, out);
        self.signal_running(cx, Signal::ALRM.number(), out);
        self.start_kill(cx);
    }

    pub(super) fn handle_shell_exit_timeout(&mut self, cx: Context, out: &mut Effects) {
        let active = self.ranks.select(|known| known.is_active() && known.is_known());
        if active.is_empty() {
            self.timers.try_again(LeaderTimer::ShellExit, cx.now.mono);
            return;
        }
        let note = format!(
            "job shells still active on {} ({} {active}) {} after leader shell exit",
            self.start.r.hosts(&active),
            plural("rank", active.len()),
            format_fsd(cx.config.shell_exit_timeout.unwrap_or_default()),
        );
        self.fail(cx, note, out);
    }

    /// A fatal error that this leader has found.
    pub(super) fn fail(&mut self, cx: Context, note: impl Into<String>, out: &mut Effects) {
        if self.failure.is_none() {
            let (mut note, is_listening) = (note.into(), self.is_listening());
            if let Some(listening) = self.state.listening() {
                // What was found first counts, once all ranks were heard.
                note = listening.suspicion.get_or_insert(note).clone();
            }
            if is_listening {
                return;
            }
            self.raise(cx, Exception::fatal(note), out);
        }
        self.abort(cx, out);
    }

    /// Raises a fatal exception, and keeps it for later leaders.
    pub(super) fn raise(&mut self, cx: Context, exception: Exception, out: &mut Effects) {
        self.failure = Some(Failure::new((&exception).into(), cx.now.wall));
        self.post(ExecEvent::exception(cx.now.wall, &exception));
        self.say_exception(exception, out);
    }

    /// Ends what runs. What is being started is told to end as soon as it runs.
    pub(super) fn abort(&mut self, cx: Context, out: &mut Effects) {
        if self.state.has_shells() {
            self.timers.cancel(LeaderTimer::ShellExit);
            self.order_to_conclude(out);
            if !self.is_killing() && self.may_have_shells() {
                self.signal_running(cx, cx.config.term_signal.number(), out);
                self.start_kill(cx);
            }
        }
    }

    /// Prologs come first: until one shell is seen, there is none.
    fn may_have_shells(&self) -> bool {
        let is_asked = match &self.state {
            State::Launching(launching) => launching.has_status,
            _ => true,
        };
        is_asked || self.command.scripts.is_none() || self.ranks.any(Rank::has_run)
    }

    fn start_kill(&mut self, cx: Context) {
        if let Some(failure) = self.failure.as_mut().filter(|failure| failure.kill.is_none()) {
            failure.kill = Some(Kill::start(cx.now.mono, cx.config, &mut self.timers));
        }
    }

    /// The next step of the kill escalation, against the tasks.
    pub(super) fn kill_tasks(&mut self, cx: Context, out: &mut Effects) {
        let Some(Failure { kill: Some(kill), .. }) = &mut self.failure else { return };
        kill.signal_tasks(cx.now.mono, &mut self.timers);
        out.push(Effect::KillJob { id: self.id, signal: cx.config.kill_signal.number() });
    }

    /// The job manager has answered a signal to the tasks.
    pub(in crate::machine) fn handle_kill_answered(&mut self) {
        if let Some(Failure { kill: Some(kill), .. }) = &mut self.failure {
            kill.handle_answer();
        }
    }

    /// The next step of the kill escalation, against the shells.
    pub(super) fn kill_shells(&mut self, cx: Context, out: &mut Effects) {
        let is_one_away = self.ranks.any(|known| known.away.is_some());
        let Some(Failure { kill: Some(kill), .. }) = &mut self.failure else { return };
        let waits = is_one_away || kill.is_unheard();
        if waits && kill.spare_shells(cx.now.mono, &mut self.timers) {
            return;
        }
        let gives_up = kill.signal_shells(cx.now.mono, cx.config, &mut self.timers);
        if self.is_multiuser() {
            // The IMP kills all that it has started.
            let order = self.signal(Signal::USR1.number(), false);
            self.order(&self.ranks.active(), &order, out);
        } else {
            // What lives on without its shell is reached as well.
            let order = self.signal(cx.config.kill_signal.number(), true);
            self.order(&self.ranks.select(Rank::is_unsettled), &order, out);
        }
        if gives_up {
            self.kill_groups(cx, out);
        }
    }

    /// Has the kernel kill what neither systemd nor the IMP has ended. Only what is left then is given
    /// up.
    pub(super) fn kill_groups(&mut self, cx: Context, out: &mut Effects) {
        let left = self.ranks.select(Rank::is_unsettled);
        if left.is_empty() || !cx.config.kernel_kills() {
            return self.give_up(cx, out);
        }
        let text = format!("{}: the kernel is to kill what is left on ranks {left}", self.id);
        out.log(Level::Warning, text);
        self.order(&left, &self.signal(libc::SIGKILL, true), out);
        self.timers.arm(LeaderTimer::LastKill, cx.now.mono + cx.config.kill_timeout);
    }

    /// Nothing has helped.
    pub(super) fn give_up(&mut self, cx: Context, out: &mut Effects) {
        if self.is_killing() {
            let is_timed = cx.config.max_kill_timeout.is_some();
            let limit = if is_timed { "max-kill-timeout" } else { "max kill count" };
            let text = format!("job {} exceeded {limit}. Draining active ranks", self.id);
            out.log(Level::Warning, text);
        }
        self.give_up_unsettled(cx, out);
    }

    /// A rank is back. What its shell has to say to the others has a little time to arrive.
    pub(super) fn spare_shells(&mut self, cx: Context) {
        if let Some(Failure { kill: Some(kill), .. }) = &self.failure {
            kill.spare_shells(cx.now.mono, &mut self.timers);
        }
    }

    /// Signals the shells that run, but for those that were signalled before. One that
    /// comes up, or is found, gets its signal when its rank says so. Two would be too many: a shell
    /// that has passed on the first, and is at its end, dies of the second, and what it has not sent
    /// is lost.
    fn signal_running(&mut self, cx: Context, signal: i32, out: &mut Effects) {
        if self.test.is_some() {
            return self.end_test(cx, WaitStatus::signaled(signal));
        }
        self.order(&self.ranks.select(is_due_first), &self.signal(signal, false), out);
    }

    /// A rank has come up, or is back, while the job is being ended.
    pub(super) fn signal_late(&mut self, cx: Context, rank: BrokerRank, out: &mut Effects) {
        if self.ranks.get_mut(rank).is_some_and(|known| is_due_first(known)) {
            let order = self.signal(cx.config.term_signal.number(), false);
            self.order(&rank.into(), &order, out);
        }
    }

    /// The order to send a signal, with the exception for which it is sent.
    pub(super) fn signal(&self, signal: i32, all: bool) -> Order {
        Order::Signal { signal, all, reason: self.end_reason() }
    }

    /// Why shells are ended, for their records.
    pub(super) fn end_reason(&self) -> Option<EndReason> {
        self.failure.as_ref().map(|failure| failure.reason.clone())
    }

    /// What can't be killed is drained, and the job ends without it.
    pub(super) fn give_up_unsettled(&mut self, cx: Context, out: &mut Effects) {
        let active = self.ranks.active();
        let may_have_run = self.start.reattach;
        let has_never_run = |rank: &Rank| !may_have_run && rank.has_never_run();
        let never_ran = self.ranks.select(has_never_run);
        let others = self.ranks.select(|rank| rank.is_unsettled() && !has_never_run(rank));
        if !others.is_empty() {
            self.drain_unkillable(cx, &others, out);
        }
        if !never_ran.is_empty() {
            let reason = format!("shell of job {} was seen neither to run nor to end", self.id);
            self.drain_and_give_up(cx, &never_ran, reason, out);
        }
        if !active.is_empty() && self.barrier.close() {
            self.fail_barrier(&active, out);
        }
    }

    /// The job ends without these ranks. The reason names the processes of which a rank has told.
    pub(super) fn drain_unkillable(&mut self, cx: Context, ranks: &Idset, out: &mut Effects) {
        let mut reasons: BTreeMap<String, Idset> = BTreeMap::new();
        for rank in ranks.ranks() {
            let known = self.ranks.get(rank);
            let processes = known.and_then(|known| known.left_over.as_deref());
            let reason = peer::unkillable_reason(self.id, processes);
            reasons.entry(reason).or_default().insert(rank.0);
        }
        for (reason, ranks) in reasons {
            self.drain_and_give_up(cx, &ranks, reason, out);
        }
    }

    fn drain_and_give_up(&mut self, cx: Context, ranks: &Idset, reason: String, out: &mut Effects) {
        self.drain(ranks.clone(), reason, out);
        self.status.add(WaitStatus(1));
        for rank in ranks.ranks().collect::<Vec<BrokerRank>>() {
            self.give_up_rank(cx, rank);
        }
    }
}

/// Whether its shell has to get its first signal. A rank whose shell has had it says why it ends
/// before it says that it runs.
fn is_due_first(rank: &Rank) -> bool {
    rank.phase == ShellPhase::Running && !rank.ended_before
}
