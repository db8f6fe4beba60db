//! The processes of this node.

use std::fs;

use nix::unistd::{SysconfVar, sysconf};

/// A process, as it was when it was looked at.
pub(super) struct Process {
    pub(super) pid: u64,
    pub(super) parent: u64,
    /// The real user id.
    pub(super) user: u32,
    /// All lines of its file `cgroup`.
    pub(super) cgroup: String,
    pub(super) state: String,
    /// In seconds.
    pub(super) age: f64,
    pub(super) name: String,
}

impl Process {
    /// Its cgroup in the cgroup2 hierarchy.
    pub(super) fn group(&self) -> &str {
        self.cgroup.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default()
    }

    /// It is in this cgroup, or in one below.
    pub(super) fn is_within(&self, group: &str) -> bool {
        let below = self.group().strip_prefix(group.trim_end_matches('/'));
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }
}

/// All processes of this node that `/proc` shows. systemd is not asked, as it may be what does not answer.
pub(super) fn processes() -> Vec<Process> {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let uptime = uptime.split(' ').next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0.0);
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100) as f64;
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
    pids.filter_map(|pid| {
        // It may have ended by now.
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let cgroup = cgroup.trim_end().trim_end_matches(" (deleted)").to_string();
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let (state, parent, started, name) = read_stat(&String::from_utf8_lossy(&stat))?;
        let status = fs::read(format!("/proc/{pid}/status")).ok()?;
        let user = real_user(&String::from_utf8_lossy(&status))?;
        Some(Process { pid, parent, user, cgroup, state, age: uptime - started / ticks, name })
    })
    .collect()
}

fn real_user(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().next()?.parse().ok()
}

/// State, parent, start in ticks since the boot, and name. The name can have any characters.
fn read_stat(stat: &str) -> Option<(String, u64, f64, String)> {
    let (before, after) = stat.rsplit_once(") ")?;
    let (_, name) = before.split_once(" (")?;
    let mut fields = after.split(' ');
    let state = fields.next()?.to_string();
    let parent = fields.next()?.parse().ok()?;
    Some((state, parent, fields.nth(17)?.parse().ok()?, name.to_string()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::parent_id;

    use nix::unistd::getuid;

    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4700 19 20";
        let read = read_stat(&format!("4711 (a) R (\u{1b}b) {fields}"));
        assert_eq!(read, Some(("S".into(), 1, 4700.0, "a) R (\u{1b}b".into())));
        let own = u64::from(std::process::id());
        let all = processes();
        let found = all.iter().find(|process| process.pid == own).expect("this one");
        assert!(
            found.age < 3600.0 && found.cgroup.contains("::/"),
            "{} {}",
            found.age,
            found.cgroup
        );
        assert_eq!((found.parent, found.user), (u64::from(parent_id()), getuid().as_raw()));
    }

    #[test]
    fn a_process_is_in_its_cgroup_and_in_those_above() {
        let mut all = processes();
        let process = all.first_mut().expect("a process");
        process.cgroup = "1:name=systemd:/x\n0::/a/b.service/c".to_string();
        let within = ["/a/b.service", "/a/b.service/c", "/", "/a/b", "/x"];
        let within = within.map(|group| process.is_within(group));
        assert_eq!(within, [true, true, true, false, false]);
    }
}
