//! The tree over a job's ranks.

use crate::proto::{BrokerRank, Idset};

/// Splits the ranks below a node into at most `arity` subtrees of nearly the same size, each
/// with its root: the lowest rank in it. With no more ranks than `arity` every subtree is a
/// leaf, so that small jobs are one hop.
pub(super) fn split(below: &Idset, arity: u32) -> Vec<(BrokerRank, Idset)> {
    let ranks: Vec<u32> = below.iter().collect();
    if ranks.is_empty() {
        return Vec::new();
    }
    let groups = ranks.len().min(arity.max(1) as usize);
    let mut subtrees = Vec::with_capacity(groups);
    for group in 0..groups {
        let members = &ranks[group * ranks.len() / groups..(group + 1) * ranks.len() / groups];
        subtrees.push((BrokerRank(members[0]), members.iter().copied().collect()));
    }
    subtrees
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_in_one_subtree() {
        for count in [0, 1, 2, 31, 32, 33, 100, 1000] {
            for arity in [1, 2, 32] {
                let below = Idset::from_range(5..5 + count);
                let subtrees = split(&below, arity);
                assert!(subtrees.len() <= arity as usize);
                let mut seen = Idset::new();
                for (root, ranks) in &subtrees {
                    assert_eq!(ranks.first(), Some(root.0));
                    for rank in ranks.iter() {
                        assert!(seen.insert(rank), "{rank} twice");
                    }
                }
                assert_eq!(seen, below);
            }
        }
    }

    #[test]
    fn small_jobs_are_one_hop() {
        assert!(split(&Idset::from_range(0..32), 32).iter().all(|(_, ranks)| ranks.len() == 1));
    }
}
