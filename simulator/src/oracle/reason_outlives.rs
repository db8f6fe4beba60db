//! **reason-outlives**: a job whose shells were ended for an exception ends with that exception, also
//! if the KVS has forgotten it. Exempt are shells whose record was damaged or lost, or could not be
//! written.

use std::collections::BTreeSet;

use job_exec_rs::port::Note;
use job_exec_rs::port::disk::Disk;
use job_exec_rs::proto::UnitName;
use job_exec_rs::supervisor::parse_record;

use crate::manager::Allocation;
use crate::world::World;

/// Signals with which a leader begins to end shells. Agents send neither by themselves.
const FIRST_SIGNALS: [i32; 2] = [libc::SIGTERM, libc::SIGALRM];

impl World {
    /// A signal arrives at a unit: notes for which exception.
    pub(crate) fn keep_reason(&mut self, rank: u32, unit: &UnitName, signal: i32) {
        let state = &self.ranks[rank as usize];
        let Some(index) = state.current_shell(unit) else { return };
        let shell = &state.shells[index];
        if !FIRST_SIGNALS.contains(&signal) || !shell.runs() || shell.ended_for.is_some() {
            return;
        }
        let record = state.disk.read(&format!("{}.record", unit.stem())).ok();
        let record = record.and_then(|bytes| parse_record(&bytes, unit).ok().flatten());
        let notes = record.map(|record| record.notes).unwrap_or_default();
        let kept = Note::all(&notes).find_map(|note| match note {
            Note::EndReason(reason) => Some(reason.kind),
            _ => None,
        });
        if kept.is_none() && state.disk.is_short() {
            return;
        }
        let known = self.manager.jobs.get(&unit.job());
        let known = known.filter(|job| {
            job.allocation.as_ref().is_some_and(|known| known.digest == shell.digest)
        });
        let reason = kept.or_else(|| known?.exception.clone());
        self.ranks[rank as usize].shells[index].ended_for = reason;
    }

    /// Checks a job that has ended.
    pub(super) fn check_reason(&mut self, job: &Allocation) {
        let told = self.manager.jobs.get(&job.id).and_then(|job| job.exception.clone());
        let ranks = job.ranks.iter();
        let ranks = ranks.filter(|rank| !self.drained.contains(&(job.digest.clone(), *rank)));
        let shells = ranks.flat_map(|rank| self.ranks[rank as usize].shells_of(&job.digest));
        let whole = shells.filter(|shell| !shell.record_damaged);
        let reasons: BTreeSet<String> = whole.filter_map(|shell| shell.ended_for.clone()).collect();
        let fits = match &told {
            None => reasons.is_empty(),
            // A user may have cancelled the job once more.
            Some(kind) => reasons.is_empty() || kind == "cancel" || reasons.contains(kind),
        };
        if !fits {
            let seen =
                format!("{}: shells were ended for {reasons:?}, and it ends with {told:?}", job.id);
            self.violate("reason-outlives", seen);
        }
    }
}
