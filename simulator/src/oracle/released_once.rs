//! **released-once**: a rank is released once. Exempt are releases that the KVS did not have yet when
//! a new coordinator has looked, those that it could not tell, and those of a job that looks new because
//! rank 0's clock has jumped back.

use job_exec_rs::proto::{JobId, ReleasedRanks};

use crate::world::World;

impl World {
    /// Checks the ranks of a release. `all` of a final release means the rest.
    pub(super) fn check_told(&mut self, id: JobId, ranks: &ReleasedRanks) {
        let ReleasedRanks::These(ranks) = ranks else { return };
        let told = self.manager.jobs.get(&id).map(|job| job.told.clone()).unwrap_or_default();
        let again = told.intersection(ranks);
        if !again.is_empty() {
            let seen = format!("{id}: rank {again} is released a second time");
            self.violate("released-once", seen);
        }
    }
}
