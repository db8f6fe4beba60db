//! Whether a cgroup is empty. Unit states do not tell, because a unit can be `inactive` with
//! processes in its cgroup.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, WatchDescriptor};

use crate::proto::UnitName;
use crate::supervisor::Watcher;

/// Waits for cgroups to become empty.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    /// Where the cgroup2 hierarchy is mounted. Found when it is first needed.
    mount: Option<PathBuf>,
    /// Made when it is first needed. Most units are not guarded and leave nothing behind.
    watcher: Option<Watcher>,
    waiting: HashMap<WatchDescriptor, (UnitName, PathBuf)>,
}

impl Cgroups {
    /// Whether no process is in the cgroup. If there is one, [`wait_emptied`](Self::wait_emptied)
    /// will return the unit later, and only once.
    pub(super) fn is_empty(&mut self, unit: &UnitName, group: &str) -> io::Result<bool> {
        // systemd says "" (or nothing at all) when it has removed the cgroup.
        if group.trim_matches('/').is_empty() {
            return Ok(true);
        }
        let events = events_of(&self.mount()?, group);
        if !is_populated(&events)? {
            return Ok(true);
        }
        let watcher = match self.watcher.take() {
            Some(watcher) => watcher,
            None => Watcher::new()?,
        };
        let watcher = self.watcher.insert(watcher);
        match watcher.add(&events, AddWatchFlags::IN_MODIFY) {
            Ok(watch) => {
                self.waiting.insert(watch, (unit.clone(), events.clone()));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(e) => return Err(e),
        }
        // It may have become empty before the watch was there.
        let empty = !is_populated(&events)?;
        if empty {
            self.forget(unit);
        }
        Ok(empty)
    }

    /// Whether the cgroup is where systemd says that it is.
    pub(super) fn is_seen(&mut self, group: &str) -> bool {
        let mount = self.mount();
        mount.is_ok_and(|mount| events_of(&mount, group).exists())
    }

    /// Wait until cgroups have become empty, and return their units. May be dropped and called
    /// again.
    pub(super) async fn wait_emptied(&mut self) -> Vec<UnitName> {
        let Some(watcher) = &self.watcher else { return std::future::pending().await };
        loop {
            let happened = match watcher.events().await {
                Ok(happened) => happened,
                Err(e) => {
                    tracing::error!(error = %e, "cannot read inotify events of cgroups");
                    return std::future::pending().await;
                }
            };
            // There may be a watch for each job on the node. After an overflow all are checked.
            let any =
                happened.iter().any(|event| event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW));
            let changed: HashSet<_> = happened.iter().map(|event| event.wd).collect();
            let empty: Vec<_> = self
                .waiting
                .iter()
                .filter(|(watch, _)| any || changed.contains(watch))
                .filter(|(_, (_, events))| !is_populated(events).unwrap_or(true))
                .map(|(watch, (unit, _))| (*watch, unit.clone()))
                .collect();
            for (watch, _) in &empty {
                watcher.remove(*watch);
                self.waiting.remove(watch);
            }
            if !empty.is_empty() {
                return empty.into_iter().map(|(_, unit)| unit).collect();
            }
        }
    }

    /// Stop waiting for a unit's cgroup.
    pub(super) fn forget(&mut self, unit: &UnitName) {
        let Some(watcher) = &self.watcher else { return };
        self.waiting.retain(|watch, (waiting, _)| {
            if waiting == unit {
                watcher.remove(*watch);
            }
            waiting != unit
        });
    }

    fn mount(&mut self) -> io::Result<PathBuf> {
        if let Some(mount) = &self.mount {
            return Ok(mount.clone());
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let mount = cgroup2_mount(&mounts).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no cgroup2 in /proc/self/mountinfo")
        })?;
        Ok(self.mount.insert(mount).clone())
    }
}

fn events_of(mount: &Path, group: &str) -> PathBuf {
    mount.join(group.trim_start_matches('/')).join("cgroup.events")
}

/// Whether the cgroup has a process. False also if the cgroup was removed.
fn is_populated(events: &Path) -> io::Result<bool> {
    match std::fs::read_to_string(events) {
        Ok(text) => Ok(!text.lines().any(|line| line == "populated 0")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        // The cgroup was removed between open and read.
        Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        Err(e) => Err(e),
    }
}

/// The last cgroup2 mount, because later mounts hide earlier ones. On a unified host it is
/// `/sys/fs/cgroup`, on a hybrid one `/sys/fs/cgroup/unified`.
fn cgroup2_mount(mountinfo: &str) -> Option<PathBuf> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, filesystem) = line.split_once(" - ")?;
            let is_cgroup2 = filesystem.split(' ').next() == Some("cgroup2");
            is_cgroup2.then(|| mount.split(' ').nth(4))?.map(PathBuf::from)
        })
        .next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts() {
        let hybrid = "24 1 0:22 / /sys rw - sysfs sysfs rw\n\
            30 24 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n\
            31 24 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n";
        assert_eq!(cgroup2_mount(hybrid), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        let over = format!("{hybrid}99 24 0:26 / /sys/fs/cgroup rw - cgroup2 none rw\n");
        assert_eq!(cgroup2_mount(&over), Some(PathBuf::from("/sys/fs/cgroup")));
        assert_eq!(cgroup2_mount("24 1 0:22 / /sys rw - sysfs sysfs rw\n"), None);
    }
}
