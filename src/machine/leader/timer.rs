//! The leader's timers, as a table: a timer that nobody handles does not compile.

/// Timers of one job's leader.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Timer {
    /// When the first shell barrier has not completed in time.
    Barrier,
    /// When a failed commit is tried again.
    Commit,
    /// When the coordinator is asked whether it still knows a job that has ended.
    Ended,
    /// When the job's time limit is reached.
    Expiration,
    /// When the events of a job that is about to end are committed without waiting for the last.
    Flush,
    /// When the shells get the kill signal (again).
    KillShells,
    /// When the tasks get the kill signal (again).
    KillTasks,
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

/// All timers. Of two that are due at the same moment the one that stands first fires first: tasks
/// are signalled before their shells.
const ALL: [Timer; 15] = [
    Timer::Barrier,
    Timer::Commit,
    Timer::Ended,
    Timer::Expiration,
    Timer::Flush,
    Timer::KillTasks,
    Timer::KillShells,
    Timer::Leftover,
    Timer::MaxKill,
    Timer::Open,
    Timer::Release,
    Timer::Retry,
    Timer::ShellExit,
    Timer::Tell,
    Timer::Test,
];

/// When each timer fires, in monotonic seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TimerTable([Option<f64>; ALL.len()]);

impl TimerTable {
    pub(super) fn arm(&mut self, timer: Timer, at: f64) {
        self.0[timer as usize] = Some(at);
    }

    /// Arms a timer, or has it go off no earlier than this.
    pub(super) fn postpone(&mut self, timer: Timer, at: f64) {
        let at = self.0[timer as usize].map_or(at, |armed| armed.max(at));
        self.arm(timer, at);
    }

    pub(super) fn cancel(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    /// Cancels all but one.
    pub(super) fn keep_only(&mut self, timer: Timer) {
        let kept = self.0[timer as usize];
        self.0 = [None; ALL.len()];
        self.0[timer as usize] = kept;
    }

    pub(super) fn is_armed(&self, timer: Timer) -> bool {
        self.0[timer as usize].is_some()
    }

    pub(super) fn next(&self) -> Option<f64> {
        self.0.iter().flatten().copied().reduce(f64::min)
    }

    /// Takes the earliest timer that is due.
    pub(super) fn pop_due(&mut self, now: f64) -> Option<Timer> {
        let due = ALL
            .into_iter()
            .filter_map(|timer| self.0[timer as usize].map(|at| (timer, at)))
            .filter(|(_, at)| *at <= now)
            .reduce(|a, b| if b.1 < a.1 { b } else { a })?;
        self.cancel(due.0);
        Some(due.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_timers_come_out_in_order_and_once() {
        let mut table = TimerTable::default();
        table.arm(Timer::Retry, 3.0);
        table.arm(Timer::Barrier, 5.0);
        table.arm(Timer::KillShells, 1.0);
        assert_eq!(table.next(), Some(1.0));
        assert_eq!(table.pop_due(3.0), Some(Timer::KillShells));
        assert_eq!(table.pop_due(3.0), Some(Timer::Retry));
        assert_eq!(table.pop_due(3.0), None);
        assert!(table.is_armed(Timer::Barrier));
        table.cancel(Timer::Barrier);
        assert_eq!(table.next(), None);
    }
}
