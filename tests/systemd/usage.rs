//! What shells have used, from a real systemd.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use job_exec_rs::proto::{Stream, Usage, WaitStatus};

use super::support::{Gate, Harness};
use super::{harness, systemctl, units_left};

/// Uses the CPU for a fifth of a second.
const BURN: &str = "python3 -c '
import os
while os.times().user < 0.2: sum(range(10000))'";

fn usage(h: &Harness, job: u64) -> Usage {
    h.usage.borrow().get(&h.unit(job)).cloned().expect("it was told")
}

fn slice_left(h: &Harness, job: u64) -> String {
    units_left(&format!("*{}*.slice", h.unit(job).stem().replace('-', "_")))
}

/// [usage-first]
#[test]
fn the_kernels_figures_come_before_the_exit_and_the_slice_goes() {
    let Some((mut h, _dir)) = harness() else { return };
    for (job, end) in [(1, 0), (2, 3)] {
        h.launch(job, &format!("{BURN}; exit {end}"));
        h.started(job);
        assert_eq!(h.exited(job), WaitStatus::exited(end));
        let used = usage(&h, job);
        assert!(used.user.is_some_and(|us| us >= 200_000), "{used:?}");
        h.clean(job);
        assert_eq!(slice_left(&h, job), "");
    }
}

/// [usage-first]
#[test]
fn what_nobody_has_seen_is_read_by_the_next_life() {
    let Some((mut h, dir)) = harness() else { return };
    let gate = Gate::new(dir.path().join("gate"));
    h.launch(1, &format!("{BURN}; echo there; {}", gate.wait()));
    h.started(1);
    assert_eq!(h.output(1, Stream::Stdout, 0, 6), b"there\n");
    let config = h.config.clone();
    h.stop();
    gate.open();
    let (mut h, _, _) = Harness::ready(config);
    h.started(1);
    h.ack(1, Stream::Stdout, 6);
    h.ack(1, Stream::Stderr, 0);
    h.exited(1);
    assert!(usage(&h, 1).user.is_some_and(|us| us >= 200_000));
    h.clean(1);
    assert_eq!(slice_left(&h, 1), "");
}

/// [usage-first]
#[test]
fn what_weighs_a_unit_against_others_weighs_its_slice() {
    let Some((mut h, dir)) = harness() else { return };
    let gate = Gate::new(dir.path().join("gate"));
    let mut spec = h.spec(1, &gate.wait());
    for (name, value) in [("CPUWeight", "50"), ("MemoryLow", "1M"), ("MemoryMax", "1G")] {
        spec.properties.insert(name.to_string(), value.to_string());
    }
    let unit = spec.unit.to_string();
    h.start_unit(spec);
    h.started(1);
    let slice = systemctl(&["show", "-p", "Slice", "--value", &unit]);
    let show = ["show", "-p", "CPUWeight", "-p", "MemoryLow", "-p", "MemoryMax", slice.trim()];
    let told = systemctl(&show);
    for line in ["CPUWeight=50", "MemoryLow=1048576", "MemoryMax=infinity"] {
        assert!(told.lines().any(|told| told == line), "{told}");
    }
    gate.open();
    h.exited(1);
    h.clean(1);
    assert_eq!(slice_left(&h, 1), "");
}

/// [usage-first]
#[test]
fn what_a_shell_leaves_behind_counts() {
    let Some((mut h, _dir)) = harness() else { return };
    h.launch(1, &format!("(trap '' TERM; {BURN}; {BURN}) & exit 0"));
    h.started(1);
    h.exited(1);
    h.gone(1);
    assert!(usage(&h, 1).user.is_some_and(|us| us > 0));
    h.forget(1);
    assert_eq!(slice_left(&h, 1), "");
}

/// [slice-stopped]
#[test]
fn a_program_that_cannot_be_executed_leaves_no_slice() {
    let Some((mut h, dir)) = harness() else { return };
    let path = dir.path().join("program");
    std::fs::write(&path, "#!/nonexistent\n").unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    let mut spec = h.spec(1, "");
    spec.argv = vec![path.display().to_string()];
    h.start_unit(spec);
    h.failed(1);
    h.forget(1);
    assert_eq!(slice_left(&h, 1), "");
}

/// [slice-stopped]
#[test]
fn shells_that_signals_end_leave_no_slice() {
    let Some((mut h, _dir)) = harness() else { return };
    for (job, signal, all) in (1..=12).map(|n| {
        let signals = [libc::SIGTERM, libc::SIGKILL, libc::SIGHUP];
        (n, signals[n as usize % 3], n % 2 == 0)
    }) {
        h.launch(job, "exec sleep inf");
        h.started(job);
        h.signal(job, signal, all);
        h.exited(job);
        h.clean(job);
    }
    for job in 1..=12 {
        assert_eq!(slice_left(&h, job), "");
    }
}
