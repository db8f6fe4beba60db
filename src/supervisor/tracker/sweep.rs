//! Failed units that nobody needs. systemd keeps them until it is told to forget them, and too many
//! of them bring a user manager down.

use super::Tracker;
use super::messages::{Answer, Call, Refusal};
use crate::proto::UnitName;

/// How often systemd is told to forget one unit before the next list.
const SWEEP_TRIES_MAX: u32 = 8;

impl Tracker {
    /// Tell systemd to forget a unit that is not watched. That does nothing to a unit that has not
    /// failed.
    pub(super) fn sweep(&mut self, unit: UnitName) {
        let tries = self.swept.entry(unit.clone()).or_default();
        *tries += 1;
        let watched = self.units.contains_key(&unit);
        if watched || *tries > SWEEP_TRIES_MAX || !self.is_up() {
            self.swept.remove(&unit);
        } else {
            self.ask(Call::Reset(unit));
        }
    }

    pub(super) fn handle_sweep_answer(&mut self, unit: UnitName, answer: Result<Answer, Refusal>) {
        match answer {
            Err(refusal) if !refusal.is_no_unit() && !refusal.is_absence() => {
                tracing::warn!(%unit, %refusal, "systemd does not reset a failed unit");
                self.ask(Call::Later(unit));
            }
            Ok(_) | Err(_) => drop(self.swept.remove(&unit)),
        }
    }
}
