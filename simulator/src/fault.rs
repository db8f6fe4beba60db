//! Which faults strike, and when.
//!
//! A fault's name is its kind and its number. Whether it strikes, and where, is drawn from the seed
//! and this name alone. So one fault can be left out without a change to the others, which is how a
//! failing seed is minimised.

use std::collections::{BTreeMap, BTreeSet};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::kind::FaultKind;
use super::profile::Profile;

/// The name of one fault.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct FaultId {
    /// Its kind.
    pub kind: FaultKind,
    /// Which occasion for this kind of fault it is, counted from 1.
    pub number: u64,
}

/// The faults of one seed.
pub(super) struct Faults {
    seed: u64,
    rates: BTreeMap<FaultKind, f64>,
    occasions: BTreeMap<FaultKind, u64>,
    left_out: BTreeSet<FaultId>,
    /// Faults that have struck, in order.
    pub(super) struck: Vec<FaultId>,
    over: bool,
}

impl Faults {
    pub(super) fn new(seed: u64, profile: &Profile, left_out: BTreeSet<FaultId>) -> Self {
        Self {
            seed,
            rates: profile.rates.clone(),
            occasions: BTreeMap::new(),
            left_out,
            struck: Vec::new(),
            over: false,
        }
    }

    /// Draws whether a fault strikes at this occasion, with the probability of its kind.
    pub(super) fn draw(&mut self, kind: FaultKind) -> Option<FaultId> {
        let rate = self.rate(kind)?;
        let id = self.occasion(kind);
        (self.uniform(id) < rate && self.strike(id)).then_some(id)
    }

    /// Draws when the next fault of a timed kind comes, in seconds from now.
    pub(super) fn draw_next(&mut self, kind: FaultKind) -> Option<(f64, FaultId)> {
        let rate = self.rate(kind)?;
        let id = self.occasion(kind);
        let uniform = self.uniform(id).max(f64::EPSILON);
        Some((-uniform.ln() / rate, id))
    }

    /// Notes that a fault strikes. Returns false if it must not, because it was left out or the
    /// faults are over.
    pub(super) fn strike(&mut self, id: FaultId) -> bool {
        if self.over || self.left_out.contains(&id) {
            return false;
        }
        self.struck.push(id);
        true
    }

    /// A generator for the other choices of a fault.
    pub(super) fn rng(&self, id: FaultId) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.hash(id, 1))
    }

    /// Ends the faults.
    pub(super) fn end(&mut self) {
        self.over = true;
    }

    fn rate(&self, kind: FaultKind) -> Option<f64> {
        let rate = self.rates.get(&kind).copied().filter(|rate| *rate > 0.0);
        rate.filter(|_| !self.over)
    }

    fn occasion(&mut self, kind: FaultKind) -> FaultId {
        let number = self.occasions.entry(kind).or_default();
        *number += 1;
        FaultId { kind, number: *number }
    }

    fn uniform(&self, id: FaultId) -> f64 {
        // An `f64` holds 53 bits.
        (self.hash(id, 0) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// SplitMix64 over seed and name (Steele, Lea and Flood 2014).
    fn hash(&self, id: FaultId, use_of_it: u64) -> u64 {
        let name = (id.kind as u64) << 56 | use_of_it << 48 | id.number;
        let mut z = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ name;
        for _ in 0..2 {
            z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
        }
        z
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn struck(left_out: BTreeSet<FaultId>) -> Vec<FaultId> {
        let profile = Profile::named("default").expect("known");
        let mut faults = Faults::new(7, &profile, left_out);
        for _ in 0..5000 {
            faults.draw(FaultKind::StartFails);
            faults.draw(FaultKind::CommitFails);
        }
        faults.struck
    }

    #[test]
    fn a_fault_that_is_left_out_changes_no_other() {
        let all = struck(BTreeSet::new());
        assert!(all.len() > 10, "{} of 10,000", all.len());
        let without = struck(BTreeSet::from([all[3]]));
        let mut expected = all.clone();
        expected.remove(3);
        assert_eq!(without, expected);
        assert_ne!(all[0].number, all[1].number);
    }
}
