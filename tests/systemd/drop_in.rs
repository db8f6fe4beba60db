//! Drop-ins that somebody has made for all services of the user.

use std::fs;
use std::path::{Path, PathBuf};

use job_exec_rs::proto::{Stream, WaitStatus};

use crate::rough::{OWN_PROCESS, in_a_process_of_its_own, warnings_of};
use crate::support::Gate;
use crate::{harness, systemctl, units_left};

/// Add a drop-in for all services of the private user manager.
fn add(lines: &str) -> PathBuf {
    let runtime = std::env::var("XDG_RUNTIME_DIR").expect("a runtime directory");
    let directory = Path::new(&runtime).join("systemd/user/service.d");
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("zz-site.conf");
    fs::write(&file, format!("[Service]\n{lines}\n")).unwrap();
    systemctl(&["daemon-reload"]);
    file
}

/// [once]
#[test]
fn a_shell_is_not_started_again_whatever_a_drop_in_says() {
    in_a_process_of_its_own("drop_in::inside_restart");
}

#[test]
fn inside_restart() {
    // Only when a_shell_is_not_started_again_whatever_a_drop_in_says runs it.
    if std::env::var_os(OWN_PROCESS).is_none() {
        return;
    }
    let Some((mut h, dir)) = harness() else { return };
    add("Restart=always\nRestartSec=0");
    let ran = dir.path().join("ran");
    let ends = [
        ("exit 0", WaitStatus::exited(0)),
        ("exit 7", WaitStatus::exited(7)),
        ("exit 255", WaitStatus::exited(255)),
        ("kill -KILL $$", WaitStatus::signaled(9)),
        ("kill -TERM $$", WaitStatus::signaled(15)),
        ("kill -64 $$", WaitStatus::signaled(64)),
    ];
    for (job, (script, status)) in (1..).zip(ends) {
        assert_eq!(h.run(job, &format!("echo {job} >>{}; {script}", ran.display())), status);
        h.clean(job);
    }
    h.launch(7, &format!("echo 7 >>{}; echo on; exec sleep inf", ran.display()));
    h.started(7);
    assert_eq!(h.output(7, Stream::Stdout, 0, 3), b"on\n");
    h.collect(7);
    h.exited(7);
    h.gone(7);
    // Of a program that cannot be executed either.
    let mut spec = h.spec(8, "");
    spec.argv[0] = "/etc/passwd".to_string();
    h.start_unit(spec);
    assert_eq!(h.failed(8).0, libc::EACCES);
    // Its removal, which nothing tells of, comes before the start of the next one.
    assert_eq!(h.run(9, "exit 0"), WaitStatus::exited(0));
    h.clean(9);
    assert_eq!(fs::read_to_string(ran).unwrap(), "1\n2\n3\n4\n5\n6\n7\n");
    assert_eq!(units_left("*shell-*"), "");
}

#[test]
fn the_log_names_the_drop_in_that_changes_a_unit() {
    in_a_process_of_its_own("drop_in::outside_a_changed_unit");
}

#[test]
fn outside_a_changed_unit() {
    // Only when the_log_names_the_drop_in_that_changes_a_unit runs it.
    if std::env::var_os(OWN_PROCESS).is_none() {
        return;
    }
    let file = add("Restart=on-failure\nUMask=0077\nKillMode=mixed");
    let text = warnings_of("drop_in::inside_a_changed_unit");
    let lines = text.lines().filter(|line| line.contains("has changed a unit property"));
    let lines: Vec<&str> = lines.collect();
    for name in ["Restart", "UMask", "KillMode"] {
        let says = |line: &&&str| {
            line.contains(&format!("{name:?}")) && line.contains(&*file.to_string_lossy())
        };
        assert_eq!(lines.iter().filter(says).count(), 1, "{name} in {text}");
    }
    assert_eq!(lines.len(), 3, "{text}");
}

#[test]
fn inside_a_changed_unit() {
    // Only when outside_a_changed_unit runs it.
    if std::env::var_os(OWN_PROCESS).is_none() || std::env::var_os("RUST_LOG").is_none() {
        return;
    }
    let Some((mut h, dir)) = harness() else { return };
    let gate = Gate::new(dir.path().join("gate"));
    h.launch(1, &gate.wait());
    h.started(1);
    // It is said of the first unit. It was compared when others that were started later are gone.
    for job in 2..=3 {
        assert_eq!(h.run(job, "exit 0"), WaitStatus::exited(0));
        h.clean(job);
    }
    gate.open();
    assert_eq!(h.exited(1), WaitStatus::exited(0));
    h.clean(1);
}
