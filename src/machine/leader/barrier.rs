//! The shell barrier: every shell enters it twice while it starts, and waits until all have
//! entered.
//!
//! Each rank reports how often its shell has entered in all. So a new leader knows the state of the
//! barrier from the agents' first reports.
//!
//! What always holds:
//!
//! - A barrier is complete when every shell has entered it, or when one shell proves that: it was let
//!   go from it, or is in a later one. What is complete stays complete.
//! - Nobody waits for a shell that has ended by itself after its rank had lost the count: it may have
//!   passed every barrier.
//! - After a barrier has failed only a proof completes one. After it was closed nothing does.

use std::collections::BTreeMap;

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
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Barrier {
    shells: BTreeMap<BrokerRank, Entrant>,
    verdict: Verdict,
    completed: u32,
    /// How many barriers some shell was let go from, as a rank's record has it.
    passed: u32,
    /// A rank that the next barrier has waited for when it was looked for last.
    awaited: Option<BrokerRank>,
    /// Ranks whose shells have ended, and that [`Barrier::take_inside`] has not looked at.
    unjudged: Idset,
}

/// What is known of one rank's shell.
#[derive(Clone, Debug, PartialEq)]
struct Entrant {
    count: Count,
    /// A higher count in the rank's record, of entries that were not said again since. Else 0.
    found: u32,
    life: Life,
}

/// How often a shell has entered, in all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Count {
    /// Its rank has lost the count. The shell may have passed every barrier.
    Lost,
    /// As its rank has said.
    Said(u32),
}

/// Whether a shell can still enter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Life {
    /// It runs, or is to be started.
    Runs,
    /// It has ended, or never was.
    Ended,
    /// It has ended by itself, and its rank had lost the count.
    MayHavePassed,
}

/// What becomes of barriers that are not complete.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    /// They are waited for.
    Open,
    /// A shell has ended that had not entered.
    Failed,
    /// The job ends without its shells: nobody is let go any more.
    Closed,
}

impl Entrant {
    fn entered(&self) -> u32 {
        match self.count {
            Count::Lost => 0,
            Count::Said(count) => count,
        }
    }

    /// How often it has been in the barrier.
    fn been(&self) -> u32 {
        self.entered().max(self.found)
    }

    fn is_certainly_out(&self) -> bool {
        self.count == Count::Said(0) && self.found == 0
    }
}

impl Barrier {
    pub(super) fn new(ranks: &Idset) -> Self {
        let shell = Entrant { count: Count::Said(0), found: 0, life: Life::Runs };
        Self {
            shells: ranks.ranks().map(|rank| (rank, shell.clone())).collect(),
            verdict: Verdict::Open,
            completed: 0,
            passed: 0,
            awaited: None,
            unjudged: Idset::new(),
        }
    }

    /// The rank has lost the count. Returns false if this is no news, or if the count is known from
    /// before.
    pub(super) fn set_unknown(&mut self, rank: BrokerRank) -> bool {
        let uncounted = |shell: &&mut Entrant| shell.count == Count::Said(0);
        let shell = self.shells.get_mut(&rank).filter(uncounted);
        shell.map(|shell| shell.count = Count::Lost).is_some()
    }

    /// The rank's record holds this count, if it is higher than what was said (0: it is not). No shell
    /// is let go by it. But the shell has been there, so that no barrier fails because of it.
    pub(super) fn find(&mut self, rank: BrokerRank, count: u32) {
        if let Some(shell) = self.shells.get_mut(&rank).filter(|_| count > 0) {
            shell.found = count;
        }
    }

    /// Some shell was let go from so many barriers, so every shell had entered them, although the
    /// entry of another may be lost since.
    pub(super) fn pass(&mut self, count: u32) {
        self.passed = self.passed.max(count);
    }

    /// The shell on `rank` has entered `count` times in all.
    pub(super) fn enter(&mut self, rank: BrokerRank, count: u32) -> Entered {
        let Some(shell) = self.shells.get_mut(&rank) else { return Entered::Waiting };
        let before = shell.entered();
        shell.count = Count::Said(before.max(count));
        if self.verdict == Verdict::Closed {
            return Entered::Failed;
        }
        // A shell in its second barrier proves that the first one was complete, although other
        // ranks may not have heard that. What has failed is not completed by a later entry.
        let is_incomplete = self.verdict == Verdict::Failed || self.is_awaited();
        let everyone = if is_incomplete { self.passed } else { self.everyone() };
        let completed = everyone.max(count.saturating_sub(1));
        let is_news = completed > self.completed;
        self.completed = self.completed.max(completed);
        if self.verdict == Verdict::Failed {
            return Entered::Failed;
        }
        if is_news {
            return Entered::Complete(completed);
        }
        if count <= self.completed {
            // Told again by a rank that was away: it may have missed the release.
            return Entered::Complete(self.completed);
        }
        if self.completed == 0 && before == 0 && self.is_alone() {
            Entered::First
        } else {
            Entered::Waiting
        }
    }

    /// Whether one shell has entered, and no other can have.
    fn is_alone(&self) -> bool {
        let counts = self.shells.values().map(|shell| shell.count);
        counts.filter(|count| *count != Count::Said(0)).take(2).count() == 1
    }

    /// Whether a shell has not entered the next barrier. Each entry asks this, so it begins with the
    /// rank that was found the last time: a look at all ranks would take a job of 10,000 seconds.
    fn is_awaited(&mut self) -> bool {
        let from = self.awaited.unwrap_or(BrokerRank(0));
        let mut shells = self.shells.range(from..).chain(self.shells.range(..from));
        let is_out = |(_, shell): &(&BrokerRank, &Entrant)| {
            shell.entered() <= self.completed && shell.life != Life::MayHavePassed
        };
        self.awaited = shells.find(is_out).map(|(rank, _)| *rank);
        self.awaited.is_some()
    }

    /// How often every shell has entered. One that may have passed counts as having passed. Else a
    /// shell that still waits, because it has not heard that it may go, would end with it.
    fn everyone(&self) -> u32 {
        self.least(Entrant::entered)
    }

    fn least(&self, count: impl Fn(&Entrant) -> u32) -> u32 {
        let counts = self.shells.values().filter(|shell| shell.life != Life::MayHavePassed);
        counts.map(count).min().unwrap_or(0).max(self.passed)
    }

    /// The shells on these ranks have ended, or never were. If the job has failed they were ended,
    /// wherever they were.
    pub(super) fn set_ended(&mut self, ranks: &Idset, has_failed: bool) {
        for rank in ranks.ranks() {
            let Some(shell) = self.shells.get_mut(&rank) else { continue };
            if shell.life == Life::Runs {
                self.unjudged.insert(rank.0);
                shell.life = Life::Ended;
            }
            if shell.count == Count::Lost && !has_failed {
                shell.life = Life::MayHavePassed;
            }
        }
    }

    /// An earlier leader has ended the shells, so those that have ended were wherever they were.
    pub(super) fn set_ended_by_leader(&mut self) {
        for shell in self.shells.values_mut().filter(|shell| shell.life != Life::Runs) {
            shell.life = Life::Ended;
        }
    }

    /// Those that have ended since the last time and have certainly not left the first barrier.
    pub(super) fn take_inside(&mut self) -> Idset {
        let ended = std::mem::take(&mut self.unjudged);
        if self.completed > 0 || ended.is_empty() {
            return Idset::new();
        }
        // One that has entered is inside as long as another is known not to have entered.
        let all = || self.shells.values();
        let is_counted = all().all(|shell| shell.count != Count::Lost);
        let is_open = is_counted || all().any(Entrant::is_certainly_out);
        let is_inside = |rank: &BrokerRank| {
            let shell = &self.shells[rank];
            shell.is_certainly_out() || shell.count != Count::Lost && is_open
        };
        ended.ranks().filter(is_inside).collect()
    }

    /// Once a shell has ended, a barrier that not all have entered fails. Not before each rank whose
    /// shell runs knows how often it has entered. Returns true the first time, if a shell waits: one
    /// that enters later hears it then.
    ///
    /// What a record alone says lets nobody go if the job has failed: the rank may be one that was given
    /// up on, and the KVS may have lost what its shell wrote before it entered.
    pub(super) fn fail(&mut self, has_failed: bool) -> bool {
        let all = || self.shells.values();
        if self.verdict != Verdict::Open
            || all().all(|shell| shell.life == Life::Runs)
            || all().any(|shell| shell.life == Life::Runs && shell.count == Count::Lost)
        {
            return false;
        }
        let waits = |shell: &Entrant| shell.life == Life::Runs && shell.entered() > self.completed;
        let holds = all().any(waits);
        let counts = if has_failed { self.everyone() } else { self.least(Entrant::been) };
        self.completed = self.completed.max(counts);
        self.verdict = Verdict::Failed;
        holds
    }

    /// The job ends, and shells that cannot be killed may still wait or enter. The job's namespace
    /// goes, so they would not find in it what the others wrote. Returns true the first time.
    pub(super) fn close(&mut self) -> bool {
        std::mem::replace(&mut self.verdict, Verdict::Closed) != Verdict::Closed
    }

    pub(super) fn completed(&self) -> u32 {
        self.completed
    }

    /// Ranks that the current barrier waits for.
    pub(super) fn pending(&self) -> Idset {
        let pending = self.shells.iter().filter(|(_, shell)| shell.entered() <= self.completed);
        pending.map(|(rank, _)| *rank).collect()
    }

    pub(super) fn total(&self) -> usize {
        self.shells.len()
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
        assert_eq!((barrier.completed(), barrier.verdict), (2, Verdict::Failed));
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
