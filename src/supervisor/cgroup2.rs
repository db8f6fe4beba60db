//! The cgroup2 hierarchy, as this process sees it.

use std::io;
use std::path::{Path, PathBuf};

/// Where it is mounted.
///
/// # Errors
/// If there is no cgroup2 mount, or the mounts cannot be read.
pub(crate) fn mount() -> io::Result<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    last_mount(&mounts).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, "no cgroup2 in /proc/self/mountinfo")
    })
}

/// A file of a cgroup.
pub(crate) fn file(mount: &Path, group: &str, name: &str) -> PathBuf {
    mount.join(group.trim_start_matches('/')).join(name)
}

/// The cgroup of a process. `None`: it has ended, or `/proc` hides it.
pub(crate) fn group_of(pid: u32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_string)
}

/// The last cgroup2 mount, because later mounts hide earlier ones. On a unified host it is
/// `/sys/fs/cgroup`, on a hybrid one `/sys/fs/cgroup/unified`.
fn last_mount(mountinfo: &str) -> Option<PathBuf> {
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
        assert_eq!(last_mount(hybrid), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        let over = format!("{hybrid}99 24 0:26 / /sys/fs/cgroup rw - cgroup2 none rw\n");
        assert_eq!(last_mount(&over), Some(PathBuf::from("/sys/fs/cgroup")));
        assert_eq!(last_mount("24 1 0:22 / /sys rw - sysfs sysfs rw\n"), None);
    }
}
