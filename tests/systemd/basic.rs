//! Start, exit, output, failure.

use std::collections::BTreeSet;

use job_exec_rs::adapter::worker::WorkerConfig;
use job_exec_rs::port::supervisor::{
    Limits, Method, OUTPUT_CHUNK_BYTES, OUTPUT_WINDOW_BYTES, SupervisorEvent, UnitCommand,
    UnitEvent,
};
use job_exec_rs::proto::ExecMethod;
use job_exec_rs::proto::{Stream, UnitName, WaitStatus};

use crate::support::{self, Gate, Harness, RUNS_ON, unit_of};
use crate::{harness, systemctl, units_left};

/// [supervisor-contract]
#[test]
fn units_keep_the_contract() {
    let Some((mut h, _dir)) = harness() else { return };
    support::contract::check(&mut h);
}

#[test]
fn exit_codes_and_signals() {
    let Some((mut h, _dir)) = harness() else { return };
    for (job, script, status) in [
        (1, "exit 0", WaitStatus::exited(0)),
        (2, "exit 1", WaitStatus::exited(1)),
        (3, "exit 203", WaitStatus::exited(203)),
        (4, "kill -KILL $$", WaitStatus::signaled(9)),
        (5, "kill -TERM $$", WaitStatus::signaled(15)),
    ] {
        // systemd must see the program run before it ends, because it uses the code 203 itself.
        let script = format!("sleep 0.1; {script}");
        assert_eq!(h.run(job, &script), status, "{script}");
        h.clean(job);
        // Answered after Forget was obeyed.
        h.collect(job);
        h.gone(job);
        for extension in ["record", "out", "err"] {
            assert!(!h.file(job, extension).exists());
        }
    }
    assert_eq!(units_left(&h.unit(1).to_string()), "");
}

#[test]
fn quick_exits_are_exits() {
    let Some((mut h, _dir)) = harness() else { return };
    for job in 0..20 {
        h.launch(job, &format!("exit {job}"));
    }
    for job in 0..20 {
        h.started(job);
        assert_eq!(h.exited(job), WaitStatus::exited(job as i32));
        h.clean(job);
    }
}

#[test]
fn output_is_reported_before_exit_and_gone() {
    let Some((mut h, _dir)) = harness() else { return };
    h.launch(1, "echo out; echo err >&2; echo $TEST_JOB; exit 2");
    h.started(1);
    assert_eq!(h.output(1, Stream::Stdout, 0, 6), b"out\n1\n");
    assert_eq!(h.output(1, Stream::Stderr, 0, 4), b"err\n");
    assert_eq!(h.exited(1), WaitStatus::exited(2));
    h.clean(1);
}

/// [output-emptied]
#[test]
fn a_shell_that_empties_its_file_loses_nothing_that_it_writes_later() {
    let Some((mut h, dir)) = harness() else { return };
    let gates = ["a", "b", "c", "d"].map(|name| Gate::new(dir.path().join(name)));
    let [a, b, c, d] = gates.each_ref().map(Gate::wait);
    h.launch(
        1,
        &format!(
            "echo one >&2; {a}; echo x >/dev/stderr; {b}; echo two >&2; {c}; \
             echo longer than all >/dev/stderr; {d}; echo y >/dev/stderr; echo end >&2"
        ),
    );
    h.started(1);
    assert_eq!(h.output(1, Stream::Stderr, 0, 4), b"one\n");
    gates[0].open();
    assert_eq!(h.output(1, Stream::Stderr, 4, 2), b"x\n");
    h.output_lost(1);
    gates[1].open();
    assert_eq!(h.output(1, Stream::Stderr, 6, 4), b"two\n");
    gates[2].open();
    assert_eq!(h.output(1, Stream::Stderr, 10, 16), b"longer than all\n");
    let (mut h, found) = h.restart();
    assert_eq!(found.len(), 1);
    h.started(1);
    h.ack(1, Stream::Stdout, 0);
    h.ack(1, Stream::Stderr, 26);
    gates[3].open();
    assert_eq!(h.output(1, Stream::Stderr, 26, 6), b"y\nend\n");
    h.output_lost(1);
    assert_eq!(h.exited(1), WaitStatus::exited(0));
    h.clean(1);
}

#[test]
fn output_beyond_the_window_waits_for_acks_and_exit_does_not() {
    let Some((mut h, _dir)) = harness() else { return };
    let size = 3 * OUTPUT_WINDOW_BYTES as usize + 17;
    h.launch(1, &format!("head -c {size} /dev/zero | tr '\\0' x"));
    h.started(1);
    // Nothing is acknowledged: one window, then the exit, and no more.
    let mut end = 0;
    loop {
        match h.next_of(1) {
            SupervisorEvent::Unit(
                _,
                UnitEvent::Output { offset, data, stream: Stream::Stdout },
            ) => {
                assert_eq!(offset, end);
                assert!(data.len() <= OUTPUT_CHUNK_BYTES);
                end += data.len() as u64;
            }
            SupervisorEvent::Unit(_, UnitEvent::Exited { status }) => {
                break assert_eq!(status, WaitStatus::exited(0));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(end, OUTPUT_WINDOW_BYTES);
    h.collect(1);
    h.ack(1, Stream::Stdout, end);
    let rest = h.output(1, Stream::Stdout, end, size - end as usize);
    assert!(rest.iter().all(|b| *b == b'x'));
    h.gone(1);
}

#[test]
fn a_grandchild_writes_while_it_is_collected() {
    let Some((mut h, dir)) = harness() else { return };
    let ready = Gate::new(dir.path().join("ready"));
    // The gate is passed when it handles SIGTERM, by a program that the signal ends, too.
    let program = format!("sh -c '{}; exec {RUNS_ON}'", ready.pass());
    let grandchild = format!("trap 'echo late; exit' TERM; {program} & wait");
    // A shell would say that what it ran was terminated.
    let script = format!("exec 2>/dev/null; ({grandchild}) & {}", ready.wait());
    assert_eq!(h.run(1, &script), WaitStatus::exited(0));
    assert_eq!(h.output(1, Stream::Stdout, 0, 5), b"late\n");
    h.clean(1);
}

#[test]
fn gone_waits_for_an_empty_cgroup() {
    let Some((mut h, dir)) = harness() else { return };
    let pidfile = dir.path().join("pid");
    // The leftover ignores SIGTERM, so only SIGKILL after the stop timeout ends it.
    let script = format!("trap '' TERM; {RUNS_ON} & echo $! >{}", pidfile.display());
    let mut spec = h.spec(1, &script);
    spec.stop_timeout = Some(std::time::Duration::from_millis(300));
    h.start_unit(spec);
    h.started(1);
    assert_eq!(h.exited(1), WaitStatus::exited(0));
    h.collect(1);
    h.gone(1);
    let pid = std::fs::read_to_string(&pidfile).unwrap();
    // systemd may not have reaped it yet.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    let has_ended = stat.is_empty() || stat.contains(") Z ") || stat.contains(") X ");
    assert!(has_ended, "{stat}");
}

#[test]
fn gone_waits_for_processes_that_systemd_does_not_kill() {
    let Some((mut h, dir)) = harness() else { return };
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // With KillMode=process the reader of the fifo stays when the unit is inactive.
    let mut spec = h.spec(1, &format!("read line <{} & exit 0", fifo.display()));
    spec.properties.insert("KillMode".to_string(), "process".to_string());
    h.start_unit(spec);
    h.started(1);
    h.exited(1);
    h.collect(1);
    // systemd is done with the unit...
    h.run(2, "exit 0");
    while systemctl(&["is-active", &h.unit(1).to_string()]).trim() != "inactive" {}
    // ...but the core has not reported it, although a later unit was started and has ended.
    h.clean(2);
    assert!(
        !h.saw(|event| matches!(event, SupervisorEvent::Unit(_, UnitEvent::Gone))),
        "gone with a process left"
    );
    std::fs::write(&fifo, "\n").unwrap();
    h.gone(1);
}

#[test]
fn collecting_a_running_unit_ends_it() {
    let Some((mut h, _dir)) = harness() else { return };
    h.launch(1, RUNS_ON);
    h.started(1);
    h.collect(1);
    assert_eq!(h.exited(1), WaitStatus::signaled(15));
    h.gone(1);
}

#[test]
fn signals_reach_main_or_all() {
    let Some((mut h, _dir)) = harness() else { return };
    // A trap interrupts `wait`, and not what runs in the foreground.
    h.launch(1, "exec 2>/dev/null; trap 'echo usr1; exit 5' USR1; echo ready; sleep inf & wait");
    h.started(1);
    assert_eq!(h.output(1, Stream::Stdout, 0, 6), b"ready\n");
    h.signal(1, libc::SIGUSR1, false);
    assert_eq!(h.output(1, Stream::Stdout, 6, 5), b"usr1\n");
    assert_eq!(h.exited(1), WaitStatus::exited(5));
    // The unit does not exist any more, so nothing happens.
    h.signal(1, libc::SIGTERM, false);
    h.signal(1, libc::SIGKILL, true);
    h.clean(1);
    h.signal(1, libc::SIGKILL, true);

    // A signal that comes before the start is not lost.
    h.launch(2, RUNS_ON);
    h.signal(2, libc::SIGKILL, true);
    h.started(2);
    assert_eq!(h.exited(2), WaitStatus::signaled(9));
    h.clean(2);
}

/// [left-named]
#[test]
fn who_outlives_a_signal_is_told_when_it_is_sent_again() {
    let Some((mut h, _dir)) = harness() else { return };
    h.launch(1, "trap '' USR1; echo ready; exec sleep inf");
    let pid = h.started(1);
    assert_eq!(h.output(1, Stream::Stdout, 0, 6), b"ready\n");
    for _ in 0..2 {
        h.signal(1, libc::SIGUSR1, true);
    }
    let told = h.wait("LeftOver", |event| match event {
        SupervisorEvent::Unit(_, UnitEvent::LeftOver { processes }) => Some(processes.clone()),
        _ => None,
    });
    let user = nix::unistd::geteuid();
    assert!(told.starts_with(&format!("pid {pid} (user {user}, \"")), "{told}");
    h.signal(1, libc::SIGKILL, true);
    assert_eq!(h.exited(1), WaitStatus::signaled(9));
    h.clean(1);
}

/// A wrapper of the shell that is a script, and handles a signal only when what it waits for has ended.
#[test]
fn a_signal_reaches_the_process_group_of_the_main_process() {
    let Some((mut h, dir)) = harness() else { return };
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let waits = format!("sh -c 'echo ready; read line <{}'", fifo.display());
    h.launch(1, &format!("exec 2>/dev/null; trap 'echo main' USR1; {waits}; exit 5"));
    h.started(1);
    assert_eq!(h.output(1, Stream::Stdout, 0, 6), b"ready\n");
    h.signal(1, libc::SIGUSR1, false);
    assert_eq!(h.output(1, Stream::Stdout, 6, 5), b"main\n");
    assert_eq!(h.exited(1), WaitStatus::exited(5));
    h.clean(1);
}

#[test]
fn exec_failures_say_why() {
    let Some((mut h, dir)) = harness() else { return };
    let garbage = dir.path().join("garbage");
    std::fs::write(&garbage, "\0").unwrap();
    let mut mode = std::fs::metadata(&garbage).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    std::fs::set_permissions(&garbage, mode).unwrap();
    let garbage = garbage.display().to_string();
    for (job, program, errno, message) in [
        (1, "/nonexistent/flux-shell", libc::ENOENT, "No such file or directory"),
        (2, "/etc/passwd", libc::EACCES, "Permission denied"),
        (3, &garbage, libc::ENOEXEC, "Exec format error"),
        (4, "./flux-shell", libc::EINVAL, "not an absolute path"),
    ] {
        let mut spec = h.spec(job, "");
        spec.argv[0] = program.to_string();
        // Twice, because a failed start must leave nothing behind.
        for _ in 0..2 {
            h.start_unit(spec.clone());
            let (errnum, text) = h.failed(job);
            assert_eq!(errnum, errno, "{text}");
            assert!(text.contains(program) && text.contains(message), "{text}");
        }
        h.forget(job);
    }
}

#[test]
fn a_missing_working_directory_is_no_error() {
    let Some((mut h, _dir)) = harness() else { return };
    let mut spec = h.spec(1, "pwd");
    spec.working_directory = Some("/nonexistent".to_string());
    h.start_unit(spec);
    h.started(1);
    h.output(1, Stream::Stdout, 0, 2);
    assert_eq!(h.exited(1), WaitStatus::exited(0));
    h.clean(1);
}

#[test]
fn arguments_and_environment_arrive_as_given() {
    let Some((mut h, _dir)) = harness() else { return };
    let mut spec =
        h.spec(1, r#"printf '%s\n' "$@"; echo "[$INVOCATION_ID$NOTIFY_SOCKET]$PERCENT""#);
    let arguments = ["sh", "$HOME ${HOME}", "%n %%", "a\"b'c\\d", "ƒ"];
    spec.argv.extend(arguments.map(str::to_string));
    spec.environment.insert("PERCENT".to_string(), "%n $HOME \\ \"\n\t'".to_string());
    h.start_unit(spec);
    h.started(1);
    let expected = format!("{}\n[]%n $HOME \\ \"\n\t'\n", arguments[1..].join("\n"));
    let output = h.output(1, Stream::Stdout, 0, expected.len());
    assert_eq!(String::from_utf8(output).unwrap(), expected);
    assert_eq!(h.exited(1), WaitStatus::exited(0));
    h.clean(1);
}

#[test]
fn properties_are_given_and_read_back() {
    let Some((mut h, _dir)) = harness() else { return };
    let mut spec = h.spec(1, &format!("ulimit -n; {RUNS_ON}"));
    for (name, value) in [
        ("LimitNOFILE", "123:456"),
        ("CPUWeight", "42"),
        ("MemoryHigh", "50%"),
        ("AllowedCPUs", "0"),
        ("DeviceAllow", "/dev/null rw"),
        ("OOMScoreAdjust", "100"),
    ] {
        spec.properties.insert(name.to_string(), value.to_string());
    }
    h.start_unit(spec);
    h.started(1);
    assert_eq!(h.output(1, Stream::Stdout, 0, 4), b"123\n");
    let unit = h.unit(1).to_string();
    for (name, value) in [("LimitNOFILE", "456"), ("CPUWeight", "42"), ("AllowedCPUs", "0")] {
        assert_eq!(systemctl(&["show", "--value", "-p", name, &unit]).trim(), value, "{name}");
    }
    h.collect(1);
    h.exited(1);
    h.gone(1);
}

#[test]
fn a_bad_property_starts_nothing() {
    let Some((mut h, _dir)) = harness() else { return };
    for (job, name, value) in
        [(1, "NoSuchProperty", "1"), (2, "MemoryMax", "much"), (3, "Slice", "not a slice")]
    {
        let mut spec = h.spec(job, "echo never");
        spec.properties.insert(name.to_string(), value.to_string());
        h.start_unit(spec);
        let (errnum, message) = h.failed(job);
        assert_eq!(errnum, libc::EINVAL, "{message}");
        assert!(message.contains(name) || message.contains(value), "{message}");
        assert_eq!(std::fs::read(h.file(job, "out")).unwrap(), b"");
    }
}

#[test]
fn a_start_that_no_message_can_say_fails_and_makes_room() {
    if !support::bus() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let config = support::config(ExecMethod::Systemd, dir.path());
    let (mut h, _, _) = Harness::ready(WorkerConfig {
        limits: Limits { starts_in_flight: 1, ..Limits::default() },
        ..config
    });
    // Longer than D-Bus's longest array, although no string is too long. Of few characters: a debug
    // build takes seconds to look at each.
    for (job, argument) in [(1, "𝄞".repeat(17 << 20)), (2, "\0".to_string())] {
        let mut spec = h.spec(job, "echo never");
        spec.argv.push(argument);
        h.start_unit(spec);
    }
    h.launch(3, "exit 3");
    for job in 1..=2 {
        let (errnum, message) = h.failed(job);
        assert_eq!(errnum, libc::EINVAL, "{message}");
        assert!(message.contains("D-Bus"), "{message}");
        h.forget(job);
    }
    h.started(3);
    assert_eq!(h.exited(3), WaitStatus::exited(3));
    h.clean(3);
}

#[test]
fn many_units_with_few_starts_in_flight() {
    let Some((mut h, _dir)) = harness() else { return };
    const JOBS: u64 = 200;
    for job in 0..JOBS {
        h.launch(job, "echo out");
    }
    let mut left: BTreeSet<_> = (0..JOBS).map(|job| h.unit(job)).collect();
    while !left.is_empty() {
        match h.next() {
            SupervisorEvent::Unit(unit, UnitEvent::Exited { status }) => {
                assert_eq!(status, WaitStatus::exited(0));
                h.submit(unit, UnitCommand::Collect);
            }
            SupervisorEvent::Unit(unit, UnitEvent::Gone) => assert!(left.remove(&unit)),
            SupervisorEvent::Unit(_, UnitEvent::Output { data, .. }) => assert_eq!(data, b"out\n"),
            SupervisorEvent::Unit(_, UnitEvent::Started { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn ready_says_systemd() {
    let Some((_, _dir)) = harness() else { return };
    let dir = tempfile::tempdir().unwrap();
    let config = crate::support::config(job_exec_rs::proto::ExecMethod::Auto, dir.path());
    let (_h, found, ready) = Harness::ready(config);
    assert!(found.is_empty());
    assert_eq!(ready, (Method::Systemd, None));
}

#[test]
fn two_instances_on_one_bus_never_meet() {
    let Some((mut a, _dir_a)) = harness() else { return };
    let Some((mut b, _dir_b)) = harness() else { return };
    for job in 0..10 {
        a.launch(job, "exit 1");
        b.launch(job, "exit 2");
    }
    for (h, code) in [(&mut a, 1), (&mut b, 2)] {
        for job in 0..10 {
            h.started(job);
            assert_eq!(h.exited(job), WaitStatus::exited(code));
            h.clean(job);
        }
    }
    for (h, other) in [(&a, b.config.instance.clone()), (&b, a.config.instance.clone())] {
        assert!(!h.saw(|event| unit_of(event).is_some_and(|u| *u.instance() == other)));
    }
}

#[test]
fn a_multiuser_unit_is_left_to_the_imp() {
    let Some((mut h, _dir)) = harness() else { return };
    let script =
        format!("{RUNS_ON} & trap 'exit 4' USR1; echo ${{NOTIFY_SOCKET:+set}}; wait; wait");
    let mut spec = h.spec(1, &script);
    spec.multiuser = true;
    spec.stop_timeout = None;
    // What is configured for every job does not count here.
    for (name, value) in
        [("KillMode", "mixed"), ("SendSIGKILL", "yes"), ("TimeoutStopUSec", "5000000")]
    {
        spec.properties.insert(name.to_string(), value.to_string());
    }
    spec.unit = UnitName::new(true, spec.rank, spec.job, h.config.instance.clone());
    let unit = spec.unit.clone();
    h.start_unit(spec);
    let next = |h: &mut Harness| {
        h.wait("an event", |event| (unit_of(event) == Some(&unit)).then(|| event.clone()))
    };
    assert!(matches!(next(&mut h), SupervisorEvent::Unit(_, UnitEvent::Started { .. })));
    // The IMP reports through the notify socket.
    assert!(
        matches!(next(&mut h), SupervisorEvent::Unit(_, UnitEvent::Output { data, .. }) if data == b"set\n")
    );
    let name = unit.to_string();
    for (property, value) in [
        ("Type", "notify"),
        ("KillMode", "process"),
        ("SendSIGKILL", "no"),
        ("TimeoutStopUSec", "infinity"),
    ] {
        assert_eq!(systemctl(&["show", "--value", "-p", property, &name]).trim(), value);
    }
    h.submit(unit.clone(), UnitCommand::Signal { signal: libc::SIGUSR1, all: false });
    let exited = UnitEvent::Exited { status: WaitStatus::exited(4) }.of(&unit);
    assert_eq!(next(&mut h), exited);
    h.submit(unit.clone(), UnitCommand::Collect);
    // systemd leaves the sleep alone; a signal to all is what ends it.
    h.submit(unit.clone(), UnitCommand::Signal { signal: libc::SIGKILL, all: true });
    assert_eq!(next(&mut h), UnitEvent::Gone.of(&unit));
}
