//! Waiting for a file descriptor with tokio.

use std::io;
use std::os::fd::AsRawFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Register a descriptor to be waited for. Needs a tokio runtime around it.
///
/// `fd` must own its descriptor. The types of all callers do.
#[expect(deprecated, reason = "the replacement is `unsafe`; ownership makes this use sound")]
pub(crate) fn readable<T: AsRawFd>(fd: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}
