//! `demo` and `demo --crash`, with the user's systemd or one of its own. The other commands are in `cli.rs`, whose tests have
//! children that must not be left alone when [`support::bus`] begins anew.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The tool, which makes its temporary directories in `place`.
fn plain(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_job-exec-rs"));
    command.args(arguments).env("TMPDIR", place).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn demo(place: &Path, arguments: &[&str]) -> Command {
    plain(place, &[&["demo", "--crash"], arguments].concat())
}

fn files(directory: &Path) -> usize {
    std::fs::read_dir(directory).expect("a directory").count()
}

/// Names of units in what `demo --crash` has said.
fn units_of(said: &str) -> Vec<&str> {
    let words = said.split_whitespace();
    words.filter(|word| word.starts_with("shell-") && word.ends_with(".service")).collect()
}

/// Units that the user's systemd still knows.
fn known_units(units: &[&str]) -> String {
    let list = ["--user", "list-units", "--all", "--plain", "--no-legend"];
    let said = Command::new("systemctl").args(list).args(units).output().expect("systemctl");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8_lossy(&said.stdout).into_owned()
}

#[test]
fn a_job_outlives_an_instance_that_is_killed() {
    if !support::bus() {
        return;
    }
    for ranks in ["-N4", "-N1"] {
        let dir = tempfile::tempdir().expect("a directory");
        let ran = demo(dir.path(), &[ranks]).output().expect("the tool runs");
        let said = &String::from_utf8_lossy(&ran.stdout);
        assert_eq!(ran.status.code(), Some(0), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
        for expected in ["kill -9 ", "found again", "the true status: exit 7", "once and in order"]
        {
            assert!(said.contains(expected), "{expected} in {said}");
        }
        let units = units_of(said);
        assert!(!units.is_empty());
        assert_eq!(known_units(&units), "");
        assert_eq!(files(dir.path()), 0);
    }
}

#[test]
fn the_demonstration_begins_with_the_crash() {
    if !support::bus() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let ran = plain(dir.path(), &["demo", "-N2"]).output().expect("the tool runs");
    let said = &String::from_utf8_lossy(&ran.stdout);
    assert_eq!(ran.status.code(), Some(0), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    let at = |text: &str| said.find(text).unwrap_or_else(|| panic!("{text} in {said}"));
    assert!(at("kill -9 ") < at("the true status: exit 7"));
    assert!(at("the true status: exit 7") < at("A job that is cancelled"));
    assert_eq!(said.matches("With Flux:").count(), 1, "{said}");
    assert_eq!((known_units(&units_of(said)).as_str(), files(dir.path())), ("", 0));
}

/// The tool, as where no user manager answers.
fn alone(place: &Path, arguments: &[&str]) -> Command {
    let mut command = plain(place, arguments);
    let nowhere = format!("unix:path={}/bus", place.display());
    command.env("DBUS_SESSION_BUS_ADDRESS", nowhere).env_remove("XDG_RUNTIME_DIR");
    command
}

#[test]
fn where_no_user_manager_answers_it_has_one_of_its_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let ran = alone(dir.path(), &["demo", "--crash"]).output().expect("the tool runs");
    let (said, why) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    if nix::unistd::geteuid().is_root() && !why.contains("no crash is shown") {
        assert_eq!(ran.status.code(), Some(0), "{said}\n{why}");
        assert!(said.contains("the true status: exit 7"), "{said}");
    } else {
        assert_eq!((ran.status.code(), why.lines().count()), (Some(1), 1), "{said}\n{why}");
    }
    assert_eq!(files(dir.path()), 0);
}

/// Runs it, sends it SIGTERM when it says this, and returns what it has said.
fn interrupted(mut command: Command, at: &str) -> (ExitStatus, String) {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the tool runs");
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    let mut said = String::new();
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("UTF-8");
        if line.contains(at) {
            kill(pid, Signal::SIGTERM).expect("it runs");
        }
        said.push_str(&line);
        said.push('\n');
    }
    (child.wait().expect("it ends"), said)
}

#[test]
fn one_of_its_own_ends_with_it() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (status, said) = interrupted(alone(dir.path(), &["demo"]), "started on");
    assert!(!status.success(), "{said}");
    assert!(!said.contains("What is left"), "{said}");
    assert_eq!(files(dir.path()), 0);
}

#[test]
fn small_jobs_end_with_the_one_that_is_interrupted() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_, said) = interrupted(plain(dir.path(), &["demo", "--method", "fork"]), "rank 0 of ");
    assert!(said.contains("different times") && !said.contains("A job that fails"), "{said}");
    assert!(said.contains("What is left"), "{said}");
}

#[test]
fn a_story_that_is_interrupted_leaves_nothing() {
    if !support::bus() {
        return;
    }
    // In the first life, between the two, and in the second.
    for at in ["started on", "Nobody is there", "found again"] {
        let dir = tempfile::tempdir().expect("a directory");
        let (status, said) = interrupted(demo(dir.path(), &[]), at);
        assert_eq!(status.code(), Some(1), "{at}: {said}");
        assert!(!said.contains("What has become of it"), "{at}: {said}");
        let left = known_units(&["shell-*"]);
        assert!(units_of(&said).iter().all(|unit| !left.contains(unit)), "{at}: {left}");
        assert_eq!(files(dir.path()), 0, "{at}");
    }
}
