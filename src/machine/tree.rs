//! The tree over a job's ranks.

use crate::proto::{BrokerRank, Idset};

/// Splits the ranks below a node into at most `arity` subtrees of nearly the same size, each
/// with its root: the lowest rank in it. The tree has no more levels than `arity` needs, and with
/// so many levels each node has as few children as possible: 65 ranks are 8 subtrees, not 64
/// (rfc/0002 [tree-balanced]). With no more ranks than `arity` every subtree is a leaf, so that
/// small jobs are one hop.
pub(super) fn split(below: &Idset, arity: u32) -> Vec<(BrokerRank, Idset)> {
    let ranks: Vec<u32> = below.iter().collect();
    if ranks.is_empty() {
        return Vec::new();
    }
    let groups = children(ranks.len(), arity.max(1) as usize);
    let mut subtrees = Vec::with_capacity(groups);
    for group in 0..groups {
        let members = &ranks[group * ranks.len() / groups..(group + 1) * ranks.len() / groups];
        subtrees.push((BrokerRank(members[0]), members.iter().copied().collect()));
    }
    subtrees
}

/// How many children a node with so many ranks below it has.
fn children(below: usize, arity: usize) -> usize {
    let (mut levels, mut room) = (1, arity);
    while room < below {
        (levels, room) = (levels + 1, (room + 1).saturating_mul(arity));
    }
    (1..arity).find(|width| capacity(*width, levels) >= below).unwrap_or(arity)
}

/// How many ranks are below a node, if that and all in so many levels but the last have `width`
/// children.
fn capacity(width: usize, levels: usize) -> usize {
    (0..levels).fold(0, |below: usize, _| (below + 1).saturating_mul(width))
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

    /// The number of levels below a node, and the most children that one of its nodes has.
    fn shape(below: &Idset, arity: u32) -> (usize, usize) {
        let subtrees = split(below, arity);
        let (mut levels, mut widest) = (0, subtrees.len());
        for (root, mut ranks) in subtrees {
            ranks.remove(root.0);
            let of_child = shape(&ranks, arity);
            levels = levels.max(of_child.0 + 1);
            widest = widest.max(of_child.1);
        }
        (levels, widest)
    }

    #[test]
    fn a_tree_is_as_narrow_as_its_levels_allow() {
        let shape_of = |count, arity| shape(&Idset::from_range(0..count), arity);
        assert_eq!(shape_of(64, 64), (1, 64));
        assert_eq!(shape_of(65, 64), (2, 8));
        assert_eq!(shape_of(4160, 64), (2, 64));
        assert_eq!(shape_of(4161, 64), (3, 16));
        assert_eq!(shape_of(10_000, 64), (3, 22));
        assert_eq!(shape_of(14, 2), (3, 2));
        assert_eq!(shape_of(5, 1), (5, 1));
        assert_eq!(shape_of(5, u32::MAX), (1, 5));
    }

    #[test]
    fn small_jobs_are_one_hop() {
        assert!(split(&Idset::from_range(0..32), 32).iter().all(|(_, ranks)| ranks.len() == 1));
    }
}
