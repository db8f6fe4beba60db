//! Shells that leave their unit, as a login under the IMP can make them.

use std::path::{Path, PathBuf};

use job_exec_rs::port::supervisor::{SupervisorEvent, UnitCommand, UnitEvent, UnitSpec};
use job_exec_rs::proto::{Stream, UnitName, WaitStatus};

use crate::harness;
use crate::support::{Harness, unit_of};

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
    let mut spec = h.spec(
        1,
        &format!(
            "read line <{go}; echo $$ >{}; systemd-notify --ready; echo out; \
             read line <{end}; exit 4",
            procs.display()
        ),
    );
    spec.multiuser = true;
    spec.stop_timeout = None;
    spec.unit = UnitName::new(true, spec.rank, spec.job, h.config.instance.clone());
    spec
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
    h.submit(unit.clone(), UnitCommand::Collect);
    for stream in [Stream::Stdout, Stream::Stderr] {
        let (unit, offset, checkpointed) = (unit.clone(), u64::MAX, 0);
        h.submit(unit, UnitCommand::OutputAck { stream, offset, checkpointed });
    }
    assert_eq!(next(&mut h, &unit), UnitEvent::Gone.of(&unit));
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

#[test]
fn a_shell_that_ends_in_its_unit_has_not_left_it() {
    let Some((mut h, _dir)) = harness() else { return };
    for job in 0..100 {
        let mut spec = h.spec(job, "exit 3");
        spec.multiuser = true;
        spec.stop_timeout = None;
        spec.unit = UnitName::new(true, spec.rank, spec.job, h.config.instance.clone());
        h.start_unit(spec);
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
