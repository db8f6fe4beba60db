//! Finds which faults a failing seed needs to fail.

use std::collections::BTreeSet;

use super::fault::FaultId;
use super::profile::Profile;
use super::world::{Outcome, run};

/// Leaves out as many faults as possible while the same invariant breaks (delta debugging, Zeller
/// and Hildebrandt 2002): first halves of the faults that are left, then smaller and smaller parts.
/// Returns the faults that were left out, and the run without them. `None` if the seed does not
/// fail.
pub fn minimise(seed: u64, profile: &Profile) -> Option<(BTreeSet<FaultId>, Outcome)> {
    let mut left_out = BTreeSet::new();
    let mut outcome = run(seed, profile, &left_out, false);
    let invariant = outcome.violations.first()?.invariant;
    let mut parts = 2;
    loop {
        // The run ends at the violation, so these faults have struck before it.
        let faults: Vec<FaultId> = outcome.faults.clone();
        let size = faults.len().div_ceil(parts).max(1);
        let shorter = faults.chunks(size).find_map(|part| {
            let without: BTreeSet<FaultId> = left_out.iter().chain(part).copied().collect();
            let outcome = run(seed, profile, &without, false);
            let fails = outcome.violations.first().is_some_and(|v| v.invariant == invariant);
            // Other faults may strike instead. It is a gain only if fewer faults strike.
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
