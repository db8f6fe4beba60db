//! Profiles: sizes of worlds, and rates of faults.

use std::collections::BTreeMap;
use std::ops::Range;

use super::kind::FaultKind;
use super::kind::FaultKind as Kind;

/// The size of a world, and the rates of its faults.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// How many brokers there are.
    pub ranks: u32,
    /// How many jobs are submitted.
    pub jobs: u32,
    /// The ranks of each job, in the order of submission. If there are any, shells do nothing but enter
    /// their barriers and end, and the messages of each job are counted. Otherwise ranks are random.
    pub planned: Vec<Range<u32>>,
    /// `exec.fanout`. With a small one small worlds have deep trees.
    pub fanout: u32,
    /// How long systemd takes at most to start a unit, in seconds: more than 0.005.
    pub start_seconds: f64,
    /// How long faults happen, in simulated seconds.
    pub seconds: f64,
    /// Rates of faults, per simulated second or per occasion ([`FaultKind::is_timed`]). A kind
    /// without a rate never happens.
    pub rates: BTreeMap<FaultKind, f64>,
    /// Probability that a shell ignores SIGTERM.
    pub deaf_shells: f64,
    /// Probability that a job belongs to a guest, and runs under the IMP.
    pub guests: f64,
    /// Probability that a guest's shell ends only when its IMP kills it.
    pub deaf_guests: f64,
    /// Probability that a shell leaves a process behind, for up to 60 s.
    pub leftovers: f64,
    /// Probability that a job has a time limit.
    pub limited: f64,
    /// Probability that a rank's systemd answers calls before it sends the signals that belong to
    /// them.
    pub slow_systemd: f64,
    /// Probability that the site has prologs or epilogs.
    pub scripts: f64,
}

type Rates = &'static [(Kind, f64)];

/// All kinds. A minute has as many faults as a bad week in reality.
const DEFAULT: Rates = &[
    (Kind::AllKilled, 0.005),
    (Kind::BrokerKilled, 0.03),
    (Kind::BusIsFull, 0.01),
    (Kind::BusLost, 0.01),
    (Kind::Cancel, 0.03),
    (Kind::CheckpointFails, 0.05),
    (Kind::ClockJumps, 0.01),
    (Kind::CommitFails, 0.01),
    (Kind::ConfigReloaded, 0.01),
    (Kind::CrashBetweenEffects, 0.000_5),
    (Kind::CrashInWrite, 0.001),
    (Kind::DiskFails, 0.005),
    (Kind::DiskFull, 0.01),
    (Kind::DiskHangs, 0.005),
    (Kind::ExpirationMoved, 0.02),
    (Kind::Intruder, 0.02),
    (Kind::KilledAtHandover, 0.005),
    (Kind::KvsUnloaded, 0.005),
    (Kind::MemoryShort, 0.03),
    (Kind::ModuleReloaded, 0.1),
    (Kind::NodeRebooted, 0.005),
    (Kind::PowerCutUnsynced, 0.005),
    (Kind::RankStalls, 0.02),
    (Kind::RankStops, 0.005),
    (Kind::RecordsLost, 0.01),
    (Kind::Replaced, 0.02),
    (Kind::ResourceAway, 0.02),
    (Kind::StartFails, 0.01),
    (Kind::StartIsSlow, 0.02),
    (Kind::StateLost, 0.01),
    (Kind::StateSwept, 0.01),
    (Kind::SystemdEnds, 0.005),
    (Kind::SystemdHangs, 0.01),
    (Kind::SystemdReexecuted, 0.01),
    (Kind::SystemdRefuses, 0.02),
    (Kind::SystemdReloaded, 0.01),
];

/// Users cancel jobs, and there is no fault.
const CALM: Rates = &[(Kind::Cancel, 0.03)];

/// Modules are reloaded often, some with another release.
const RELOADS: Rates = &[(Kind::Cancel, 0.03), (Kind::ModuleReloaded, 0.5), (Kind::Replaced, 0.05)];

/// Brokers are killed often, and at any instant.
const KILLS: Rates = &[
    (Kind::AllKilled, 0.02),
    (Kind::BrokerKilled, 0.2),
    (Kind::Cancel, 0.03),
    (Kind::CheckpointFails, 0.05),
    (Kind::CrashBetweenEffects, 0.000_5),
    (Kind::CrashInWrite, 0.002),
    (Kind::KilledAtHandover, 0.05),
    (Kind::KvsUnloaded, 0.02),
    (Kind::MemoryShort, 0.2),
    (Kind::ModuleReloaded, 0.1),
];

/// Nodes reboot, their disks are full, their clocks jump, and they stall.
const NODES: Rates = &[
    (Kind::AllKilled, 0.01),
    (Kind::ClockJumps, 0.05),
    (Kind::DiskFails, 0.02),
    (Kind::DiskFull, 0.1),
    (Kind::DiskHangs, 0.02),
    (Kind::MemoryShort, 0.2),
    (Kind::NodeRebooted, 0.05),
    (Kind::PowerCutUnsynced, 0.02),
    (Kind::RankStalls, 0.1),
];

/// Ranks stall, and units start late.
const STALLS: Rates = &[
    (Kind::BrokerKilled, 0.1),
    (Kind::ExpirationMoved, 0.02),
    (Kind::Intruder, 0.02),
    (Kind::ModuleReloaded, 0.1),
    (Kind::RankStalls, 0.2),
    (Kind::RankStops, 0.02),
    (Kind::StartFails, 0.02),
    (Kind::StartIsSlow, 0.1),
];

/// systemd and its bus fail often.
const UNITS: Rates = &[
    (Kind::BrokerKilled, 0.05),
    (Kind::BusIsFull, 0.1),
    (Kind::BusLost, 0.2),
    (Kind::ModuleReloaded, 0.1),
    (Kind::StartFails, 0.05),
    (Kind::StartIsSlow, 0.1),
    (Kind::SystemdEnds, 0.02),
    (Kind::SystemdHangs, 0.1),
    (Kind::SystemdReexecuted, 0.2),
    (Kind::SystemdRefuses, 0.2),
    (Kind::SystemdReloaded, 0.2),
];

impl Profile {
    /// The names of all profiles.
    pub const NAMES: [&'static str; 9] =
        ["default", "calm", "reloads", "kills", "nodes", "stalls", "units", "large", "huge"];

    /// The profile of this name.
    pub fn named(name: &str) -> Option<Self> {
        let rates = match name {
            "default" | "large" => DEFAULT,
            "calm" => CALM,
            "reloads" => RELOADS,
            "kills" => KILLS,
            "nodes" => NODES,
            "stalls" => STALLS,
            "units" => UNITS,
            "huge" => return Some(Self::quiet(10_000, 64, huge_jobs())),
            _ => return None,
        };
        // Some bugs only show with many ranks.
        let (ranks, jobs) = if name == "large" { (1000, 40) } else { (7, 8) };
        Some(Self {
            ranks,
            jobs,
            planned: Vec::new(),
            fanout: 2,
            start_seconds: 0.5,
            seconds: 60.0,
            rates: rates.iter().copied().collect(),
            deaf_shells: 0.05,
            guests: 1.0 / 3.0,
            deaf_guests: 0.3,
            leftovers: 0.1,
            limited: 0.2,
            slow_systemd: 0.3,
            scripts: 0.3,
        })
    }

    /// A world without faults for jobs on these ranks, in which as little as possible is random.
    pub fn quiet(ranks: u32, fanout: u32, planned: Vec<Range<u32>>) -> Self {
        Self {
            ranks,
            jobs: planned.len() as u32,
            planned,
            fanout,
            start_seconds: 0.01,
            seconds: 60.0,
            rates: BTreeMap::new(),
            deaf_shells: 0.0,
            guests: 0.0,
            deaf_guests: 0.0,
            leftovers: 0.0,
            limited: 0.0,
            slow_systemd: 0.0,
            scripts: 0.0,
        }
    }

    /// Whether shells do nothing but enter their barriers and end.
    pub(super) fn is_quiet(&self) -> bool {
        !self.planned.is_empty()
    }
}

/// One job on all ranks, a thousand of ten ranks, and some between these. Where rank 0 is a job's first
/// rank it is its leader as well.
fn huge_jobs() -> Vec<Range<u32>> {
    let mut jobs = vec![0..10_000, 1..10_000, 1..1001, 1..101, 1..11];
    jobs.extend((0..1000).map(|number| number * 10..number * 10 + 10));
    jobs
}
