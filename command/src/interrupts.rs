//! Ctrl-C in `demo --crash`: the life that runs cancels its job, and the story ends.

use std::io::Write;
use std::process::ChildStdin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use super::failure::Failure;

/// What the thread and the story share.
#[derive(Debug, Default)]
struct Shared {
    interrupted: bool,
    /// The stdin of the life that runs. When it is closed, that life cancels its job.
    stdin: Option<ChildStdin>,
}

/// A thread that waits for signals, until this is dropped.
pub(super) struct Interrupts {
    shared: Arc<Mutex<Shared>>,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Interrupts {
    pub(super) fn start() -> Result<Self, Failure> {
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(Failure::new)?;
        let handle = signals.handle();
        let shared = Arc::<Mutex<Shared>>::default();
        let of_thread = Arc::clone(&shared);
        let wait = move || {
            for signal in signals.forever() {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("signal");
                // The job is cancelled also if nothing can be written to stderr.
                let _ = writeln!(std::io::stderr(), "job-exec-rs: {name}: canceling the job");
                let mut shared = lock(&of_thread);
                shared.interrupted = true;
                shared.stdin = None;
            }
        };
        let thread = std::thread::Builder::new().name("signals".to_string()).spawn(wait);
        Ok(Self { shared, handle, thread: Some(thread.map_err(Failure::new)?) })
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

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // It does not panic, and it has no result.
            let _ = thread.join();
        }
    }
}
