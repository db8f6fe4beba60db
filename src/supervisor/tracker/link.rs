//! The link to systemd: how it is lost and found again, and what is asked then.

use std::collections::BTreeSet;

use crate::proto::UnitName;

use super::Tracker;
use super::messages::{Call, CallAnswer, Refusal};
use super::units::{Phase, Watched};

/// The state of the link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Link {
    /// Connected to the bus, but systemd is not on it: it is being re-executed, or has died.
    Away,
    /// No connection.
    Down,
    /// systemd was asked for its units. Signals are applied, but nothing is started or stopped.
    Listing,
    /// systemd has listed its units.
    Ready,
    /// systemd reloads its configuration. It drops its units and loads them again.
    Reloading,
}

/// Of which units the bus delivers signals.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Hearing {
    /// Of all units of the user: it has refused a rule for one.
    All,
    /// Of each that is watched, by a rule of its own.
    Each,
    /// Of none: it has refused that as well. Units are listed at intervals.
    Nothing,
}

impl Tracker {
    /// Handle a new connection to a bus that systemd is on.
    pub fn handle_connected(&mut self) {
        self.handle_lost();
        self.link = Link::Listing;
        self.ask(Call::WatchPresence);
        self.ask(Call::WatchReloading);
        for unit in self.units.keys().cloned().collect::<Vec<_>>() {
            self.ask(Call::Watch(unit));
        }
        self.list();
    }

    /// Handle the loss of the connection. Calls that were not answered never will be.
    pub fn handle_lost(&mut self) {
        self.link = Link::Down;
        self.hearing = Hearing::Each;
        self.delayed = None;
        for call in std::mem::take(&mut self.unanswered).into_values() {
            if let Call::Kill { unit, signal, all } = call {
                self.hold_signal(&unit, signal, all);
            }
        }
        self.swept.clear();
        self.drop_probes();
        // Calls that do not need a connection stay.
        self.outgoing.retain(|ask| !ask.call.is_answered() && ask.call != Call::Reconnect);
    }

    pub(super) fn is_up(&self) -> bool {
        self.link != Link::Down
    }

    pub(super) fn handle_manager_away(&mut self) {
        tracing::warn!("systemd left the user bus");
        self.link = Link::Away;
    }

    pub(super) fn handle_manager_back(&mut self) {
        tracing::info!("systemd is back on the user bus");
        self.list();
    }

    pub(super) fn handle_reloading(&mut self, begins: bool) {
        tracing::debug!(begins, "systemd reloads");
        if begins {
            self.link = Link::Reloading;
        } else {
            self.list();
        }
    }

    /// Ask for the list of units. The subscription comes first, so that later changes are
    /// signalled.
    fn list(&mut self) {
        self.link = Link::Listing;
        self.drop_probes();
        // An answer to an earlier call would not have the units that were started since.
        self.unanswered.retain(|_, call| *call != Call::List);
        self.ask(Call::Manager);
        self.ask(Call::Subscribe);
        self.ask(Call::List);
    }

    pub(super) fn handle_list(&mut self, answer: Result<CallAnswer, Refusal>) {
        // The list is asked for again when systemd is back on the bus.
        if self.link != Link::Listing {
            return;
        }
        let names = match answer {
            Ok(CallAnswer::Listed(names)) => names,
            Ok(other) => return self.handle_missing_list(&format!("{other:?}")),
            Err(refusal) if refusal.is_quota() => {
                tracing::warn!(%refusal, "list of units refused, trying again");
                return self.pause_list();
            }
            Err(e) => return self.handle_missing_list(&e.to_string()),
        };
        let (present, others) = self.watched_among(&names);
        self.link = Link::Ready;
        self.end_silence();
        self.units.values_mut().for_each(Watched::reset_refusals);
        // Handling an absent unit can start one that waits. The list cannot have that one.
        let known = self.units.iter().filter(|(_, watched)| watched.phase != Phase::Queued);
        for unit in known.map(|(unit, _)| unit.clone()).collect::<Vec<_>>() {
            if present.contains(&unit) {
                self.ask_properties(&unit);
            } else {
                self.handle_absent(&unit);
            }
        }
        for unit in self.units.keys().cloned().collect::<Vec<_>>() {
            self.send_signals(&unit);
        }
        self.stop_slices(&names);
        self.begin_probes(others);
        self.start_next();
        self.list_at_intervals();
    }

    /// List units again after a pause, if that is the only way to hear of them.
    pub(super) fn list_at_intervals(&mut self) {
        if self.hearing == Hearing::Nothing && self.is_ready() && !self.units.is_empty() {
            self.pause_list();
        }
    }

    fn pause_list(&mut self) {
        if !self.unanswered.values().any(|call| *call == Call::LaterList) {
            self.ask(Call::LaterList);
        }
    }

    /// The pause before another list is over.
    pub(super) fn handle_list_due(&mut self) {
        match self.link {
            Link::Listing | Link::Ready => self.list(),
            // The list is asked for when systemd is back.
            Link::Away | Link::Down | Link::Reloading => {}
        }
    }

    /// The units among these names that are watched, and the others of ours.
    fn watched_among(&self, names: &[String]) -> (BTreeSet<UnitName>, Vec<UnitName>) {
        let (mut present, mut others) = (BTreeSet::new(), Vec::new());
        for name in names {
            match name.parse::<UnitName>() {
                Ok(unit) if self.units.contains_key(&unit) => {
                    present.insert(unit);
                }
                // Its status may be nowhere else.
                Ok(unit) if self.spared.contains(&unit) => (),
                Ok(unit) => others.push(unit),
                Err(_) if name.ends_with(".slice") => (),
                Err(_) => {
                    tracing::warn!(unit = name, "not one of our unit names, leaving it alone")
                }
            }
        }
        (present, others)
    }

    /// The list means nothing without an answer to what was asked before it.
    pub(super) fn drop_list(&mut self, refusal: Refusal) {
        self.unanswered.retain(|_, call| *call != Call::List);
        self.handle_list(Err(refusal));
    }

    /// Nothing is known without a list, so connect again.
    fn handle_missing_list(&mut self, why: &str) {
        tracing::error!(why, "systemd does not list its units, connecting again");
        self.handle_lost();
        self.ask(Call::Reconnect);
    }

    /// Handle that the bus refuses a rule for one unit, because of its quota of rules. One rule for
    /// all units takes the place of the many.
    pub(super) fn handle_watch_refusal(&mut self, unit: &UnitName, refusal: &Refusal) {
        if self.hearing != Hearing::Each {
            return;
        }
        tracing::warn!(%unit, %refusal, "match rule refused, watching all units of the user instead");
        self.hearing = Hearing::All;
        self.ask(Call::WatchAll);
        match self.link {
            // Signals may have been missed.
            Link::Listing | Link::Ready => self.list(),
            // The list is asked for when systemd is back.
            Link::Away | Link::Down | Link::Reloading => {}
        }
    }

    /// Handle that the bus refuses a rule that no other can take the place of. Nothing is heard of
    /// units then, or not that systemd has gone or reloads. So they are listed at intervals.
    pub(super) fn handle_deafness(&mut self, refusal: &Refusal) {
        if self.hearing == Hearing::Nothing {
            return;
        }
        tracing::error!(%refusal, "units cannot be watched, listing them again and again");
        self.hearing = Hearing::Nothing;
        self.list_at_intervals();
    }

    /// Ask for all properties of a unit. The unit interface comes last, as in signals.
    pub(super) fn ask_properties(&mut self, unit: &UnitName) {
        let ready = self.is_ready();
        let Some(watched) = self.units.get_mut(unit).filter(|_| ready) else { return };
        match watched.phase {
            Phase::Exited | Phase::Finding | Phase::Probing | Phase::Running | Phase::Starting => {}
            // It was not started yet. If its name is taken, the start will say so.
            Phase::Queued => return,
        }
        watched.expect_properties();
        self.drop_property_answers(unit);
        self.ask(Call::Service(unit.clone()));
        self.ask(Call::Unit(unit.clone()));
    }

    /// Ignore answers to earlier calls of [`ask_properties`](Self::ask_properties).
    pub(super) fn drop_property_answers(&mut self, unit: &UnitName) {
        self.unanswered.retain(|_, call| match call {
            Call::Service(other) | Call::Unit(other) => other != unit,
            _ => true,
        });
    }
}
