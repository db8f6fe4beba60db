//! A unit's properties, and what they mean.

use crate::port::supervisor::Started;
use crate::proto::WaitStatus;

use super::messages::{Active, Changes};

/// Exit codes that systemd itself gives when it could not execute the program
/// (systemd.exec(5), "Process Exit Codes").
const EXEC_FAILURES: std::ops::RangeInclusive<i32> = 200..=245;

/// The properties of a unit that matter here.
#[derive(Clone, Debug, Default)]
pub(super) struct UnitState {
    active: Active,
    /// The unit has been active: the program was executed.
    was_active: bool,
    /// The unit has a job queued or running.
    job: bool,
    invocation_id: String,
    main_pid: u32,
    /// A `CLD_*` code; 0 while the program runs.
    main_code: i32,
    /// Exit code or signal number.
    main_status: i32,
    /// Empty until it was told.
    pub(super) result: String,
    /// Empty if systemd has no cgroup for the unit. Only answers have it, not signals.
    pub(super) control_group: Option<String>,
    /// The digest of the job that it was started with. Only answers have it, not signals.
    pub(super) digest: String,
    /// The job's owner, and how many shells it has; none until they were told.
    pub(super) userid: Option<u32>,
    pub(super) size: Option<u32>,
}

/// What became of the start of a unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    /// systemd could not execute the program: its exit code, or `None` if it did not even fork.
    Failed(Option<i32>),
    /// Not decided yet.
    Pending,
    /// The program was executed.
    Started(Started),
}

impl UnitState {
    /// Take over properties of any interface.
    pub(super) fn apply(&mut self, changes: Changes) {
        fn set<T>(field: &mut T, change: Option<T>) {
            if let Some(change) = change {
                *field = change;
            }
        }
        set(&mut self.active, changes.active);
        set(&mut self.was_active, changes.was_active);
        set(&mut self.job, changes.job);
        set(&mut self.invocation_id, changes.invocation_id);
        set(&mut self.main_pid, changes.main_pid);
        set(&mut self.main_code, changes.main_code);
        set(&mut self.main_status, changes.main_status);
        set(&mut self.result, changes.result);
        set(&mut self.control_group, changes.control_group.map(Some));
        set(&mut self.digest, changes.digest);
        set(&mut self.userid, changes.userid.map(Some));
        set(&mut self.size, changes.size.map(Some));
    }

    /// Whether it is being stopped, or has announced its end. Its main process may still run.
    pub(super) fn is_stopping(&self) -> bool {
        self.active == Active::Deactivating
    }

    /// Whether the program was executed. With `notify` the unit stays `activating` while the
    /// program runs, until the program reports that it is ready.
    ///
    /// The result of the start job is of no use: it is "failed" also if the program was executed
    /// and exited with an error before systemd looked.
    pub(super) fn start_outcome(&self, notify: bool) -> Outcome {
        let ended = self.main_code != 0;
        let exec_failed = ended
            && !self.was_active
            && self.main_code == libc::CLD_EXITED
            && EXEC_FAILURES.contains(&self.main_status);
        match self.active {
            Active::Failed if self.main_pid == 0 => Outcome::Failed(None),
            // Seen when the process exists but has not executed the program yet.
            Active::Inactive if self.job => Outcome::Pending,
            Active::Failed | Active::Inactive if exec_failed => {
                Outcome::Failed(Some(self.main_status))
            }
            Active::Activating | Active::Deactivating if exec_failed => Outcome::Pending,
            Active::Activating if !ended && !notify => Outcome::Pending,
            Active::Activating
            | Active::Active
            | Active::Deactivating
            | Active::Failed
            | Active::Inactive => self.started().map_or(Outcome::Pending, Outcome::Started),
            Active::Unknown => Outcome::Pending,
        }
    }

    /// The main process that it has, or had.
    pub(super) fn started(&self) -> Option<Started> {
        let invocation_id = self.invocation_id.clone();
        (self.main_pid != 0).then_some(Started { pid: self.main_pid, invocation_id })
    }

    /// Whether the properties of the service interface were told at least once.
    pub(super) fn is_whole(&self) -> bool {
        !self.result.is_empty()
    }

    /// How the main process ended, if it has.
    pub(super) fn exit_status(&self) -> Option<WaitStatus> {
        const CORE_DUMPED: i32 = 0x80;
        match self.main_code {
            libc::CLD_EXITED => Some(WaitStatus::exited(self.main_status)),
            libc::CLD_KILLED => Some(WaitStatus::signaled(self.main_status)),
            libc::CLD_DUMPED => Some(WaitStatus(self.main_status & 0x7f | CORE_DUMPED)),
            // 0: it runs. systemd reports nothing else for a main process.
            _ => None,
        }
    }

    /// Whether it ended with a failure that systemd remembers.
    pub(super) fn is_failed(&self) -> bool {
        self.active == Active::Failed
    }

    /// Whether it stays as it is until it is removed. One that has exited is then either active
    /// (`RemainAfterExit`) or failed.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.active, Active::Active | Active::Failed)
    }

    /// Whether systemd manages no process of the unit any more.
    pub(super) fn is_down(&self) -> bool {
        match self.active {
            Active::Failed => true,
            Active::Inactive => !self.job,
            Active::Activating | Active::Active | Active::Deactivating | Active::Unknown => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn main(active: Active, code: i32, status: i32) -> UnitState {
        let mut state = UnitState::default();
        state.apply(Changes {
            active: Some(active),
            main_pid: Some(7),
            main_code: Some(code),
            main_status: Some(status),
            ..Changes::default()
        });
        state
    }

    fn started() -> Outcome {
        Outcome::Started(Started { pid: 7, invocation_id: String::new() })
    }

    #[test]
    fn exec_failure_is_not_a_quick_exit() {
        assert_eq!(main(Active::Activating, 0, 0).start_outcome(false), Outcome::Pending);
        assert_eq!(main(Active::Activating, 0, 0).start_outcome(true), started(), "notify");
        assert_eq!(main(Active::Failed, 1, 203).start_outcome(false), Outcome::Failed(Some(203)));
        assert_eq!(main(Active::Failed, 1, 1).start_outcome(false), started(), "quick exit");
        let mut quick = main(Active::Failed, 1, 203);
        quick.was_active = true;
        assert_eq!(quick.start_outcome(false), started(), "the program's own 203");
        let unforked = UnitState { active: Active::Failed, ..UnitState::default() };
        assert_eq!(unforked.start_outcome(false), Outcome::Failed(None));
        assert_eq!(main(Active::Active, 0, 0).start_outcome(false), started());
    }

    #[test]
    fn wait_statuses() {
        assert_eq!(main(Active::Active, 0, 0).exit_status(), None);
        assert_eq!(main(Active::Active, 1, 3).exit_status(), Some(WaitStatus::exited(3)));
        assert_eq!(main(Active::Failed, 2, 9).exit_status(), Some(WaitStatus::signaled(9)));
        assert_eq!(main(Active::Failed, 3, 11).exit_status(), Some(WaitStatus(0x8b)));
    }
}
