//! Shells that do to their output files what a user could.

use std::os::unix::fs::MetadataExt;

use job_exec_rs::port::supervisor::{Limits, SupervisorEvent, UnitEvent};
use job_exec_rs::proto::ExecMethod;
use job_exec_rs::proto::{Stream, WaitStatus};

use crate::support::{self, Harness};
use crate::{harness, systemctl};

const MIB: u64 = 1024 * 1024;
const LIMITS: Limits = Limits { starts_in_flight: 1, stream: MIB, disk: 8 * MIB };

fn limited() -> Option<(Harness, tempfile::TempDir)> {
    support::bus().then(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let config = support::config(ExecMethod::Systemd, &dir.path().join("state"));
        let (harness, _, _) =
            Harness::ready(job_exec_rs::adapter::worker::WorkerConfig { limits: LIMITS, ..config });
        (harness, dir)
    })
}

fn dropped(h: &mut Harness, job: u64) -> u64 {
    let unit = h.unit(job);
    h.wait("OutputTruncated", |event| match event {
        SupervisorEvent::Unit(
            u,
            UnitEvent::OutputTruncated { stream: Stream::Stdout, kept, dropped },
        ) => {
            assert_eq!(*kept, LIMITS.stream);
            (*u == unit).then_some(*dropped)
        }
        _ => None,
    })
}

/// [output-bounded]
#[test]
fn a_shell_that_fills_the_disk_is_told_and_others_go_on() {
    let Some((mut h, _dir)) = limited() else { return };
    h.launch(1, "cat /dev/zero & fallocate -l 64M /proc/self/fd/2; wait");
    h.started(1);
    let unit = h.unit(1);
    let allocated = h.wait("OutputOverflow", |event| match event {
        SupervisorEvent::Unit(u, UnitEvent::OutputOverflow { allocated }) => {
            (*u == unit).then_some(*allocated)
        }
        _ => None,
    });
    assert!(allocated > LIMITS.disk, "{allocated}");
    h.launch(2, "echo fine; exit 3");
    h.started(2);
    assert_eq!(h.output(2, Stream::Stdout, 0, 5), b"fine\n");
    assert_eq!(h.exited(2), WaitStatus::exited(3));
    h.clean(2);
    // `Gone` does not wait for output past the limit.
    h.signal(1, libc::SIGKILL, true);
    h.output(1, Stream::Stdout, 0, LIMITS.stream as usize);
    h.ack(1, Stream::Stderr, u64::MAX);
    h.collect(1);
    assert!(dropped(&mut h, 1) > 0);
    h.wait("Gone", |event| {
        matches!(event, SupervisorEvent::Unit(u, UnitEvent::Gone) if *u == unit).then_some(())
    });
    let kept: u64 = ["out", "err"]
        .iter()
        .map(|e| std::fs::metadata(h.file(1, e)).unwrap().blocks() * 512)
        .sum();
    assert!(kept <= 2 * (2 * LIMITS.stream + MIB), "{kept} bytes are left on the disk");
    h.forget(1);
}

/// [output-bounded]
#[test]
fn a_hole_of_a_terabyte_is_neither_shipped_nor_waited_for() {
    let Some((mut h, _dir)) = limited() else { return };
    h.launch(1, "echo begin; truncate -s 1T /proc/self/fd/1; echo end");
    h.started(1);
    assert!(h.output(1, Stream::Stdout, 0, 6).starts_with(b"begin\n"));
    h.wait("the exit", |event| {
        matches!(event, SupervisorEvent::Unit(_, UnitEvent::Exited { .. })).then_some(())
    });
    h.collect(1);
    assert_eq!(dropped(&mut h, 1), (1 << 40) + 4 - LIMITS.stream);
    h.wait("Gone", |event| {
        matches!(event, SupervisorEvent::Unit(_, UnitEvent::Gone)).then_some(())
    });
    let shipped = h.count(|event| match event {
        SupervisorEvent::Unit(_, UnitEvent::Output { data, .. }) => data.len(),
        _ => 0,
    });
    assert!(shipped < 64 * 1024, "no more of a hole than the rest of a block: {shipped}");
    h.forget(1);
}

/// [output-set-aside]
#[test]
fn output_that_was_handed_on_is_kept_empty() {
    let Some((mut h, dir)) = harness() else { return };
    let gate = dir.path().join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Another service gets the descriptor, and writes what it reads from the fifo `gate`.
    let service = format!("handed-on-{}.service", std::process::id());
    let gate = gate.display();
    h.launch(1, &format!("exec systemd-run --user -qP -u {service} cat {gate}"));
    h.started(1);
    let mut writer = std::fs::OpenOptions::new().write(true).open(gate.to_string()).unwrap();
    h.signal(1, libc::SIGKILL, true);
    h.exited(1);
    h.clean(1);
    assert_eq!(h.run(2, "exit 0"), WaitStatus(0));
    let stray = || {
        let names = std::fs::read_dir(&h.config.directory).unwrap().flatten();
        names.map(|entry| entry.path()).find(|p| p.extension().is_some_and(|e| e == "stray"))
    };
    let name = stray().expect("kept under another name");
    assert_eq!(std::fs::metadata(&name).unwrap().len(), 0);
    assert!(!h.file(1, "out").exists() && !h.file(1, "record").exists());
    std::io::Write::write_all(&mut writer, &[b'x'; 100_000]).unwrap();
    drop(writer);
    systemctl(&["stop", &service]);
    let (mut h, found) = h.restart();
    assert_eq!(found.len(), 1, "only the second job has a record");
    assert!(!name.exists(), "nobody can write to it any more");
    h.exited(2);
    for stream in [Stream::Stdout, Stream::Stderr] {
        h.ack(2, stream, u64::MAX);
    }
    h.clean(2);
}
