//! The simulated world: a fixed set of seeds, and that a seed means something.

use std::collections::BTreeSet;

use job_exec_rs::machine::{Credential, Topic};
use job_exec_rs_simulator::{
    Coverage, FaultId, FaultKind, Heard, Outcome, Profile, Sent, run, run_with,
};
use serde_json::{Value, json};

/// Seeds that found something once, in whatever profile.
const SEEDS: [u64; 37] = [
    16, 19, 22, 33, 42, 52, 166, 188, 246, 284, 464, 562, 589, 840, 915, 1001, 3198, 8982, 11655,
    19_733, 45_843, 48_400, 89_621, 104_337, 117_116, 4_302_334, 5_005_106, 5_023_796, 7_000_335,
    50_005_393, 60_002_337, 60_006_545, 70_038_272, 230211333, 230211482, 250038271, 894014077,
];

fn play(seed: u64, profile: &str, keep_transcript: bool) -> Outcome {
    let profile = Profile::named(profile).expect("a known profile");
    run(seed, &profile, &BTreeSet::new(), keep_transcript)
}

fn play_all(profile: &str, more: std::ops::Range<u64>) {
    for seed in SEEDS.into_iter().chain(more) {
        let outcome = play(seed, profile, false);
        assert!(
            outcome.violations.is_empty(),
            "{}\nreplay: job-exec-rs-dev sim --profile {profile} --seed {seed}",
            outcome.violations[0],
        );
        assert_eq!(outcome.coverage.violation(), None, "--profile {profile} --seed {seed}");
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

/// Pairs of a machine's state and an input that some hundred worlds have to meet: recovery is what
/// they are for.
#[test]
fn recovery_is_met_in_every_state() {
    let mut coverage = Coverage::default();
    for seed in 1..80 {
        coverage.add(&play(seed, "default", false).coverage);
        coverage.add(&play(seed, "kills", false).coverage);
    }
    let possible = coverage.possible();
    let met = |machine: &str, state: &str, input: &str| {
        possible.iter().any(|(pair, times)| {
            let (position, name) = (pair.position, pair.input.name());
            (position.machine.name(), position.state, name) == (machine, state, input) && *times > 0
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

const OWNER: Credential = Credential { userid: 1, owner: true, local: true };
const STRANGER: Credential = Credential { userid: 99, owner: false, local: true };

fn sent(at: f64, rank: u32, topic: Topic, credential: Credential, payload: &Value) -> Sent {
    Sent { at, rank, topic, credential, payload: payload.to_string().into_bytes() }
}

fn play_with(seed: u64, profile: &str, messages: Vec<Sent>) -> Outcome {
    let profile = Profile::named(profile).expect("a known profile");
    let outcome = run_with(seed, &profile, messages, false);
    assert_eq!(outcome.violations, [], "seed {seed}");
    outcome
}

/// [guest-own-job] [owner-only]
#[test]
fn what_strangers_ask_for_is_refused_and_changes_nothing() {
    let mut messages = Vec::new();
    for number in 0..400 {
        let (at, rank) = (f64::from(number) / 7.0, number % 7);
        let topic = Topic::ALL[number as usize % Topic::ALL.len()];
        let id = u64::from(number % 9) << 24;
        let payload = json!({ "id": id, "rank": rank, "ranks": "0", "entry": 1 });
        messages.push(sent(at, rank, topic, STRANGER, &payload));
    }
    for seed in 1..20 {
        let outcome = play_with(seed, "default", messages.clone());
        assert!(outcome.undisturbed, "seed {seed}");
        assert_eq!(outcome.told, play(seed, "default", false).told, "seed {seed}");
        assert!(outcome.heard.contains(&Heard::Refused(libc::EPERM)), "seed {seed}");
        assert!(!outcome.heard.contains(&Heard::Granted), "seed {seed}");
    }
}

/// [bad-start-fails-its-job]
#[test]
fn a_start_request_is_answered_whatever_is_wrong_with_it() {
    let start = |id: u64, ranks: &str| {
        json!({"id": id, "userid": 1, "jobspec": {}, "reattach": false,
               "R": {"version": 1, "execution": {
                   "R_lite": [{"rank": ranks, "children": {"core": "0"}}],
                   "nodelist": [format!("n[{ranks}]")], "starttime": 0.0, "expiration": 0.0}}})
    };
    let at = |at, payload| sent(at, 0, Topic::Start, OWNER, &payload);
    let messages = vec![
        at(1.0, start(77, "no ranks")),
        at(2.0, json!({ "id": 78 })),
        at(3.0, start(79, "0-6")),
        // What only the job manager can say is left out: the same id once more, a job of its
        // own, and ranks that the instance does not have.
        at(4.0, start(79, "1")),
        at(5.0, start(1 << 24, "0")),
        at(6.0, start(80, "0-7")),
    ];
    let heard = play_with(1, "calm", messages).heard;
    assert_eq!(heard, [[Heard::Granted; 3], [Heard::NotSent; 3]].concat());
}

/// Users who name what their shells never did get what they asked for, and nobody else does.
#[test]
fn users_can_only_deceive_themselves() {
    let user = |number| Credential { userid: 1 + number % 3, owner: false, local: true };
    let mut messages = Vec::new();
    for number in 0..300 {
        let (at, rank) = (f64::from(number) / 5.0, number % 7);
        let payload = json!({ "id": u64::from(number % 5) << 24, "rank": rank, "entry": 1 });
        messages.push(sent(at, rank, Topic::ShellBarrier, user(number), &payload));
    }
    // In some worlds no job of these users waits at a barrier on that rank.
    let is_met = |seed: &u64| !play_with(*seed, "default", messages.clone()).undisturbed;
    assert!((1..20).filter(is_met).count() > 15);
}
