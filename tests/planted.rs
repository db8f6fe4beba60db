//! The simulator finds bugs that others really had, each built in alone.
//!
//! `cargo test --features planted-bugs --test planted`; without the feature there is nothing to
//! be tested here.
#![cfg(feature = "planted-bugs")]

use std::collections::BTreeSet;

use job_exec_rs::adapter::sim::{Profile, minimise, run};
use job_exec_rs::planted::{Bug, plant};

/// Seeds in which each bug must show.
const SEEDS_MAX: u64 = 4000;

/// The first seed that fails with this bug, and the invariant that it breaks.
fn first_failure(bug: Option<Bug>, seeds: u64) -> Option<(u64, &'static str)> {
    plant(bug);
    let profile = Profile::named("default").expect("known");
    let found = (1..=seeds).find_map(|seed| {
        let outcome = run(seed, &profile, &BTreeSet::new(), false);
        outcome.violations.first().map(|violation| (seed, violation.invariant))
    });
    plant(None);
    found
}

#[test]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        match first_failure(Some(bug), SEEDS_MAX) {
            Some((seed, invariant)) => println!("{bug:?}: seed {seed} breaks {invariant}"),
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, []);
}

/// Each oracle of scripts, and a bug that it must find. Another can find the bug first.
#[test]
fn every_oracle_of_scripts_finds_a_bug() {
    let profile = Profile::named("default").expect("known");
    for (bug, invariant) in [
        (Bug::DegradedUntold, "degraded-told"),
        (Bug::EpilogEarly, "epilog-follows"),
        (Bug::PrologRunTwice, "script-once"),
        (Bug::ReleaseBeforeEpilog, "released-behind"),
        (Bug::ScriptKilled, "script-not-killed"),
        (Bug::ScriptStopLost, "script-told"),
        (Bug::ShellBeforeProlog, "prologs-first"),
    ] {
        plant(Some(bug));
        let found = (1..=SEEDS_MAX).find(|seed| {
            let outcome = run(*seed, &profile, &BTreeSet::new(), false);
            outcome.violations.iter().any(|violation| violation.invariant == invariant)
        });
        plant(None);
        println!("{invariant} finds {bug:?}: {found:?}");
        assert!(found.is_some(), "{invariant} does not find {bug:?}");
    }
}

#[test]
fn without_a_bug_nothing_is_found() {
    assert_eq!(first_failure(None, 100), None);
}

#[test]
fn a_failing_seed_is_made_short() {
    let bug = Some(Bug::DuplicateStartAfterRollback);
    let (seed, invariant) = first_failure(bug, SEEDS_MAX).expect("it is found");
    plant(bug);
    let profile = Profile::named("default").expect("known");
    let before = run(seed, &profile, &BTreeSet::new(), false).faults.len();
    let (left_out, shortest) = minimise(seed, &profile).expect("it fails");
    plant(None);
    assert_eq!(shortest.violations[0].invariant, invariant);
    assert!(!shortest.transcript.is_empty() && !left_out.is_empty());
    assert!(shortest.faults.len() < before, "{} of {before} faults", shortest.faults.len());
}
