//! **nothing-lost**: what a shell writes reaches the exec eventlog once and in order, also what it
//! wrote while the module was away. There are two exceptions. A node that is powered off loses
//! output that it had not reported. If a node was given up, the eventlog says that the rest of its
//! output may be missing.

use job_exec_rs::proto::{BrokerRank, ExecEvent, JobId};

use crate::manager::Allocation;
use crate::world::World;

impl World {
    pub(super) fn check_output(&mut self, id: JobId, log: &[ExecEvent]) {
        let allocation = self.manager.jobs.get(&id).and_then(|job| job.allocation.clone());
        let Some(Allocation { ranks, digest, .. }) = allocation else { return };
        for rank in ranks.iter() {
            let state = &self.ranks[rank as usize];
            let is_unknown = state.shells_of(&digest).any(|shell| shell.record_damaged);
            if state.boot > 0 || is_unknown {
                continue;
            }
            let shells = state.shells_of(&digest);
            let written: Vec<u8> = shells.flat_map(|shell| shell.output.iter().copied()).collect();
            let logged = logged(log, BrokerRank(rank));
            let may_miss = log.iter().any(|e| e.logged_missing() == Some(BrokerRank(rank)));
            if logged != written && !(may_miss && written.starts_with(&logged)) {
                let seen = format!(
                    "{id}: rank {rank} wrote {:?}, the eventlog has {:?}",
                    String::from_utf8_lossy(&written),
                    String::from_utf8_lossy(&logged)
                );
                self.violate("nothing-lost", seen);
            }
        }
    }
}

fn logged(log: &[ExecEvent], rank: BrokerRank) -> Vec<u8> {
    log.iter()
        .filter(|event| event.logged().is_some_and(|logged| logged.0 == rank))
        .filter_map(|event| event.context.get("data")?.as_str())
        .flat_map(str::bytes)
        .collect()
}
