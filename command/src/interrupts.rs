//! Ctrl-C in the demonstration: the life that runs cancels its job, and the story ends.

use std::process::ChildStdin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::failure::Failure;
use super::signals::SignalThread;

/// What the thread and the story share.
#[derive(Debug, Default)]
struct Shared {
    interrupted: bool,
    /// The stdin of the life that runs. When it is closed, that life cancels its job.
    stdin: Option<ChildStdin>,
}

/// Waits for signals, until this is dropped.
pub(super) struct Interrupts {
    shared: Arc<Mutex<Shared>>,
    _thread: SignalThread,
}

impl Interrupts {
    pub(super) fn start() -> Result<Self, Failure> {
        let shared = Arc::<Mutex<Shared>>::default();
        let of_thread = Arc::clone(&shared);
        let thread = SignalThread::start(move |_, _| {
            let mut shared = lock(&of_thread);
            shared.interrupted = true;
            shared.stdin = None;
            "canceling the job"
        })?;
        Ok(Self { shared, _thread: thread })
    }

    /// Keeps the stdin of a life that has begun, or closes it if a signal has come before.
    pub(super) fn keep_open(&self, stdin: Option<ChildStdin>) {
        let mut shared = lock(&self.shared);
        shared.stdin = stdin.filter(|_| !shared.interrupted);
    }

    /// Closes the stdin of the life that runs.
    pub(super) fn close(&self) {
        lock(&self.shared).stdin = None;
    }

    /// A signal has come.
    pub(super) fn has_come(&self) -> bool {
        lock(&self.shared).interrupted
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // No change is done by halves.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
