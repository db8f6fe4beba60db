//! Slices. Each shell's unit has one of its own, whose cgroup keeps the kernel's counters when the
//! unit has gone. systemd keeps a slice until it is told to stop it.

use std::collections::{BTreeMap, BTreeSet};

use super::Tracker;
use super::link::Link;
use super::messages::{Call, CallAnswer, Refusal};
use crate::port::supervisor::UnitSpec;
use crate::proto::{SliceName, UnitName};

/// How often systemd may refuse to stop slices in one life before they are left until the next. A quota
/// of the bus does not count.
const REFUSALS_MAX: u32 = 8;

/// The slices of this rank's units.
#[derive(Debug, Default)]
pub(super) struct Slices {
    known: BTreeMap<SliceName, Need>,
    refusals: u32,
}

/// Whether somebody may ask for a slice's counters.
#[derive(Debug)]
enum Need {
    /// Nobody does, and no process is left. systemd has not said that it has stopped it.
    Over,
    /// Nobody asks for it, and its unit is there.
    Seen(String),
    /// The name that systemd has for it, as far as it is known.
    Wanted(Option<String>),
}

impl Slices {
    /// The unit is to be started in its slice.
    pub(super) fn start(&mut self, spec: &UnitSpec) {
        if spec.measured {
            let slice = SliceName::new(&spec.unit, spec.digest.as_str());
            let name = slice.under(spec.parent_slice());
            self.known.insert(slice, Need::Wanted(Some(name)));
        }
    }

    /// Those of one unit: of this job, and perhaps of earlier ones with its name.
    fn of_unit(&self, unit: &UnitName) -> Vec<SliceName> {
        let from = self.known.range(SliceName::new(unit, "")..);
        from.map(|(slice, _)| slice).take_while(|slice| slice.unit() == unit).cloned().collect()
    }

    /// Nobody asks for the unit's any more. Something of the unit is left.
    pub(super) fn leave(&mut self, unit: &UnitName) {
        for slice in self.of_unit(unit) {
            if let Some(need) = self.known.get_mut(&slice)
                && let Need::Wanted(Some(name)) = need
            {
                *need = Need::Seen(std::mem::take(name));
            }
        }
    }

    /// Nobody asks for the unit's.
    pub(super) fn is_left(&self, unit: &UnitName) -> bool {
        self.of_unit(unit).iter().any(|slice| matches!(self.known[slice], Need::Seen(_)))
    }

    /// systemd has not said of one that it has stopped it, and it was asked to, or will be.
    pub(super) fn is_stopping(&self) -> bool {
        self.known.values().any(|need| matches!(need, Need::Over))
    }

    /// An earlier life may have started it.
    pub(super) fn find(&mut self, unit: &UnitName, digest: &str) {
        if !unit.is_script() {
            let need = self.known.entry(SliceName::new(unit, digest)).or_insert(Need::Wanted(None));
            if let Need::Seen(name) = need {
                *need = Need::Wanted(Some(std::mem::take(name)));
            }
        }
    }
}

impl Tracker {
    /// Have the slice of a unit stopped. What is not known by name, or does not get through, the next
    /// list has.
    pub(super) fn stop_slice(&mut self, unit: &UnitName) {
        let is_ready = self.link == Link::Ready;
        for slice in self.slices.of_unit(unit) {
            let name = match self.slices.known.insert(slice.clone(), Need::Over) {
                Some(Need::Seen(name) | Need::Wanted(Some(name))) => name,
                // The list has come, and did not have it.
                Some(Need::Wanted(None)) if is_ready => {
                    self.slices.known.remove(&slice);
                    continue;
                }
                Some(Need::Over | Need::Wanted(None)) | None => continue,
            };
            if is_ready {
                self.ask(Call::StopSlice(name));
            }
        }
    }

    /// Have slices in a list stopped that nobody wants. That of a unit which is there would take the
    /// unit with it, and goes when the unit has gone.
    pub(super) fn stop_slices(&mut self, listed: &[String]) {
        let mut present = BTreeSet::new();
        for name in listed {
            let Some(slice) = SliceName::parse(name) else { continue };
            let has_unit = || listed.contains(&slice.unit().to_string());
            match self.slices.known.get_mut(&slice) {
                Some(Need::Wanted(known)) => *known = Some(name.clone()),
                Some(Need::Over) => self.ask(Call::StopSlice(name.clone())),
                Some(Need::Seen(_)) | None if has_unit() => {
                    self.slices.known.insert(slice.clone(), Need::Seen(name.clone()));
                }
                Some(Need::Seen(_)) | None if self.spared.contains(slice.unit()) => {}
                Some(Need::Seen(_)) | None => {
                    self.slices.known.remove(&slice);
                    self.ask(Call::StopSlice(name.clone()));
                }
            }
            present.insert(slice);
        }
        let is_left = |slice: &SliceName, need: &Need| match need {
            Need::Over | Need::Seen(_) => present.contains(slice),
            Need::Wanted(_) => true,
        };
        self.slices.known.retain(|slice, need| is_left(slice, need));
    }

    /// The pause before a slice is stopped again is over.
    pub(super) fn stop_slice_again(&mut self, name: String) {
        if self.link == Link::Ready
            && let Some(slice) = SliceName::parse(&name)
            && !matches!(self.slices.known.get(&slice), Some(Need::Wanted(_)))
        {
            self.ask(Call::StopSlice(name));
        }
    }

    pub(super) fn handle_slice_answer(&mut self, name: &str, answer: Result<CallAnswer, Refusal>) {
        match answer {
            Err(refusal) if refusal.is_absence() => {}
            Err(refusal) if !refusal.is_no_unit() => {
                tracing::warn!(slice = name, %refusal, "systemd does not stop a slice");
                self.slices.refusals += u32::from(!refusal.is_quota());
                if refusal.is_quota() || self.slices.refusals <= REFUSALS_MAX {
                    self.ask(Call::LaterSlice(name.to_string()));
                }
            }
            Ok(_) | Err(_) => {
                if let Some(slice) = SliceName::parse(name)
                    && matches!(self.slices.known.get(&slice), Some(Need::Over))
                {
                    self.slices.known.remove(&slice);
                }
            }
        }
    }
}
