//! Units that their main process can leave.
//!
//! Under the IMP a login (PAM) can move the main process, and all that it starts later, into
//! another cgroup. An empty cgroup then says nothing about the job's processes.

use super::super::backend::BackendEvent;
use super::Tracker;
use super::messages::{Call, CallAnswer, Refusal};
use super::units::Phase;
use crate::proto::UnitName;

/// Whether it would be noticed that the main process leaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Guard {
    /// There is a pidfd of the process, and systemd was asked whether it is the main process.
    Asked,
    /// It has left, and `Left` was reported.
    Left,
    /// Not at all.
    No,
    /// Yes: the kernel tells.
    Set,
}

impl Guard {
    /// Whether there is a pidfd of the main process.
    pub(super) fn is_set(self) -> bool {
        matches!(self, Self::Left | Self::Set)
    }
}

impl Tracker {
    /// Guard a multiuser unit that runs.
    pub(super) fn guard(&mut self, unit: &UnitName) {
        let ready = self.is_ready() && unit.is_multiuser();
        let Some(watched) = self.units.get_mut(unit).filter(|_| ready) else { return };
        let started = watched.state.started().filter(|_| watched.guard == Guard::No);
        if let Some(started) = started {
            watched.guard = Guard::Asked;
            self.ask(Call::Main { unit: unit.clone(), pid: started.pid });
        }
    }

    /// If systemd still has this main process, the pidfd is the right one: systemd had not reaped
    /// the process before, so its pid could not be reused.
    pub(super) fn handle_main_answer(
        &mut self,
        unit: &UnitName,
        pid: u32,
        answer: Result<CallAnswer, Refusal>,
    ) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        match answer {
            Ok(CallAnswer::Properties(told)) => {
                let runs = told.main_pid == Some(pid) && told.main_code == Some(0);
                let group = told.control_group.filter(|group| runs && !group.is_empty());
                if let Some(group) = group.filter(|_| watched.phase == Phase::Running) {
                    watched.guard = Guard::Set;
                    watched.state.control_group = Some(group.clone());
                    self.ask(Call::Guard { unit: unit.clone(), group });
                }
            }
            // The properties are asked for when systemd is back. An absent unit is handled there.
            Err(error) if error.is_absence() || error.is_no_unit() => {}
            other => {
                tracing::warn!(%unit, ?other, "systemd does not tell the main process");
                self.handle_refusal(unit, other.is_err_and(|error| error.is_quota()));
            }
        }
    }

    /// Handle that the main process lives outside of the unit.
    pub(super) fn handle_left(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        if watched.guard == Guard::Set {
            watched.guard = Guard::Left;
            self.events.push_back(BackendEvent::Left(unit.clone()));
        }
    }
}
