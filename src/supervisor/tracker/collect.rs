//! The removal of a unit, and when no process of it is left.

use crate::port::supervisor::UnitSpec;
use crate::proto::UnitName;

use super::super::backend::BackendEvent;
use super::Tracker;
use super::messages::{Call, CallAnswer, Refusal};
use super::units::{Phase, Watched};

/// How a unit goes: its processes, and what systemd keeps of it.
#[derive(Debug, Default)]
pub(super) struct Collection {
    pub(super) stage: CollectState,
    pub(super) check: EmptyCheck,
    /// The unit's cgroup, as the kernel has shown it. So it is empty when it is not there any more.
    pub(super) group: Option<String>,
    /// `Empty` was reported before systemd has removed the unit.
    pub(super) is_told_empty: bool,
    /// What is to be started under this name when systemd has removed the unit. Only what was told
    /// empty has a next one.
    pub(super) next: Option<Box<UnitSpec>>,
}

impl Collection {
    /// Note that the unit is to be removed.
    pub(super) fn want(&mut self) {
        if self.stage.is_unwanted() {
            self.stage = CollectState::Wanted;
        }
    }

    /// Calls may have been lost: what was told to systemd is told again when it has said how the unit
    /// is. That may have the status, and a unit that is held has to be asked about again.
    pub(super) fn begin_again(&mut self) {
        if !self.stage.is_unwanted() {
            self.stage = CollectState::Wanted;
        }
        if self.check == EmptyCheck::ReportAbsent || self.stage == CollectState::Held {
            self.check = EmptyCheck::No;
        }
    }

    /// systemd has replied to being told to remove it.
    fn set_reply(&mut self, reply: Reply) {
        let reset = matches!(self.stage, CollectState::Told { reset: true, .. });
        self.stage = CollectState::Told { reset, reply };
    }
}

/// How far the unit's removal is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum CollectState {
    /// Not wanted, but `Empty` is: systemd is to keep the unit.
    Held,
    /// Not wanted.
    #[default]
    No,
    /// Wanted, but systemd was not told yet.
    Wanted,
    /// systemd was told to stop it, or (`reset`) to forget its failure.
    Told { reset: bool, reply: Reply },
}

impl CollectState {
    /// systemd is not to remove the unit.
    pub(super) fn is_unwanted(self) -> bool {
        matches!(self, Self::Held | Self::No)
    }
}

/// What systemd has said to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reply {
    Accepted,
    Awaited,
    /// It is told again after a pause, or after the next list.
    Refused,
}

/// Why the kernel was asked whether the unit's cgroup is empty.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum EmptyCheck {
    /// To report `Empty` before systemd has removed the unit: the main process has exited.
    AtExit,
    /// To report `Empty`: systemd has removed the unit.
    ReportEmpty,
    /// To report `Absent`: the unit is down, and nobody knows how its main process ended.
    ReportAbsent,
    /// The kernel was not asked.
    #[default]
    No,
}

impl Watched {
    /// Nothing of it is left, and systemd is to remove it: `Empty` was reported, or an earlier life
    /// has seen its end.
    pub(super) fn is_being_removed(&self) -> bool {
        let is_over = matches!(self.phase, Phase::Exited | Phase::Finding);
        let was_over = is_over && !self.collection.stage.is_unwanted();
        self.collection.is_told_empty || was_over
    }

    /// The call that removes it.
    fn removal(&self, unit: &UnitName) -> Call {
        let unit = unit.clone();
        if self.state.is_failed() { Call::Reset(unit) } else { Call::Stop(unit) }
    }
}

impl Tracker {
    pub(super) fn step_collect(&mut self, unit: &UnitName) {
        let ready = self.is_ready();
        let Some(watched) = self.units.get_mut(unit) else { return };
        let failed = watched.state.is_failed();
        let was_told = match watched.collection.stage {
            CollectState::Held => return self.step_held(unit),
            CollectState::No | CollectState::Told { reply: Reply::Awaited, .. } => return,
            CollectState::Wanted => false,
            CollectState::Told { reset: false, .. } if failed => true,
            // What a script leaves behind is not ended.
            CollectState::Told { reply: Reply::Accepted, .. }
                if watched.state.is_down()
                    && (watched.collection.is_told_empty || unit.is_script()) =>
            {
                return self.report_empty(unit);
            }
            // systemd has finished with the unit, but its cgroup may have processes.
            CollectState::Told { reply: Reply::Accepted, .. } if watched.state.is_down() => {
                return self.ask_kernel(unit, EmptyCheck::ReportEmpty);
            }
            // systemd refuses to stop it, but its processes may end by themselves.
            CollectState::Told { reply: Reply::Refused, .. }
                if watched.is_given_up() && watched.phase == Phase::Exited =>
            {
                return self.ask_kernel(unit, EmptyCheck::ReportEmpty);
            }
            CollectState::Told { .. } => return,
        };
        if !ready {
            return;
        }
        watched.collection.stage = CollectState::Told { reset: failed, reply: Reply::Awaited };
        let removal = watched.removal(unit);
        let has_settled = watched.phase == Phase::Exited && watched.state.is_settled();
        let (is_told_empty, is_seen) =
            (watched.collection.is_told_empty, watched.collection.group.is_some());
        if has_settled && unit.is_script() {
            // What it leaves behind is not ended.
            self.tell_empty(unit);
        } else if has_settled && is_seen && !is_told_empty {
            self.ask_kernel(unit, EmptyCheck::AtExit);
        } else if !was_told {
            self.ask(Call::ControlGroup(unit.clone()));
        }
        self.ask(removal);
    }

    /// Have `Empty` reported for a unit that stays, unless somebody has stopped it.
    fn step_held(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.get(unit) else { return };
        let is_asked =
            watched.collection.is_told_empty || watched.collection.check != EmptyCheck::No;
        if is_asked || watched.phase != Phase::Exited {
            return;
        }
        // What a script leaves behind is not ended.
        match (watched.state.is_settled(), watched.state.is_down()) {
            (true, _) if unit.is_script() => self.tell_empty(unit),
            (true, _) => self.ask_kernel(unit, EmptyCheck::AtExit),
            (false, true) if unit.is_script() => self.report_empty(unit),
            (false, true) => self.ask_kernel(unit, EmptyCheck::ReportEmpty),
            (false, false) => {}
        }
    }

    /// Ask the kernel whether the unit's cgroup is empty.
    pub(super) fn ask_kernel(&mut self, unit: &UnitName, why: EmptyCheck) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        let group = watched.collection.group.as_ref().or(watched.state.control_group.as_ref());
        let Some(group) = group.cloned() else {
            return self.handle_refusal(unit, false);
        };
        watched.collection.check = why;
        let is_down = why != EmptyCheck::AtExit;
        self.ask(Call::IsEmpty { unit: unit.clone(), group, is_down });
    }

    /// Handle that the unit's cgroup has no process.
    pub(super) fn handle_emptied(&mut self, unit: &UnitName) {
        match self.units.get(unit).map(|watched| watched.collection.check) {
            Some(EmptyCheck::AtExit) => self.tell_empty(unit),
            Some(EmptyCheck::ReportEmpty) => self.report_empty(unit),
            Some(EmptyCheck::ReportAbsent) => {
                self.report_absent(unit);
                // Nobody will collect it.
                self.sweep(unit.clone());
            }
            Some(EmptyCheck::No) | None => {}
        }
    }

    /// Report that no process is left, before systemd has removed the unit.
    fn tell_empty(&mut self, unit: &UnitName) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        watched.collection.check = EmptyCheck::No;
        if !std::mem::replace(&mut watched.collection.is_told_empty, true) {
            self.events.push_back(BackendEvent::Empty(unit.clone()));
        }
    }

    /// systemd has removed the unit. Report that no process is left, if that was not said before.
    pub(super) fn report_empty(&mut self, unit: &UnitName) {
        self.tell_empty(unit);
        let old = self.units.get_mut(unit);
        let next = old
            .and_then(|old| Some((old.collection.next.take()?, std::mem::take(&mut old.signals))));
        self.release(unit);
        if self.slices.is_left(unit) {
            self.stop_slice(unit);
        }
        if let Some((spec, signals)) = next {
            self.start_unit(&spec);
            signals.into_iter().for_each(|(signal, all)| self.hold_signal(unit, signal, all));
        }
    }

    pub(super) fn handle_stop_answer(
        &mut self,
        unit: &UnitName,
        answer: Result<CallAnswer, Refusal>,
    ) {
        let Some(watched) = self.units.get_mut(unit) else { return };
        match answer {
            Ok(_) => {
                watched.collection.set_reply(Reply::Accepted);
                self.step(unit);
            }
            Err(e) if e.is_no_unit() => self.handle_absent(unit),
            Err(e) if e.is_absence() => {}
            Err(error) => {
                tracing::error!(%unit, %error, "systemd does not stop the unit");
                watched.collection.set_reply(Reply::Refused);
                self.handle_refusal(unit, error.is_quota());
            }
        }
    }
}
