//! The way from the supervisor's thread into the reactor.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::machine::Level;
use crate::port::supervisor::UnitEvent;

/// What comes in.
pub enum Inward {
    /// A log line of the supervisor.
    Log(Level, String),
    /// A supervisor's event.
    Unit(UnitEvent),
}

/// A queue with a file descriptor that is readable while something is in it. What can be in
/// it is bounded by its writers: output by the window, the rest by the number of units.
pub struct Inbox {
    queue: Mutex<VecDeque<Inward>>,
    wake: EventFd,
}

impl Inbox {
    /// An empty one.
    ///
    /// # Errors
    /// When there are no file descriptors left.
    pub fn new() -> std::io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self { queue: Mutex::default(), wake: EventFd::from_value_and_flags(0, flags)? })
    }

    /// To watch.
    pub fn fd(&self) -> RawFd {
        self.wake.as_fd().as_raw_fd()
    }

    /// Puts something in; from any thread.
    pub fn push(&self, item: Inward) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(item);
        if queue.len() == 1 {
            // A full counter (EAGAIN) is readable all the same.
            let _ = self.wake.write(1);
        }
    }

    /// Takes all that is in it.
    pub fn take(&self) -> VecDeque<Inward> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // Empty already (EAGAIN) when the last take was quicker than its wake-up.
        let _ = self.wake.read();
        std::mem::take(&mut *queue)
    }
}
