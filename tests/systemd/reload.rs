//! What systemd makes of a unit when it reads it again (`daemon-reload`).

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use job_exec_rs::port::supervisor::UnitSpec;
use job_exec_rs::proto::{ExecMethod, Stream, WaitStatus};
use tempfile::TempDir;

use crate::support::{self, Harness, RUNS_ON};
use crate::{harness, systemctl};

/// What a shell, systemd's unit files, or one of them with the other's quotes could take for something
/// else.
const ODD: &[&str] = &[
    "%h %% %n",
    "a\"b'c\\d\\x20\\",
    "new\nline\ttab",
    "\r\u{1b}[1m \u{1}",
    "ƒ",
    "",
    " ",
    "|",
    "-x",
    "{}",
    "#",
    "@+!:",
];

/// Also what systemd 252 does not read as it has written it.
const ODDER: &[&str] = &["$HOME", "${HOME}", "$$", ";", "a;b", "\\;"];

/// What systemd tells of how it would start a unit, and end it. The run time is not in it.
fn settings(unit: &str) -> BTreeMap<String, String> {
    let escaped = unit.bytes().map(|b| match b {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(b).to_string(),
        b => format!("_{b:02x}"),
    });
    let path = format!("/org/freedesktop/systemd1/unit/{}", escaped.collect::<String>());
    let output = Command::new("busctl")
        .args(["--user", "--json=short", "call", "org.freedesktop.systemd1", &path])
        .args(["org.freedesktop.DBus.Properties", "GetAll", "s"])
        .arg("org.freedesktop.systemd1.Service")
        .output();
    let text = String::from_utf8(output.expect("busctl runs").stdout).expect("UTF-8");
    let mut json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let all = json["data"][0].as_object_mut().expect("properties");
    // What was run, without when and how it ended.
    all["ExecStart"]["data"][0].as_array_mut().expect("a command line").truncate(3);
    let allowed = all["DeviceAllow"]["data"].as_array_mut().expect("a list");
    allowed.sort_by_key(ToString::to_string);
    // What the unit has used, and the file and the process that it had.
    let counts = |name: &str| {
        ["Current", "NSec", "Timestamp", "TimestampMonotonic", "Bytes", "Operations", "PID"]
            .iter()
            .any(|end| name.ends_with(end))
            || ["ExecStartEx", "MemoryAvailable"].contains(&name)
    };
    let settings = all.iter().filter(|(name, _)| !counts(name) || *name == "TimerSlackNSec");
    settings.map(|(name, value)| (name.clone(), value["data"].to_string())).collect()
}

/// Reload systemd's configuration, and compare what it has read with what it was told.
fn assert_reloaded(unit: &str) {
    let before = settings(unit);
    assert!(before.len() > 100, "{before:?}");
    systemctl(&["daemon-reload"]);
    assert_eq!(systemctl(&["show", "--value", "-p", "LoadState", unit]).trim(), "loaded");
    assert_eq!(systemctl(&["show", "--value", "-p", "NeedDaemonReload", unit]).trim(), "no");
    let after = settings(unit);
    let differ = before.iter().filter(|(name, value)| after.get(*name) != Some(value));
    let differ: Vec<_> = differ.map(|(name, value)| (name, value, after.get(name))).collect();
    assert!(differ.is_empty(), "{differ:?}");
}

/// A worker whose state directory, and with it each output file's path, is odd.
fn odd_harness() -> Option<(Harness, TempDir)> {
    support::bus().then(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("%h $HOME 'q' \"d\" \\b é ; # x=y");
        let (harness, _, _) = Harness::ready(support::config(ExecMethod::Systemd, &state));
        (harness, dir)
    })
}

/// A unit that runs this program in this directory, with an odd environment.
fn odd_spec(h: &Harness, job: u64, argv: &[&str], directory: &Path) -> UnitSpec {
    let mut spec = h.spec(job, "");
    spec.argv = argv.iter().map(ToString::to_string).collect();
    spec.working_directory = Some(directory.display().to_string());
    for (n, odd) in ODD.iter().chain(ODDER).enumerate() {
        // systemd accepts no other control characters in variables.
        let value = odd.replace(['\r', '\u{1b}', '\u{1}'], "");
        spec.environment.insert(format!("ODD_{n}"), value);
    }
    spec
}

/// The strings that the kernel has of a process.
fn strings(pid: u32, file: &str) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/{file}")).expect("the process runs");
    let strings = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|byte| *byte == 0);
    strings.map(|string| String::from_utf8(string.to_vec()).expect("UTF-8")).collect()
}

#[test]
fn a_unit_is_read_again_as_it_was_set() {
    let Some((mut h, dir)) = odd_harness() else { return };
    let directory = dir.path().join("work %h $HOME 'q' \"d\" \\b é ; # x=y");
    std::fs::create_dir(&directory).unwrap();
    let argv = [&["/bin/sh", "-c", RUNS_ON], ODD].concat();
    let spec = odd_spec(&h, 1, &argv, &directory);
    h.start_unit(spec.clone());
    let pid = h.started(1);
    assert_eq!(strings(pid, "cmdline"), argv);
    let environment = strings(pid, "environ");
    for (name, value) in &spec.environment {
        let variable = format!("{name}={value}");
        assert!(environment.contains(&variable), "{variable:?} in {environment:?}");
    }
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), directory);
    for (descriptor, extension) in [(1, "out"), (2, "err")] {
        let target = std::fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).unwrap();
        assert_eq!(target, h.file(1, extension));
    }
    assert_reloaded(&h.unit(1).to_string());
    h.collect(1);
    assert_eq!(h.exited(1), WaitStatus::signaled(15));
    h.gone(1);
}

#[test]
fn configured_properties_are_read_again_as_they_were_set() {
    let Some((mut h, _dir)) = harness() else { return };
    let mut spec = h.spec(1, RUNS_ON);
    let configured = [
        ("AllowedCPUs", "0"),
        ("AllowedMemoryNodes", "0"),
        ("CPUAccounting", "yes"),
        ("CPUQuota", "50%"),
        ("CPUQuotaPeriodSec", "50ms"),
        ("CPUWeight", "42"),
        ("CoredumpFilter", "51"),
        ("Delegate", "yes"),
        ("DeviceAllow", "/dev/null rw,/dev/fuse r"),
        ("DevicePolicy", "closed"),
        ("FinalKillSignal", "SIGQUIT"),
        ("IOAccounting", "yes"),
        ("IOWeight", "77"),
        ("KillMode", "mixed"),
        ("KillSignal", "SIGINT"),
        ("LimitAS", "1T"),
        ("LimitCPU", "1000"),
        ("LimitNICE", "20"),
        ("LimitNOFILE", "123:456"),
        ("LimitRTTIME", "10000000"),
        ("LimitSTACK", "infinity"),
        ("ManagedOOMMemoryPressure", "kill"),
        ("MemoryHigh", "50%"),
        ("MemoryLow", "1M"),
        ("MemoryMax", "1G"),
        ("MemorySwapMax", "infinity"),
        ("Nice", "5"),
        ("NoNewPrivileges", "yes"),
        ("OOMPolicy", "continue"),
        ("OOMScoreAdjust", "100"),
        ("RuntimeMaxSec", "1h"),
        ("SendSIGHUP", "yes"),
        ("SendSIGKILL", "no"),
        ("Slice", "a-b.slice"),
        ("TasksMax", "50%"),
        ("TimeoutStartSec", "77"),
        ("TimeoutStopSec", "90"),
        ("TimerSlackNSec", "1000"),
        ("UMask", "0027"),
    ];
    for (name, value) in configured {
        spec.properties.insert(name.to_string(), value.to_string());
    }
    h.start_unit(spec);
    h.started(1);
    assert_reloaded(&h.unit(1).to_string());
    h.signal(1, libc::SIGKILL, true);
    assert_eq!(h.exited(1), WaitStatus::signaled(9));
    h.clean(1);
}

/// systemd reads no line of more than 1 MiB.
#[test]
fn a_large_environment_is_read_again() {
    let Some((mut h, _dir)) = harness() else { return };
    let mut spec = h.spec(1, RUNS_ON);
    for n in 0..10 {
        spec.environment.insert(format!("LARGE_{n}"), "é".repeat(40_000));
    }
    h.start_unit(spec);
    let pid = h.started(1);
    let large = strings(pid, "environ").into_iter().filter(|v| v.starts_with("LARGE_")).count();
    assert_eq!(large, 10);
    assert_reloaded(&h.unit(1).to_string());
    h.collect(1);
    h.exited(1);
    h.gone(1);
}

#[test]
fn a_working_directory_that_no_unit_file_can_have_is_left_out() {
    let Some((mut h, dir)) = harness() else { return };
    for (job, name) in [(1, "a\nb"), (2, "trail "), (3, "back\\")] {
        let directory = dir.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        let spec = odd_spec(&h, job, &["/bin/sleep", "1000"], &directory);
        h.start_unit(spec);
        let pid = h.started(job);
        let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
        assert!(!cwd.as_os_str().as_bytes().starts_with(dir.path().as_os_str().as_bytes()));
        assert_reloaded(&h.unit(job).to_string());
        h.collect(job);
        h.exited(job);
        h.gone(job);
    }
}

#[test]
fn starts_that_wait_while_systemd_reloads_run_as_given() {
    let Some((mut h, dir)) = odd_harness() else { return };
    const ROUNDS: u64 = 20;
    const JOBS: u64 = 5;
    let argv = [&["/usr/bin/printf", "%s|"], ODD].concat();
    for job in 0..ROUNDS * JOBS {
        let spec = odd_spec(&h, job, &argv, dir.path());
        h.start_unit(spec);
        if job % JOBS == JOBS - 1 {
            systemctl(&["daemon-reload"]);
        }
    }
    let expected = ODD.iter().map(|odd| format!("{odd}|")).collect::<String>();
    for job in 0..ROUNDS * JOBS {
        h.started(job);
        let output = h.output(job, Stream::Stdout, 0, expected.len());
        assert_eq!(String::from_utf8(output).unwrap(), expected);
        assert_eq!(h.exited(job), WaitStatus::exited(0));
        h.clean(job);
    }
}

/// systemd 252 does not read these as it has written them. It does not start the unit then.
#[test]
fn odder_arguments_arrive_as_given() {
    let Some((mut h, dir)) = harness() else { return };
    let argv = [&["/usr/bin/printf", "%s|"], ODD, ODDER].concat();
    let spec = odd_spec(&h, 1, &argv, dir.path());
    h.start_unit(spec);
    h.started(1);
    let expected = argv[2..].iter().map(|odd| format!("{odd}|")).collect::<String>();
    let output = h.output(1, Stream::Stdout, 0, expected.len());
    assert_eq!(String::from_utf8(output).unwrap(), expected);
    assert_eq!(h.exited(1), WaitStatus::exited(0));
    h.clean(1);
}
