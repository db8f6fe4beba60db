//! `job-exec-rs-dev sim`: plays many seeds of the simulated world, or one with its transcript.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::Args;
use job_exec_rs_simulator::{
    Coverage, FaultKind, JobTraffic, Load, Outcome, Profile, Violation, minimise, run,
};

use job_exec_rs_command::failure::Failure;

/// Play the machines against a simulated world, with faults, seed by seed
#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// How many seeds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Which faults, and how often: default, calm, reloads, kills, nodes, stalls, units, large; or
    /// huge, which has none and counts the messages of jobs on up to 10,000 ranks, in one seed
    #[arg(long, default_value = "default")]
    profile: String,
    /// Play this one seed and print its transcript
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Leave out every fault that a failing seed does not need to fail
    #[arg(long, requires = "seed")]
    minimise: bool,
    /// List which inputs were met in which states, which were not, and which cannot be
    #[arg(long, conflicts_with = "seed")]
    coverage: bool,
    /// Threads
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// Sums over seeds.
#[derive(Default)]
struct Totals {
    faults: BTreeMap<FaultKind, u64>,
    events: u64,
    seconds: f64,
    failed: BTreeMap<u64, Violation>,
    coverage: Coverage,
}

/// A failing seed is printed with the command that plays it again.
const FAILED_MAX: usize = 10;

pub(super) fn sim(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let profile = Profile::named(&arguments.profile).ok_or_else(|| {
        let known = Profile::NAMES.join(", ");
        Failure(format!("--profile {}: no such profile (known: {known})", arguments.profile))
    })?;
    match arguments.seed {
        Some(seed) if arguments.minimise => Ok(shortest(seed, &profile)),
        Some(seed) => Ok(print(&run(seed, &profile, &BTreeSet::new(), true))),
        None if !profile.planned.is_empty() => Ok(count_messages(arguments.first, &profile)),
        None => Ok(many(arguments, &profile)),
    }
}

/// Plays the world twice: once with units that start at the same pace, and once as in other profiles.
/// Then ranks report at different moments, and reports of fewer ranks go up together.
fn count_messages(seed: u64, profile: &Profile) -> ExitCode {
    for start_seconds in [profile.start_seconds, 0.5] {
        let outcome =
            run(seed, &Profile { start_seconds, ..profile.clone() }, &BTreeSet::new(), false);
        println!("messages / bytes of one job, if units start within {start_seconds} s:");
        list_traffic(&outcome);
        if print(&outcome) == ExitCode::FAILURE {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// A line for each kind of job: how many ranks it has, and whether rank 0 leads it. The columns are
/// messages and bytes that one job of the kind takes, sent and received, least and most.
fn list_traffic(outcome: &Outcome) {
    let mut kinds: BTreeMap<(usize, bool), Vec<&JobTraffic>> = BTreeMap::new();
    for job in outcome.traffic.values() {
        kinds.entry((job.ranks, job.leader == 0)).or_default().push(job);
    }
    println!(
        "{:>6} {:>6} {:>6}  {:17}  {:17}  {:17}  rank 0's broker",
        "jobs", "ranks", "depth", "rank 0", "leader", "inner rank"
    );
    for ((ranks, is_at_0), jobs) in kinds {
        let depth = jobs.iter().map(|job| job.depth()).max().unwrap_or_default();
        let column = |of: fn(&JobTraffic) -> Load| range(jobs.iter().map(|job| of(job)));
        let at_0 = column(|job| job.of(0));
        let at_leader = if is_at_0 { "is rank 0".into() } else { column(|job| job.of(job.leader)) };
        let inner = column(JobTraffic::busiest_inner);
        let count = jobs.len();
        let broker = column(|job| job.at_broker_0);
        println!("{count:6} {ranks:6} {depth:6}  {at_0:17}  {at_leader:17}  {inner:17}  {broker}");
    }
}

/// What the jobs of one kind take, least and most.
fn range(loads: impl Iterator<Item = Load> + Clone) -> String {
    let text = |values: Vec<u64>| {
        let (least, most) = (values.iter().min(), values.iter().max());
        match (least, most) {
            (Some(least), Some(most)) if least != most => format!("{least}-{most}"),
            (least, _) => least.copied().unwrap_or_default().to_string(),
        }
    };
    let messages = text(loads.clone().map(|load| load.messages).collect());
    format!("{messages} / {}", text(loads.map(|load| load.bytes).collect()))
}

fn shortest(seed: u64, profile: &Profile) -> ExitCode {
    match minimise(seed, profile) {
        Some((left_out, outcome)) => {
            let code = print(&outcome);
            println!(
                "{} faults are needed, {} were left out:",
                outcome.faults.len(),
                left_out.len()
            );
            for fault in &outcome.faults {
                println!("  {:?} {}", fault.kind, fault.number);
            }
            code
        }
        None => {
            println!("seed {seed} does not fail");
            ExitCode::SUCCESS
        }
    }
}

fn print(outcome: &Outcome) -> ExitCode {
    let mut out = std::io::stdout().lock();
    for line in &outcome.transcript {
        if writeln!(out, "{line}").is_err() {
            break; // nobody reads on
        }
    }
    let of_table = outcome.coverage.violation();
    if let Some(violation) = &of_table {
        println!("VIOLATION {violation}");
    }
    let is_kept = outcome.violations.is_empty() && of_table.is_none();
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn many(arguments: &Arguments, profile: &Profile) -> ExitCode {
    let totals = Mutex::new(Totals::default());
    let next = AtomicU64::new(arguments.first);
    let end = arguments.first + arguments.seeds;
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| play(&next, end, arguments, profile, &totals));
        }
    });
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (seed, violation) in totals.failed.iter().take(FAILED_MAX) {
        println!("seed {seed}: {violation}");
        println!("  replay: job-exec-rs-dev sim --profile {} --seed {seed}", arguments.profile);
    }
    if arguments.coverage {
        list_coverage(&totals);
    }
    let possible = totals.coverage.possible();
    let met = possible.iter().filter(|(_, times)| *times > 0).count();
    println!(
        "{} seeds, {} faults of {} kinds, {} events, {} of {} possible pairs met, \
         {:.0} simulated hours: {} seeds failed",
        arguments.seeds,
        totals.faults.values().sum::<u64>(),
        totals.faults.len(),
        totals.events,
        met,
        possible.len(),
        totals.seconds / 3600.0,
        totals.failed.len(),
    );
    if totals.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn list_coverage(totals: &Totals) {
    for (pair, times) in totals.coverage.possible() {
        println!("{pair} {times}");
    }
    for (pair, why) in totals.coverage.impossible() {
        println!("{pair} impossible: {why}");
    }
    for kind in FaultKind::ALL {
        let times = totals.faults.get(&kind).copied().unwrap_or(0);
        println!("{:45} {times}", format!("fault {kind:?}"));
    }
}

fn play(
    next: &AtomicU64,
    end: u64,
    arguments: &Arguments,
    profile: &Profile,
    totals: &Mutex<Totals>,
) {
    let progress = std::io::stderr().is_terminal();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return;
        }
        let outcome = run(seed, profile, &BTreeSet::new(), false);
        totals.lock().unwrap_or_else(PoisonError::into_inner).add(seed, outcome);
        let done = seed - arguments.first + 1;
        if progress && done.is_multiple_of(100) {
            // Without stderr nobody reads it.
            let _ = write!(std::io::stderr(), "\r{done}/{} seeds", arguments.seeds);
        }
    }
}

impl Totals {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        for fault in outcome.faults {
            *self.faults.entry(fault.kind).or_default() += 1;
        }
        self.events += outcome.events;
        self.seconds += outcome.seconds;
        self.coverage.add(&outcome.coverage);
        let first = outcome.violations.into_iter().next();
        if let Some(violation) = first.or_else(|| outcome.coverage.violation()) {
            self.failed.insert(seed, violation);
        }
    }
}
