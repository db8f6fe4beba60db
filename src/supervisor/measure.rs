//! What a unit's processes have used. It is read when none of them is left, and written down before
//! systemd may drop it.

use super::backend::Backend;
use super::core::Core;
use super::records::Fact;
use crate::port::Note;
use crate::port::supervisor::UnitEvent;
use crate::proto::UnitName;

impl Core {
    /// Keep and report what the unit's processes have used, unless that was done, or some are left.
    pub(super) fn measure(&mut self, unit: &UnitName, backend: &mut impl Backend) {
        let Some(known) = self.units.get(unit) else { return };
        if unit.is_script() || known.record.usage().is_some() {
            return;
        }
        let Some(usage) = backend.usage(&known.record.spec).map(Box::new) else { return };
        let note = Note::Usage(usage.clone());
        self.record_fact(unit, Fact::Note { key: note.key(), value: note.value() });
        (self.sink)(UnitEvent::Usage(usage).of(unit));
    }

    /// Let the backend drop what the record has. No process of the unit is left.
    pub(super) fn drop_usage(&self, unit: &UnitName, backend: &mut impl Backend) {
        if let Some(known) = self.units.get(unit)
            && known.is_empty()
            && !known.file.is_late()
        {
            backend.drop_usage(unit);
        }
    }
}
