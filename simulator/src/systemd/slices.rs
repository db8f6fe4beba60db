//! Slices of shells' units: what the kernel counts for each, until systemd stops it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use job_exec_rs::port::supervisor::UnitSpec;
use job_exec_rs::proto::{SliceName, UnitName, Usage};

use super::{SimSystemd, Unit};

/// What was counted for one slice.
#[derive(Debug, Default)]
pub(super) struct Slice {
    /// A number that no other execution has.
    pub(super) memory: Option<u64>,
    /// How many processes were killed because memory was short, and whether its own limit was why.
    pub(super) oom: (u64, bool),
    /// It has a process.
    pub(super) lives: bool,
}

/// All slices of a rank, by their full names. The kernel shows them also while systemd is away.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slices(Arc<Mutex<BTreeMap<String, Slice>>>);

/// The slice that this unit is started in.
pub(super) fn slice_of(spec: &UnitSpec) -> String {
    SliceName::new(&spec.unit, spec.digest.as_str()).under(spec.parent_slice())
}

impl Slices {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Slice>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the adapter reads.
    pub(crate) fn usage(&self, spec: &UnitSpec) -> Option<Usage> {
        let slices = self.lock();
        let slice = slices.get(&slice_of(spec)).filter(|slice| spec.measured && !slice.lives)?;
        let (oom_kills, at_own_limit) = (Some(slice.oom.0), slice.oom.1);
        Some(Usage { memory: slice.memory, oom_kills, at_own_limit, ..Usage::default() })
    }
}

impl SimSystemd {
    /// The slices, for whoever reads what was counted.
    pub(crate) fn slices(&self) -> &Slices {
        &self.slices
    }

    /// The names of all slices.
    pub(crate) fn slice_names(&self) -> Vec<String> {
        self.slices.lock().keys().cloned().collect()
    }

    pub(super) fn count_processes(&self) {
        for (name, slice) in &mut *self.slices.lock() {
            slice.lives = self.unit_in(name).is_some_and(|(_, unit)| unit.lives());
        }
    }

    /// The kernel kills a process of the unit because memory is short. Returns whether that is counted.
    pub(crate) fn count_oom(&self, unit: &UnitName, at_own_limit: bool) -> bool {
        let Some(known) = self.units.get(unit).filter(|known| known.lives()) else { return false };
        let mut slices = self.slices.lock();
        let Some(slice) = slices.get_mut(&slice_of(&known.spec)) else { return false };
        slice.oom = (slice.oom.0 + 1, slice.oom.1 || at_own_limit);
        true
    }

    pub(super) fn stop_slice(&mut self, name: &str) {
        self.slices.lock().remove(name);
        if let Some(unit) = self.unit_in(name).map(|(unit, _)| unit.clone()) {
            self.stop(&unit);
        }
    }

    /// The unit in this slice. One of the same name, but of another job, is in another slice.
    fn unit_in(&self, slice: &str) -> Option<(&UnitName, &Unit)> {
        let of = SliceName::parse(slice)?;
        self.units.get_key_value(of.unit()).filter(|(_, unit)| slice_of(&unit.spec) == slice)
    }
}
