//! The simulator finds bugs that others really had. One that finds nothing may be unable to find
//! anything.
//!
//! No production code knows of them: `planted/table.rs` has each as a change of the sources. These are
//! copied below the target directory, and the simulator is built there with one bug at a time:
//!
//! `PLANTED=lot cargo test --workspace --test planted`
//!
//! This takes three by lot, `PLANTED=all` takes all, and `PLANTED=NAME,NAME` those.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use std::{env, fs, io};

use job_exec_rs_simulator::{Profile, run};

#[path = "planted/table.rs"]
mod table;

use table::{BUGS, Bug};

/// Each bug must show in one of so many seeds of the default profile. A change of the service gives the
/// seeds other faults: then the test looks through all of them, which takes many times as long, and
/// says which seed to write into the table.
const SEEDS_MAX: u64 = 8000;

/// How many bugs are built with `PLANTED=lot`.
const LOT: usize = 3;

/// What the simulator is built of, and what cargo wants to see beside it.
const SOURCES: [&str; 9] = [
    "Cargo.lock",
    "Cargo.toml",
    "build.rs",
    "command",
    "connector",
    "flux-sys",
    "simulator/Cargo.toml",
    "simulator/src",
    "src",
];

/// The program that is built with a bug. Only the copy has it.
const PROGRAM: &str = "simulator/src/main.rs";

type Files = BTreeMap<PathBuf, String>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The copy. It stays, so that each build compiles only what has changed.
fn copy() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted")
}

/// All sources below `top`, as far as they are there.
fn sources(top: &Path) -> Files {
    let mut files = Files::new();
    let mut paths: Vec<PathBuf> = SOURCES.iter().map(PathBuf::from).collect();
    while let Some(path) = paths.pop() {
        let full = top.join(&path);
        if full.is_dir() {
            let entries = fs::read_dir(&full).expect("a directory");
            paths.extend(entries.map(|entry| path.join(entry.expect("an entry").file_name())));
        } else if full.is_file() {
            files.insert(path, fs::read_to_string(full).expect("text"));
        }
    }
    files
}

/// Gives the sources the bug. Each of its texts must stand there once.
fn plant(bug: &Bug, files: &mut Files) -> Result<(), String> {
    for (file, text, instead) in bug.edits {
        let source = files.get_mut(Path::new(file)).ok_or(format!("there is no {file}"))?;
        let times = source.matches(text).count();
        if times != 1 {
            return Err(format!("{}: {times} times in {file}: {text}", bug.name));
        }
        *source = source.replace(text, instead);
    }
    Ok(())
}

/// Makes the copy equal to these files, and touches nothing that is equal already.
fn write_copy(files: &Files) {
    let before = sources(&copy());
    for path in before.keys().filter(|path| !files.contains_key(*path)) {
        fs::remove_file(copy().join(path)).expect("removed");
    }
    for (path, text) in files.iter().filter(|(path, text)| before.get(*path) != Some(text)) {
        let path = copy().join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(path, text).expect("written");
    }
}

/// What a program writes if it ends well, and its errors if not.
fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Builds the simulator with the bug. Returns the seed in which the oracle has found it.
fn find(bug: &Bug) -> Result<u64, String> {
    let mut files = sources(&root());
    files.insert(PROGRAM.into(), include_str!("planted/seeds.rs").to_string());
    // Linking the module would be a third of each build.
    let manifest = files.get_mut(Path::new("Cargo.toml")).expect("a source");
    *manifest = manifest.replace(r#""cdylib", "#, "");
    plant(bug, &mut files)?;
    write_copy(&files);
    let target = copy().join("target");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "job-exec-rs-simulator"]);
    output(cargo.current_dir(copy()).env("CARGO_TARGET_DIR", &target))?;
    let mut program = Command::new(target.join("debug/job-exec-rs-simulator"));
    program.args([bug.oracle, &bug.seed.to_string(), &SEEDS_MAX.to_string()]);
    let seed = output(&mut program)?;
    seed.trim().parse().map_err(|_| format!("no seed up to {SEEDS_MAX}"))
}

fn chosen(which: &str) -> Vec<&'static Bug> {
    let mut bugs: Vec<&Bug> = BUGS.iter().collect();
    match which {
        "all" => {}
        "lot" => {
            let lot = RandomState::new();
            bugs.sort_by_key(|bug| lot.hash_one(bug.name));
            bugs.truncate(LOT);
        }
        names => {
            bugs.retain(|bug| names.split(',').any(|name| name == bug.name));
            assert_eq!(bugs.len(), names.split(',').count(), "PLANTED={names}: not all known");
        }
    }
    bugs
}

/// Tells it even if the test passes.
fn say(text: &str) {
    // Without stderr nobody reads it.
    let _ = writeln!(io::stderr(), "{text}");
}

#[test]
fn planted_bugs_are_found() {
    let Ok(which) = env::var("PLANTED") else {
        return say("skipped: planted::planted_bugs_are_found: no PLANTED");
    };
    let mut missed = Vec::new();
    for bug in chosen(&which) {
        let Bug { name, what, oracle, .. } = bug;
        let begun = Instant::now();
        let found = find(bug);
        say(&format!("{name} ({what}), {:.0} s:", begun.elapsed().as_secs_f64()));
        match found {
            Ok(seed) if seed == bug.seed => say(&format!("  found by {oracle} in seed {seed}")),
            Ok(seed) => say(&format!("  found by {oracle}, not in {}, but in {seed}", bug.seed)),
            Err(why) => {
                say(&format!("  not found by {oracle}: {why}"));
                missed.push(name);
            }
        }
    }
    assert_eq!(missed, Vec::<&&str>::new());
}

#[test]
fn every_bug_can_be_planted() {
    let files = sources(&root());
    let failed: Vec<_> =
        BUGS.iter().filter_map(|bug| plant(bug, &mut files.clone()).err()).collect();
    assert_eq!(failed, Vec::<String>::new());
    let names: BTreeSet<_> = BUGS.iter().map(|bug| bug.name).collect();
    assert_eq!(names.len(), BUGS.len(), "two have one name");
    assert!(BUGS.iter().all(|bug| (1..=SEEDS_MAX).contains(&bug.seed)));
}

#[test]
fn without_a_bug_nothing_is_found() {
    let profile = Profile::named("default").expect("known");
    let fails = |seed: &u64| !run(*seed, &profile, &BTreeSet::new(), false).violations.is_empty();
    assert_eq!((1..=100).find(fails), None);
}
