//! Pidfds. A pidfd always refers to the same process; a pid can be reused.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::supervisor::readable;

/// Open a pidfd of the process that has this pid now.
pub(super) fn open(pid: i32) -> rustix::io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(rustix::io::Errno::SRCH)?;
    pidfd_open(pid, PidfdFlags::empty())
}

/// Wait until the process of a pidfd has exited.
pub(super) async fn exited(pidfd: OwnedFd) {
    match readable(pidfd) {
        Ok(waiting) => {
            // On an error the runtime ends, and this task with it.
            let _ = waiting.readable().await;
        }
        Err(e) => {
            tracing::error!(error = %e, "cannot wait for a child process");
            std::future::pending::<()>().await;
        }
    }
}
