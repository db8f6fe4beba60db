//! Which variables reach a shell.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use job_exec_rs::proto::Stream;

use crate::support::{Harness, RUNS_ON};
use crate::{harness, systemctl};

/// Set for a test that runs in a process of its own.
const OWN_PROCESS: &str = "JOB_EXEC_RS_ODD_ENVIRONMENT";

/// The variables of a new shell.
fn variables(h: &mut Harness, job: u64) -> String {
    h.launch(job, RUNS_ON);
    let pid = h.started(job);
    let environ = std::fs::read(format!("/proc/{pid}/environ")).expect("it runs");
    h.signal(job, libc::SIGKILL, true);
    h.exited(job);
    h.clean(job);
    String::from_utf8(environ).expect("UTF-8").replace('\0', "\n")
}

#[test]
fn what_the_user_manager_has_for_all_units_reaches_no_shell() {
    let Some((mut h, _dir)) = harness() else { return };
    let path = std::env::var("PATH").expect("there is a PATH");
    // One that comes when the supervisor is connected already, one that is set for the shell as well,
    // and one that the broker has as well.
    systemctl(&["set-environment", "IMPORTED_SLURM_JOB_ID=7", "TEST_JOB=manager"]);
    let manager = systemctl(&["show-environment"]);
    assert!(manager.contains("IMPORTED_SLURM_JOB_ID=7"), "{manager}");
    let told = variables(&mut h, 1);
    systemctl(&["unset-environment", "IMPORTED_SLURM_JOB_ID", "TEST_JOB"]);
    assert!(!told.contains("IMPORTED"), "{told}");
    assert!(told.contains("TEST_JOB=1\n") && told.contains(&format!("PATH={path}\n")), "{told}");
    // The manager's own, which the broker has not.
    for line in manager.lines() {
        let name = line.split('=').next().unwrap_or_default();
        let is_brokers = std::env::var_os(name).is_some() || name == "TEST_JOB";
        assert!(is_brokers || !told.contains(&format!("{name}=")), "{name} in {told}");
    }
}

#[test]
fn a_variable_that_systemd_refuses_costs_no_job() {
    if harness().is_none() {
        return;
    }
    let odd: [(&str, &[u8]); 7] = [
        ("LATIN", b"caf\xe9"),
        ("NONCHARACTER_FFFE", "\u{fffe}".as_bytes()),
        ("NONCHARACTER_FDD0", "\u{fdd0}".as_bytes()),
        ("NONCHARACTER_1FFFF", "\u{1ffff}".as_bytes()),
        ("SURROGATE", b"\xed\xa0\x80"),
        ("BEYOND", b"\xf4\x90\x80\x80"),
        ("ESCAPE", b"\x1b[1m"),
    ];
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "environment::inside_an_odd_environment"])
        .envs(odd.map(|(name, value)| (name, OsStr::from_bytes(value))))
        .env("GOOD", "private use \u{e000} \u{fffd} \u{10fffd} ƒ")
        .env("RUST_LOG", "warn")
        .env(OWN_PROCESS, "1")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    let warnings: Vec<&str> =
        text.lines().filter(|line| line.contains("not passed on to job shells")).collect();
    assert_eq!(warnings.len(), 1, "{text}");
    for (name, _) in odd {
        assert!(warnings[0].contains(&format!("\"{name}\" (")), "{text}");
    }
}

#[test]
fn inside_an_odd_environment() {
    // Only when a_variable_that_systemd_refuses_costs_no_job runs it.
    if std::env::var_os(OWN_PROCESS).is_none() {
        return;
    }
    let Some((mut h, _dir)) = harness() else { return };
    for job in 1..=2 {
        let told = variables(&mut h, job);
        assert!(told.contains("GOOD=private use \u{e000} \u{fffd} \u{10fffd} ƒ\n"), "{told}");
        assert!(!told.contains("NONCHARACTER") && !told.contains("LATIN"), "{told}");
    }
    let mut spec = h.spec(3, "");
    spec.argv = ["/bin/echo", "\u{fdef}"].map(str::to_string).to_vec();
    h.start_unit(spec);
    let (errnum, message) = h.failed(3);
    assert!(errnum == libc::EINVAL && message.contains("noncharacter"), "{message}");
    h.forget(3);
    h.launch(4, "echo goes on");
    h.started(4);
    assert_eq!(h.output(4, Stream::Stdout, 0, 8), b"goes on\n");
    h.exited(4);
    h.clean(4);
}
