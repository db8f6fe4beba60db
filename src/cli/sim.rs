//! `sim`: many seeds of the simulated world, or one with its transcript.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use job_exec_rs::adapter::sim::{Profile, Violation, run};

use super::Failure;

/// Play the machines against a simulated world, with faults, seed by seed
#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// How many seeds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Which faults, and how often: default, calm, reloads, kills
    #[arg(long, default_value = "default")]
    profile: String,
    /// Play this one seed and print its transcript
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Threads
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// Sums over seeds.
#[derive(Default)]
struct Totals {
    faults: AtomicU64,
    events: AtomicU64,
    seconds: AtomicU64,
    failed: Mutex<Vec<(u64, Violation)>>,
}

/// A failing seed is printed with the command that plays it again.
const FAILED_MAX: usize = 10;

pub(super) fn sim(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let profile = Profile::named(&arguments.profile).ok_or_else(|| {
        let known = Profile::NAMES.join(", ");
        Failure(format!("--profile {}: no such profile (known: {known})", arguments.profile))
    })?;
    match arguments.seed {
        Some(seed) => Ok(one(seed, &profile)),
        None => Ok(many(arguments, &profile)),
    }
}

fn one(seed: u64, profile: &Profile) -> ExitCode {
    let outcome = run(seed, profile, true);
    let mut out = std::io::stdout().lock();
    for line in &outcome.transcript {
        if writeln!(out, "{line}").is_err() {
            break; // nobody reads on
        }
    }
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn many(arguments: &Arguments, profile: &Profile) -> ExitCode {
    let totals = Totals::default();
    let next = AtomicU64::new(arguments.first);
    let end = arguments.first + arguments.seeds;
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| play(&next, end, arguments, profile, &totals));
        }
    });
    let failed = totals.failed.into_inner().unwrap_or_default();
    for (seed, violation) in failed.iter().take(FAILED_MAX) {
        println!("seed {seed}: {violation}");
        println!("  replay: job-exec-rs sim --profile {} --seed {seed}", arguments.profile);
    }
    println!(
        "{} seeds, {} faults, {} events, {} simulated hours: {} seeds failed",
        arguments.seeds,
        totals.faults.into_inner(),
        totals.events.into_inner(),
        totals.seconds.into_inner() / 3600,
        failed.len(),
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn play(next: &AtomicU64, end: u64, arguments: &Arguments, profile: &Profile, totals: &Totals) {
    let progress = std::io::stderr().is_terminal();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return;
        }
        let outcome = run(seed, profile, false);
        totals.faults.fetch_add(outcome.faults, Ordering::Relaxed);
        totals.events.fetch_add(outcome.events, Ordering::Relaxed);
        totals.seconds.fetch_add(outcome.seconds as u64, Ordering::Relaxed);
        if let Some(violation) = outcome.violations.into_iter().next()
            && let Ok(mut failed) = totals.failed.lock()
        {
            failed.push((seed, violation));
            failed.sort_by_key(|(seed, _)| *seed);
        }
        let done = seed - arguments.first + 1;
        if progress && done.is_multiple_of(100) {
            // Without stderr there is nobody to follow it.
            let _ = write!(std::io::stderr(), "\r{done}/{} seeds", arguments.seeds);
        }
    }
}
