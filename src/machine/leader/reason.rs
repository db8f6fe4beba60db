//! Why an earlier leader has ended the job, as its shells' records have it.
//!
//! The job manager forgets an exception if the KVS goes back. Shells that were ended for it have then
//! ended with a signal, and look as if they had failed. So a leader that has taken over first hears
//! all ranks. Only then does what it has found wrong count.

use super::Leader;
use super::failure::Failure;
use super::rank::Rank;
use super::state::{Launching, State};
use crate::machine::context::Context;
use crate::machine::effect::Effects;
use crate::proto::EndReason;

impl Leader {
    /// A rank knows for which exception an earlier leader has ended its shell. If the job manager had
    /// kept the exception, this leader would have been told, or not have been asked at all.
    pub(super) fn handle_reason(&mut self, cx: Context, reason: &EndReason, out: &mut Effects) {
        if let Some(failure) = &mut self.failure {
            // The exec eventlog does not have the status that the exception has asked for.
            if failure.reason.exception() == reason.exception() {
                let asked = reason.wait_status.map(|status| status.to_shell_exit());
                failure.wait_status = failure.wait_status.or(asked);
            }
            return;
        }
        let is_open = matches!(self.state, State::Launching(_) | State::Running(_));
        if is_open && self.status.promised.is_none() {
            self.barrier.set_ended_by_leader();
            self.raise(cx, reason.exception(), out);
            self.failure = Some(Failure::new(reason.clone(), cx.now.wall));
            self.abort(cx, out);
        }
    }

    /// An earlier leader may have ended the job, and a rank that can tell was not heard yet.
    pub(super) fn is_listening(&self) -> bool {
        matches!(self.state, State::Launching(Launching { listening: Some(_), .. }))
            && !self.ranks.all(Rank::is_heard)
    }

    /// If this leader dies, the next one has to ask all ranks. It must find again what is wrong and was
    /// not said yet, and if the job manager has not heard of a start, it starts the shells that it does
    /// not find.
    pub(super) fn must_keep_ranks(&self) -> bool {
        self.is_listening() && (!self.start.reattach || self.has_suspicion())
    }

    /// Something was found wrong, and perhaps does not count.
    pub(super) fn has_suspicion(&self) -> bool {
        let State::Launching(launching) = &self.state else { return false };
        launching.listening.as_ref().is_some_and(|listening| listening.suspicion.is_some())
    }

    /// Once all ranks were heard, what was found wrong counts, and what the barrier has come to is
    /// known: a rank that was not heard may have entered.
    pub(super) fn conclude(&mut self, cx: Context, out: &mut Effects) {
        if self.is_listening() {
            return;
        }
        let listening = self.state.listening().map(std::mem::take).unwrap_or_default();
        if listening.release_missed {
            self.release.arm(cx.now.mono, &mut self.timers);
        }
        if let Some(note) = listening.suspicion.filter(|_| self.failure.is_none()) {
            // No rank knows of an earlier exception.
            self.fail(cx, note, out);
        }
        self.judge_barrier(cx, out);
    }
}
