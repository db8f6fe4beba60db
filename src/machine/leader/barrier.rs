//! The shell barrier: every shell enters it twice while it starts, and waits until all have
//! entered.
//!
//! Each rank reports how often its shell has entered in all. So a new leader knows the state of the
//! barrier from the agents' first reports.

use std::collections::{BTreeMap, BTreeSet};

use crate::proto::{BrokerRank, Idset};

/// What an entry led to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Entered {
    /// So many barriers are complete now: let the shells go.
    Complete(u32),
    /// The barrier has failed before; the rank must hear it (again).
    Failed,
    /// The first shell has entered the first barrier: the clock runs.
    First,
    /// Others are still out.
    Waiting,
}

/// The barrier of one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Barrier {
    entered: BTreeMap<BrokerRank, u32>,
    /// Higher counts in ranks' records, of entries that were not said again since.
    found: BTreeMap<BrokerRank, u32>,
    /// Ranks that have lost the count. Their shells may have passed every barrier.
    unknown: BTreeSet<BrokerRank>,
    /// Ranks whose shells have ended, or never were.
    ended: Idset,
    /// Those of them that [`Barrier::take_inside`] has not looked at.
    unjudged: Idset,
    /// Those of them that had lost the count, and may have ended by themselves.
    may_have_passed: Idset,
    /// How many barriers some shell was let go from, as a rank's record has it.
    passed: u32,
    completed: u32,
    /// A rank that the next barrier has waited for when it was looked for last.
    awaited: Option<BrokerRank>,
    failed: bool,
    /// The job ends without its shells: nobody is let go any more.
    closed: bool,
}

impl Barrier {
    pub(super) fn new(ranks: &Idset) -> Self {
        let entered = ranks.ranks().map(|rank| (rank, 0)).collect();
        Self { entered, ..Self::default() }
    }

    /// The rank has lost the count. Returns false if this is no news, or if the count is known from
    /// before.
    pub(super) fn set_unknown(&mut self, rank: BrokerRank) -> bool {
        self.entered.get(&rank) == Some(&0) && self.unknown.insert(rank)
    }

    /// The rank's record holds this count, if it is higher than what was said (0: it is not). No shell
    /// is let go by it. But the shell has been there, so that no barrier fails because of it.
    pub(super) fn find(&mut self, rank: BrokerRank, count: u32) {
        if count > 0 && self.entered.contains_key(&rank) {
            self.found.insert(rank, count);
        }
    }

    /// Some shell was let go from so many barriers, so every shell had entered them, although the
    /// entry of another may be lost since.
    pub(super) fn pass(&mut self, count: u32) {
        self.passed = self.passed.max(count);
    }

    /// How often the shell on `rank` has been in the barrier.
    fn been(&self, rank: BrokerRank) -> u32 {
        let count = |counts: &BTreeMap<BrokerRank, u32>| counts.get(&rank).copied().unwrap_or(0);
        count(&self.entered).max(count(&self.found))
    }

    /// The shell on `rank` has entered `count` times in all.
    pub(super) fn enter(&mut self, rank: BrokerRank, count: u32) -> Entered {
        let Some(known) = self.entered.get_mut(&rank) else { return Entered::Waiting };
        let before = *known;
        *known = before.max(count);
        self.unknown.remove(&rank);
        if self.closed {
            return Entered::Failed;
        }
        // A shell in its second barrier proves that the first one was complete, although other
        // ranks may not have heard that. What has failed is not completed by a later entry.
        let is_incomplete = self.failed || self.is_awaited();
        let everyone = if is_incomplete { self.passed } else { self.everyone() };
        let completed = everyone.max(count.saturating_sub(1));
        let is_news = completed > self.completed;
        self.completed = self.completed.max(completed);
        if self.failed {
            return Entered::Failed;
        }
        if is_news {
            return Entered::Complete(completed);
        }
        if count <= self.completed {
            // Told again by a rank that was away: it may have missed the release.
            return Entered::Complete(self.completed);
        }
        let is_alone = || self.entered.values().filter(|n| **n > 0).take(2).count() == 1;
        if self.completed == 0 && before == 0 && self.unknown.is_empty() && is_alone() {
            Entered::First
        } else {
            Entered::Waiting
        }
    }

    /// Whether a shell has not entered the next barrier. Each entry asks this, so it begins with the
    /// rank that was found the last time: a look at all ranks would take a job of 10,000 seconds.
    fn is_awaited(&mut self) -> bool {
        let from = self.awaited.unwrap_or(BrokerRank(0));
        let mut ranks = self.entered.range(from..).chain(self.entered.range(..from));
        let is_out = |(rank, count): &(&BrokerRank, &u32)| {
            **count <= self.completed && !self.may_have_passed.contains_rank(**rank)
        };
        self.awaited = ranks.find(is_out).map(|(rank, _)| *rank);
        self.awaited.is_some()
    }

    /// How often every shell has entered. One that may have passed counts as having passed. Else a
    /// shell that still waits, because it has not heard that it may go, would end with it.
    fn everyone(&self) -> u32 {
        self.least(|(_, count)| *count).max(self.passed)
    }

    fn least(&self, count: impl Fn((&BrokerRank, &u32)) -> u32) -> u32 {
        let counts = |rank: &BrokerRank| !self.may_have_passed.contains_rank(*rank);
        let entered = self.entered.iter().filter(|(rank, _)| counts(rank));
        entered.map(count).min().unwrap_or(0)
    }

    /// The shells on these ranks have ended, or never were. If the job has failed they were ended,
    /// wherever they were.
    pub(super) fn set_ended(&mut self, ranks: &Idset, has_failed: bool) {
        self.unjudged = self.unjudged.union(&ranks.difference(&self.ended));
        self.ended = self.ended.union(ranks);
        if !has_failed {
            let unknown: Idset = self.unknown.iter().copied().collect();
            self.may_have_passed = self.may_have_passed.union(&ranks.intersection(&unknown));
        }
    }

    /// An earlier leader has ended the shells, so those that have ended were wherever they were.
    pub(super) fn set_ended_by_leader(&mut self) {
        self.may_have_passed = Idset::new();
    }

    /// Those that have ended since the last time and have certainly not left the first barrier.
    pub(super) fn take_inside(&mut self) -> Idset {
        let ended = std::mem::take(&mut self.unjudged);
        let out = |rank: &BrokerRank| self.been(*rank) == 0 && !self.unknown.contains(rank);
        // One that has entered is inside as long as another is known not to have entered.
        let is_open = self.unknown.is_empty() || self.entered.keys().any(out);
        let is_inside =
            |rank: &BrokerRank| !self.unknown.contains(rank) && (self.been(*rank) == 0 || is_open);
        if self.completed > 0 {
            return Idset::new();
        }
        ended.ranks().filter(is_inside).collect()
    }

    /// Once a shell has ended, a barrier that not all have entered fails. Not before each rank whose
    /// shell runs knows how often it has entered. Returns true the first time, if a shell waits: one
    /// that enters later hears it then.
    ///
    /// What a record alone says lets nobody go if the job has failed: the rank may be one that was given
    /// up on, and the KVS may have lost what its shell wrote before it entered.
    pub(super) fn fail(&mut self, has_failed: bool) -> bool {
        let is_known = self.unknown.iter().all(|rank| self.ended.contains_rank(*rank));
        if self.failed || self.ended.is_empty() || !is_known {
            return false;
        }
        let is_held = |(rank, count): (&BrokerRank, &u32)| {
            *count > self.completed && !self.ended.contains_rank(*rank)
        };
        let holds = self.entered.iter().any(is_held);
        let been = self.least(|(rank, _)| self.been(*rank)).max(self.passed);
        let counts = if has_failed { self.everyone() } else { been };
        self.completed = self.completed.max(counts);
        self.failed = true;
        holds
    }

    /// The job ends, and shells that cannot be killed may still wait or enter. The job's namespace
    /// goes, so they would not find in it what the others wrote. Returns true the first time.
    pub(super) fn close(&mut self) -> bool {
        self.failed = true;
        !std::mem::replace(&mut self.closed, true)
    }

    pub(super) fn completed(&self) -> u32 {
        self.completed
    }

    /// Ranks that the current barrier waits for.
    pub(super) fn pending(&self) -> Idset {
        let pending = self.entered.iter().filter(|(_, count)| **count <= self.completed);
        pending.map(|(rank, _)| *rank).collect()
    }

    pub(super) fn total(&self) -> usize {
        self.entered.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_completes_when_all_have_entered() {
        let mut barrier = Barrier::new(&Idset::from_range(0..3));
        assert_eq!(barrier.enter(BrokerRank(1), 1), Entered::First);
        assert_eq!(barrier.enter(BrokerRank(0), 1), Entered::Waiting);
        assert_eq!(barrier.pending().to_string(), "2");
        assert_eq!(barrier.enter(BrokerRank(0), 1), Entered::Waiting, "said again");
        assert_eq!(barrier.enter(BrokerRank(2), 1), Entered::Complete(1));
        assert_eq!(barrier.enter(BrokerRank(2), 2), Entered::Waiting);
        assert_eq!(barrier.enter(BrokerRank(1), 1), Entered::Complete(1), "missed it");
        assert_eq!(barrier.enter(BrokerRank(1), 2), Entered::Waiting);
        assert_eq!(barrier.enter(BrokerRank(0), 2), Entered::Complete(2));
    }

    #[test]
    fn a_new_leader_counts_again() {
        let mut barrier = Barrier::new(&Idset::from_range(0..2));
        let first = barrier.enter(BrokerRank(0), 2);
        assert_eq!(first, Entered::Complete(1), "or it could not be in the second");
        assert_eq!(barrier.enter(BrokerRank(1), 1), Entered::Complete(1), "it may have missed it");
        assert_eq!(barrier.pending().to_string(), "1");
    }

    /// The leader before this one died while it let them go.
    #[test]
    fn who_still_waits_in_a_barrier_that_another_has_left_is_let_go() {
        let mut barrier = Barrier::new(&Idset::from_range(0..3));
        assert_eq!(barrier.enter(BrokerRank(0), 1), Entered::First);
        assert_eq!(barrier.enter(BrokerRank(2), 1), Entered::Waiting);
        assert_eq!(barrier.enter(BrokerRank(1), 2), Entered::Complete(1));
    }

    /// The disk of rank 1 was full when it entered the second time.
    #[test]
    fn a_barrier_that_a_shell_was_let_go_from_does_not_fail_because_an_entry_was_lost() {
        let mut barrier = Barrier::new(&Idset::from_range(0..3));
        barrier.pass(2);
        assert_eq!(barrier.enter(BrokerRank(0), 2), Entered::Complete(2));
        assert_eq!(barrier.enter(BrokerRank(1), 1), Entered::Complete(2));
        barrier.set_ended(&Idset::from_range(1..2), false);
        assert!(!barrier.fail(false), "nobody waits");
        assert_eq!((barrier.completed(), barrier.failed), (2, true));
    }

    fn ended(barrier: &mut Barrier, ranks: &str) -> String {
        barrier.set_ended(&ranks.parse().unwrap(), false);
        barrier.take_inside().to_string()
    }

    #[test]
    fn who_has_lost_the_count_may_have_passed() {
        let mut barrier = Barrier::new(&Idset::from_range(0..3));
        assert!(barrier.set_unknown(BrokerRank(0)));
        assert!(!barrier.set_unknown(BrokerRank(0)), "no news");
        assert_eq!(ended(&mut barrier.clone(), "0-2"), "1-2", "they have not entered");
        assert_eq!(barrier.enter(BrokerRank(1), 1), Entered::Waiting, "no clock runs");
        assert_eq!(ended(&mut barrier.clone(), "0-2"), "1-2", "rank 2 is out");
        barrier.enter(BrokerRank(2), 1);
        assert_eq!(ended(&mut barrier.clone(), "0-2"), "", "all may have passed");
        assert_eq!(ended(&mut barrier, "2"), "");
        assert!(!barrier.fail(false), "rank 0 knows it, and has not said it");
        assert_eq!(barrier.enter(BrokerRank(0), 1), Entered::Complete(1), "a late count counts");
        assert!(!barrier.fail(false), "nobody waits");
        assert_eq!(barrier.enter(BrokerRank(0), 2), Entered::Failed, "the second cannot complete");
        assert!(!barrier.set_unknown(BrokerRank(2)), "the leader has its count");
    }

    #[test]
    fn who_waits_for_those_that_have_lost_the_count_goes_when_they_have_ended() {
        let mut barrier = Barrier::new(&Idset::from_range(0..3));
        barrier.set_unknown(BrokerRank(0));
        barrier.set_unknown(BrokerRank(1));
        assert_eq!(barrier.enter(BrokerRank(2), 2), Entered::Complete(1), "it waits in the second");
        assert_eq!(ended(&mut barrier, "0"), "");
        assert!(!barrier.fail(false));
        assert_eq!(barrier.completed(), 1, "rank 1 may come");
        assert_eq!(ended(&mut barrier, "1"), "");
        assert!(barrier.fail(false));
        assert_eq!(barrier.completed(), 2, "both may have passed");
    }

    #[test]
    fn nobody_waits_for_one_that_may_have_passed() {
        let mut barrier = Barrier::new(&Idset::from_range(0..3));
        barrier.set_unknown(BrokerRank(0));
        barrier.set_ended(&Idset::from_range(0..1), false);
        assert_eq!(barrier.enter(BrokerRank(1), 1), Entered::Waiting);
        assert_eq!(barrier.enter(BrokerRank(2), 1), Entered::Complete(1));
    }

    /// Simulator seed 400031850: the last of those that entered later was let go.
    #[test]
    fn a_barrier_that_has_failed_is_not_completed_by_later_entries() {
        let mut barrier = Barrier::new(&Idset::from_range(0..3));
        barrier.set_unknown(BrokerRank(0));
        barrier.set_ended(&Idset::from_range(0..1), false);
        barrier.enter(BrokerRank(1), 1);
        barrier.enter(BrokerRank(2), 1);
        assert!(!barrier.fail(false), "nobody waits");
        assert_eq!(barrier.enter(BrokerRank(1), 2), Entered::Failed);
        assert_eq!(barrier.enter(BrokerRank(2), 2), Entered::Failed);
        assert_eq!(barrier.completed(), 1);
    }

    #[test]
    fn who_was_ended_counts_where_it_was() {
        let mut barrier = Barrier::new(&Idset::from_range(0..2));
        barrier.set_unknown(BrokerRank(0));
        barrier.enter(BrokerRank(1), 2);
        barrier.set_ended(&Idset::from_range(0..1), true);
        assert!(barrier.fail(false));
        assert_eq!(barrier.completed(), 1, "rank 0 may not have entered the second");
    }

    /// Simulator seed 109405 of an earlier release: a later rank knew why the shell was ended.
    #[test]
    fn so_does_one_that_turns_out_to_have_been_ended() {
        let mut barrier = Barrier::new(&Idset::from_range(0..3));
        barrier.set_unknown(BrokerRank(0));
        barrier.enter(BrokerRank(1), 2);
        barrier.set_ended(&Idset::from_range(0..1), false);
        barrier.set_ended_by_leader();
        assert_eq!(barrier.enter(BrokerRank(2), 2), Entered::Waiting);
        assert!(barrier.fail(false));
        assert_eq!(barrier.completed(), 1, "rank 0 may not have entered the second");
    }

    /// Simulator seed 70038272: rank 1 was given up on, and the KVS had lost what its shell wrote.
    #[test]
    fn an_entry_that_only_a_record_has_lets_nobody_go_when_the_job_has_failed() {
        let mut barrier = Barrier::new(&Idset::from_range(0..2));
        barrier.enter(BrokerRank(0), 1);
        barrier.find(BrokerRank(1), 1);
        barrier.set_ended(&Idset::from_range(1..2), true);
        let mut unfailed = barrier.clone();
        assert!(barrier.fail(true) && unfailed.fail(false));
        assert_eq!((barrier.completed(), unfailed.completed()), (0, 1));
    }

    #[test]
    fn a_closed_one_lets_nobody_go() {
        let mut barrier = Barrier::new(&Idset::from_range(0..2));
        barrier.enter(BrokerRank(0), 1);
        assert!(barrier.close() && !barrier.close());
        assert_eq!(barrier.enter(BrokerRank(1), 1), Entered::Failed);
        assert_eq!(barrier.completed(), 0);
        barrier.set_ended(&Idset::from_range(0..2), true);
        assert!(!barrier.fail(false), "it was said");
    }

    #[test]
    fn after_an_exit_everyone_who_waits_hears_of_it() {
        let mut barrier = Barrier::new(&Idset::from_range(0..3));
        assert!(!barrier.fail(false), "all shells run");
        barrier.enter(BrokerRank(1), 1);
        assert_eq!(ended(&mut barrier, "1"), "1");
        assert_eq!(ended(&mut barrier, "1"), "", "no news");
        let mut held = barrier.clone();
        assert!(!barrier.fail(false), "who waited has ended");
        held.enter(BrokerRank(0), 1);
        assert!(held.fail(false) && !held.fail(false), "it is said once");
        assert_eq!(barrier.enter(BrokerRank(0), 1), Entered::Failed);
        assert_eq!(barrier.enter(BrokerRank(7), 1), Entered::Waiting, "not of this job");
    }

    #[test]
    fn the_last_rank_completes_a_barrier_in_whatever_order_they_come() {
        for step in [1, 37, 99] {
            let mut barrier = Barrier::new(&Idset::from_range(0..100));
            for (count, number) in (1..3).flat_map(|count| (0..100).map(move |n| (count, n))) {
                let entered = barrier.enter(BrokerRank(number * step % 100), count);
                assert_eq!(
                    entered == Entered::Complete(count),
                    number == 99,
                    "{step}: {entered:?}"
                );
                assert_eq!(entered == Entered::First, (count, number) == (1, 0));
            }
        }
    }
}
