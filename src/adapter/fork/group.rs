//! Clears a process group. Linux does not tell when a group is empty, so this waits for a pidfd of
//! each member.

use std::os::fd::OwnedFd;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::pidfd;

/// Kill every process of the group and wait until only the zombie that leads it is left. The zombie
/// keeps the group's number from being reused.
pub(super) async fn clear(group: Pid) {
    loop {
        let members = members(group);
        if members.is_empty() {
            return;
        }
        if let Err(e) = killpg(group, Signal::SIGKILL) {
            tracing::debug!(%group, error = %e, "cannot kill the process group");
        }
        for member in members {
            pidfd::exited(member).await;
        }
    }
}

/// The living members of a process group.
fn members(group: Pid) -> Vec<OwnedFd> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| is_member(*pid, group))
        .filter_map(|pid| {
            let pidfd = pidfd::open(pid).ok()?;
            // The pid may have been reused before the pidfd was opened.
            is_member(pid, group).then_some(pidfd)
        })
        .collect()
}

fn is_member(pid: i32, group: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, can contain anything, so parsing starts after its end.
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let fields: Vec<&str> = rest.split(' ').collect();
    match fields[..] {
        ["Z" | "X", ..] => false,
        [_, _, pgrp, ..] => pgrp.parse() == Ok(group.as_raw()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership() {
        let own = i32::try_from(std::process::id()).unwrap();
        let group = nix::unistd::getpgrp();
        assert!(is_member(own, group));
        assert!(!is_member(own, Pid::from_raw(group.as_raw() + 1)));
        assert!(!is_member(-1, group));
    }
}
