//! The simulator finds bugs that others really had, each built in alone.
//!
//! `cargo test --features planted-bugs --test planted`; without the feature there is nothing to
//! be tested here.
#![cfg(feature = "planted-bugs")]

use std::collections::BTreeSet;

use job_exec_rs::planted::{Bug, plant};
use job_exec_rs_simulator::{Profile, minimise, run};

/// Seeds in which each bug must show.
const SEEDS_MAX: u64 = 20_000;

/// The first seed that finds each bug. A change of the service gives the seeds other faults: then the
/// tests look through all of them, which takes many times as long, and say what this has to be.
const SEEDS: [(Bug, u64); Bug::ALL.len()] = [
    (Bug::AdoptionByPid, 35),
    (Bug::AnotherReleaseIsFatal, 5),
    (Bug::BarrierAfterRestart, 1),
    (Bug::BarrierJudgedUnheard, 790),
    (Bug::CleanupUndelayed, 92),
    (Bug::CollectBeforeDurable, 5),
    (Bug::CommitsOfEndedLost, 13),
    (Bug::CommitsPassedOn, 102),
    (Bug::DeafnessUnnoticed, 4),
    (Bug::DegradedUntold, 35),
    (Bug::DoneBeforeOutput, 22),
    (Bug::DrainUnawaited, 1),
    (Bug::DuplicateStartAfterRollback, 5),
    (Bug::EntryBeforeCommits, 39),
    (Bug::EpilogEarly, 1),
    (Bug::FirstRunWrites, 40),
    (Bug::ForgottenLives, 14),
    (Bug::HangUnnoticed, 20),
    (Bug::HeldAgain, 8),
    (Bug::HoldForgotten, 1),
    (Bug::LateWaits, 169),
    (Bug::LossUnnoticed, 2),
    (Bug::LostSignalAfterReconnect, 1),
    (Bug::OneWayUnnumbered, 1),
    (Bug::ParkedOutlivesBroker, 397),
    (Bug::PrologRunTwice, 2),
    (Bug::ReasonForgotten, 107),
    (Bug::ReissuedIdAdopted, 40),
    (Bug::RemovalForgotten, 84),
    (Bug::ReleaseBeforeEmpty, 1),
    (Bug::ReleaseBeforeEpilog, 1),
    (Bug::ReleaseUnawaited, 255),
    (Bug::ReleasedAgain, 7),
    (Bug::ScriptKilled, 4),
    (Bug::ScriptStopLost, 1326),
    (Bug::ShellBeforeProlog, 4),
    (Bug::SilenceUnnoticed, 28),
    (Bug::StartWithoutIntent, 13),
    (Bug::StopCounts, 9),
    (Bug::UnknownIsDead, 1),
    (Bug::UnrecordedIgnored, 6),
    (Bug::UnsyncedCounts, 30),
    (Bug::UnwantedGuestLives, 228),
    (Bug::WaitingForgotten, 142),
];

/// Oracles of scripts, each with a bug that it must find, and the first seed in which it does. Another
/// oracle can find the bug first.
const ORACLES: [(&str, Bug, u64); 7] = [
    ("degraded-told", Bug::DegradedUntold, 35),
    ("epilog-follows", Bug::EpilogEarly, 1),
    ("prologs-first", Bug::ShellBeforeProlog, 4),
    ("released-behind", Bug::ReleaseBeforeEpilog, 1),
    ("script-not-killed", Bug::ScriptKilled, 4),
    ("script-once", Bug::PrologRunTwice, 2),
    ("script-told", Bug::ScriptStopLost, 1326),
];

/// The invariant that a seed breaks first, of those that count.
fn broken(seed: u64, counts: impl Fn(&str) -> bool) -> Option<&'static str> {
    let profile = Profile::named("default").expect("known");
    let outcome = run(seed, &profile, &BTreeSet::new(), false);
    outcome.violations.iter().map(|violation| violation.invariant).find(|name| counts(name))
}

/// The seed that is known to find the bug, or else the first one that does.
fn find(bug: Bug, known: u64, counts: impl Fn(&str) -> bool) -> Option<u64> {
    plant(Some(bug));
    let mut seeds = std::iter::once(known).chain(1..=SEEDS_MAX);
    let found = seeds.find(|seed| broken(*seed, &counts).is_some());
    plant(None);
    match found {
        Some(seed) if seed == known => (),
        _ => println!("{bug:?}: not seed {known}, but {found:?}"),
    }
    found
}

#[test]
fn every_planted_bug_is_found() {
    assert!(SEEDS.iter().map(|(bug, _)| bug).eq(&Bug::ALL));
    let missed = SEEDS.iter().filter(|(bug, known)| find(*bug, *known, |_| true).is_none());
    assert_eq!(missed.collect::<Vec<_>>(), Vec::<&(Bug, u64)>::new());
}

#[test]
fn every_oracle_of_scripts_finds_a_bug() {
    for (invariant, bug, known) in ORACLES {
        let found = find(bug, known, |name| name == invariant);
        assert!(found.is_some(), "{invariant} does not find {bug:?}");
    }
}

#[test]
fn without_a_bug_nothing_is_found() {
    plant(None);
    assert_eq!((1..=100).find_map(|seed| broken(seed, |_| true)), None);
}

#[test]
fn a_failing_seed_is_made_short() {
    let bug = Bug::DuplicateStartAfterRollback;
    let known = SEEDS.iter().find(|(known, _)| *known == bug).expect("it has one").1;
    let seed = find(bug, known, |_| true).expect("it is found");
    plant(Some(bug));
    let profile = Profile::named("default").expect("known");
    let invariant = broken(seed, |_| true).expect("it fails");
    let before = run(seed, &profile, &BTreeSet::new(), false).faults.len();
    let (left_out, shortest) = minimise(seed, &profile).expect("it fails");
    plant(None);
    assert_eq!(shortest.violations[0].invariant, invariant);
    assert!(!shortest.transcript.is_empty() && !left_out.is_empty());
    assert!(shortest.faults.len() < before, "{} of {before} faults", shortest.faults.len());
}
