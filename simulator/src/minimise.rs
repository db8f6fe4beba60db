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
    shorten(|left_out, transcript| run(seed, profile, left_out, transcript))
}

fn shorten(
    play: impl Fn(&BTreeSet<FaultId>, bool) -> Outcome,
) -> Option<(BTreeSet<FaultId>, Outcome)> {
    let mut left_out = BTreeSet::new();
    let mut outcome = play(&left_out, false);
    let invariant = outcome.violations.first()?.invariant;
    let mut parts = 2;
    loop {
        // The run ends at the violation, so these faults have struck before it.
        let faults: Vec<FaultId> = outcome.faults.clone();
        let size = faults.len().div_ceil(parts).max(1);
        let shorter = faults.chunks(size).find_map(|part| {
            let without: BTreeSet<FaultId> = left_out.iter().chain(part).copied().collect();
            let outcome = play(&without, false);
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
    let outcome = play(&left_out, true);
    Some((left_out, outcome))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultKind, Violation};

    /// A world that breaks whenever a module was loaded anew.
    fn play(left_out: &BTreeSet<FaultId>, transcript: bool) -> Outcome {
        let profile = Profile::named("default").expect("known");
        let mut outcome = run(1, &profile, left_out, transcript);
        if outcome.faults.iter().any(|fault| fault.kind == FaultKind::ModuleReloaded) {
            outcome.violations = vec![Violation { invariant: "true-status", seen: String::new() }];
        }
        outcome
    }

    #[test]
    fn a_failing_seed_is_made_short() {
        let before = play(&BTreeSet::new(), false);
        let (left_out, shortest) = shorten(play).expect("it fails");
        assert_eq!(shortest.violations[0].invariant, "true-status");
        assert!(!shortest.transcript.is_empty() && !left_out.is_empty());
        // When one is left out, another can strike instead.
        assert!(shortest.faults.len() * 2 < before.faults.len(), "{:?}", shortest.faults);
    }
}
