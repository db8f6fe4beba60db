//! Ctrl-C: the first one cancels the job, the second kills it, the third leaves it alone.
//!
//! This uses signal handlers. A signalfd needs the signals blocked in every thread, and the
//! commands that are started would inherit that.

use std::io::Write;
use std::thread::JoinHandle;

use crate::embedded::Control;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use super::failure::Failure;

/// How the exception of a job begins that a signal to this process has raised.
pub const INTERRUPTED: &str = "interrupted";

/// A thread that waits for signals, until this is dropped.
pub struct SignalThread {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl SignalThread {
    /// Calls `take` with each signal: how many came before, and its name. Says on stderr what that
    /// returns.
    pub fn start(
        mut take: impl FnMut(usize, &str) -> &'static str + Send + 'static,
    ) -> Result<Self, Failure> {
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(Failure::new)?;
        let handle = signals.handle();
        let wait = move || {
            for (count, signal) in signals.forever().enumerate() {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("signal");
                let said = take(count, name);
                // What it does is done also if nothing can be written to stderr.
                let _ = writeln!(std::io::stderr(), "job-exec-rs: {name}: {said}");
            }
        };
        let thread = std::thread::Builder::new().name("signals".to_string()).spawn(wait);
        Ok(Self { handle, thread: Some(thread.map_err(Failure::new)?) })
    }

    /// Passes signals on to an instance.
    pub fn of_instance(control: Control) -> Result<Self, Failure> {
        Self::start(move |count, name| match count {
            0 => {
                control.cancel(None, &format!("{INTERRUPTED} ({name})"));
                "canceling the job; once more kills it at once"
            }
            1 => {
                control.kill();
                "killing the job; once more leaves it alone"
            }
            _ => {
                control.leave();
                "leaving"
            }
        })
    }
}

impl Drop for SignalThread {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // It does not panic, and it has no result.
            let _ = thread.join();
        }
    }
}
