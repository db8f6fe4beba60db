//! Sizes of worlds, and how often what goes wrong in them.

use std::collections::BTreeMap;

use super::kind::FaultKind;
use super::kind::FaultKind as Kind;

/// Size of a world, and rates of its faults.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Brokers.
    pub ranks: u32,
    /// Jobs that are submitted.
    pub jobs: u32,
    /// Simulated seconds in which faults happen.
    pub seconds: f64,
    /// Per simulated second, or per occasion ([`FaultKind::is_timed`]); none is never.
    pub rates: BTreeMap<FaultKind, f64>,
    /// Probability that a shell ignores SIGTERM.
    pub deaf_shells: f64,
    /// Probability that a job is a guest's, and runs under the IMP.
    pub guests: f64,
    /// Probability that a guest's shell ends for nothing but its IMP.
    pub deaf_guests: f64,
    /// Probability that a shell leaves a process behind that takes long to end.
    pub leftovers: f64,
    /// Probability that a job has a time limit.
    pub limited: f64,
    /// Probability that a systemd answers before it signals what has changed.
    pub slow_systemd: f64,
    /// Probability that the instance is a job itself: nobody keeps its failed units.
    pub nested: f64,
}

type Rates = &'static [(Kind, f64)];

/// All of them, each as often as a bad week has it in a minute.
const DEFAULT: Rates = &[
    (Kind::AllKilled, 0.005),
    (Kind::BrokerKilled, 0.03),
    (Kind::BusLost, 0.01),
    (Kind::Cancel, 0.03),
    (Kind::CheckpointFails, 0.05),
    (Kind::ClockJumps, 0.01),
    (Kind::CommitFails, 0.01),
    (Kind::ConfigReloaded, 0.01),
    (Kind::CrashBetweenEffects, 0.000_5),
    (Kind::CrashInWrite, 0.001),
    (Kind::DiskFull, 0.01),
    (Kind::ExpirationMoved, 0.02),
    (Kind::Intruder, 0.02),
    (Kind::ModuleReloaded, 0.1),
    (Kind::NodeRebooted, 0.005),
    (Kind::RankStalls, 0.02),
    (Kind::StartFails, 0.01),
    (Kind::StartIsSlow, 0.02),
    (Kind::SystemdReexecuted, 0.01),
    (Kind::SystemdRefuses, 0.02),
    (Kind::SystemdReloaded, 0.01),
];

/// Nothing goes wrong but what users do.
const CALM: Rates = &[(Kind::Cancel, 0.03)];

/// Modules come and go.
const RELOADS: Rates = &[(Kind::Cancel, 0.03), (Kind::ModuleReloaded, 0.5)];

/// Brokers are killed at any instant.
const KILLS: Rates = &[
    (Kind::AllKilled, 0.02),
    (Kind::BrokerKilled, 0.2),
    (Kind::Cancel, 0.03),
    (Kind::CheckpointFails, 0.05),
    (Kind::CrashBetweenEffects, 0.000_5),
    (Kind::CrashInWrite, 0.002),
    (Kind::ModuleReloaded, 0.1),
];

/// Nodes fail.
const NODES: Rates = &[
    (Kind::AllKilled, 0.01),
    (Kind::ClockJumps, 0.05),
    (Kind::DiskFull, 0.1),
    (Kind::NodeRebooted, 0.05),
    (Kind::RankStalls, 0.1),
];

/// Ranks are late.
const STALLS: Rates = &[
    (Kind::BrokerKilled, 0.1),
    (Kind::ExpirationMoved, 0.02),
    (Kind::Intruder, 0.02),
    (Kind::ModuleReloaded, 0.1),
    (Kind::RankStalls, 0.2),
    (Kind::StartFails, 0.02),
    (Kind::StartIsSlow, 0.1),
];

/// systemd and its bus come and go.
const UNITS: Rates = &[
    (Kind::BrokerKilled, 0.05),
    (Kind::BusLost, 0.2),
    (Kind::ModuleReloaded, 0.1),
    (Kind::StartFails, 0.05),
    (Kind::StartIsSlow, 0.1),
    (Kind::SystemdReexecuted, 0.2),
    (Kind::SystemdRefuses, 0.2),
    (Kind::SystemdReloaded, 0.2),
];

impl Profile {
    /// Profiles by name.
    pub const NAMES: [&'static str; 8] =
        ["default", "calm", "reloads", "kills", "nodes", "stalls", "units", "large"];

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
            _ => return None,
        };
        // A few large ones in a while: for what only shows with many ranks.
        let (ranks, jobs) = if name == "large" { (1000, 40) } else { (7, 8) };
        Some(Self {
            ranks,
            jobs,
            seconds: 60.0,
            rates: rates.iter().copied().collect(),
            deaf_shells: 0.05,
            guests: 1.0 / 3.0,
            deaf_guests: 0.3,
            leftovers: 0.1,
            limited: 0.2,
            slow_systemd: 0.3,
            nested: 0.1,
        })
    }
}
