//! Rough treatment: systemd re-executed, the bus restarted, workers that come and go.

use std::io::Write;
use std::process::Command;

use job_exec_rs::port::supervisor::{SupervisorEvent, UnitCommand, UnitEvent};
use job_exec_rs::proto::ExecMethod;
use job_exec_rs::proto::{Stream, WaitStatus};

use crate::support::{self, Gate, Harness, RUNS_ON};
use crate::{harness, systemctl};

/// Set for a test that runs in a process, and on a bus, of its own.
pub(crate) const OWN_PROCESS: &str = "JOB_EXEC_RS_OWN_PROCESS";

#[test]
fn systemd_is_reexecuted_and_reloaded_while_units_run() {
    let Some((mut h, dir)) = harness() else { return };
    rough(&mut h, dir.path(), &["daemon-reexec", "daemon-reload"]);
}

/// [manager-ended]: systemd says when it began, and the same after it was executed again.
#[test]
fn a_record_names_the_user_manager() {
    let Some((mut h, dir)) = harness() else { return };
    let gate = Gate::new(dir.path().join("gate"));
    let began = systemctl(&["show", "--value", "-p", "UserspaceTimestampMonotonic"]);
    for job in 1..=2 {
        h.launch(job, &gate.wait());
        h.started(job);
        systemctl(&["daemon-reexec"]);
    }
    let files = std::fs::read_dir(dir.path().join("state")).unwrap().map(|it| it.unwrap().path());
    let records = files.filter(|path| path.extension().is_some_and(|it| it == "record"));
    let heads = records.map(|path| std::fs::read_to_string(path).unwrap());
    let is_named = |head: &String| head.contains(&format!("\"manager\":{}}}", began.trim()));
    assert_eq!(heads.filter(is_named).count(), 2);
    gate.open();
    for job in 1..=2 {
        assert_eq!(h.exited(job), WaitStatus::exited(0));
        h.clean(job);
    }
}

/// Units that run, units that end meanwhile and units that are started meanwhile.
fn rough(h: &mut Harness, dir: &std::path::Path, verbs: &[&str]) {
    for (round, verb) in verbs.iter().enumerate() {
        let base = 100 * round as u64;
        let gate = Gate::new(dir.join(format!("gate-{round}")));
        for job in base..base + 5 {
            h.launch(job, &format!("{}; echo {job}; exit {}", gate.wait(), job % 7));
            h.started(job);
        }
        let verb: Vec<&str> = verb.split(' ').collect();
        let mut systemctl = Command::new("systemctl").arg("--user").args(verb).spawn().unwrap();
        for job in base + 5..base + 30 {
            h.launch(job, &format!("echo {job}; exit {}", job % 7));
        }
        gate.open();
        systemctl.wait().unwrap();
        for job in base..base + 30 {
            if job >= base + 5 {
                h.started(job);
            }
            let expected = format!("{job}\n");
            assert_eq!(h.output(job, Stream::Stdout, 0, expected.len()), expected.as_bytes());
            assert_eq!(h.exited(job), WaitStatus::exited(job as i32 % 7), "job {job}");
            h.clean(job);
        }
    }
}

#[test]
fn the_bus_is_restarted() {
    in_a_process_of_its_own("rough::inside_the_bus_is_restarted");
}

#[test]
fn inside_the_bus_is_restarted() {
    // Only when the_bus_is_restarted runs it.
    if std::env::var_os(OWN_PROCESS).is_none() {
        return;
    }
    let Some((mut h, dir)) = harness() else { return };
    // Ends every connection; units do not notice.
    rough(&mut h, dir.path(), &["restart dbus.service", "restart dbus.service"]);
}

#[test]
fn no_thread_and_no_descriptor_survives() {
    in_a_process_of_its_own("rough::inside_no_thread_survives");
}

#[test]
fn inside_no_thread_survives() {
    // Only when no_thread_and_no_descriptor_survives runs it.
    if std::env::var_os(OWN_PROCESS).is_none() {
        return;
    }
    if !support::bus() {
        return;
    }
    for method in [ExecMethod::Systemd, ExecMethod::Fork] {
        let dir = tempfile::tempdir().unwrap();
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let (threads, before) = (support::threads(), descriptors());
        for _ in 0..3 {
            let (mut h, _, _) = Harness::ready(support::config(method, dir.path()));
            h.run(1, "exit 1");
            assert_eq!(support::threads().len(), threads.len() + 1, "{:?}", support::threads());
            h.clean(1);
            h.launch(2, RUNS_ON);
            h.started(2);
            h.collect(2);
            h.exited(2);
            h.gone(2);
            h.forget(2);
            h.stop();
            assert_eq!(support::threads(), threads);
            assert_eq!(descriptors(), before);
        }
    }
}

/// Other tests in this process have threads, and a bus, of their own.
pub(crate) fn in_a_process_of_its_own(test: &str) {
    if !support::bus() {
        return;
    }
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/user-systemd"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--test-threads=1", "--nocapture", test])
        .env(OWN_PROCESS, "1")
        .env_remove("DBUS_SESSION_BUS_ADDRESS")
        .env_remove("XDG_RUNTIME_DIR")
        .output()
        .unwrap();
    // What a test says of its failure comes before the line that counts it, as tests/run expects.
    let text = [output.stderr, output.stdout].concat();
    let text = String::from_utf8_lossy(&text);
    if output.status.code() == Some(77) {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: {text}");
        return;
    }
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// What is logged in a test, which runs with the same systemd, in a process of its own.
pub(crate) fn warnings_of(test: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", test])
        .env("RUST_LOG", "warn")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    text
}

#[test]
fn measure() {
    // A measurement, not a check: prints units per second.
    if std::env::var_os("MEASURE").is_none() || !support::bus() {
        return;
    }
    for in_flight in [1, 16, 64] {
        let dir = tempfile::tempdir().unwrap();
        let mut config = support::config(ExecMethod::Systemd, dir.path());
        config.limits.starts_in_flight = in_flight;
        let (mut h, _, _) = Harness::ready(config);
        let begin = std::time::Instant::now();
        const UNITS: u64 = 200;
        for job in 0..UNITS {
            let mut spec = h.spec(job, "");
            spec.argv = vec!["/bin/true".to_string()];
            h.start_unit(spec);
        }
        let mut gone = 0;
        while gone < UNITS {
            match h.next() {
                SupervisorEvent::Unit(unit, UnitEvent::Exited { .. }) => {
                    h.submit(unit, UnitCommand::Collect);
                }
                SupervisorEvent::Unit(_, UnitEvent::Gone) => gone += 1,
                _ => {}
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        eprintln!("{in_flight:2} in flight: {:.0} units/s", UNITS as f64 / seconds);
    }
    systemctl(&["list-units"]);
}
