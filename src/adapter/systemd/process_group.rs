//! The process group of a unit's main process.
//!
//! systemd signals only the main process of a unit, or all processes. flux-core's `rexec` signals the
//! process group of a shell (`libsubprocess/subprocess.c`), and so does who types Ctrl-C. It matters where
//! the job shell, or the IMP, is wrapped by a script: the script handles a signal only when the
//! program that it waits for has ended. flux-shell gives its tasks process groups of their own.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, getpgid, pidfd_open, pidfd_send_signal};

use super::cgroup::is_of;
use crate::proto::UnitName;
use crate::supervisor::cgroup2::{self, group_of};

/// The members of a process group without its leader. A pidfd always refers to the same process,
/// also when its pid is reused.
#[derive(Debug, Default)]
pub(super) struct Members(Vec<OwnedFd>);

impl Members {
    /// Those of the group that the main process leads, if they are in the unit's cgroup. There are
    /// none if the main process has ended, or is not in its unit.
    pub(super) fn of(unit: &UnitName, main: u32, mount: &Path) -> Self {
        let Some(group) = group_of(main).filter(|group| is_of(group, unit)) else {
            return Self::default();
        };
        let procs = std::fs::read_to_string(cgroup2::file(mount, &group, "cgroup.procs"));
        let procs = procs.unwrap_or_default();
        let pids = procs.lines().filter_map(|line| line.parse().ok());
        Self(pids.filter(|pid| *pid != main).filter_map(|pid| open(pid, main, &group)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Signals them. One that has ended meanwhile needs none; one of another user is its parent's,
    /// the IMP's, to signal.
    pub(super) fn signal(&self, unit: &UnitName, signal: i32) {
        // SIGRTMIN and above have no name. No job is sent them.
        let Some(named) = Signal::from_named_raw(signal) else { return };
        for member in &self.0 {
            if let Err(error) = pidfd_send_signal(member, named) {
                tracing::debug!(%unit, signal, %error, "no signal to a process of the group");
            }
        }
    }
}

/// A process, if it is in this process group and cgroup. It is looked at again when there is a pidfd
/// of it. If the pid is another's by then, the process of the pidfd has ended, and gets no signal.
fn open(pid: u32, leader: u32, group: &str) -> Option<OwnedFd> {
    let [pid, leader] = [pid, leader].map(|pid| Pid::from_raw(pid.cast_signed()));
    let is_member = |pid| getpgid(Some(pid)).ok() == leader;
    let pid = pid.filter(|pid| is_member(*pid))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let is_here = group_of(pid.as_raw_pid().cast_unsigned()).as_deref() == Some(group);
    (is_here && is_member(pid)).then_some(pidfd)
}
