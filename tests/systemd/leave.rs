//! Shells that leave their unit, as a login under the IMP can make them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use job_exec_rs::port::supervisor::{SupervisorEvent, UnitCommand, UnitEvent, UnitSpec};
use job_exec_rs::proto::{Stream, UnitName, WaitStatus};

use crate::support::{Harness, unit_of};
use crate::{harness, systemctl};

/// A cgroup that stands for a session's; `None` if the tests have no cgroup of their own.
fn session(number: u32) -> Option<PathBuf> {
    let name = format!("session-{number}-{}.scope", std::process::id());
    let group = Path::new(&std::env::var_os("USER_SYSTEMD_CGROUP")?).join(name);
    std::fs::create_dir(&group).expect("a cgroup");
    Some(group)
}

/// A script that stands for the IMP: it leaves its unit, reports that it is ready, and waits for a
/// line.
fn imp(h: &Harness, session: &Path, fifos: [&Path; 2]) -> UnitSpec {
    let [go, end] = fifos.map(|fifo| {
        nix::unistd::mkfifo(fifo, nix::sys::stat::Mode::S_IRWXU).expect("a fifo");
        fifo.display()
    });
    let procs = session.join("cgroup.procs");
    let script = format!(
        "read line <{go}; echo $$ >{}; systemd-notify --ready; echo out; read line <{end}; exit 4",
        procs.display()
    );
    under_imp(h, 1, &script)
}

fn under_imp(h: &Harness, job: u64, script: &str) -> UnitSpec {
    let mut spec = h.spec(job, script);
    spec.multiuser = true;
    spec.stop_timeout = None;
    spec.unit = UnitName::new(true, spec.rank, spec.job, h.config.instance.clone());
    spec
}

/// Collects a unit, and takes what it wrote.
fn collect(h: &mut Harness, unit: &UnitName) {
    h.submit(unit.clone(), UnitCommand::Collect);
    for stream in [Stream::Stdout, Stream::Stderr] {
        let (unit, offset, checkpointed) = (unit.clone(), u64::MAX, 0);
        h.submit(unit, UnitCommand::OutputAck { stream, offset, checkpointed });
    }
    assert_eq!(next(h, unit), UnitEvent::Gone.of(unit));
}

/// The next event of a unit but its output.
fn next(h: &mut Harness, unit: &UnitName) -> SupervisorEvent {
    h.wait("an event", |event| {
        let is_output = matches!(event, SupervisorEvent::Unit(_, UnitEvent::Output { .. }));
        (unit_of(event) == Some(unit) && !is_output).then(|| event.clone())
    })
}

#[test]
fn a_shell_that_leaves_its_unit_is_told_before_it_is_gone() {
    let Some((mut h, dir)) = harness() else { return };
    let Some(session) = session(1) else { return };
    let [go, end] = ["go", "end"].map(|name| dir.path().join(name));
    let spec = imp(&h, &session, [&go, &end]);
    let unit = spec.unit.clone();
    h.start_unit(spec);
    assert!(matches!(next(&mut h, &unit), SupervisorEvent::Unit(_, UnitEvent::Started { .. })));
    std::fs::write(&go, "\n").unwrap();
    let left = UnitEvent::Left.of(&unit);
    assert_eq!(next(&mut h, &unit), left);

    // A later life knows it from the record.
    let (mut h, found) = h.restart();
    assert!(found[0].left);
    assert_eq!(next(&mut h, &unit), left);
    assert!(matches!(next(&mut h, &unit), SupervisorEvent::Unit(_, UnitEvent::Started { .. })));
    std::fs::write(&end, "\n").unwrap();
    let exited = UnitEvent::Exited { status: WaitStatus::exited(4) }.of(&unit);
    assert_eq!(next(&mut h, &unit), exited);
    collect(&mut h, &unit);
    // What is left in it goes with the test's systemd.
    let _ = std::fs::remove_dir(&session);
}

#[test]
fn a_shell_that_left_while_no_worker_was_there_is_found() {
    let Some((mut h, dir)) = harness() else { return };
    let Some(session) = session(2) else { return };
    let [go, end] = ["go", "end"].map(|name| dir.path().join(name));
    let spec = imp(&h, &session, [&go, &end]);
    let unit = spec.unit.clone();
    h.start_unit(spec);
    assert!(matches!(next(&mut h, &unit), SupervisorEvent::Unit(_, UnitEvent::Started { .. })));
    h.stop();
    std::fs::write(&go, "\n").unwrap();
    let procs = session.join("cgroup.procs");
    while std::fs::read_to_string(&procs).unwrap().is_empty() {}
    let (mut h, found, _) = Harness::ready(h.config);
    assert!(!found[0].left);
    assert!(matches!(next(&mut h, &unit), SupervisorEvent::Unit(_, UnitEvent::Started { .. })));
    assert_eq!(next(&mut h, &unit), UnitEvent::Left.of(&unit));
    h.submit(unit.clone(), UnitCommand::Signal { signal: libc::SIGKILL, all: false });
    let exited = UnitEvent::Exited { status: WaitStatus::signaled(9) }.of(&unit);
    assert_eq!(next(&mut h, &unit), exited);
    // What is left in it goes with the test's systemd.
    let _ = std::fs::remove_dir(&session);
}

/// The IMP says that it is stopping. systemd does not keep a unit which then ends with success.
#[test]
fn how_an_imp_ended_is_known_though_nobody_watched() {
    let Some((mut h, dir)) = harness() else { return };
    let ends = [("exit 0", WaitStatus::exited(0)), ("kill -TERM $$", WaitStatus::signaled(15))];
    let (mut gates, mut expected) = (Vec::new(), BTreeMap::new());
    for (job, (end, status)) in (1..).zip(ends) {
        let gate = dir.path().join(format!("gate-{job}"));
        nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).expect("a fifo");
        let wait = format!("systemd-notify --ready; read line <{}", gate.display());
        let spec = under_imp(&h, job, &format!("{wait}; systemd-notify STOPPING=1; {end}"));
        gates.push(gate);
        expected.insert(spec.unit.clone(), UnitEvent::Exited { status }.of(&spec.unit));
        h.start_unit(spec.clone());
        assert!(matches!(
            next(&mut h, &spec.unit),
            SupervisorEvent::Unit(_, UnitEvent::Started { .. })
        ));
    }
    h.stop();
    // What the manager reads again must be what it was told.
    systemctl(&["daemon-reload"]);
    for gate in gates {
        std::fs::write(gate, "\n").unwrap();
    }
    while expected.keys().any(is_active) {}
    let (mut h, found, _) = Harness::ready(h.config);
    assert_eq!(found.len(), expected.len());
    for (unit, exited) in expected {
        let started = next(&mut h, &unit);
        assert!(
            matches!(started, SupervisorEvent::Unit(_, UnitEvent::Started { .. })),
            "{started:?}"
        );
        assert_eq!(next(&mut h, &unit), exited);
        collect(&mut h, &unit);
        h.submit(unit, UnitCommand::Forget);
    }
    h.stop();
    let left: Vec<_> = std::fs::read_dir(dir.path().join("state")).unwrap().flatten().collect();
    assert!(left.iter().all(|file| file.path().extension().is_none_or(|e| e != "end")), "{left:?}");
}

fn is_active(unit: &UnitName) -> bool {
    let state = systemctl(&["show", "--value", "-p", "ActiveState", &unit.to_string()]);
    matches!(state.trim(), "active" | "deactivating")
}

#[test]
fn a_shell_that_ends_in_its_unit_has_not_left_it() {
    let Some((mut h, _dir)) = harness() else { return };
    for job in 0..100 {
        h.start_unit(under_imp(&h, job, "exit 3"));
    }
    let mut gone = 0;
    while gone < 100 {
        match h.next() {
            SupervisorEvent::Unit(unit, UnitEvent::Exited { .. }) => {
                h.submit(unit, UnitCommand::Collect)
            }
            SupervisorEvent::Unit(_, UnitEvent::Gone) => gone += 1,
            SupervisorEvent::Unit(_, UnitEvent::Started { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}
