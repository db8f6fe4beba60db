//! Who is left in a unit that was signalled: an administrator wants to know what cannot be killed.

use std::path::Path;

/// How many processes are named. The user decides how many there are.
const NAMED_MAX: usize = 8;

/// The processes in this cgroup and below, for people: `pid 7 (user 0, "sleep")`. None if there is no
/// process.
pub(super) fn names(cgroup: &Path) -> Option<String> {
    let mut pids = Vec::new();
    collect(cgroup, &mut pids);
    let mut names: Vec<String> = pids.iter().take(NAMED_MAX).map(|pid| name(*pid)).collect();
    if pids.len() > NAMED_MAX {
        names.push(format!("and {} more", pids.len() - NAMED_MAX));
    }
    (!names.is_empty()).then(|| names.join(", "))
}

fn collect(cgroup: &Path, pids: &mut Vec<u32>) {
    let procs = std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    pids.extend(procs.lines().filter_map(|line| line.parse::<u32>().ok()));
    for below in std::fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if below.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&below.path(), pids);
        }
    }
}

/// Without more than its number where `/proc` does not show it.
fn name(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    let user = field("Uid:").and_then(|line| line.split_whitespace().nth(1));
    match (field("Name:"), user) {
        (Some(name), Some(user)) => format!("pid {pid} (user {user}, {:?})", name.trim()),
        _ => format!("pid {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [left-named]
    #[test]
    fn who_is_left_is_named_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(names(dir.path()), None);
        std::fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        assert_eq!(names(dir.path()), None);
        let below = dir.path().join("below");
        std::fs::create_dir(&below).unwrap();
        let (own, user) = (std::process::id(), nix::unistd::geteuid());
        std::fs::write(below.join("cgroup.procs"), format!("{own}\n")).unwrap();
        let one = names(dir.path()).expect("one");
        assert!(one.starts_with(&format!("pid {own} (user {user}, \"")), "{one}");
        let many: String = (0..20).map(|n| format!("{}\n", u32::MAX - n)).collect();
        std::fs::write(dir.path().join("cgroup.procs"), many).unwrap();
        let many = names(dir.path()).expect("many");
        assert!(many.starts_with(&format!("pid {}, ", u32::MAX)), "{many}");
        assert!(many.ends_with("and 13 more"), "{many}");
    }
}
