//! Shells that nobody wants, and those of another job that had the same id.

use super::eviction::{Eviction, Step};
use super::{Agent, Claim, Over, Unled, Upstream};
use crate::machine::context::Context;
use crate::machine::effect::{Effects, Level};
use crate::proto::peer::{self, Report, ShellsRequest};

impl Agent {
    /// Ends the shell, which nobody wants.
    pub(super) fn evict(&mut self, cx: Context, why: &str, out: &mut Effects) {
        let Some(there) = &mut self.local_shell else { return };
        out.log(Level::Error, format!("{}: stopping {}: {why}", self.id, there.shell.unit()));
        out.unwanted += 1;
        there.end(cx, out);
        if !there.shell.unit.is_done() {
            there.evict_after(cx.config.kill_timeout, cx);
        }
        self.advance(cx, out);
    }

    /// Signals what is left, if it is time.
    pub(super) fn evict_further(&mut self, cx: Context, out: &mut Effects) {
        let Some(there) = &mut self.local_shell else { return };
        let step = there.eviction.as_mut().and_then(|eviction| eviction.take_step(cx.now.mono));
        let Some(step) = step else { return };
        let (signal, all) = match step {
            Step::KillGroup => (libc::SIGKILL, true),
            Step::Signal | Step::SignalAndDrain if there.shell.is_multiuser() => {
                (cx.config.stop_timer_signal, false)
            }
            Step::Signal | Step::SignalAndDrain => (cx.config.kill_signal.number(), true),
        };
        there.shell.unit.signal(signal, all, out);
        if step == Step::SignalAndDrain {
            self.give_up_eviction(cx, out);
        }
    }

    /// The leader drains the rank itself, or has done so before it said that the job is over. The agent
    /// does it if nobody leads, or if the shell is another job's.
    fn give_up_eviction(&mut self, cx: Context, out: &mut Effects) {
        let Some(there) = &mut self.local_shell else { return };
        let is_foreign = there.is_foreign();
        let text = format!("{}: cannot end {}: draining its rank", self.id, there.shell.unit());
        out.log(Level::Error, text);
        match self.upstream {
            Upstream::Led(_) if !is_foreign => {
                let reports = there.shell.set_unkillable();
                self.gather(cx, reports);
            }
            Upstream::Unled(Unled { over: Over::Forgotten, .. }) if !is_foreign => (),
            Upstream::Led(_) | Upstream::Unled(_) => {
                let reason = peer::unkillable_reason(self.id, there.shell.left_over());
                out.drain(cx.facts.rank, reason);
            }
        }
        if is_foreign {
            self.refuse_fenced(cx);
        }
        self.send_if_ready(cx, out);
    }

    /// Drains the rank for a script that has failed, of a job that no leader will do it for.
    pub(super) fn drain_for_scripts(&mut self, cx: Context, out: &mut Effects) {
        let Some(there) = &mut self.local_shell else { return };
        let is_over =
            matches!(self.upstream, Upstream::Unled(Unled { over, .. }) if over != Over::No);
        if is_over || there.is_foreign() {
            for reason in there.perilog.take_drain_reasons(self.id) {
                out.drain(cx.facts.rank, reason);
            }
        }
    }

    /// Nothing can be started here, because the shell of another job with the same id lives on.
    fn refuse_fenced(&mut self, cx: Context) {
        self.set_claim(Claim::Refused);
        let message = "processes of another job, which had the same id, cannot be ended";
        self.gather(cx, [Report::Failed { errnum: libc::EBUSY, message: message.to_string() }]);
    }

    fn set_claim(&mut self, claim: Claim) {
        if let Some(there) = &mut self.local_shell {
            there.claim = claim;
        }
    }

    /// The shell that is here is another job's. It is ended before anything is started.
    pub(super) fn fence_off(&mut self, cx: Context, request: &ShellsRequest, out: &mut Effects) {
        self.set_claim(Claim::Fenced(Box::new(request.clone())));
        let eviction = self.local_shell.as_ref().and_then(|there| there.eviction.as_ref());
        if eviction.is_some_and(Eviction::is_given_up) {
            return self.refuse_fenced(cx);
        }
        let why = "it belongs to another job, which had the same id before the KVS went back to a \
                   checkpoint";
        // A shell that sees its tasks die raises an exception, for the job that has the id now. Only
        // the IMP can end a guest's.
        if let Some(there) = self.local_shell.as_mut().filter(|there| !there.shell.is_multiuser()) {
            there.shell.unit.signal(libc::SIGKILL, false, out);
        }
        self.evict(cx, why, out);
        if self.local_shell.as_ref().is_some_and(|there| there.is_done(cx)) {
            return self.unfence(cx, out);
        }
        self.gather(cx, [Report::Pending]);
    }

    /// The other job's shell is gone: the name is free.
    pub(super) fn unfence(&mut self, cx: Context, out: &mut Effects) {
        match self.local_shell.as_ref().map(|there| &there.claim) {
            Some(Claim::Fenced(request)) => {
                let request = request.clone();
                self.local_shell = None;
                self.claim_shell(cx, &request, out);
            }
            Some(Claim::Refused) => self.local_shell = None,
            Some(Claim::Own | Claim::Foreign) | None => (),
        }
    }
}
