//! Units that systemd lists and that nobody has asked about: their records were lost.
//!
//! Each is looked at once, before anybody hears that the list is complete. systemd knows whose it is
//! and what became of it.

use std::collections::BTreeMap;

use super::super::backend::{BackendEvent, UnrecordedUnit};
use super::Tracker;
use super::messages::{Answer, Call, Refusal};
use super::state::{Outcome, State};
use crate::proto::UnitName;

/// How often a refused look at one unit is repeated before the next list.
const REFUSALS_MAX: u32 = 8;

/// Units that are being looked at.
#[derive(Debug, Default)]
pub(super) struct Probes {
    units: BTreeMap<UnitName, Probe>,
    /// It was not reported yet that all were looked at.
    awaited: bool,
}

#[derive(Debug, Default)]
struct Probe {
    state: State,
    /// How often systemd has refused to tell about it.
    refusals: u32,
}

impl Tracker {
    /// Look at the units of a new list that are not watched.
    pub(super) fn begin_probes(&mut self, units: Vec<UnitName>) {
        self.probes.awaited = true;
        units.into_iter().for_each(|unit| self.probe(unit));
        self.report_listed();
    }

    /// The list is not to be trusted any more. Another one comes.
    pub(super) fn drop_probes(&mut self) {
        self.probes = Probes::default();
    }

    /// Somebody asks about the unit now.
    pub(super) fn drop_probe(&mut self, unit: &UnitName) {
        if self.probes.units.remove(unit).is_some() {
            self.drop_answers(unit);
            self.report_listed();
        }
    }

    /// Whether the answer to this call is about a unit that nobody has asked about.
    pub(super) fn is_probe(&self, call: &Call) -> bool {
        matches!(call, Call::Later(_) | Call::Service(_) | Call::Unit(_))
            && call.unit().is_some_and(|unit| self.probes.units.contains_key(unit))
    }

    fn probe(&mut self, unit: UnitName) {
        self.probes.units.entry(unit.clone()).or_default().state = State::default();
        self.drop_property_answers(&unit);
        self.ask(Call::Service(unit.clone()));
        self.ask(Call::Unit(unit));
    }

    pub(super) fn handle_probe_answer(&mut self, call: Call, answer: Result<Answer, Refusal>) {
        // While systemd reloads its answers mean nothing. It is asked for a list after that.
        if !self.is_ready() {
            return;
        }
        match (call, answer) {
            (Call::Later(unit), _) => self.probe(unit),
            (Call::Service(unit), Ok(Answer::Properties(changes))) => {
                if let Some(probe) = self.probes.units.get_mut(&unit) {
                    probe.state.apply(changes);
                }
            }
            (Call::Unit(unit), Ok(Answer::Properties(changes))) => {
                if let Some(mut probe) = self.probes.units.remove(&unit) {
                    probe.state.apply(changes);
                    self.report_unrecorded(unit, probe.state);
                }
            }
            (Call::Service(unit) | Call::Unit(unit), Err(refusal)) => {
                self.handle_probe_refusal(unit, &refusal);
            }
            _ => {}
        }
        self.report_listed();
    }

    fn handle_probe_refusal(&mut self, unit: UnitName, refusal: &Refusal) {
        self.drop_property_answers(&unit);
        if refusal.is_no_unit() {
            self.probes.units.remove(&unit);
        } else if let Some(probe) = self.probes.units.get_mut(&unit)
            // Otherwise there is a new list when systemd is back.
            && !refusal.is_absence()
        {
            probe.refusals += 1;
            if probe.refusals <= REFUSALS_MAX {
                return self.ask(Call::Later(unit));
            }
            self.probes.units.remove(&unit);
            tracing::error!(%unit, %refusal,
                "systemd does not tell about a unit without a record: leaving it alone until the next list");
        }
    }

    fn report_unrecorded(&mut self, unit: UnitName, state: State) {
        let outcome = state.start_outcome(unit.is_multiuser());
        if let Outcome::Failed(Some(_)) = outcome {
            // Nothing of it has ever run.
            return self.sweep(unit);
        }
        if state.digest.is_empty() {
            if !state.is_down() {
                tracing::warn!(%unit, "this service has not started the unit: leaving it alone");
            }
            return self.sweep(unit);
        }
        let started = match outcome {
            Outcome::Started(started) if !started.invocation_id.is_empty() => Some(started),
            // What became of its start is found out when the unit is looked for.
            Outcome::Failed(_) | Outcome::Pending | Outcome::Started(_) => None,
        };
        let State { digest, userid, size, .. } = state;
        let digest = digest.as_str().into();
        let found = UnrecordedUnit { unit, digest, userid, size, started };
        self.events.push_back(BackendEvent::Unrecorded(Box::new(found)));
    }

    /// Report that the list is complete, if it is.
    fn report_listed(&mut self) {
        if self.is_ready() && self.probes.units.is_empty() && self.probes.awaited {
            self.probes.awaited = false;
            self.events.push_back(BackendEvent::Listed);
        }
    }
}
