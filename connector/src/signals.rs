//! Signals to a job shell that is at its end.
//!
//! flux-shell passes `SIGINT`, `SIGTERM` and `SIGALRM` on to its tasks (flux-core
//! `shell/signals.c`). It blocks them, and reads them in its reactor. When the reactor has stopped,
//! nothing reads them, and `flux_close()` lets them through: the shell is ended by one that came late,
//! and with it what it has not handed over. The connector may wait there for as long as a broker
//! is away (rfc/0010, closing-undisturbed).
#![allow(unsafe_code)]

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

const FOR_TASKS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGALRM];

/// The process ignores the signals that a shell passes on, from now on. A blocked one stays pending,
/// and is dropped when it is let through.
pub(crate) fn ignore() {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    for signal in FOR_TASKS {
        // SAFETY: no handler is installed. The kernel refuses only signals that cannot be ignored.
        let _ = unsafe { sigaction(signal, &ignore) };
    }
}
