//! **drained-for-cause**: no rank is drained for processes that cannot be killed when the last process
//! of the job there has ended long ago. Exempt is a time in which a rank is away, or its systemd: the
//! end may not be known to the leader.

use job_exec_rs::proto::Idset;

use crate::shell::Shell;
use crate::world::World;

/// How long an end, or a rank's return, is heard of at most, in seconds.
const LONG: f64 = 60.0;

impl World {
    /// Checks a drain.
    pub(crate) fn check_unkillable(&mut self, ranks: &Idset, reason: &str) {
        if !reason.starts_with("unkillable user processes") || !self.is_calm() {
            return;
        }
        let digests = self.digests_in(reason);
        for rank in ranks.iter() {
            let state = &self.ranks[rank as usize];
            let shells = digests.iter().flat_map(|digest| state.shells_of(digest));
            let shells: Vec<&Shell> = shells.filter(|shell| !shell.before_reboot).collect();
            let is_over = |shell: &&Shell| !shell.lives() && shell.ended_at + LONG < self.now;
            if !shells.is_empty() && shells.iter().all(is_over) {
                let seen = format!("rank {rank}: {reason}, but there were none for {LONG} s");
                self.violate("drained-for-cause", seen);
            }
        }
    }

    /// Whether each rank is there, and was for a while.
    fn is_calm(&self) -> bool {
        (0..self.profile.ranks).all(|rank| {
            let state = &self.ranks[rank as usize];
            let since = state.up_since.max(state.stalled_until).max(state.online_at);
            let is_there = state.node.is_some() && since + LONG < self.now;
            is_there && self.reaches_systemd(rank) && !self.was_silent(rank)
        })
    }
}
