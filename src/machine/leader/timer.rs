//! The leader's timers, as a table: a timer that nobody handles does not compile.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::retry::Policy;
use crate::machine::away;
use crate::machine::mono_time::MonoTime;
use crate::machine::{COMMIT_PAUSE, COMMIT_TRIES};

/// Timers of one job's leader. Of two that are due at the same moment the one that stands first fires
/// first: tasks are signalled before their shells.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LeaderTimer {
    /// When the first shell barrier has not completed in time.
    Barrier,
    /// When the job is told whom it waits for.
    BarrierNotice,
    /// When a failed commit is tried again.
    Commit,
    /// When the coordinator is asked whether it still knows a job that has ended.
    Ended,
    /// When the job's time limit is reached.
    Expiration,
    /// When the events of a job that is about to end are committed without waiting for the last.
    Flush,
    /// When the tasks get the kill signal (again).
    KillTasks,
    /// When the shells get the kill signal (again).
    KillShells,
    /// When ranks are given up whose processes the kernel was to kill.
    LastKill,
    /// When what ended shells have left behind is given up.
    Leftover,
    /// When the kill escalation gives up, if `max-kill-timeout` is set.
    MaxKill,
    /// When opening the guest namespace is tried again.
    Open,
    /// When ranks that are gone are released.
    Release,
    /// When ranks whose module was away are asked again.
    Retry,
    /// When shells still run too long after the leader shell's exit.
    ShellExit,
    /// When the job manager is told again of degraded nodes.
    Tell,
    /// When a mocked job ends.
    Test,
}

impl LeaderTimer {
    /// How it is armed again after a failure.
    fn policy(self) -> Policy {
        match self {
            Self::Commit => Policy { tries: COMMIT_TRIES, ..Policy::each(COMMIT_PAUSE) },
            Self::Open | Self::Tell => Policy::each(2.0),
            Self::Retry => {
                let (first, longest) = (away::PAUSE_FIRST, away::PAUSE_MAX);
                Policy { first, longest, tries: u32::MAX }
            }
            // Of these only `ShellExit` is.
            Self::Barrier
            | Self::BarrierNotice
            | Self::Ended
            | Self::Expiration
            | Self::Flush
            | Self::KillShells
            | Self::KillTasks
            | Self::LastKill
            | Self::Leftover
            | Self::MaxKill
            | Self::Release
            | Self::ShellExit
            | Self::Test => Policy::each(1.0),
        }
    }
}

/// When each timer fires, in monotonic seconds, and how often in a row what it is for has failed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TimerTable {
    due: BTreeMap<LeaderTimer, MonoTime>,
    failures: BTreeMap<LeaderTimer, u32>,
}

impl TimerTable {
    pub(super) fn arm(&mut self, timer: LeaderTimer, at: MonoTime) {
        self.due.insert(timer, at);
    }

    /// Something has failed, or was not answered. Returns whether another try is to come. One that is
    /// to come already stays as it is.
    pub(super) fn try_again(&mut self, timer: LeaderTimer, now: MonoTime) -> bool {
        if self.is_armed(timer) {
            return true;
        }
        let failures = self.failures.entry(timer).or_default();
        *failures = failures.saturating_add(1);
        let Some(pause) = timer.policy().pause(*failures) else {
            self.succeed(timer); // what comes later is another matter
            return false;
        };
        self.arm(timer, now + pause);
        true
    }

    /// What was tried has succeeded: the next pause is the first one again.
    pub(super) fn succeed(&mut self, timer: LeaderTimer) {
        self.failures.remove(&timer);
    }

    /// Arms a timer, or has it go off no earlier than this.
    pub(super) fn postpone(&mut self, timer: LeaderTimer, at: MonoTime) {
        let at = self.due.get(&timer).map_or(at, |armed| at.max(*armed));
        self.arm(timer, at);
    }

    pub(super) fn cancel(&mut self, timer: LeaderTimer) {
        self.due.remove(&timer);
    }

    /// Cancels all but one.
    pub(super) fn keep_only(&mut self, timer: LeaderTimer) {
        self.due.retain(|armed, _| *armed == timer);
    }

    pub(super) fn is_armed(&self, timer: LeaderTimer) -> bool {
        self.due.contains_key(&timer)
    }

    /// In how many seconds each fires, for statistics.
    pub(super) fn stats(&self, now: MonoTime) -> Value {
        let left = |(timer, at): (&LeaderTimer, &MonoTime)| (*timer, (*at - now).max(0.0));
        json!(self.due.iter().map(left).collect::<BTreeMap<LeaderTimer, f64>>())
    }

    pub(super) fn next(&self) -> Option<MonoTime> {
        self.due.values().copied().min()
    }

    /// Takes the earliest timer that is due.
    pub(super) fn pop_due(&mut self, now: MonoTime) -> Option<LeaderTimer> {
        let due = self.due.iter().filter(|(_, at)| **at <= now);
        let timer = *due.min_by_key(|(_, at)| *at)?.0;
        self.cancel(timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_timers_come_out_in_order_and_once() {
        let mut table = TimerTable::default();
        table.arm(LeaderTimer::Retry, MonoTime(3.0));
        table.arm(LeaderTimer::Barrier, MonoTime(5.0));
        table.arm(LeaderTimer::KillShells, MonoTime(1.0));
        assert_eq!(table.next(), Some(MonoTime(1.0)));
        assert_eq!(table.pop_due(MonoTime(3.0)), Some(LeaderTimer::KillShells));
        assert_eq!(table.pop_due(MonoTime(3.0)), Some(LeaderTimer::Retry));
        assert_eq!(table.pop_due(MonoTime(3.0)), None);
        assert!(table.is_armed(LeaderTimer::Barrier));
        table.cancel(LeaderTimer::Barrier);
        assert_eq!(table.next(), None);
    }

    /// Tries in vain, one as soon as the other, and returns when each was.
    fn try_in_vain(table: &mut TimerTable, timer: LeaderTimer, times: usize) -> Vec<f64> {
        let mut now = 0.0;
        let mut tried = Vec::new();
        while tried.len() < times && table.try_again(timer, MonoTime(now)) {
            assert!(table.try_again(timer, MonoTime(now)), "it is tried again already");
            now = table.next().expect("armed").0;
            assert_eq!(table.pop_due(MonoTime(now)), Some(timer));
            tried.push(now);
        }
        tried
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_success() {
        let mut table = TimerTable::default();
        let tried = try_in_vain(&mut table, LeaderTimer::Retry, 8);
        let pauses = tried.iter().zip(&tried[1..]).map(|(a, b)| ((b - a) * 10.0).round());
        assert_eq!(pauses.collect::<Vec<_>>(), [2.0, 4.0, 8.0, 16.0, 32.0, 50.0, 50.0]);
        table.succeed(LeaderTimer::Retry);
        assert_eq!(try_in_vain(&mut table, LeaderTimer::Retry, 2), [0.1, 0.1 + 0.2]);
    }

    #[test]
    fn what_has_a_limit_is_given_up_and_counted_anew() {
        let mut table = TimerTable::default();
        for _ in 0..2 {
            assert_eq!(try_in_vain(&mut table, LeaderTimer::Commit, 9), [1.0, 2.0, 3.0, 4.0]);
        }
    }
}
