//! Units whose records were lost. systemd knows enough of them: whose they are, and how they ended.
//! So each gets a record again, and is from then on as any other.

use std::collections::BTreeMap;

use super::backend::{Backend, UnrecordedUnit};
use super::core::Core;
use super::output::extension;
use super::records::file_name;
use crate::port::Note;
use crate::port::supervisor::{UnitRecord, UnitSpec};
use crate::proto::Stream;

impl Core {
    /// Make a record for a unit that has none, and report the unit as found.
    pub(super) fn handle_unrecorded(&mut self, found: UnrecordedUnit, backend: &mut impl Backend) {
        let unit = found.unit.clone();
        if let Some(known) = self.units.get(&unit) {
            // Else the record is of a start that has not come to its end.
            let is_over = known.is_empty() && found.started == known.record.started;
            if is_over {
                backend.find(&unit, found.digest.as_str(), found.started.as_ref());
                backend.collect(&unit);
            }
            return;
        }
        let disk = self.store.disk();
        let is_kept = |stream| disk.extent(&file_name(&unit, extension(stream))).is_ok();
        let output_lost = !(is_kept(Stream::Stdout) && is_kept(Stream::Stderr));
        tracing::warn!(%unit, digest = %found.digest, output_lost,
            "unit without a usable record: making one from what systemd knows");
        let record = record_of(found, &self.boot_id, output_lost);
        let file = self.store.make_again(&record);
        if file.is_late() {
            self.late.push_back(unit);
        }
        self.take_over(file, record, backend);
    }
}

/// The record of a unit that has lost its own. How it was started is not known any more. It does not
/// matter, because it is never started from this record.
fn record_of(found: UnrecordedUnit, boot_id: &str, output_lost: bool) -> UnitRecord {
    let UnrecordedUnit { unit, digest, userid, size, started } = found;
    let note = Note::MadeAgain { output_lost };
    let spec = UnitSpec { userid, size, ..UnitSpec::bare(unit, digest) };
    let notes = BTreeMap::from([(note.key(), note.value())]);
    UnitRecord { started, notes, ..UnitRecord::new(spec, boot_id.to_string()) }
}
