//! What systemd says of a unit, and what that means.

use std::collections::HashMap;

use zbus::Variant;

use crate::port::supervisor::Started;
use crate::proto::WaitStatus;

use super::start::DIGEST_FIELD;

/// Exit codes that systemd itself gives when it could not execute the program
/// (systemd.exec(5), "Process Exit Codes").
const EXEC_FAILURES: std::ops::RangeInclusive<i32> = 200..=245;

/// `ActiveState`.
#[expect(clippy::enum_variant_names, reason = "systemd's names")]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Active {
    /// Being started.
    Activating,
    /// Runs, or has exited with success and remains (`RemainAfterExit`).
    Active,
    /// Being stopped.
    Deactivating,
    /// Ended with a failure, and remains until reset.
    Failed,
    /// Not started, or stopped.
    Inactive,
    /// Nothing was said yet, or something that we do not know.
    #[default]
    Unknown,
}

/// A unit's properties, as far as they matter here.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) active: Active,
    /// The unit has been active: the program was executed.
    pub(super) was_active: bool,
    /// The unit has a job queued or running.
    pub(super) job: bool,
    pub(super) invocation_id: String,
    pub(super) main_pid: u32,
    /// A `CLD_*` code; 0 while the program runs.
    main_code: i32,
    /// Exit code or signal number.
    main_status: i32,
    /// `Result`, such as `exit-code`; never empty once it was told.
    pub(super) result: String,
    pub(super) control_group: Option<String>,
    /// The job's digest that it was started with. Signals do not tell it.
    pub(super) digest: Option<String>,
}

/// What became of the start of a unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Start {
    /// systemd could not execute the program: its exit code, or `None` if it did not even fork.
    Failed(Option<i32>),
    /// Not decided yet.
    Pending,
    /// The program was executed.
    Started(Started),
}

impl State {
    /// Take over properties of any interface.
    pub(super) fn apply(&mut self, properties: &HashMap<&str, Variant<'_>>) {
        let unsigned = |name: &str| match properties.get(name) {
            Some(Variant::U32(n)) => Some(*n),
            _ => None,
        };
        let signed = |name: &str| match properties.get(name) {
            Some(Variant::I32(n)) => Some(*n),
            _ => None,
        };
        let text = |name: &str| match properties.get(name) {
            Some(Variant::Str(s)) => Some(s.as_str()),
            _ => None,
        };
        if let Some(active) = text("ActiveState") {
            self.active = Active::parse(active);
        }
        if let Some(Variant::U64(at)) = properties.get("ActiveEnterTimestampMonotonic") {
            self.was_active = *at != 0;
        }
        if let Some(Variant::Structure(job)) = properties.get("Job") {
            self.job = !matches!(job.fields().first(), Some(Variant::U32(0)) | None);
        }
        if let Some(Variant::Array(id)) = properties.get("InvocationID") {
            self.invocation_id = hex(id);
        }
        self.main_pid = unsigned("ExecMainPID").unwrap_or(self.main_pid);
        self.main_code = signed("ExecMainCode").unwrap_or(self.main_code);
        self.main_status = signed("ExecMainStatus").unwrap_or(self.main_status);
        if let Some(result) = text("Result") {
            self.result = result.to_string();
        }
        if let Some(Variant::Array(fields)) = properties.get("LogExtraFields") {
            self.digest = fields.inner().iter().find_map(digest);
        }
        if let Some(group) = text("ControlGroup") {
            self.control_group = Some(group.to_string());
        }
    }

    /// Was the program executed? `notify`: the unit stays `activating` while the program runs,
    /// until the program says otherwise.
    ///
    /// The start job's result is not asked: it is "failed" as well when the program was
    /// executed and exited with an error before systemd looked.
    pub(super) fn start(&self, notify: bool) -> Start {
        let ended = self.main_code != 0;
        let exec_failed = ended
            && !self.was_active
            && self.main_code == libc::CLD_EXITED
            && EXEC_FAILURES.contains(&self.main_status);
        match self.active {
            Active::Failed if self.main_pid == 0 => Start::Failed(None),
            // Seen while the process is already there: not executed yet.
            Active::Inactive if self.job => Start::Pending,
            Active::Failed | Active::Inactive if exec_failed => {
                Start::Failed(Some(self.main_status))
            }
            Active::Activating | Active::Deactivating if exec_failed => Start::Pending,
            Active::Activating if !ended && !notify => Start::Pending,
            Active::Activating
            | Active::Active
            | Active::Deactivating
            | Active::Failed
            | Active::Inactive => match self.main_pid {
                0 => Start::Pending,
                pid => Start::Started(Started { pid, invocation_id: self.invocation_id.clone() }),
            },
            Active::Unknown => Start::Pending,
        }
    }

    /// The service's own properties were told at least once.
    pub(super) fn is_whole(&self) -> bool {
        !self.result.is_empty()
    }

    /// How the main process ended, if it has.
    pub(super) fn exit(&self) -> Option<WaitStatus> {
        const CORE_DUMPED: i32 = 0x80;
        match self.main_code {
            libc::CLD_EXITED => Some(WaitStatus::exited(self.main_status)),
            libc::CLD_KILLED => Some(WaitStatus::signaled(self.main_status)),
            libc::CLD_DUMPED => Some(WaitStatus(self.main_status & 0x7f | CORE_DUMPED)),
            // 0: it runs. Nothing else is reported for a main process.
            _ => None,
        }
    }

    /// It ended with a failure that systemd remembers.
    pub(super) fn is_failed(&self) -> bool {
        self.active == Active::Failed
    }

    /// No process of the unit is managed by systemd any more.
    pub(super) fn is_down(&self) -> bool {
        match self.active {
            Active::Failed => true,
            Active::Inactive => !self.job,
            Active::Activating | Active::Active | Active::Deactivating | Active::Unknown => false,
        }
    }
}

impl Active {
    fn parse(s: &str) -> Self {
        match s {
            "activating" => Active::Activating,
            // `reloading` and `maintenance` are not for units of ours; they are not down.
            "active" | "reloading" | "refreshing" => Active::Active,
            "deactivating" => Active::Deactivating,
            "failed" => Active::Failed,
            "inactive" => Active::Inactive,
            _ => Active::Unknown,
        }
    }
}

fn digest(field: &Variant<'_>) -> Option<String> {
    let Variant::Array(bytes) = field else { return None };
    let bytes = bytes.inner().iter().map(|byte| match byte {
        Variant::U8(byte) => Some(*byte),
        _ => None,
    });
    let field = String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()?;
    field.strip_prefix(DIGEST_FIELD).map(str::to_string)
}

fn hex(bytes: &zbus::Array<'_>) -> String {
    bytes
        .inner()
        .iter()
        .filter_map(|byte| match byte {
            Variant::U8(byte) => Some(format!("{byte:02x}")),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(properties: &[(&str, Variant<'static>)]) -> State {
        let mut state = State::default();
        state.apply(&properties.iter().cloned().collect());
        state
    }

    fn main(active: &'static str, code: i32, status: i32) -> State {
        state(&[
            ("ActiveState", active.into()),
            ("ExecMainPID", 7u32.into()),
            ("ExecMainCode", code.into()),
            ("ExecMainStatus", status.into()),
        ])
    }

    fn started() -> Start {
        Start::Started(Started { pid: 7, invocation_id: String::new() })
    }

    #[test]
    fn exec_failure_is_not_a_quick_exit() {
        assert_eq!(main("activating", 0, 0).start(false), Start::Pending);
        assert_eq!(main("activating", 0, 0).start(true), started(), "notify");
        assert_eq!(main("failed", 1, 203).start(false), Start::Failed(Some(203)));
        assert_eq!(main("failed", 1, 1).start(false), started(), "quick exit");
        let mut quick = main("failed", 1, 203);
        quick.was_active = true;
        assert_eq!(quick.start(false), started(), "the program's own 203");
        let unforked = state(&[("ActiveState", "failed".into())]);
        assert_eq!(unforked.start(false), Start::Failed(None));
        assert_eq!(main("active", 0, 0).start(false), started());
    }

    #[test]
    fn wait_statuses() {
        assert_eq!(main("active", 0, 0).exit(), None);
        assert_eq!(main("active", 1, 3).exit(), Some(WaitStatus::exited(3)));
        assert_eq!(main("failed", 2, 9).exit(), Some(WaitStatus::signaled(9)));
        assert_eq!(main("failed", 3, 11).exit(), Some(WaitStatus(0x8b)));
    }
}
