//! **once**: at most one shell of a job lives on a rank at a time, and a shell that was started
//! is never started a second time for the same job.

use crate::adapter::sim::world::World;

impl World {
    /// A shell was executed.
    pub(in crate::adapter::sim) fn check_once(&mut self, rank: u32, index: usize) {
        let state = &self.ranks[rank as usize];
        let shell = &state.shells[index];
        let (id, unit) = (shell.unit.job(), shell.unit.clone());
        let others = || state.shells.iter().take(index);
        // Of another allocation of the job, or another job with its id.
        let alive = others().any(|other| other.unit.job() == id && other.runs());
        // What a node loses when it is powered off may be all that there was of it.
        let again = others().any(|other| other.digest == shell.digest && !other.record_damaged);
        if alive {
            self.violate("once", format!("{unit} runs while another shell of {id} does"));
        } else if again {
            self.violate("once", format!("{unit} is started a second time"));
        }
    }
}
