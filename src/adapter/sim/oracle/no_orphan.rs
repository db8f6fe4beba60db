//! **no-orphan**: soon after the instance is back, each unit belongs to a job that the job
//! manager knows as running. Here all jobs have ended, so nothing is left: no process, no unit,
//! no record, no output file.

use crate::adapter::sim::world::World;

impl World {
    pub(super) fn check_units(&mut self) {
        let mut seen = Vec::new();
        for (rank, state) in self.ranks.iter().enumerate() {
            let living = state.shells.iter().filter(|shell| shell.lives());
            seen.extend(living.map(|shell| format!("{} still lives", shell.unit)));
            seen.extend(state.systemd.units().map(|unit| format!("systemd still has {unit}")));
            let files = state.disk.files().into_iter();
            seen.extend(files.map(|file| format!("{file} is left on the disk of rank {rank}")));
        }
        for seen in seen {
            self.violate("no-orphan", seen);
        }
    }
}
