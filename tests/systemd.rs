//! The supervisor against a real `systemd --user`.
//!
//! Without a user bus the test binary runs itself again under `tests/user-systemd`, which makes a
//! private one. If that is not possible, its one line of output is printed, and nothing is tested.

mod support;

#[path = "systemd/basic.rs"]
mod basic;
#[path = "systemd/drop_in.rs"]
mod drop_in;
#[path = "systemd/early.rs"]
mod early;
#[path = "systemd/environment.rs"]
mod environment;
#[path = "systemd/hostile.rs"]
mod hostile;
#[path = "systemd/inherited.rs"]
mod inherited;
#[path = "systemd/leave.rs"]
mod leave;
#[path = "systemd/quota.rs"]
mod quota;
#[path = "systemd/recovery.rs"]
mod recovery;
#[path = "systemd/reload.rs"]
mod reload;
#[path = "systemd/rough.rs"]
mod rough;
#[path = "systemd/silent.rs"]
mod silent;
#[path = "systemd/usage.rs"]
mod usage;

use std::process::Command;

use job_exec_rs::proto::ExecMethod;
use job_exec_rs::proto::UnitName;
use support::Harness;
use tempfile::TempDir;

/// A worker on a new directory, with systemd; `None` if there is none.
fn harness() -> Option<(Harness, TempDir)> {
    support::bus().then(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("state");
        let (harness, _, _) = Harness::ready(support::config(ExecMethod::Systemd, &state));
        (harness, dir)
    })
}

/// What `systemctl --user` says; its exit status is of no interest.
fn systemctl(arguments: &[&str]) -> String {
    let output = Command::new("systemctl").arg("--user").args(arguments).output();
    String::from_utf8(output.expect("systemctl runs").stdout).expect("UTF-8")
}

/// The units of this pattern that stay. Asks until systemd has removed those that it is removing:
/// nobody is told, and `Gone` comes before.
fn units_left(pattern: &str) -> String {
    let ask = || systemctl(&["list-units", "--all", "--no-legend", "--plain", pattern]);
    (0..3000).map(|_| ask()).find(String::is_empty).unwrap_or_else(ask)
}

/// The user manager's process.
fn manager_pid() -> i32 {
    let group = systemctl(&["show", "--value", "-p", "ControlGroup"]);
    let path = format!("/sys/fs/cgroup{}/init.scope/cgroup.procs", group.trim());
    let pids = std::fs::read_to_string(path).expect("its processes");
    pids.lines().next().and_then(|pid| pid.parse().ok()).expect("its pid")
}

/// Start a unit, of a job with this digest, that the supervisor does not know.
fn systemd_run(unit: &UnitName, digest: &str, script: &str) {
    // systemd forgets a failed unit of that name a moment after the event.
    let state = ["show", "--value", "-p", "LoadState", &unit.to_string()];
    while systemctl(&state).trim() != "not-found" {}
    let status = Command::new("systemd-run")
        .args(["--user", "--quiet", "--property=Type=exec", "--property=RemainAfterExit=yes"])
        .arg(format!("--unit={unit}"))
        .arg(format!("--property=LogExtraFields=JOB_EXEC_DIGEST={digest}"))
        .arg("--property=LogExtraFields=JOB_EXEC_USERID=0")
        .arg("--property=LogExtraFields=JOB_EXEC_SIZE=1")
        .args(["/bin/sh", "-c", script])
        .status();
    assert!(status.expect("systemd-run runs").success());
}
