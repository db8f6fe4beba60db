//! The link to systemd: lost, found again, and what is asked then.

use std::collections::BTreeSet;

use crate::planted::Bug;
use crate::proto::UnitName;

use super::Tracker;
use super::messages::{Answer, Call, Refusal};
use super::units::{Phase, Watched};

/// The link to systemd, and what systemd is up to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Link {
    /// Connected, but nobody has systemd's name: it is being re-executed, or has died.
    Away,
    /// No connection.
    Down,
    /// Asked which units there are. Signals are applied, but nothing is started or stopped.
    Listing,
    /// All is known.
    Ready,
    /// It reads its configuration again, and takes its units apart for that.
    Reloading,
}

impl Tracker {
    /// There is a connection to a bus that systemd is on; it knows nothing of us.
    pub fn connected(&mut self) {
        self.lost();
        self.link = Link::Listing;
        self.ask(Call::WatchPresence);
        self.ask(Call::WatchReloading);
        for unit in self.units.keys().cloned().collect::<Vec<_>>() {
            self.ask(Call::Watch(unit));
        }
        if Bug::LostSignalAfterReconnect.is_planted() {
            self.ask(Call::Subscribe);
            self.link = Link::Ready;
            return self.start_next();
        }
        self.list();
    }

    /// The connection is gone, with all calls that were not answered.
    pub fn lost(&mut self) {
        self.link = Link::Down;
        self.watching_all = false;
        self.unanswered.clear();
        self.swept.clear();
        // What is not asked on a connection does not go with it.
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

    /// Ask which units there are. Subscribed first, so that what changes after the answer is
    /// signalled.
    fn list(&mut self) {
        self.link = Link::Listing;
        // An older answer would not have what was started since.
        self.unanswered.retain(|_, call| *call != Call::List);
        self.ask(Call::Subscribe);
        self.ask(Call::List);
    }

    pub(super) fn handle_list(&mut self, answer: Result<Answer, Refusal>) {
        // Asked for again when its name is back on the bus.
        if self.link != Link::Listing {
            return;
        }
        let names = match answer {
            Ok(Answer::Listed(names)) => names,
            Ok(other) => return self.handle_missing_list(&format!("{other:?}")),
            Err(e) => return self.handle_missing_list(&e.to_string()),
        };
        let present = self.watched_among(&names);
        self.link = Link::Ready;
        self.units.values_mut().for_each(Watched::reset_refusals);
        // What is absent can make room for a unit that waits: the list does not know of its start.
        let known = self.units.iter().filter(|(_, watched)| watched.phase != Phase::Queued);
        for unit in known.map(|(unit, _)| unit.clone()).collect::<Vec<_>>() {
            if present.contains(&unit) {
                self.ask_properties(&unit);
            } else {
                self.handle_absent(&unit);
            }
        }
        for (unit, signal, all) in std::mem::take(&mut self.held_signals) {
            self.ask(Call::Kill { unit, signal, all });
        }
        self.start_next();
    }

    /// The units among these that are watched.
    fn watched_among(&mut self, names: &[String]) -> BTreeSet<UnitName> {
        let mut present = BTreeSet::new();
        for name in names {
            match name.parse::<UnitName>() {
                Ok(unit) if self.units.contains_key(&unit) => {
                    present.insert(unit);
                }
                Ok(unit) => {
                    tracing::warn!(%unit, "without a record: forgotten if it has failed, else left");
                    self.sweep(unit);
                }
                Err(_) => tracing::warn!(unit = name, "not a name of ours, left alone"),
            }
        }
        present
    }

    /// Without a list nothing is known: try again from the beginning.
    fn handle_missing_list(&mut self, why: &str) {
        tracing::error!(why, "systemd does not list its units, connecting again");
        self.lost();
        self.ask(Call::Reconnect);
    }

    /// The bus refused to deliver a unit's signals. Quotas are meant for strangers: one broad rule
    /// instead of many narrow ones fits any.
    pub(super) fn handle_watch_refusal(&mut self, unit: &UnitName, refusal: &Refusal) {
        if self.watching_all {
            return;
        }
        tracing::warn!(%unit, %refusal, "match rule refused, watching all units of the user instead");
        self.watching_all = true;
        self.ask(Call::WatchAll);
        match self.link {
            // Signals may have been missed.
            Link::Listing | Link::Ready => self.list(),
            // Listed when it is back.
            Link::Away | Link::Down | Link::Reloading => {}
        }
    }

    /// Ask for everything about a unit. The unit interface comes last, as in signals.
    pub(super) fn ask_properties(&mut self, unit: &UnitName) {
        let ready = self.is_ready();
        let Some(watched) = self.units.get_mut(unit).filter(|_| ready) else { return };
        match watched.phase {
            Phase::Exited | Phase::Finding | Phase::Running | Phase::Starting => {}
            // The name is taken; the start will say so.
            Phase::Queued => return,
        }
        watched.expect_properties();
        self.drop_property_answers(unit);
        self.ask(Call::Service(unit.clone()));
        self.ask(Call::Unit(unit.clone()));
    }

    /// Answers to earlier questions of [`look`](Self::ask_properties) mean nothing any more.
    pub(super) fn drop_property_answers(&mut self, unit: &UnitName) {
        self.unanswered.retain(|_, call| match call {
            Call::Service(other) | Call::Unit(other) => other != unit,
            _ => true,
        });
    }
}
