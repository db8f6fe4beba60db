//! Main processes of units under the IMP: whether one lives outside of its unit.
//!
//! A pidfd always refers to the same process, also when its pid is reused. While the pidfd is not
//! readable the process has not exited, so what `/proc` says of the pid is about this process.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::task::{AbortHandle, JoinSet};

use crate::proto::UnitName;
use crate::supervisor::cgroup2::group_of;
use crate::supervisor::readable;

/// How long to wait for the end of a process that `/proc` does not show. A process that exits
/// leaves its cgroup a moment before its pidfd becomes readable. If it still lives after this time,
/// it counts as having left its unit.
const EXIT_WAIT_MAX: Duration = Duration::from_secs(1);

/// Where a main process is while its unit's cgroup is empty.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum ProcessPlace {
    /// It has ended or is about to, or there is no pidfd of it.
    Ended,
    /// It lives in this cgroup.
    Outside(String),
    /// It lives, but `/proc` does not say where. It may be mounted with `hidepid`.
    Unseen,
}

/// A process with a pidfd.
#[derive(Debug)]
struct HeldProcess {
    pid: u32,
    pidfd: OwnedFd,
    /// The unit's cgroup, once it is known that this is the unit's main process.
    group: Option<String>,
    /// The task that waits for its end.
    wait: Option<AbortHandle>,
}

/// The main processes of multiuser units, with one descriptor each.
#[derive(Debug, Default)]
pub(super) struct MainProcesses {
    held: HashMap<UnitName, HeldProcess>,
    /// Waits for the end of a process: true if it has ended, false if it still lives.
    waits: JoinSet<(UnitName, bool)>,
}

impl MainProcesses {
    /// Open a pidfd of a process, unless it has ended already.
    pub(super) fn hold(&mut self, unit: &UnitName, pid: u32) {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let Some(raw) = raw else { return };
        self.forget(unit);
        match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(pidfd) => {
                let held = HeldProcess { pid, pidfd, group: None, wait: None };
                self.held.insert(unit.clone(), held);
            }
            Err(rustix::io::Errno::SRCH) => {}
            Err(e) => {
                tracing::warn!(%unit, pid, error = %e,
                    "no pidfd: it will go unnoticed if the main process leaves its unit");
            }
        }
    }

    /// Note that the process is the unit's main process, and which cgroup the unit has.
    pub(super) fn guard(&mut self, unit: &UnitName, group: &str) {
        if let Some(held) = self.held.get_mut(unit) {
            held.group = Some(group.trim_end_matches('/').to_string());
        }
    }

    /// Where the main process is, given that the unit's cgroup is empty.
    pub(super) fn place(&self, unit: &UnitName) -> ProcessPlace {
        let Some(held) = self.held.get(unit) else { return ProcessPlace::Ended };
        let Some(group) = held.group.as_deref().filter(|_| !held.has_exited()) else {
            return ProcessPlace::Ended;
        };
        let now = group_of(held.pid);
        match now {
            _ if held.has_exited() => ProcessPlace::Ended,
            // It is exiting. It no longer counts as a process of the cgroup, but `/proc` still
            // names the cgroup.
            Some(now) if is_below(&now, group) => ProcessPlace::Ended,
            Some(now) => ProcessPlace::Outside(now),
            None => ProcessPlace::Unseen,
        }
    }

    /// Wait for the end of the process: [`wait_ended`](Self::wait_ended) will return it. Unless
    /// `for_ever`, it is also returned if it still lives after [`EXIT_WAIT_MAX`].
    pub(super) fn begin_wait(&mut self, unit: &UnitName, for_ever: bool) {
        let Some(held) = self.held.get_mut(unit) else { return };
        if held.wait.as_ref().is_some_and(|wait| !wait.is_finished()) {
            return;
        }
        let waiting = held.pidfd.try_clone().and_then(readable);
        let unit = unit.clone();
        held.wait = Some(self.waits.spawn(async move {
            let exit = async {
                match waiting {
                    // An error means that the runtime ends, and this task with it.
                    Ok(waiting) => drop(waiting.readable().await),
                    Err(e) => {
                        tracing::error!(%unit, error = %e, "cannot wait for a main process");
                        std::future::pending().await
                    }
                }
            };
            if for_ever {
                exit.await;
                return (unit, true);
            }
            let ended = tokio::time::timeout(EXIT_WAIT_MAX, exit).await.is_ok();
            (unit, ended)
        }));
    }

    /// Wait for the end of a wait: true if the main process has ended, false if it still lives. May
    /// be dropped and called again.
    pub(super) async fn wait_ended(&mut self) -> (UnitName, bool) {
        loop {
            match self.waits.join_next_with_id().await {
                Some(Ok((id, (unit, ended)))) => {
                    // Other results are about an earlier unit of that name.
                    let held = self.held.get(&unit).and_then(|held| held.wait.as_ref());
                    if held.is_some_and(|wait| wait.id() == id) {
                        return (unit, ended);
                    }
                }
                // `forget` has aborted it.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Close the pidfd.
    pub(super) fn forget(&mut self, unit: &UnitName) {
        if let Some(wait) = self.held.remove(unit).and_then(|held| held.wait) {
            wait.abort();
        }
    }
}

impl HeldProcess {
    fn has_exited(&self) -> bool {
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        // If poll(2) is interrupted the process counts as alive, and is checked again later.
        matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
    }
}

fn is_below(group: &str, top: &str) -> bool {
    let group = group.strip_suffix(" (deleted)").unwrap_or(group);
    group.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::proto::{BrokerRank, InstanceId, JobId};

    fn unit() -> UnitName {
        UnitName::new(true, BrokerRank(0), JobId(1), InstanceId::new("/test", 1))
    }

    /// It ends when its input does.
    fn child() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat runs")
    }

    #[test]
    fn a_process_is_outside_while_it_lives() {
        let (mut mains, unit, mut child) = (MainProcesses::default(), unit(), child());
        assert_eq!(mains.place(&unit), ProcessPlace::Ended, "not held");
        mains.hold(&unit, child.id());
        assert_eq!(mains.place(&unit), ProcessPlace::Ended, "perhaps not the unit's");
        let own = group_of(child.id()).expect("a cgroup");
        mains.guard(&unit, "/nowhere");
        assert_eq!(mains.place(&unit), ProcessPlace::Outside(own.clone()));
        mains.guard(&unit, &own);
        assert_eq!(mains.place(&unit), ProcessPlace::Ended, "counted no more, but in its unit");
        mains.guard(&unit, "/nowhere");
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert_eq!(mains.place(&unit), ProcessPlace::Ended);
        mains.hold(&unit, child.id());
        mains.forget(&unit);
        assert!(mains.held.is_empty());
    }

    #[test]
    fn the_end_of_a_process_is_told_once_and_to_who_waits() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let (mut mains, unit, mut child) = (MainProcesses::default(), unit(), child());
            for _ in 0..2 {
                mains.hold(&unit, child.id());
                mains.begin_wait(&unit, true);
                mains.begin_wait(&unit, true);
                mains.forget(&unit);
            }
            mains.hold(&unit, child.id());
            mains.begin_wait(&unit, false);
            assert_eq!(mains.wait_ended().await, (unit.clone(), false), "it lives on");
            mains.begin_wait(&unit, true);
            drop(child.stdin.take());
            assert_eq!(mains.wait_ended().await, (unit, true));
            assert!(mains.waits.is_empty(), "no other wait is left");
            child.wait().expect("it ends");
        });
    }

    #[test]
    fn cgroups_below_another() {
        assert!(is_below("/a/b", "/a/b") && is_below("/a/b/c", "/a/b"));
        assert!(is_below("/a/b (deleted)", "/a/b"));
        assert!(!is_below("/a/bc", "/a/b") && !is_below("/a", "/a/b"));
    }
}
