//! Whether a cgroup is empty. Unit states do not tell, because a unit can be `inactive` with
//! processes in its cgroup.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, WatchDescriptor};

use crate::proto::UnitName;
use crate::supervisor::{Watcher, cgroup2, with_descriptors};

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

    /// The cgroup of a unit's main process, if it is the unit's, and is there. The unit's name is
    /// the last part of its path, so it does not matter if the pid is another process's by now.
    pub(super) fn of(&mut self, unit: &UnitName, main: u32) -> Option<String> {
        let group = cgroup2::group_of(main).filter(|group| is_of(group, unit))?;
        self.is_seen(&group).then_some(group)
    }

    /// Where the unit's cgroup is: that of its main process, or one that is to become empty.
    pub(super) fn directory(&mut self, unit: &UnitName, main: Option<u32>) -> Option<PathBuf> {
        if let Some(group) = main.and_then(|main| self.of(unit, main)) {
            return events_of(&self.mount().ok()?, &group).parent().map(Path::to_path_buf);
        }
        let (_, events) = self.waiting.values().find(|(waiting, _)| waiting == unit)?;
        events.parent().map(Path::to_path_buf)
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

    /// Where the cgroup2 hierarchy is mounted.
    pub(super) fn mount(&mut self) -> io::Result<PathBuf> {
        if let Some(mount) = &self.mount {
            return Ok(mount.clone());
        }
        Ok(self.mount.insert(cgroup2::mount()?).clone())
    }
}

/// Whether systemd, whose own cgroup this is, can confine units to CPUs.
///
/// # Errors
/// Says why it cannot.
pub(super) fn check_cpuset(group: &str) -> Result<(), String> {
    if group.is_empty() {
        // Else the controllers of the root would be looked at.
        return Err("systemd --user does not tell its cgroup".to_string());
    }
    let read = |mount: PathBuf| {
        let file = cgroup2::file(&mount, group, "cgroup.controllers");
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
    };
    let controllers = cgroup2::mount().map_err(|error| error.to_string()).and_then(read)?;
    if controllers.split_whitespace().any(|name| name == "cpuset") {
        return Ok(());
    }
    let has = Some(controllers.trim()).filter(|names| !names.is_empty()).unwrap_or("none");
    Err(format!(
        "the cgroup controller cpuset is not delegated to systemd --user in {group}, which has {has}"
    ))
}

/// Has the kernel kill all processes of a cgroup, and of those below, whoever they are
/// (`cgroup.kill`, from Linux 5.14 on).
pub(super) fn kill(directory: &Path) -> io::Result<()> {
    with_descriptors(|| std::fs::write(directory.join("cgroup.kill"), "1"))
}

/// Whether this is the unit's cgroup.
pub(super) fn is_of(group: &str, unit: &UnitName) -> bool {
    group.rsplit('/').next() == Some(&unit.to_string())
}

fn events_of(mount: &Path, group: &str) -> PathBuf {
    cgroup2::file(mount, group, "cgroup.events")
}

/// Whether the cgroup has a process. False also if the cgroup was removed.
fn is_populated(events: &Path) -> io::Result<bool> {
    match with_descriptors(|| std::fs::read_to_string(events)) {
        Ok(text) => Ok(!text.lines().any(|line| line == "populated 0")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        // The cgroup was removed between open and read.
        Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        Err(e) => Err(e),
    }
}
