//! The simulated world: a fixed set of seeds, and that a seed means something.

use std::collections::BTreeSet;

use job_exec_rs::adapter::sim::{Coverage, FaultId, FaultKind, Outcome, Profile, run};

/// Seeds that found something once, in whatever profile.
const SEEDS: [u64; 17] =
    [16, 19, 22, 33, 42, 166, 188, 246, 284, 464, 562, 915, 1001, 3198, 11655, 104_337, 117_116];

fn play(seed: u64, profile: &str, keep_transcript: bool) -> Outcome {
    let profile = Profile::named(profile).expect("a known profile");
    run(seed, &profile, &BTreeSet::new(), keep_transcript)
}

fn play_all(profile: &str, more: std::ops::Range<u64>) {
    for seed in SEEDS.into_iter().chain(more) {
        let outcome = play(seed, profile, false);
        assert!(
            outcome.violations.is_empty(),
            "{}\nreplay: job-exec-rs sim --profile {profile} --seed {seed}",
            outcome.violations[0],
        );
        assert!(outcome.events > 0, "seed {seed}: nothing happened");
    }
}

#[test]
fn calm_worlds_keep_every_promise() {
    play_all("calm", 100..120);
}

#[test]
fn worlds_whose_modules_come_and_go_keep_every_promise() {
    play_all("reloads", 100..140);
}

#[test]
fn worlds_whose_brokers_are_killed_keep_every_promise() {
    play_all("kills", 100..140);
}

#[test]
fn worlds_whose_nodes_fail_keep_every_promise() {
    play_all("nodes", 100..140);
}

#[test]
fn worlds_whose_ranks_stall_keep_every_promise() {
    play_all("stalls", 100..140);
}

#[test]
fn worlds_whose_systemd_comes_and_goes_keep_every_promise() {
    play_all("units", 100..140);
}

#[test]
fn worlds_with_all_faults_keep_every_promise() {
    play_all("default", 100..160);
}

#[test]
fn the_same_seed_twice_is_byte_equal() {
    for seed in 1..6 {
        let (one, two) = (play(seed, "default", true), play(seed, "default", true));
        assert!(!one.transcript.is_empty());
        assert_eq!(one.transcript, two.transcript);
        assert_eq!(one.faults, two.faults);
    }
    assert_ne!(play(7, "default", true).transcript, play(8, "default", true).transcript);
}

#[test]
fn every_kind_of_fault_strikes() {
    let mut struck = BTreeSet::new();
    for seed in 1..60 {
        struck.extend(play(seed, "default", false).faults.iter().map(|fault| fault.kind));
    }
    assert_eq!(struck, FaultKind::ALL.into_iter().collect());
    assert!(Profile::named("no-such-profile").is_none());
}

#[test]
fn a_fault_that_is_left_out_does_not_strike() {
    let profile = Profile::named("kills").expect("a known profile");
    let all = run(3, &profile, &BTreeSet::new(), false).faults;
    let first: BTreeSet<FaultId> = all.iter().take(1).copied().collect();
    let rest = run(3, &profile, &first, false).faults;
    assert!(rest.iter().all(|fault| !first.contains(fault)), "{rest:?}");
    assert!(all.len() > 5, "{all:?}");
}

/// Pairs of a role's state and an input that some hundred worlds have to meet: recovery is what
/// they are for.
#[test]
fn recovery_is_met_in_every_state() {
    let mut coverage = Coverage::default();
    for seed in 1..80 {
        coverage.add(&play(seed, "default", false).coverage);
        coverage.add(&play(seed, "kills", false).coverage);
    }
    let table = coverage.table();
    let met = |role: &str, state: &str, input: &str| {
        table.iter().any(|(position, name, times)| {
            (position.role, position.state, *name) == (role, state, input) && *times > 0
        })
    };
    for state in ["launching", "running", "ended"] {
        assert!(met("leader", state, "lead"), "no leader was asked again while {state}");
    }
    for state in ["pending", "running", "exited", "gone"] {
        assert!(met("agent", state, "shells"), "no agent was asked again while {state}");
    }
    assert!(met("agent", "lost", "gone") && met("coordinator", "away", "timeout"));
}
