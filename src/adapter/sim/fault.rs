//! Which faults come, and how often.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Size of a world, and rates of its faults. Rates are per simulated second, probabilities
/// per occasion.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Brokers.
    pub ranks: u32,
    /// Jobs that are submitted.
    pub jobs: u32,
    /// Simulated seconds in which faults happen.
    pub seconds: f64,
    /// Modules unloaded and loaded again, per second.
    pub reloads: f64,
    /// Brokers killed, per second.
    pub kills: f64,
    /// Rank 0 killed, and so all, per second.
    pub kills_of_all: f64,
    /// Probability that a checkpoint of the KVS fails.
    pub failing_checkpoints: f64,
    /// Jobs cancelled, per second.
    pub cancels: f64,
    /// Probability that a crash falls between two effects, for each pair of them.
    pub crash_between_effects: f64,
    /// Probability that a unit can't be started.
    pub failing_starts: f64,
    /// Probability that a shell ignores SIGTERM.
    pub deaf_shells: f64,
    /// Probability that a shell leaves a process behind that takes long to end.
    pub leftovers: f64,
}

impl Profile {
    /// Profiles by name.
    pub const NAMES: [&'static str; 4] = ["default", "calm", "reloads", "kills"];

    /// The profile of this name.
    pub fn named(name: &str) -> Option<Self> {
        let default = Self {
            ranks: 7,
            jobs: 6,
            seconds: 60.0,
            reloads: 0.1,
            kills: 0.03,
            kills_of_all: 0.005,
            failing_checkpoints: 0.05,
            cancels: 0.03,
            crash_between_effects: 0.000_5,
            failing_starts: 0.01,
            deaf_shells: 0.05,
            leftovers: 0.1,
        };
        let calm = Self {
            reloads: 0.0,
            kills: 0.0,
            kills_of_all: 0.0,
            crash_between_effects: 0.0,
            failing_starts: 0.0,
            failing_checkpoints: 0.0,
            ..default
        };
        match name {
            "default" => Some(default),
            "calm" => Some(calm),
            "reloads" => Some(Self { reloads: 0.5, cancels: 0.03, ..calm }),
            "kills" => Some(Self { kills: 0.2, kills_of_all: 0.02, ..default }),
            _ => None,
        }
    }

    /// The time until the next fault of a rate: exponential, never for a rate of zero.
    pub(super) fn pause(rng: &mut ChaCha8Rng, rate: f64) -> Option<f64> {
        let uniform: f64 = rng.random_range(f64::EPSILON..1.0);
        (rate > 0.0).then(|| -uniform.ln() / rate)
    }
}
