//! usage: job-exec-rs-simulator ORACLE KNOWN MAX
//!
//! `planted.rs` builds this with a bug: it prints the first seed in which the oracle finds it. The
//! known one is tried first.

use std::collections::BTreeSet;

use job_exec_rs_simulator::{Profile, run};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [oracle, known, max] = &arguments[..] else { panic!("three arguments") };
    let [known, max] = [known, max].map(|number| number.parse::<u64>().expect("a number"));
    let profile = Profile::named("default").expect("known");
    let is_found = |seed: &u64| {
        let outcome = run(*seed, &profile, &BTreeSet::new(), false);
        outcome.violations.iter().any(|violation| violation.invariant == oracle)
    };
    if let Some(seed) = std::iter::once(known).chain(1..=max).find(is_found) {
        println!("{seed}");
    }
}
