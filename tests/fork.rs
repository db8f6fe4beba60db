//! The supervisor with plain child processes.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use job_exec_rs::port::supervisor::{Method, OUTPUT_WINDOW_BYTES, SupervisorEvent, UnitEvent};
use job_exec_rs::proto::ExecMethod;
use job_exec_rs::proto::{Stream, WaitStatus};
use job_exec_rs::supervisor::OuterJob;
use support::{Harness, RUNS_ON};
use tempfile::TempDir;

fn harness() -> (Harness, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let (harness, _, _) = Harness::ready(support::config(ExecMethod::Fork, dir.path()));
    (harness, dir)
}

#[test]
fn auto_without_a_bus_says_what_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = support::config(ExecMethod::Auto, dir.path());
    config.bus_address = Some("unix:path=/nonexistent/bus".to_string());
    let (_h, _, (method, notice)) = Harness::ready(config.clone());
    assert_eq!(method, Method::Fork);
    let notice = notice.unwrap();
    assert!(notice.contains("will not survive") && notice.contains("/nonexistent/bus"), "{notice}");

    config.method = ExecMethod::Systemd;
    let mut h = Harness::start(config);
    let message = h.wait("Unusable", |event| match event {
        SupervisorEvent::Unusable { message } => Some(message.clone()),
        _ => None,
    });
    assert!(message.contains("/nonexistent/bus") && message.contains("enable-linger"), "{message}");
}

#[test]
fn nothing_inside_a_job_becomes_a_unit() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = support::config(ExecMethod::Auto, dir.path());
    config.outer_job = OuterJob::find(Some("fABC".to_string()));
    let (_h, _, (method, notice)) = Harness::ready(config.clone());
    assert_eq!(method, Method::Fork);
    let notice = notice.unwrap();
    assert!(notice.contains("job fABC of Flux") && !notice.contains("linger"), "{notice}");

    config.method = ExecMethod::Systemd;
    let message = Harness::start(config).wait("Unusable", |event| match event {
        SupervisorEvent::Unusable { message } => Some(message.clone()),
        _ => None,
    });
    assert!(message.contains("job fABC of Flux") && !message.contains("linger"), "{message}");
}

/// [supervisor-contract]
#[test]
fn children_keep_the_contract() {
    let (mut h, _dir) = harness();
    support::contract::check(&mut h);
}

#[test]
fn exit_codes_and_signals() {
    let (mut h, _dir) = harness();
    for (job, script, status) in [
        (1, "exit 0", WaitStatus::exited(0)),
        (2, "exit 3", WaitStatus::exited(3)),
        (3, "kill -KILL $$", WaitStatus::signaled(9)),
    ] {
        assert_eq!(h.run(job, script), status, "{script}");
        h.clean(job);
    }
}

#[test]
fn output_beyond_the_window_waits_for_acks_and_exit_does_not() {
    let (mut h, _dir) = harness();
    let size = 2 * OUTPUT_WINDOW_BYTES as usize + 17;
    h.launch(1, &format!("head -c {size} /dev/zero | tr '\\0' x; echo err >&2"));
    h.started(1);
    h.wait("exit", |event| {
        matches!(event, SupervisorEvent::Unit(_, UnitEvent::Exited { .. })).then_some(())
    });
    h.collect(1);
    let output = h.output(1, Stream::Stdout, 0, size);
    assert!(output.iter().all(|b| *b == b'x'));
    assert_eq!(h.output(1, Stream::Stderr, 0, 4), b"err\n");
    h.gone(1);
}

#[test]
fn gone_waits_until_the_process_group_is_dead() {
    let (mut h, dir) = harness();
    let pidfile = dir.path().join("pid");
    h.launch(1, &format!("trap '' TERM; {RUNS_ON} & echo $! >{}", pidfile.display()));
    h.started(1);
    assert_eq!(h.exited(1), WaitStatus::exited(0));
    h.collect(1);
    h.gone(1);
    let pid = std::fs::read_to_string(&pidfile).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    assert_eq!(stat.ok().filter(|stat| !stat.contains(") Z ")), None);
}

#[test]
fn collecting_a_running_unit_ends_it_with_sigkill_at_last() {
    let (mut h, _dir) = harness();
    let mut spec = h.spec(1, "trap '' TERM; echo ready; while :; do sleep 0.05; done");
    spec.stop_timeout = Some(Duration::from_millis(100));
    h.start_unit(spec);
    h.started(1);
    assert_eq!(h.output(1, Stream::Stdout, 0, 6), b"ready\n");
    h.collect(1);
    assert_eq!(h.exited(1), WaitStatus::signaled(9));
    h.gone(1);
}

#[test]
fn signals_reach_main_or_all() {
    let (mut h, _dir) = harness();
    h.launch(1, "trap 'exit 5' USR1; echo ready; while :; do sleep 0.05; done");
    h.started(1);
    h.output(1, Stream::Stdout, 0, 6);
    h.signal(1, libc::SIGUSR1, false);
    assert_eq!(h.exited(1), WaitStatus::exited(5));
    h.signal(1, libc::SIGKILL, true);
    h.clean(1);
    h.signal(1, libc::SIGKILL, true);
    h.launch(2, RUNS_ON);
    h.signal(2, libc::SIGKILL, true);
    h.started(2);
    assert_eq!(h.exited(2), WaitStatus::signaled(9));
    h.clean(2);
}

#[test]
fn failures_say_why() {
    let (mut h, _dir) = harness();
    for (program, errno, message) in [
        ("/nonexistent/flux-shell", libc::ENOENT, "No such file or directory"),
        ("/etc/passwd", libc::EACCES, "Permission denied"),
    ] {
        let mut spec = h.spec(1, "");
        spec.argv[0] = program.to_string();
        h.start_unit(spec);
        let (errnum, text) = h.failed(1);
        assert_eq!(errnum, errno);
        assert!(text.contains(program) && text.contains(message), "{text}");
    }
    let mut spec = h.spec(2, "exit 0");
    spec.properties = BTreeMap::from([("MemoryMax".to_string(), "1G".to_string())]);
    h.start_unit(spec);
    let (errnum, message) = h.failed(2);
    assert!(errnum == libc::EINVAL && message.contains("MemoryMax"), "{message}");
}

#[test]
fn children_do_not_outlive_their_worker() {
    let (mut h, _dir) = harness();
    h.run(1, "exit 1");
    h.launch(2, RUNS_ON);
    let pid = h.started(2);
    let (mut h, found) = h.restart();
    assert_eq!(found.len(), 2);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "killed and reaped");
    assert_eq!(h.exited(1), WaitStatus::exited(1));
    h.clean(1);
    assert!(h.lost(2).contains("does not survive"));
    h.clean(2);
}

#[test]
fn a_second_launch_starts_nothing() {
    let (mut h, _dir) = harness();
    h.launch(1, RUNS_ON);
    let pid = h.started(1);
    h.launch(1, RUNS_ON);
    assert_eq!(h.started(1), pid);
    h.collect(1);
    assert_eq!(h.exited(1), WaitStatus::signaled(15));
    h.gone(1);
    h.launch(1, "exit 0");
    assert_eq!(h.failed(1).0, libc::EEXIST);
}

#[test]
fn many_units() {
    let (mut h, _dir) = harness();
    for job in 0..200 {
        h.launch(job, "echo out");
    }
    for job in 0..200 {
        h.started(job);
        assert_eq!(h.output(job, Stream::Stdout, 0, 4), b"out\n");
        assert_eq!(h.exited(job), WaitStatus::exited(0));
        h.clean(job);
    }
}
