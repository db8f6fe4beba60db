//! Why an earlier leader has ended the job, as its shells' records have it.
//!
//! The job manager forgets an exception if the KVS goes back. Shells that were ended for it have then
//! ended with a signal, and look as if they had failed. So a leader that has taken over first hears
//! all ranks. Only then does what it has found wrong count.

use super::Leader;
use super::failure::Suspicion;
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
            if failure.reason.as_ref().is_some_and(|known| known.exception() == reason.exception())
            {
                let asked = reason.wait_status.map(|status| status.to_shell_exit());
                failure.wait_status = failure.wait_status.or(asked);
            }
            return;
        }
        let is_open = matches!(self.state, State::Launching(_) | State::Running(_));
        if is_open && self.status.promised.is_none() {
            self.raise(cx, reason.clone(), reason.exception(), out);
            self.abort(cx, out);
        }
    }

    /// An earlier leader may have ended the job, and a rank that can tell was not heard yet.
    pub(super) fn is_listening(&self) -> bool {
        matches!(self.state, State::Launching(Launching { listens: true, .. }))
            && !self.ranks.all_heard()
    }

    /// What was found wrong, and does not count yet.
    pub(super) fn suspicion(&self) -> Option<&Suspicion> {
        match &self.state {
            State::Launching(launching) => launching.suspicion.as_ref(),
            State::Opening(_)
            | State::Running(_)
            | State::Exited(_)
            | State::Moving(_)
            | State::Ended(_)
            | State::Released
            | State::Superseded => None,
        }
    }

    /// Keeps what was found wrong until all ranks were heard. The first counts.
    pub(super) fn suspect(&mut self, note: String) {
        if let State::Launching(launching) = &mut self.state {
            launching.suspicion.get_or_insert(Suspicion { note, before_barrier: false });
        }
    }

    /// What was found wrong is that a shell has ended before the first barrier.
    pub(super) fn set_before_barrier(&mut self) {
        if let Some(failure) = &mut self.failure {
            failure.before_barrier = true;
        } else if let State::Launching(Launching { suspicion: Some(suspicion), .. }) =
            &mut self.state
        {
            suspicion.before_barrier = true;
        }
    }

    /// All ranks were heard. If none knows of an earlier exception, what was found wrong is one.
    pub(super) fn confirm_suspicion(&mut self, cx: Context, out: &mut Effects) {
        if self.is_listening() {
            return;
        }
        if let State::Launching(launching) = &mut self.state
            && let Some(Suspicion { note, before_barrier }) = launching.suspicion.take()
            && self.failure.is_none()
        {
            self.fail(cx, note, out);
            if before_barrier {
                self.set_before_barrier();
            }
        }
    }
}
