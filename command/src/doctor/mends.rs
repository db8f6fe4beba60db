//! Commands that mend what `doctor` has found.

use nix::unistd::getuid;

use super::site::Site;

pub(super) const JOBS_HERE: &str = "all jobs on this node";

/// The name of the owner's user manager.
pub(super) fn manager() -> String {
    format!("user@{}.service", getuid())
}

/// A command for the owner's user manager. In a system instance the administrator has to become the owner
/// for it.
pub(super) fn user_systemctl(site: &Site, arguments: &str) -> String {
    let is_system = site.broker.as_ref().is_ok_and(|broker| broker.is_system);
    let (owner, uid) = (&site.owner, getuid());
    let before = format!("sudo -u {owner} env XDG_RUNTIME_DIR=/run/user/{uid} ");
    format!("{}systemctl --user {arguments}", if is_system { &before } else { "" })
}

/// A command that writes a setting for systemd, in a file of its own: another mend may write one, too.
pub(super) fn drop_in(unit: &str, setting: &str, value: &str) -> String {
    let directory = format!("/etc/systemd/system/{unit}.d");
    format!(
        "sudo mkdir -p {directory} && printf '[Service]\\n{setting}={value}\\n' | sudo tee \
         {directory}/60-doctor-{setting}.conf && sudo systemctl daemon-reload"
    )
}

/// A command that delegates all controllers to the owner's user manager.
pub(super) fn delegate() -> String {
    drop_in(&manager(), "Delegate", "cpu cpuset io memory pids")
}
