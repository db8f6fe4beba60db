//! What the next life of the worker finds.

use std::io::Write;

use job_exec_rs::port::Note;
use job_exec_rs::port::supervisor::{SupervisorEvent, UnitCommand, UnitEvent};
use job_exec_rs::proto::ExecMethod;
use job_exec_rs::proto::{Stream, UnitName, WaitStatus};

use crate::support::{self, Gate, Harness, RUNS_ON};
use crate::{harness, systemctl, systemd_run, units_left};

#[test]
fn a_unit_runs_on_without_a_worker_and_is_found() {
    let Some((mut h, dir)) = harness() else { return };
    let gate = Gate::new(dir.path().join("gate"));
    h.launch(1, &format!("echo before; {}; echo after; exit 4", gate.wait()));
    let pid = h.started(1);
    assert_eq!(h.output(1, Stream::Stdout, 0, 7), b"before\n");
    let unit = h.unit(1);
    h.submit(unit, UnitCommand::Note(Note::BarrierEntered(17)));

    let (mut h, found) = h.restart();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].spec.digest.as_str(), "digest-of-1");
    assert_eq!(found[0].started.as_ref().unwrap().pid, pid);
    assert_eq!(found[0].notes["barrier-entered"].text(), "17");
    assert_eq!(h.started(1), pid);
    gate.open();
    assert_eq!(h.exited(1), WaitStatus::exited(4));
    h.collect(1);
    // Gone waits to hear where output begins.
    h.ack(1, Stream::Stdout, 7);
    assert_eq!(h.output(1, Stream::Stdout, 7, 6), b"after\n");
    h.gone(1);

    let (mut h, found) = h.restart();
    assert!(found[0].gone);
    assert_eq!(h.exited(1), WaitStatus::exited(4));
    h.ack(1, Stream::Stdout, 13);
    h.collect(1);
    h.gone(1);
    h.forget(1);
    let (_h, found) = h.restart();
    assert!(found.is_empty());
}

#[test]
fn an_exit_while_no_worker_is_there_is_found() {
    let Some((mut h, dir)) = harness() else { return };
    let (gate, done) = (Gate::new(dir.path().join("gate")), dir.path().join("done"));
    for job in [0, 6] {
        let (wait, done) = (gate.wait(), done.display());
        h.launch(job, &format!("{wait}; echo {job}; echo >>{done}; exit {job}"));
        h.started(job);
    }
    h.stop();
    gate.open();
    for (job, state) in [(0, "SubState=exited"), (6, "SubState=failed")] {
        let unit = h.unit(job).to_string();
        while systemctl(&["show", "-p", "SubState", &unit]).trim() != state {}
    }
    let (mut h, found, _) = Harness::ready(h.config);
    assert_eq!(found.iter().filter(|record| record.exited.is_none()).count(), 2);
    for job in [0, 6] {
        h.started(job);
        assert_eq!(h.exited(job), WaitStatus::exited(job as i32));
        h.ack(job, Stream::Stdout, 0);
        assert_eq!(h.output(job, Stream::Stdout, 0, 2), format!("{job}\n").as_bytes());
        h.clean(job);
    }
}

#[test]
fn an_exit_that_was_recorded_is_reported_again_and_collected() {
    let Some((mut h, dir)) = harness() else { return };
    // What the shells leave behind delays the end of their collection.
    let gate = Gate::new(dir.path().join("gate"));
    for job in [0, 1] {
        let script = format!("trap '' TERM; ({}) & exit {job}", gate.wait());
        assert_eq!(h.run(job, &script), WaitStatus::exited(job as i32));
    }
    let (mut h, found) = h.restart();
    assert!(found.iter().all(|record| record.exited.is_some() && !record.gone));
    for job in [0, 1] {
        assert_eq!(h.exited(job), WaitStatus::exited(job as i32));
        h.collect(job);
    }
    gate.open();
    for job in [0, 1] {
        h.gone(job);
        h.forget(job);
        assert_eq!(units_left(&h.unit(job).to_string()), "");
    }
}

#[test]
fn an_intent_alone_was_never_started() {
    let Some((mut h, _dir)) = harness() else { return };
    let mut spec = h.spec(1, "exit 3");
    let good = spec.clone();
    spec.argv[0] = "/nonexistent".to_string();
    h.start_unit(spec);
    h.failed(1);
    let (mut h, found) = h.restart();
    assert_eq!(found[0].started, None);
    h.never_started(1);
    h.start_unit(good);
    h.started(1);
    assert_eq!(h.exited(1), WaitStatus::exited(3));
    h.clean(1);
}

#[test]
fn a_start_that_got_through_late_is_adopted() {
    let Some((mut h, _dir)) = harness() else { return };
    let mut spec = h.spec(1, "");
    spec.argv[0] = "/nonexistent".to_string();
    h.start_unit(spec.clone());
    h.failed(1);
    let (mut h, _) = h.restart();
    h.never_started(1);
    // As if the call of the earlier life had been on its way for long.
    systemd_run(&h.unit(1), "digest-of-1", RUNS_ON);
    spec.argv[0] = "/bin/sh".to_string();
    h.start_unit(spec);
    h.started(1);
    h.collect(1);
    assert_eq!(h.exited(1), WaitStatus::signaled(15));
    h.gone(1);
}

#[test]
fn a_late_start_of_another_job_is_not_adopted() {
    let Some((mut h, _dir)) = harness() else { return };
    let mut spec = h.spec(1, "exit 0");
    spec.argv[0] = "/nonexistent".to_string();
    h.start_unit(spec);
    h.failed(1);
    systemd_run(&h.unit(1), "strange", RUNS_ON);
    h.launch(1, "exit 0");
    let (errnum, message) = h.failed(1);
    assert_eq!(errnum, libc::EEXIST, "{message}");
    assert_eq!(systemctl(&["is-active", &h.unit(1).to_string()]).trim(), "active");
    systemctl(&["stop", &h.unit(1).to_string()]);
}

#[test]
fn a_name_that_is_taken_is_refused() {
    let Some((mut h, _dir)) = harness() else { return };
    systemd_run(&h.unit(1), "strange", RUNS_ON);
    h.launch(1, "exit 0");
    let (errnum, message) = h.failed(1);
    assert_eq!(errnum, libc::EEXIST);
    assert!(message.contains(&h.unit(1).to_string()), "{message}");
    assert_eq!(systemctl(&["is-active", &h.unit(1).to_string()]).trim(), "active");
    systemctl(&["stop", &h.unit(1).to_string()]);
    h.forget(1);
    assert_eq!(h.run(2, "exit 0"), WaitStatus::exited(0));
    assert!(!h.file(1, "record").exists());
    h.clean(2);
}

#[test]
fn a_second_launch_starts_nothing() {
    let Some((mut h, _dir)) = harness() else { return };
    h.launch(1, RUNS_ON);
    let pid = h.started(1);
    h.launch(1, RUNS_ON);
    assert_eq!(h.started(1), pid, "adopted");
    let mut other = h.spec(1, RUNS_ON);
    other.digest = "another".into();
    h.start_unit(other);
    assert_eq!(h.failed(1).0, libc::EEXIST);
    h.collect(1);
    h.exited(1);
    h.gone(1);
    h.launch(1, "exit 0");
    assert_eq!(h.failed(1).0, libc::EEXIST, "a leftover of a finished one");
    h.forget(1);
    assert_eq!(h.run(1, "exit 0"), WaitStatus::exited(0));
    h.clean(1);
}

#[test]
fn another_boot_means_lost() {
    let Some((mut h, _dir)) = harness() else { return };
    h.launch(1, RUNS_ON);
    h.started(1);
    h.stop();
    let path = h.file(1, "record");
    let record = std::fs::read_to_string(&path).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    std::fs::write(&path, record.replace(boot.trim(), "of long ago")).unwrap();
    let unit = h.unit(1).to_string();
    let (mut h, _, _) = Harness::ready(h.config);
    assert_eq!(h.lost(1), "node was rebooted");
    h.clean(1);
    systemctl(&["stop", &unit]);
}

#[test]
fn a_unit_that_vanished_is_lost() {
    let Some((mut h, _dir)) = harness() else { return };
    for job in [1, 2] {
        h.launch(job, RUNS_ON);
        h.started(job);
    }
    h.stop();
    for job in [1, 2] {
        systemctl(&["stop", &h.unit(job).to_string()]);
    }
    // A stranger under our unit's name, with an invocation of its own.
    systemd_run(&h.unit(2), "strange", RUNS_ON);
    let (mut h, _, _) = Harness::ready(h.config);
    assert!(h.lost(1).contains("no trace"));
    assert!(h.lost(2).contains("not the one started"));
    h.clean(1);
    h.clean(2);
    assert_eq!(systemctl(&["is-active", &h.unit(2).to_string()]).trim(), "active");
    systemctl(&["stop", &h.unit(2).to_string()]);
}

#[test]
fn a_torn_record_is_mended_and_a_strange_one_left_alone() {
    let Some((mut h, _dir)) = harness() else { return };
    h.launch(1, RUNS_ON);
    h.started(1);
    h.stop();
    let mut file = std::fs::OpenOptions::new().append(true).open(h.file(1, "record")).unwrap();
    file.write_all(br#"{"exited":76"#).unwrap();
    std::fs::write(h.file(2, "record"), "{\"version\":99}\n").unwrap();
    let (mut h, found, _) = Harness::ready(h.config);
    assert_eq!(found.len(), 1);
    h.unreadable(2);
    h.started(1);
    h.signal(1, libc::SIGKILL, false);
    assert_eq!(h.exited(1), WaitStatus::signaled(9));
    let (mut h, found) = h.restart();
    assert_eq!(found[0].exited, Some(WaitStatus::signaled(9)));
    h.exited(1);
    h.clean(1);
    h.unreadable(2);
    h.launch(2, "exit 0");
    assert_eq!(h.failed(2).0, libc::EEXIST);
    assert_eq!(std::fs::read_to_string(h.file(2, "record")).unwrap(), "{\"version\":99}\n");
}

/// Remove a unit's files with these extensions.
fn lose(h: &Harness, job: u64, extensions: &[&str]) {
    for extension in extensions {
        std::fs::remove_file(h.file(job, extension)).unwrap();
    }
}

/// Nothing is left of this harness's units, in systemd or in its directory.
fn assert_nothing_left(h: &Harness) {
    assert_eq!(units_left(&UnitName::pattern(h.config.rank, &h.config.instance)), "");
    let files: Vec<_> = std::fs::read_dir(&h.config.directory).unwrap().collect();
    assert!(files.is_empty(), "{files:?}");
}

/// [unrecorded-known]
#[test]
fn a_unit_without_a_record_is_known_by_systemd() {
    let Some((mut h, dir)) = harness() else { return };
    let [go, end] = ["go", "end"].map(|name| Gate::new(dir.path().join(name)));
    // 0 and 6 exit while no worker is there, 4 and 5 run on.
    for job in [0, 6] {
        h.launch(job, &format!("{}; exit {job}", go.wait()));
    }
    for job in [4, 5] {
        h.launch(job, &format!("echo before; {}; echo after; exit {job}", end.wait()));
    }
    let pids = [0, 6, 4, 5].map(|job| h.started(job));
    for job in [4, 5] {
        assert_eq!(h.output(job, Stream::Stdout, 0, 7), b"before\n");
    }
    h.stop();
    for job in [0, 4, 6] {
        lose(&h, job, &["record", "out", "err"]);
    }
    lose(&h, 5, &["record"]);
    go.open();
    for (job, state) in [(0, "SubState=exited"), (6, "SubState=failed")] {
        let unit = h.unit(job).to_string();
        while systemctl(&["show", "-p", "SubState", &unit]).trim() != state {}
    }

    let (mut h, found, _) = Harness::ready(h.config);
    assert_eq!(found.len(), 4);
    for record in &found {
        let job = record.spec.job.0;
        assert_eq!(record.spec.digest.as_str(), format!("digest-of-{job}"));
        assert_eq!(record.spec.userid, nix::unistd::getuid().as_raw());
        assert_eq!(record.spec.size, 1);
        let notes: Vec<Note> = Note::all(&record.notes).collect();
        assert_eq!(notes, [Note::MadeAgain { output_lost: job != 5 }]);
    }
    for (job, pid) in [0, 6, 4, 5].into_iter().zip(pids) {
        assert_eq!(h.started(job), pid);
    }
    for job in [0, 6, 4] {
        h.output_lost(job);
    }
    for job in [0, 6] {
        assert_eq!(h.exited(job), WaitStatus::exited(job as i32));
        h.clean(job);
    }
    // The leader's request finds what runs, and starts nothing.
    h.launch(4, "exit 9");
    assert_eq!(h.started(4), pids[2]);
    // From now on the unit is as any other.
    let (mut h, found) = h.restart();
    assert_eq!(found.iter().map(|record| record.spec.job.0).collect::<Vec<_>>(), [4, 5]);
    assert_eq!([4, 5].map(|job| h.started(job)), [pids[2], pids[3]]);
    h.output_lost(4);
    end.open();
    for job in [4, 5] {
        assert_eq!(h.exited(job), WaitStatus::exited(job as i32));
    }
    h.ack(5, Stream::Stdout, 7);
    assert_eq!(h.output(5, Stream::Stdout, 7, 6), b"after\n", "its output was kept");
    for job in [4, 5] {
        h.clean(job);
    }
    let (h, found) = h.restart();
    assert!(found.is_empty());
    assert_nothing_left(&h);
}

/// [unrecorded-known]
#[test]
fn a_unit_without_a_record_that_is_another_jobs_makes_room() {
    let Some((mut h, _dir)) = harness() else { return };
    h.stop();
    systemd_run(&h.unit(1), "another", RUNS_ON);
    let (mut h, found, _) = Harness::ready(h.config);
    assert_eq!(found[0].spec.digest.as_str(), "another");
    h.started(1);
    h.output_lost(1);
    h.launch(1, "exit 3");
    assert_eq!(h.failed(1).0, libc::EEXIST);
    // As the agent does.
    h.collect(1);
    assert_eq!(h.exited(1), WaitStatus::signaled(15));
    h.gone(1);
    h.forget(1);
    assert_eq!(h.run(1, "exit 3"), WaitStatus::exited(3));
    h.clean(1);
    let (h, _) = h.restart();
    assert_nothing_left(&h);
}

/// [unrecorded-known]
#[test]
fn the_unit_decides_where_the_record_says_nothing() {
    let Some((mut h, _dir)) = harness() else { return };
    let jobs = [1, 2, 3];
    for job in jobs {
        h.launch(job, RUNS_ON);
        h.started(job);
    }
    h.stop();
    let records = ["{\"version\":1,\"int", "nonsense\n", "{\"version\":99}\n"];
    for (job, text) in jobs.into_iter().zip(records) {
        std::fs::write(h.file(job, "record"), text).unwrap();
    }
    // A stranger has used one of our names.
    systemd_run(&h.unit(4), "", RUNS_ON);
    let (mut h, found, _) = Harness::ready(h.config);
    // systemd answers in any order.
    let mut found: Vec<u64> = found.iter().map(|record| record.spec.job.0).collect();
    found.sort_unstable();
    assert_eq!(found, [1, 2]);
    h.unreadable(3);
    for job in [1, 2] {
        h.started(job);
        h.signal(job, libc::SIGKILL, false);
        assert_eq!(h.exited(job), WaitStatus::signaled(9));
        h.clean(job);
    }
    for job in [3, 4] {
        assert_eq!(systemctl(&["is-active", &h.unit(job).to_string()]).trim(), "active");
    }
    h.launch(3, "exit 0");
    assert_eq!(h.failed(3).0, libc::EEXIST, "a newer release knows it");
    for job in [3, 4] {
        systemctl(&["stop", &h.unit(job).to_string()]);
    }
}

#[test]
fn no_record_no_start() {
    let Some((mut h, dir)) = harness() else { return };
    let marker = dir.path().join("marker");
    // Where the state directory was is a file.
    std::fs::remove_dir_all(&h.config.directory).unwrap();
    std::fs::write(&h.config.directory, "").unwrap();
    h.launch(1, &format!("touch {}", marker.display()));
    let (errnum, message) = h.failed(1);
    assert_eq!(errnum, libc::ENOTDIR);
    assert!(message.contains(&h.file(1, "record").display().to_string()), "{message}");
    assert!(!marker.exists());
    // A full disk.
    let full = dir.path().join("full");
    std::fs::create_dir(&full).unwrap();
    let mounted = nix::mount::mount(
        Some("none"),
        &full,
        Some("tmpfs"),
        nix::mount::MsFlags::empty(),
        Some("size=4k,mode=0700"),
    );
    if mounted.is_ok() {
        std::fs::write(full.join("filler"), [0; 4096]).unwrap();
        let (mut h, _, _) = Harness::ready(support::config(ExecMethod::Systemd, &full));
        h.launch(1, "exit 0");
        assert_eq!(h.failed(1).0, libc::ENOSPC);
        assert!(!h.file(1, "record").exists());
        h.stop();
        nix::mount::umount(&full).unwrap();
    }
}

#[test]
fn an_unusable_directory_is_said() {
    if !support::bus() {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut h = Harness::start(support::config(ExecMethod::Systemd, &file.path().join("state")));
    let message = h.wait("Unusable", |event| match event {
        SupervisorEvent::Unusable { message } => Some(message.clone()),
        _ => None,
    });
    assert!(message.contains(&file.path().display().to_string()), "{message}");
    h.launch(1, "exit 0");
    assert_eq!(h.failed(1).0, libc::ENXIO);
}

#[test]
fn what_nobody_wants_does_not_hold_up_the_end() {
    let Some((mut h, _dir)) = harness() else { return };
    // More than the window holds, found again and never acknowledged.
    h.launch(1, "head -c 3000000 /dev/zero; exit 3");
    h.started(1);
    let status = h.wait("the exit", |event| match event {
        SupervisorEvent::Unit(_, UnitEvent::Exited { status }) => Some(*status),
        _ => None,
    });
    assert_eq!(status, WaitStatus::exited(3));
    let (mut h, _found) = h.restart();
    assert_eq!(h.exited(1), WaitStatus::exited(3));
    for stream in [Stream::Stdout, Stream::Stderr] {
        h.ack(1, stream, u64::MAX);
    }
    h.collect(1);
    h.gone(1);
    h.forget(1);
}
