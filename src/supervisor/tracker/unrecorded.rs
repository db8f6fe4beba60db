//! Units that systemd lists and that nobody has asked about: their records were lost.
//!
//! Each is looked at once, before anybody hears that the list is complete. systemd knows whose it is
//! and what became of it.

use super::super::backend::{BackendEvent, UnrecordedUnit};
use super::Tracker;
use super::state::{Outcome, UnitState};
use super::units::{Phase, Watched};
use crate::proto::UnitName;

impl Tracker {
    /// Look at the units of a new list that are not watched.
    pub(super) fn begin_probes(&mut self, units: Vec<UnitName>) {
        self.awaits_probes = true;
        for unit in units {
            self.drop_answers(&unit);
            self.units.insert(unit.clone(), Watched::to_probe());
            self.ask_properties(&unit);
        }
        self.report_listed();
    }

    /// The list is not to be trusted any more. Another one comes.
    pub(super) fn drop_probes(&mut self) {
        self.awaits_probes = false;
        for unit in self.probing().cloned().collect::<Vec<_>>() {
            self.units.remove(&unit);
            self.drop_answers(&unit);
        }
    }

    fn probing(&self) -> impl Iterator<Item = &UnitName> {
        let probing = self.units.iter().filter(|(_, watched)| watched.phase == Phase::Probing);
        probing.map(|(unit, _)| unit)
    }

    /// Tell of a unit that was looked at. While systemd reloads its answers mean nothing. It is
    /// asked for a list after that.
    pub(super) fn step_probe(&mut self, unit: &UnitName) {
        let is_ready = self.is_ready();
        let is_seen = |watched: &&mut Watched| is_ready && watched.is_answered();
        if let Some(watched) = self.units.get_mut(unit).filter(is_seen) {
            let state = std::mem::take(&mut watched.state);
            self.units.remove(unit);
            self.report_unrecorded(unit.clone(), state);
            self.report_listed();
        }
    }

    fn report_unrecorded(&mut self, unit: UnitName, state: UnitState) {
        let outcome = state.start_outcome(unit.is_multiuser());
        if let Outcome::Failed(Some(_)) = outcome {
            // Nothing of it has ever run.
            self.stop_slice(&unit);
            return self.sweep(unit);
        }
        let (Some(userid), Some(size), false) = (state.userid, state.size, state.digest.is_empty())
        else {
            if state.is_down() {
                self.stop_slice(&unit);
            } else {
                tracing::warn!(%unit, "this service has not started the unit: leaving it alone");
            }
            return self.sweep(unit);
        };
        let started = match outcome {
            Outcome::Started(started) if !started.invocation_id.is_empty() => Some(started),
            // What became of its start is found out when the unit is looked for.
            Outcome::Failed(_) | Outcome::Pending | Outcome::Started(_) => None,
        };
        let digest = state.digest.as_str().into();
        let found = UnrecordedUnit { unit, digest, userid, size, started };
        self.events.push_back(BackendEvent::Unrecorded(Box::new(found)));
    }

    /// Report that the list is complete, if it is.
    pub(super) fn report_listed(&mut self) {
        if self.is_ready() && self.awaits_probes && self.probing().next().is_none() {
            self.awaits_probes = false;
            self.events.push_back(BackendEvent::Listed);
        }
    }
}
