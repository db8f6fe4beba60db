//! Units that nobody needs: they have failed, or have ended well in an earlier run of a job. systemd keeps
//! them until it is told to forget them, and too many of them bring a user manager down.

use super::Tracker;
use super::messages::{Call, CallAnswer, Refusal};
use crate::proto::UnitName;

/// How often systemd may refuse to forget one unit before the next list. A quota of the bus does not
/// count.
const SWEEP_REFUSALS_MAX: u32 = 8;

/// A unit that systemd was told to forget.
#[derive(Debug, Default)]
pub(super) struct Swept {
    /// How often it has refused.
    refusals: u32,
    /// The unit has ended well. So it is stopped.
    has_ended: bool,
}

impl Tracker {
    /// Tell systemd to forget a unit that is not watched. That does nothing to a unit that has not
    /// failed.
    pub(super) fn sweep(&mut self, unit: UnitName) {
        self.swept.entry(unit.clone()).or_default();
        self.sweep_again(unit);
    }

    /// The same of a unit whose main process has ended well.
    pub(super) fn sweep_ended(&mut self, unit: UnitName) {
        self.swept.entry(unit.clone()).or_default().has_ended = true;
        self.sweep_again(unit);
    }

    pub(super) fn sweep_again(&mut self, unit: UnitName) {
        let Some(swept) = self.swept.get(&unit) else { return };
        let watched = self.units.contains_key(&unit);
        if watched || swept.refusals >= SWEEP_REFUSALS_MAX || !self.is_up() {
            self.swept.remove(&unit);
        } else if swept.has_ended {
            self.ask(Call::Stop(unit));
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
                tracing::warn!(%unit, %refusal, "systemd does not forget a unit");
                if let Some(swept) = self.swept.get_mut(&unit) {
                    swept.refusals += u32::from(!refusal.is_quota());
                }
                self.ask(Call::Later(unit));
            }
            Ok(_) | Err(_) => drop(self.swept.remove(&unit)),
        }
    }
}
