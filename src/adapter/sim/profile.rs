//! Sizes of worlds, and how often what goes wrong in them.

use std::collections::BTreeMap;

use super::kind::FaultKind;

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
    /// Probability that a shell leaves a process behind that takes long to end.
    pub leftovers: f64,
    /// Probability that a job has a time limit.
    pub limited: f64,
    /// Probability that a systemd answers before it signals what has changed.
    pub slow_systemd: f64,
    /// Probability that the instance is a job itself: nobody keeps its failed units.
    pub nested: f64,
}

impl Profile {
    /// Profiles by name.
    pub const NAMES: [&'static str; 8] =
        ["default", "calm", "reloads", "kills", "nodes", "stalls", "units", "large"];

    /// The profile of this name.
    pub fn named(name: &str) -> Option<Self> {
        use FaultKind as Kind;
        let calm = Self {
            ranks: 7,
            jobs: 8,
            seconds: 60.0,
            rates: BTreeMap::new(),
            deaf_shells: 0.05,
            leftovers: 0.1,
            limited: 0.2,
            slow_systemd: 0.3,
            nested: 0.1,
        };
        let with =
            |rates: &[(Kind, f64)]| Self { rates: rates.iter().copied().collect(), ..calm.clone() };
        let default = with(&[
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
        ]);
        match name {
            "default" => Some(default),
            "calm" => Some(with(&[(Kind::Cancel, 0.03)])),
            "reloads" => Some(with(&[(Kind::Cancel, 0.03), (Kind::ModuleReloaded, 0.5)])),
            "kills" => Some(with(&[
                (Kind::AllKilled, 0.02),
                (Kind::BrokerKilled, 0.2),
                (Kind::Cancel, 0.03),
                (Kind::CheckpointFails, 0.05),
                (Kind::CrashBetweenEffects, 0.000_5),
                (Kind::CrashInWrite, 0.002),
                (Kind::ModuleReloaded, 0.1),
            ])),
            "nodes" => Some(with(&[
                (Kind::AllKilled, 0.01),
                (Kind::ClockJumps, 0.05),
                (Kind::DiskFull, 0.1),
                (Kind::NodeRebooted, 0.05),
                (Kind::RankStalls, 0.1),
            ])),
            "stalls" => Some(with(&[
                (Kind::BrokerKilled, 0.1),
                (Kind::ExpirationMoved, 0.02),
                (Kind::Intruder, 0.02),
                (Kind::ModuleReloaded, 0.1),
                (Kind::RankStalls, 0.2),
                (Kind::StartFails, 0.02),
                (Kind::StartIsSlow, 0.1),
            ])),
            "units" => Some(with(&[
                (Kind::BrokerKilled, 0.05),
                (Kind::BusLost, 0.2),
                (Kind::ModuleReloaded, 0.1),
                (Kind::StartFails, 0.05),
                (Kind::StartIsSlow, 0.1),
                (Kind::SystemdReexecuted, 0.2),
                (Kind::SystemdRefuses, 0.2),
                (Kind::SystemdReloaded, 0.2),
            ])),
            // A few of these in a while: for what only shows with many ranks.
            "large" => Some(Self { ranks: 1000, jobs: 40, ..default }),
            _ => None,
        }
    }
}
