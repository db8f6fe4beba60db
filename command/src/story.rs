//! The texts of the demonstration, and how it looks up units outside of this process.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::Command;

use job_exec_rs::port::supervisor::Method;
use job_exec_rs::proto::{InstanceId, UnitName};

/// Prints a heading, and below it what there will be to see.
pub(super) fn chapter(out: &mut impl Write, heading: &str, text: &str) -> io::Result<()> {
    writeln!(out, "\n{heading}\n{}", "-".repeat(heading.chars().count()))?;
    writeln!(out, "{text}\n")
}

/// Prints a table of running units, with what their manager says of each.
pub(super) fn units(
    out: &mut impl Write,
    method: Method,
    units: &BTreeMap<UnitName, u32>,
) -> io::Result<()> {
    writeln!(out, "           units:")?;
    for (unit, pid) in units {
        writeln!(out, "             {unit}  pid {pid}  {}", state(method, unit, *pid))?;
    }
    Ok(())
}

/// The main process of a unit that runs, and systemd's id of this one start of it.
///
/// # Errors
/// If systemd does not answer, or the unit has no main process.
pub(super) fn main_process(unit: &UnitName) -> io::Result<(u32, String)> {
    let said = systemctl(&["show", "--property=MainPID,InvocationID", &unit.to_string()])?;
    let pid = property(&said, "MainPID").parse().unwrap_or(0);
    if pid == 0 {
        return Err(io::Error::other(format!("{unit} has no main process")));
    }
    Ok((pid, property(&said, "InvocationID").to_string()))
}

/// The value of a property in what `systemctl show` has said. Empty if it is not there.
fn property<'a>(said: &'a str, key: &str) -> &'a str {
    let mut values = said.lines().filter_map(|line| line.split_once('='));
    values.find(|(name, _)| *name == key).map_or("", |(_, value)| value)
}

fn state(method: Method, unit: &UnitName, pid: u32) -> String {
    match method {
        Method::Fork => {
            if is_alive(pid) {
                "a child process".to_string()
            } else {
                "has ended".to_string()
            }
        }
        Method::Systemd => {
            let properties = "--property=ActiveState,SubState,ControlGroup";
            match systemctl(&["show", properties, &unit.to_string()]) {
                Ok(said) => {
                    let [active, sub] = ["ActiveState", "SubState"].map(|key| property(&said, key));
                    let cgroup = property(&said, "ControlGroup");
                    // A unit that has ended has none.
                    let place = if cgroup.is_empty() { "" } else { "\n                 in " };
                    format!("{active} ({sub}){place}{cgroup}")
                }
                Err(error) => format!("(systemctl: {error})"),
            }
        }
    }
}

/// What the manager, or /proc, still knows of these units. Empty if nothing is left.
pub(super) fn left_behind(
    method: Method,
    instance: &InstanceId,
    pids: &BTreeMap<UnitName, u32>,
) -> Vec<String> {
    let alive = pids.iter().filter(|(_, pid)| is_alive(**pid));
    let mut left: Vec<String> = alive.map(|(unit, pid)| format!("{unit}: pid {pid}")).collect();
    if method == Method::Systemd {
        match systemctl(&list_arguments(instance)) {
            Ok(said) => left.extend(said.lines().map(str::to_string)),
            Err(error) => left.push(format!("systemctl: {error}")),
        }
    }
    left
}

/// How [`left_behind`] looks, as a text for people.
pub(super) fn question(method: Method, instance: &InstanceId) -> String {
    match method {
        Method::Fork => "ls -d /proc/PID, for each PID from above".to_string(),
        Method::Systemd => format!("systemctl --user {}", list_arguments(instance).join(" ")),
    }
}

fn list_arguments(instance: &InstanceId) -> [String; 5] {
    let pattern = format!("shell-*-{instance}.service");
    ["list-units".into(), "--all".into(), "--plain".into(), "--no-legend".into(), pattern]
}

/// What systemd lists of units with this name or pattern.
pub(super) fn list(pattern: &str) -> io::Result<String> {
    systemctl(&["list-units", "--all", "--plain", "--no-legend", pattern])
}

fn is_alive(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

fn systemctl(arguments: &[impl AsRef<std::ffi::OsStr>]) -> io::Result<String> {
    let output = Command::new("systemctl").arg("--user").args(arguments).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_string()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
