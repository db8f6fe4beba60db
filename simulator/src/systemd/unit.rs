//! The states of a unit, from its start job to its removal.

use std::time::Duration;

use job_exec_rs::port::supervisor::UnitSpec;
use job_exec_rs::proto::{UnitName, WaitStatus};
use job_exec_rs::supervisor::tracker::{Active, Changes, News};

use super::{Act, Happened, SimSystemd, Slice, slice_of};

/// Time after which an alarm goes off again, if systemd was away.
const PATIENCE_AGAIN: Duration = Duration::from_secs(1);

/// The state of a unit, as systemd sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// Inactive, but a process is left in its cgroup.
    Dead,
    /// Exited with success. The unit stays.
    Exited,
    /// Failed. The unit stays.
    Failed,
    /// Its start job is queued.
    Queued,
    /// Its program was executed.
    Running,
    /// Its process exists, but has not executed the program yet.
    Starting,
    /// Being stopped, until no process is left.
    Stopping,
}

/// A unit that systemd has, and its processes.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) spec: UnitSpec,
    invocation_id: String,
    stage: Stage,
    was_active: bool,
    /// Whether the program was executed, even if systemd does not know it.
    executed: bool,
    main_pid: u32,
    status: Option<WaitStatus>,
    /// `Result`.
    result: &'static str,
    /// The number of the alarm that ends its stop timeout.
    alarm: u64,
    /// Whether the main process lives.
    main: bool,
    /// Whether another process lives.
    rest: bool,
}

impl Unit {
    /// Whether it has a process.
    pub(super) fn lives(&self) -> bool {
        self.main || self.rest
    }

    pub(super) fn has_main(&self) -> bool {
        self.main
    }

    pub(super) fn can_get_signal(&self, all: bool) -> bool {
        self.main || (all && self.rest)
    }

    /// systemd ends its main process alone (`KillMode=process`), and not by SIGKILL.
    fn is_spared(&self) -> bool {
        self.spec.multiuser || self.spec.unit.is_script()
    }

    /// Its cgroup. The path is empty before the start, and when the unit is down and no process is
    /// left, because systemd then removes the cgroup.
    pub(super) fn control_group(&self, unit: &UnitName) -> String {
        match self.stage {
            Stage::Queued => String::new(),
            Stage::Dead | Stage::Failed if !self.lives() => String::new(),
            _ => format!("/sim/{unit}"),
        }
    }

    /// All properties.
    pub(super) fn properties(&self, unit: &UnitName) -> Changes {
        let digest = Some(self.spec.digest.as_str().to_string());
        Changes {
            digest,
            userid: Some(self.spec.userid),
            size: Some(self.spec.size),
            control_group: Some(self.control_group(unit)),
            ..self.signalled_properties()
        }
    }

    /// The properties that D-Bus signals carry.
    fn signalled_properties(&self) -> Changes {
        let (code, status) = match self.status {
            None => (0, 0),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => (libc::CLD_EXITED, code),
                (None, signal) => (libc::CLD_KILLED, signal.unwrap_or(0)),
            },
        };
        Changes {
            active: Some(match self.stage {
                Stage::Dead | Stage::Queued => Active::Inactive,
                Stage::Exited | Stage::Running => Active::Active,
                Stage::Failed => Active::Failed,
                Stage::Starting => Active::Activating,
                Stage::Stopping => Active::Deactivating,
            }),
            was_active: Some(self.was_active),
            job: Some(matches!(self.stage, Stage::Queued | Stage::Starting)),
            invocation_id: Some(self.invocation_id.clone()),
            main_pid: Some(self.main_pid),
            main_code: Some(code),
            main_status: Some(status),
            result: Some(self.result.to_string()),
            digest: None,
            userid: None,
            size: None,
            control_group: None,
        }
    }
}

/// Whether systemd counts this as success. A `Type=exec` service that ends by one of these signals
/// is a success (systemd.service(5), `SuccessExitStatus`).
fn is_clean(status: WaitStatus) -> bool {
    let clean = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGPIPE];
    status.code() == Some(0) || status.signal().is_some_and(|signal| clean.contains(&signal))
}

/// What happens to processes.
impl SimSystemd {
    /// The start job runs: the main process exists, and is about to execute the program.
    /// `handle_executed`, `handle_exec_failed` or `handle_exited` follows.
    pub(crate) fn handle_forked(&mut self, unit: &UnitName) {
        if self.away {
            return self.lose_job(unit);
        }
        let pid = self.next_number();
        let Some(known) = self.queued(unit) else { return };
        known.main_pid = u32::try_from(pid).unwrap_or(u32::MAX);
        known.main = true;
        known.stage = Stage::Starting;
        let (spec, number) =
            (known.spec.clone(), u64::from_str_radix(&known.invocation_id, 16).ok());
        if let Some(slice) = self.slices.lock().get_mut(&slice_of(&spec)) {
            slice.memory = number;
        }
        self.note_change(unit);
    }

    /// The start job is lost. This was seen when systemd reloads, or is executed again, while the
    /// job is queued.
    pub(crate) fn lose_job(&mut self, unit: &UnitName) {
        if let Some(known) = self.queued(unit) {
            known.stage = Stage::Dead;
            self.note_change(unit);
        }
    }

    /// The program was executed.
    pub(crate) fn handle_executed(&mut self, unit: &UnitName) {
        if self.starting(unit).is_some() {
            self.count_execution(unit);
            self.see_or_queue(unit, Happened::Executed);
        }
    }

    /// The program of a `Type=notify` unit reports that it is ready.
    pub(crate) fn handle_ready(&mut self, unit: &UnitName) {
        if self.units.get(unit).is_some_and(|known| known.main && known.executed) {
            self.see_or_queue(unit, Happened::Ready);
        }
    }

    /// The program could not be executed. `code` is systemd's exit code for the reason, 200 to 245.
    pub(crate) fn handle_exec_failed(&mut self, unit: &UnitName, code: i32) {
        if let Some(known) = self.starting(unit) {
            known.main = false;
            self.see_or_queue(unit, Happened::ExecFailed(code));
            self.tell_if_empty(unit);
        }
    }

    /// The main process has ended. `populated` tells whether other processes are left. If
    /// `handle_executed` was not called before, the process has executed the program and ended
    /// before systemd saw the execution.
    pub(crate) fn handle_exited(&mut self, unit: &UnitName, status: WaitStatus, populated: bool) {
        let Some(known) = self.units.get_mut(unit).filter(|known| known.main) else { return };
        known.main = false;
        known.rest = populated;
        if known.stage == Stage::Starting && !known.executed {
            self.count_execution(unit);
        }
        self.see_or_queue(unit, Happened::Exited(status));
        self.tell_if_empty(unit);
    }

    /// The processes that the main process left behind have ended.
    pub(crate) fn handle_emptied(&mut self, unit: &UnitName) {
        let Some(known) = self.units.get_mut(unit).filter(|known| known.rest) else { return };
        known.rest = false;
        self.see_or_queue(unit, Happened::Emptied);
        self.tell_if_empty(unit);
    }

    /// An [`Act::Alarm`] goes off: the stop timeout of a unit is over.
    pub(crate) fn handle_alarm(&mut self, unit: &UnitName, number: u64) {
        let Some(known) = self.units.get_mut(unit) else { return };
        if known.stage != Stage::Stopping || known.alarm != number {
            return;
        }
        if self.away {
            // The timers of a systemd that is away do not fire.
            let after = PATIENCE_AGAIN;
            return self.acts.push(Act::Alarm { unit: unit.clone(), number, after });
        }
        known.result = "timeout";
        if known.is_spared() {
            // `SendSIGKILL=no`: the processes stay.
            return self.set_down(unit);
        }
        self.acts.push(Act::Signal { unit: unit.clone(), signal: libc::SIGKILL, all: true });
    }

    fn queued(&mut self, unit: &UnitName) -> Option<&mut Unit> {
        self.units.get_mut(unit).filter(|known| known.stage == Stage::Queued)
    }

    /// Whether the unit's process is about to execute the program.
    pub(crate) fn is_starting(&mut self, unit: &UnitName) -> bool {
        self.starting(unit).is_some()
    }

    /// The unit, if its process has not executed the program yet.
    fn starting(&mut self, unit: &UnitName) -> Option<&mut Unit> {
        let unseen = self.unseen.iter().any(|(name, _)| name == unit);
        let known = self.units.get_mut(unit)?;
        (!known.executed && known.main && !unseen).then_some(known)
    }

    fn count_execution(&mut self, unit: &UnitName) {
        if let Some(known) = self.units.get_mut(unit) {
            known.executed = true;
        }
        *self.executions.entry(unit.clone()).or_default() += 1;
    }

    fn see_or_queue(&mut self, unit: &UnitName, happened: Happened) {
        if self.away {
            self.unseen.push((unit.clone(), happened));
        } else {
            self.see(unit, happened);
        }
    }

    /// The kernel tells connections that wait for the cgroup if it is empty, even if systemd is
    /// away.
    fn tell_if_empty(&mut self, unit: &UnitName) {
        if self.lives(unit) {
            return;
        }
        let waits = std::mem::take(&mut self.waits);
        for (connection, waiting) in waits {
            if waiting == *unit {
                self.tell(connection, News::Emptied { unit: waiting });
            } else {
                self.waits.insert((connection, waiting));
            }
        }
    }
}

/// What oracles ask.
impl SimSystemd {
    /// Whether a process of the unit is left.
    pub(crate) fn lives(&self, unit: &UnitName) -> bool {
        self.units.get(unit).is_some_and(Unit::lives)
    }

    /// Whether systemd has the unit, in any state.
    #[cfg(test)]
    pub(crate) fn has(&self, unit: &UnitName) -> bool {
        self.units.contains_key(unit)
    }

    /// Which start of this name it is. Each start has an id of its own.
    pub(crate) fn invocation_id(&self, unit: &UnitName) -> Option<&str> {
        self.units.get(unit).map(|known| known.invocation_id.as_str())
    }

    /// The digest of the job that the unit was started for.
    pub(crate) fn digest(&self, unit: &UnitName) -> Option<&str> {
        self.units.get(unit).map(|known| known.spec.digest.as_str())
    }

    /// What the unit's shell connects to.
    pub(crate) fn uri(&self, unit: &UnitName) -> Option<&str> {
        let environment = &self.units.get(unit)?.spec.environment;
        environment.get("FLUX_URI").map(String::as_str)
    }

    /// How often a program was executed under this name, over all boots.
    pub(crate) fn executions(&self, unit: &UnitName) -> u32 {
        self.executions.get(unit).copied().unwrap_or(0)
    }

    /// The units that systemd has.
    pub(crate) fn units(&self) -> impl Iterator<Item = &UnitName> {
        self.units.keys()
    }
}

/// What systemd does with units.
impl SimSystemd {
    pub(super) fn start(&mut self, spec: &UnitSpec) {
        let unit = spec.unit.clone();
        let number = self.next_number();
        if spec.measured {
            // The kernel counts processes, and there is none yet.
            let slice = Slice { memory: Some(0), ..Slice::default() };
            self.slices.lock().insert(slice_of(spec), slice);
        }
        let known = Unit {
            spec: spec.clone(),
            invocation_id: format!("{number:032x}"),
            stage: Stage::Queued,
            was_active: false,
            executed: false,
            main_pid: 0,
            status: None,
            result: "success",
            alarm: 0,
            main: false,
            rest: false,
        };
        self.units.insert(unit.clone(), known);
        self.note_change(&unit);
        self.acts.push(Act::Run(unit));
    }

    pub(super) fn reset(&mut self, unit: &UnitName) {
        let failed = self.units.get_mut(unit).filter(|known| known.stage == Stage::Failed);
        if let Some(known) = failed {
            known.stage = Stage::Dead;
            known.result = "success";
            self.note_change(unit);
        }
    }

    pub(super) fn stop(&mut self, unit: &UnitName) {
        let Some(known) = self.units.get(unit) else { return };
        match known.stage {
            Stage::Dead | Stage::Failed | Stage::Stopping => {}
            Stage::Queued | Stage::Exited | Stage::Running | Stage::Starting => {
                self.begin_stop(unit)
            }
        }
    }

    pub(super) fn see(&mut self, unit: &UnitName, happened: Happened) {
        let Some(known) = self.units.get_mut(unit) else { return };
        if matches!(known.stage, Stage::Dead | Stage::Failed) {
            // systemd does not look at the processes of such a unit any more, only at its cgroup.
            return self.remove_if_done(unit);
        }
        match happened {
            Happened::Emptied => match known.stage {
                Stage::Stopping if !known.main => self.set_down(unit),
                _ => self.remove_if_done(unit),
            },
            Happened::Executed | Happened::Ready => {
                // A `Type=notify` unit is ready when its main process says so. Others are ready
                // when the program was executed.
                let notifies = matches!(happened, Happened::Ready);
                if known.stage == Stage::Starting && known.spec.multiuser == notifies {
                    known.stage = Stage::Running;
                    known.was_active = true;
                    self.note_change(unit);
                }
            }
            Happened::ExecFailed(code) => {
                known.status = Some(WaitStatus::exited(code));
                known.result = "exit-code";
                self.set_down(unit);
            }
            Happened::Exited(status) => self.see_exit(unit, status),
        }
    }

    fn see_exit(&mut self, unit: &UnitName, status: WaitStatus) {
        let Some(known) = self.units.get_mut(unit) else { return };
        known.status = Some(status);
        // The IMP has said before that it is stopping.
        let remains = known.stage != Stage::Stopping && !known.spec.multiuser;
        if is_clean(status) && remains {
            known.stage = Stage::Exited;
            known.was_active = true;
            return self.note_change(unit);
        }
        if !is_clean(status) && known.result == "success" {
            known.result = if status.code().is_some() { "exit-code" } else { "signal" };
        }
        self.begin_stop(unit);
    }

    /// Begins to end all processes of the unit. Multi-user units and scripts have `KillMode=process`: only
    /// their main process gets a signal.
    fn begin_stop(&mut self, unit: &UnitName) {
        let Some(known) = self.units.get_mut(unit) else { return };
        let is_spared = known.is_spared();
        if !known.can_get_signal(!is_spared) {
            return self.set_down(unit);
        }
        let again = known.stage == Stage::Stopping;
        known.stage = Stage::Stopping;
        self.note_change(unit);
        let signal = libc::SIGTERM;
        self.acts.push(Act::Signal { unit: unit.clone(), signal, all: !is_spared });
        if !again {
            self.arm(unit);
        }
    }

    fn arm(&mut self, unit: &UnitName) {
        let number = self.next_number();
        let Some(known) = self.units.get_mut(unit) else { return };
        known.alarm = number;
        if let Some(after) = known.spec.stop_timeout {
            self.acts.push(Act::Alarm { unit: unit.clone(), number, after });
        }
    }

    fn set_down(&mut self, unit: &UnitName) {
        let Some(known) = self.units.get_mut(unit) else { return };
        known.stage = if known.result == "success" { Stage::Dead } else { Stage::Failed };
        self.note_change(unit);
    }

    fn note_change(&mut self, unit: &UnitName) {
        self.changed.insert(unit.clone());
        if !self.slow {
            self.send_signals();
        }
        self.remove_if_done(unit);
    }

    /// Sends signals about units that have changed, with the properties that they have now.
    pub(crate) fn send_signals(&mut self) {
        for unit in std::mem::take(&mut self.changed) {
            if let Some(changes) = self.units.get(&unit).map(Unit::signalled_properties) {
                self.tell_changed(&unit, &changes);
            }
        }
    }

    /// Whether signals are to be sent.
    pub(crate) fn has_signals(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Removes the unit if it is down and has no process. One that has failed is remembered.
    fn remove_if_done(&mut self, unit: &UnitName) {
        let Some(known) = self.units.get(unit) else { return };
        if matches!(known.stage, Stage::Dead) && !known.lives() {
            self.send_signals();
            self.units.remove(unit);
        }
    }
}
