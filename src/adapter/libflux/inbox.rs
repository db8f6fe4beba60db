//! A queue from the supervisor's thread to the reactor.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::machine::Level;
use crate::port::supervisor::SupervisorEvent;

/// What the supervisor's thread sends.
pub enum Inward {
    /// A log line of the supervisor.
    Log(Level, String),
    /// A supervisor's event.
    Supervisor(SupervisorEvent),
}

/// A queue with a file descriptor that is readable while the queue has items. The writers bound its
/// length: output by the window, all else by the number of units.
pub struct Inbox {
    queue: Mutex<VecDeque<Inward>>,
    wake: EventFd,
}

impl Inbox {
    /// An empty queue.
    ///
    /// # Errors
    /// When there are no file descriptors left.
    pub fn new() -> std::io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self { queue: Mutex::default(), wake: EventFd::from_value_and_flags(0, flags)? })
    }

    /// The descriptor to watch.
    pub fn fd(&self) -> RawFd {
        self.wake.as_fd().as_raw_fd()
    }

    /// Adds an item, from any thread.
    pub fn push(&self, item: Inward) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(item);
        if queue.len() == 1 {
            // If the counter is full (EAGAIN) the descriptor is readable already.
            let _ = self.wake.write(1);
        }
    }

    /// Takes all items.
    pub fn take(&self) -> VecDeque<Inward> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // The counter is zero (EAGAIN) if the last take was faster than the wake-up.
        let _ = self.wake.read();
        std::mem::take(&mut *queue)
    }
}
