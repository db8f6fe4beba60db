//! A user manager that takes calls and does not answer.

use std::time::Duration;

use job_exec_rs::adapter::worker::WorkerConfig;
use job_exec_rs::port::supervisor::{Limits, SupervisorEvent, UnitEvent};
use job_exec_rs::proto::{ExecMethod, WaitStatus};

use crate::manager_pid;
use crate::rough::{OWN_PROCESS, in_a_process_of_its_own};
use crate::support::{self, Harness, RUNS_ON};

/// The manager's process. It stands still until this is dropped.
struct Stopped(nix::unistd::Pid);

impl Stopped {
    fn new() -> Self {
        let pid = nix::unistd::Pid::from_raw(manager_pid());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).expect("it runs");
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(self.0, nix::sys::signal::Signal::SIGCONT);
    }
}

fn config(directory: &std::path::Path) -> WorkerConfig {
    let config = support::config(ExecMethod::Systemd, directory);
    WorkerConfig {
        answer_within: Duration::from_millis(500),
        limits: Limits { starts_in_flight: 2, ..Limits::default() },
        ..config
    }
}

fn silent(h: &mut Harness) -> String {
    h.wait("Silent", |event| match event {
        SupervisorEvent::Silent { what, .. } => Some(what.clone()),
        _ => None,
    })
}

/// How many pidfds this process has.
fn pidfds() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("proc");
    let targets = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().contains("[pidfd]")).count()
}

#[test]
fn a_manager_that_hangs_is_waited_for_and_said_to_hang() {
    in_a_process_of_its_own("silent::inside_a_manager_that_hangs");
}

#[test]
fn inside_a_manager_that_hangs() {
    // Only when a_manager_that_hangs_is_waited_for_and_said_to_hang runs it.
    if std::env::var_os(OWN_PROCESS).is_none() || !support::bus() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut h, _, _) = Harness::ready(config(dir.path()));
    // It does not become the program that it waits for.
    h.launch(1, &format!("{RUNS_ON}; exit 1"));
    h.started(1);
    // It is noticed with nothing to ask, and when units are started.
    for round in 1..=2 {
        let stopped = Stopped::new();
        let first = 10 * round;
        if round == 2 {
            (first..first + 6).for_each(|job| h.launch(job, &format!("exit {job}")));
        }
        let what = silent(&mut h);
        let expected = if round == 1 { "a sign of life" } else { "the start of" };
        assert!(what.starts_with(expected) || round == 2, "{what}");
        assert!(!h.saw(|event| matches!(
            event,
            SupervisorEvent::Unit(_, UnitEvent::Failed(_))
                | SupervisorEvent::Unit(_, UnitEvent::Lost { .. })
        )));
        drop(stopped);
        h.wait("Answers", |event| matches!(event, SupervisorEvent::Answers { .. }).then_some(()));
        for job in (first..first + 6).filter(|_| round == 2) {
            h.started(job);
            assert_eq!(h.exited(job), WaitStatus::exited(job as i32));
            h.clean(job);
        }
    }
    // The unit of before has run on.
    // A signal that gets no answer is sent again, and nothing is kept of the first one.
    let stopped = Stopped::new();
    h.signal(1, libc::SIGCONT, false);
    silent(&mut h);
    drop(stopped);
    h.wait("Answers", |event| matches!(event, SupervisorEvent::Answers { .. }).then_some(()));
    assert_eq!(h.run(30, "exit 3"), WaitStatus::exited(3));
    h.clean(30);
    assert_eq!(pidfds(), 0);
    h.signal(1, libc::SIGKILL, true);
    assert_eq!(h.exited(1), WaitStatus::signaled(9));
    h.clean(1);
}

/// One that stays so, also while the module is unloaded.
#[test]
fn a_manager_that_hangs_for_good_does_not_hold_up_an_unload() {
    in_a_process_of_its_own("silent::inside_an_unload");
}

#[test]
fn inside_an_unload() {
    // Only when a_manager_that_hangs_for_good_does_not_hold_up_an_unload runs it.
    if std::env::var_os(OWN_PROCESS).is_none() || !support::bus() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut h, _, _) = Harness::ready(config(dir.path()));
    h.launch(1, RUNS_ON);
    h.started(1);
    let _stopped = Stopped::new();
    h.launch(2, RUNS_ON);
    silent(&mut h);
    h.stop();
}
