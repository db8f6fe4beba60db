//! A bus with quotas, as a site may configure it.

use std::fs;
use std::path::Path;
use std::process::Command;

use job_exec_rs::port::supervisor::{SupervisorEvent, UnitCommand, UnitEvent};
use job_exec_rs::proto::WaitStatus;

use crate::rough::{OWN_PROCESS, in_a_process_of_its_own, warnings_of};
use crate::support::Harness;
use crate::{harness, systemctl, units_left};

/// How many jobs there are: more than any quota here.
const JOBS: u64 = 60;

/// Start the private user bus again, with these limits for each connection.
fn limit_bus(limits: &[(&str, u32)]) {
    let runtime = std::env::var("XDG_RUNTIME_DIR").expect("a runtime directory");
    let config = Path::new(&runtime).join("bus.conf");
    let limits =
        limits.iter().map(|(name, limit)| format!("<limit name=\"{name}\">{limit}</limit>"));
    let text = format!(
        "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\" \
         \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n<busconfig>\
         <include>/usr/share/dbus-1/session.conf</include>{}</busconfig>",
        limits.collect::<String>()
    );
    fs::write(&config, text).unwrap();
    let directory = Path::new(&runtime).join("systemd/user/dbus.service.d");
    fs::create_dir_all(&directory).unwrap();
    let program =
        "/usr/bin/dbus-daemon --address=systemd: --nofork --nopidfile --systemd-activation";
    let lines =
        format!("[Service]\nExecStart=\nExecStart={program} --config-file={}", config.display());
    fs::write(directory.join("quota.conf"), lines).unwrap();
    systemctl(&["daemon-reload"]);
    let manager = ["--user", "restart", "dbus.service"];
    // Without the bus, by systemd's own socket.
    let status =
        Command::new("systemctl").args(manager).env_remove("DBUS_SESSION_BUS_ADDRESS").status();
    assert!(status.unwrap().success());
}

/// Run many jobs at once. All get their statuses, and nothing is left.
fn run_many(h: &mut Harness) {
    for job in 1..=JOBS {
        h.launch(job, &format!("sleep 1; exit {job}"));
    }
    let mut gone = 0;
    while gone < JOBS {
        match h.next() {
            SupervisorEvent::Unit(unit, UnitEvent::Exited { status }) => {
                assert_eq!(status, WaitStatus::exited(unit.job().0 as i32));
                h.submit(unit, UnitCommand::Collect);
            }
            SupervisorEvent::Unit(unit, UnitEvent::Gone) => {
                h.submit(unit, UnitCommand::Forget);
                gone += 1;
            }
            SupervisorEvent::Unit(_, UnitEvent::Started { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    h.launch(100, "exec sleep inf");
    h.started(100);
    h.signal(100, libc::SIGUSR1, false);
    assert_eq!(h.exited(100), WaitStatus::signaled(libc::SIGUSR1));
    h.clean(100);
    assert_eq!(units_left("*shell-*"), "");
}

/// Run many jobs on such a bus, and return what is logged.
fn with_quota(limits: &[(&str, u32)]) -> Option<String> {
    // Only when another test runs it.
    std::env::var_os(OWN_PROCESS)?;
    limit_bus(limits);
    Some(warnings_of("quota::inside_a_bus_with_quotas"))
}

#[test]
fn inside_a_bus_with_quotas() {
    // Only when with_quota runs it.
    if std::env::var_os(OWN_PROCESS).is_none() || std::env::var_os("RUST_LOG").is_none() {
        return;
    }
    let Some((mut h, _dir)) = harness() else { return };
    run_many(&mut h);
}

#[test]
fn a_bus_that_grants_few_rules() {
    in_a_process_of_its_own("quota::inside_few_rules");
}

#[test]
fn inside_few_rules() {
    let Some(log) = with_quota(&[("max_match_rules_per_connection", 32)]) else { return };
    assert_eq!(log.matches("watching all units of the user instead").count(), 1, "{log}");
    assert!(!log.contains("cannot be watched"), "{log}");
}

#[test]
fn a_bus_that_grants_no_rule_for_units() {
    in_a_process_of_its_own("quota::inside_no_rules");
}

#[test]
fn inside_no_rules() {
    let Some(log) = with_quota(&[("max_match_rules_per_connection", 2)]) else { return };
    assert_eq!(log.matches("units cannot be watched").count(), 1, "{log}");
}

#[test]
fn a_bus_that_passes_few_calls_on() {
    in_a_process_of_its_own("quota::inside_few_replies");
}

#[test]
fn inside_few_replies() {
    let Some(log) = with_quota(&[("max_replies_per_connection", 3)]) else { return };
    assert!(log.contains("start refused, trying again"), "{log}");
}

#[test]
fn a_bus_that_passes_a_handful_of_calls_on() {
    in_a_process_of_its_own("quota::inside_some_replies");
}

#[test]
fn inside_some_replies() {
    let Some(log) = with_quota(&[("max_replies_per_connection", 16)]) else { return };
    assert!(!log.contains("LimitsExceeded"), "{log}");
}
