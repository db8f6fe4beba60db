//! **oom-told**: an exception says that memory was short on the ranks where the kernel has killed a
//! process of the job for that, and on no other. A leader that has read it in the exec eventlog does not
//! say it again. Each rank whose figures have such a kill was named before these are put beside the job.

use job_exec_rs::proto::{BrokerRank, Exception, ExecEvent, Idset, JobId, JobUsage};

use crate::manager::Allocation;
use crate::world::World;

impl World {
    /// Checks an exception.
    pub(super) fn check_oom(&mut self, job: &Allocation, exception: &Exception) {
        if exception.kind != "oom" {
            return;
        }
        let Some(ranks) = named(&exception.note) else {
            return self.violate("oom-told", format!("{}: no ranks in {}", job.id, exception.note));
        };
        let mut seen = Vec::new();
        for rank in ranks.iter() {
            let mut shells = self.ranks[rank as usize].shells_of(&job.digest);
            if !shells.any(|shell| shell.oom_kills > 0) {
                seen.push(format!("{}: {}, but nothing was killed", job.id, exception.note));
            }
            self.told_oom.insert((job.digest.clone(), rank));
        }
        for seen in seen {
            self.violate("oom-told", seen);
        }
    }

    /// Checks a whole exec eventlog.
    pub(super) fn check_oom_events(&mut self, id: JobId, log: &[ExecEvent]) {
        let mut told = Idset::new();
        for ranks in log.iter().filter_map(ExecEvent::logged_oom) {
            if !told.intersection(&ranks).is_empty() {
                self.violate(
                    "oom-told",
                    format!("{id}: memory was short on {ranks} a second time"),
                );
            }
            told = told.union(&ranks);
        }
    }

    /// Checks what is put beside a job.
    pub(super) fn check_oom_usage(&mut self, id: JobId, digest: &str, usage: &JobUsage) {
        let log = self.kvs.live_log(id).unwrap_or_default();
        let logged: Vec<Idset> = log.iter().filter_map(ExecEvent::logged_oom).collect();
        let is_told = |rank: BrokerRank| {
            self.told_oom.contains(&(digest.to_string(), rank.0))
                || logged.iter().any(|ranks| ranks.contains_rank(rank))
        };
        let untold = usage.ranks.ranks().zip(&usage.oom_kills);
        let untold = untold.filter(|(rank, kills)| **kills > Some(0) && !is_told(*rank));
        for rank in untold.map(|(rank, _)| rank).collect::<Vec<_>>() {
            let seen = format!("{id}: processes were killed on rank {rank}, and nothing says so");
            self.violate("oom-told", seen);
        }
    }
}

/// The ranks in `out of memory on HOSTS (ranks RANKS): WHY`.
fn named(note: &str) -> Option<Idset> {
    let (_, rest) = note.strip_prefix("out of memory on ")?.split_once(" (rank")?;
    let (ranks, _) = rest.trim_start_matches('s').trim_start().split_once(')')?;
    ranks.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_names_its_ranks() {
        let note = "out of memory on n[3-4] (ranks 3-4): 2 processes killed at the job's limit";
        assert_eq!(named(note), Some(Idset::from_range(3..5)));
        assert_eq!(named("out of memory on n3 (rank 3): 1"), Some(Idset::from_range(3..4)));
        assert_eq!(named("node failure on n3 (rank 3)"), None);
    }
}
