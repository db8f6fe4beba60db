//! Which of a failing seed's faults are needed for it to fail.

use std::collections::BTreeSet;

use super::fault::FaultId;
use super::profile::Profile;
use super::world::{Outcome, run};

/// Leaves out as many faults as it can while the same invariant breaks (delta debugging, Zeller
/// and Hildebrandt 2002): first halves of what is left, then ever smaller parts. Returns what
/// was left out, with how the seed then goes; `None` if the seed does not fail.
pub fn minimise(seed: u64, profile: &Profile) -> Option<(BTreeSet<FaultId>, Outcome)> {
    let mut left_out = BTreeSet::new();
    let mut outcome = run(seed, profile, &left_out, false);
    let invariant = outcome.violations.first()?.invariant;
    let mut parts = 2;
    loop {
        // What has struck after the violation does not count: the run ends there.
        let faults: Vec<FaultId> = outcome.faults.clone();
        let size = faults.len().div_ceil(parts).max(1);
        let shorter = faults.chunks(size).find_map(|part| {
            let without: BTreeSet<FaultId> = left_out.iter().chain(part).copied().collect();
            let outcome = run(seed, profile, &without, false);
            let fails = outcome.violations.first().is_some_and(|v| v.invariant == invariant);
            // Other faults may strike instead; only fewer are an advance.
            (fails && outcome.faults.len() < faults.len()).then_some((without, outcome))
        });
        match shorter {
            Some((without, shorter)) => {
                (left_out, outcome) = (without, shorter);
                parts = parts.saturating_sub(1).max(2);
            }
            None if size <= 1 => break,
            None => parts *= 2,
        }
    }
    let outcome = run(seed, profile, &left_out, true);
    Some((left_out, outcome))
}
