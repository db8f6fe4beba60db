//! **waiting-kept**: a job that waits for resources is not forgotten when rank 0's broker dies, but
//! in its first seconds.

use crate::world::World;

/// How long a checkpoint takes, and the look that finds the change, in seconds.
const KEPT_SECONDS: f64 = 7.0;

impl World {
    /// Rank 0's broker dies.
    pub(crate) fn check_waiting(&mut self) {
        let rank = &self.ranks[0];
        let Some(node) = &rank.node else { return };
        let kept_seconds = KEPT_SECONDS + node.config().checkpoint_interval;
        let stalls = rank.stalled_until > self.now || rank.is_leaving;
        let since = self.awake_since.max(self.unsteady_at);
        if stalls || self.now - since < kept_seconds {
            return;
        }
        let kept = &self.kvs.kept_manager().jobs;
        let forgotten = self.manager.jobs.iter().filter(|(id, job)| {
            !kept.contains_key(id) && self.now - job.submitted_at >= kept_seconds
        });
        let forgotten: Vec<String> = forgotten
            .map(|(id, job)| {
                format!("{id} is forgotten after {:.0} s", self.now - job.submitted_at)
            })
            .collect();
        for seen in forgotten {
            self.violate("waiting-kept", seen);
        }
    }
}
