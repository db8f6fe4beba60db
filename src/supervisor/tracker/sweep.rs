//! Failed units that nobody needs. systemd keeps them until it is told to forget them, and too many
//! of them bring a user manager down.

use super::Tracker;
use super::messages::{Call, CallAnswer, Refusal};
use crate::proto::UnitName;

/// How often systemd may refuse to forget one unit before the next list. A quota of the bus does not
/// count.
const SWEEP_REFUSALS_MAX: u32 = 8;

impl Tracker {
    /// Tell systemd to forget a unit that is not watched. That does nothing to a unit that has not
    /// failed.
    pub(super) fn sweep(&mut self, unit: UnitName) {
        let refusals = *self.swept.entry(unit.clone()).or_default();
        let watched = self.units.contains_key(&unit);
        if watched || refusals >= SWEEP_REFUSALS_MAX || !self.is_up() {
            self.swept.remove(&unit);
        } else {
            self.ask(Call::Reset(unit));
        }
    }

    pub(super) fn handle_sweep_answer(
        &mut self,
        unit: UnitName,
        answer: Result<CallAnswer, Refusal>,
    ) {
        match answer {
            Err(refusal) if !refusal.is_no_unit() && !refusal.is_absence() => {
                tracing::warn!(%unit, %refusal, "systemd does not reset a failed unit");
                if let Some(refusals) = self.swept.get_mut(&unit) {
                    *refusals += u32::from(!refusal.is_quota());
                }
                self.ask(Call::Later(unit));
            }
            Ok(_) | Err(_) => drop(self.swept.remove(&unit)),
        }
    }
}
