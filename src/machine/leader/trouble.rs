//! Exceptions, time limits and the kill escalation.

use super::{Failure, Leader, State, plural};
use crate::machine::Context;
use crate::machine::effect::{Effect, Effects, Level};
use crate::machine::event::Fault;
use crate::machine::leader::kill::{Kill, Step};
use crate::machine::leader::timer::Timer;
use crate::proto::peer::Order;
use crate::proto::{
    BrokerRank, Exception, ExecEvent, Idset, JobException, Response, Signal, WaitStatus, format_fsd,
};

/// Pause before shells of unknown state are looked at again, in seconds.
const SHELL_EXIT_AGAIN: f64 = 1.0;

impl Leader {
    /// The job manager published an exception of this job.
    pub(in crate::machine) fn exception(
        &mut self,
        cx: Context,
        exception: &JobException,
        out: &mut Effects,
    ) {
        if exception.severity != 0
            || matches!(self.state, State::Finishing | State::Ended | State::Released)
        {
            return;
        }
        if self.failure.is_some() {
            if self.kill.is_some() {
                self.signal_shells(cx.config.term_signal.number(), false, out);
            }
            return;
        }
        let text = format!("exec aborted: id={} ({} exception)", self.id, exception.kind);
        out.log(Level::Debug, text);
        let wait_status = exception.wait_status.map(WaitStatus::to_shell_exit);
        self.failure = Some(Failure { wait_status });
        self.abort(cx, out);
        self.advance(cx, out);
    }

    /// The time limit has moved.
    pub(in crate::machine) fn expiration(
        &mut self,
        cx: Context,
        expiration: f64,
        out: &mut Effects,
    ) -> Result<(), Fault> {
        if expiration < 0.0 || !expiration.is_finite() {
            let message = format!("{}: invalid expiration {expiration}", self.id);
            return Err(Fault::new(libc::EINVAL, message));
        }
        self.start.r.set_expiration(expiration);
        if self.began.is_some() {
            self.arm_expiration(cx);
        }
        let text = format!("updated expiration of {} to {expiration:.2}", self.id);
        out.log(Level::Debug, text);
        Ok(())
    }

    pub(in crate::machine) fn timeout(&mut self, cx: Context, out: &mut Effects) {
        while let Some(timer) = self.timers.pop_due(cx.now.mono) {
            match timer {
                Timer::Barrier => self.barrier_timeout(cx, out),
                Timer::Commit => self.log.try_again(),
                Timer::Expiration => self.time_limit(cx, out),
                Timer::Ended => self.ask_whether_known(cx, out),
                Timer::Flush => self.log.flush(self.id, out),
                Timer::Leftover => self.give_up(cx, out),
                Timer::JobKill | Timer::MaxKill | Timer::ShellKill => {
                    self.kill_step(cx, timer, out);
                }
                Timer::Open => self.open(out),
                Timer::Release => self.release_partial(out),
                Timer::Retry => self.retry(cx, out),
                Timer::ShellExit => self.shell_exit_timeout(cx, out),
            }
        }
        self.advance(cx, out);
    }

    pub(super) fn barrier_timeout(&mut self, cx: Context, out: &mut Effects) {
        let pending = self.barrier.pending();
        let reason = format!("job {} start timeout: possible node hang", self.id);
        out.push(Effect::Drain { ranks: pending.clone(), reason });
        let note = format!(
            "start barrier timeout waiting for {}/{} nodes ({} {pending})",
            pending.len(),
            self.barrier.total(),
            plural("rank", pending.len()),
        );
        self.fatal(cx, note, out);
    }

    pub(super) fn time_limit(&mut self, cx: Context, out: &mut Effects) {
        let note = "resource allocation expired".to_string();
        let exception = Exception { severity: 0, kind: "timeout".to_string(), note };
        self.log_exception(cx, &exception);
        self.say_exception(exception, out);
        self.failure.get_or_insert_default();
        self.signal_shells(Signal::ALRM.number(), false, out);
        self.start_kill(cx);
    }

    pub(super) fn shell_exit_timeout(&mut self, cx: Context, out: &mut Effects) {
        // Of a rank that does not answer it is not known whether its shell is active.
        let away =
            |rank: &u32| self.ranks.get(&BrokerRank(*rank)).is_some_and(|r| r.away_since.is_some());
        let active: Idset = self.active().iter().filter(|rank| !away(rank)).collect();
        if active.is_empty() {
            return self.timers.arm(Timer::ShellExit, cx.now.mono + SHELL_EXIT_AGAIN);
        }
        let note = format!(
            "job shells still active on {} ({} {active}) {} after leader shell exit",
            self.start.r.hosts(&active),
            plural("rank", active.len()),
            format_fsd(cx.config.shell_exit_timeout.unwrap_or_default()),
        );
        self.fatal(cx, note, out);
    }

    pub(super) fn kill_step(&mut self, cx: Context, timer: Timer, out: &mut Effects) {
        let Some(kill) = &mut self.kill else { return };
        let kill_signal = cx.config.kill_signal.number();
        match kill.step(cx.now.mono, timer, cx.config, &mut self.timers) {
            Step::KillTasks => {
                out.push(Effect::KillJob { id: self.id, signal: kill_signal });
            }
            Step::KillShells { and_give_up } => {
                if self.is_multiuser() {
                    self.signal_shells(Signal::USR1.number(), false, out);
                } else {
                    self.signal_shells(kill_signal, true, out);
                }
                if and_give_up {
                    self.give_up(cx, out);
                }
            }
            Step::GiveUp => self.give_up(cx, out),
        }
    }

    /// What can't be killed is drained, and the job ends without it.
    pub(super) fn give_up(&mut self, cx: Context, out: &mut Effects) {
        let active = self.unsettled();
        if active.is_empty() {
            return;
        }
        self.drain_unkillable(cx, &active, out);
    }

    /// The job ends without these ranks.
    pub(super) fn drain_unkillable(&mut self, cx: Context, ranks: &Idset, out: &mut Effects) {
        let reason = format!("unkillable user processes for job {}", self.id);
        out.push(Effect::Drain { ranks: ranks.clone(), reason });
        self.status = self.status.max(WaitStatus(1));
        for rank in ranks.ranks() {
            self.set_gone(cx, rank);
        }
    }

    /// A fatal error that this leader has found.
    pub(super) fn fatal(&mut self, cx: Context, note: impl Into<String>, out: &mut Effects) {
        if self.failure.is_none() {
            self.failure = Some(Failure::default());
            let exception = Exception::fatal(note);
            self.log_exception(cx, &exception);
            self.say_exception(exception, out);
        }
        self.abort(cx, out);
    }

    /// Before the namespace is open there is nothing that a later leader could read, and nothing
    /// comes after `done`.
    fn log_exception(&mut self, cx: Context, exception: &Exception) {
        if self.state != State::Opening && !self.done_posted {
            self.log.post(ExecEvent::exception(cx.now.wall, exception));
        }
    }

    pub(super) fn raise(
        &mut self,
        kind: &str,
        severity: i32,
        note: impl Into<String>,
        out: &mut Effects,
    ) {
        let exception = Exception { severity, kind: kind.to_string(), note: note.into() };
        self.say_exception(exception, out);
    }

    /// While rank 0's module is away the job manager is told directly: the job may have ended
    /// before the module is back.
    pub(super) fn say_exception(&mut self, exception: Exception, out: &mut Effects) {
        let text = format!("job-exception: id={}: {}", self.id, exception.note);
        out.log(Level::Info, text);
        if self.coordinator.is_none() {
            return out.push(Effect::Raise { id: self.id, exception });
        }
        self.said.exceptions.push(exception.clone());
        self.say(Response::Exception(exception), out);
    }

    /// Ends what runs. What is being started is told to end as soon as it runs.
    pub(super) fn abort(&mut self, cx: Context, out: &mut Effects) {
        match self.state {
            State::Opening | State::Finishing | State::Ended | State::Released => (),
            State::Launching | State::Running => {
                self.timers.cancel(Timer::ShellExit);
                if self.kill.is_none() {
                    self.signal_shells(cx.config.term_signal.number(), false, out);
                    self.start_kill(cx);
                }
            }
        }
    }

    pub(super) fn start_kill(&mut self, cx: Context) {
        if self.kill.is_none() {
            self.kill = Some(Kill::start(cx.now.mono, cx.config, &mut self.timers));
        }
    }

    pub(super) fn signal_shells(&self, signal: i32, all: bool, out: &mut Effects) {
        // Nothing is left of the others that a signal could reach, but what lives on without
        // its shell is reached as a whole.
        let ranks = if all { self.unsettled() } else { self.active() };
        self.order(&ranks, &Order::Signal { signal, all }, out);
    }

    /// (Re)arms the time limit. A job whose start was delayed by a good part of its duration
    /// gets the delay back (flux-core issue 6781).
    pub(super) fn arm_expiration(&mut self, cx: Context) {
        self.timers.cancel(Timer::Expiration);
        self.expires = 0.0;
        let (starttime, mut expiration) = (self.start.r.starttime(), self.start.r.expiration());
        if expiration == 0.0 {
            return;
        }
        if let Some(began) = self.began.filter(|_| starttime > 0.0) {
            let delay = began - starttime;
            let percent = delay / (expiration - starttime) * 100.0;
            if !self.start.reattach && percent > cx.config.max_start_delay_percent {
                expiration += delay;
            }
        }
        self.expires = expiration;
        let left = (expiration - cx.now.wall).max(0.0);
        self.timers.arm(Timer::Expiration, cx.now.mono + left);
    }
}
