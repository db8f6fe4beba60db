//! The simulated world: a fixed set of seeds, and that a seed means something.

use job_exec_rs::adapter::sim::{Profile, run};

/// Seeds that found something once come first.
const SEEDS: [u64; 11] = [13, 16, 59, 88, 234, 3198, 11655, 20644, 28180, 85307, 99600];

fn play(name: &str, more: std::ops::Range<u64>) {
    let profile = Profile::named(name).expect("a known profile");
    for seed in SEEDS.into_iter().chain(more) {
        let outcome = run(seed, &profile, false);
        assert!(
            outcome.violations.is_empty(),
            "{}\nreplay: job-exec-rs sim --profile {name} --seed {seed}",
            outcome.violations[0],
        );
        assert!(outcome.events > 0, "seed {seed}: nothing happened");
    }
}

#[test]
fn calm_worlds_keep_every_promise() {
    play("calm", 100..120);
}

#[test]
fn worlds_whose_modules_come_and_go_keep_every_promise() {
    play("reloads", 100..140);
}

#[test]
fn worlds_whose_brokers_are_killed_keep_every_promise() {
    play("kills", 100..140);
}

#[test]
fn worlds_with_all_faults_keep_every_promise() {
    play("default", 100..140);
}

#[test]
fn the_same_seed_twice_is_byte_equal() {
    let profile = Profile::named("kills").expect("a known profile");
    for seed in 1..6 {
        let (one, two) = (run(seed, &profile, true), run(seed, &profile, true));
        assert!(!one.transcript.is_empty());
        assert_eq!(one.transcript, two.transcript);
    }
    let other = run(7, &profile, true);
    assert_ne!(other.transcript, run(8, &profile, true).transcript);
}

#[test]
fn faults_do_happen() {
    let profile = Profile::named("kills").expect("a known profile");
    let faults: u64 = (1..10).map(|seed| run(seed, &profile, false).faults).sum();
    assert!(faults > 50, "{faults} faults in nine worlds");
    assert!(Profile::named("no-such-profile").is_none());
}
