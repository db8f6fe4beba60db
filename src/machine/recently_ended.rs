//! Jobs that have ended on this rank, for a while.
//!
//! A rank that has stalled can pass on a request of a leader that is long dead, after the job is
//! over. Such a request must not start anything.

use std::collections::{BTreeMap, VecDeque};

use crate::machine::mono_time::MonoTime;
use crate::proto::{JobDigest, JobId};

/// How long such a request can be on its way, in seconds. A broker that stalls for longer is given
/// up by its parent.
const SECONDS: f64 = 600.0;
/// How many are kept. The oldest are forgotten first.
const COUNT_MAX: usize = 10_000;

/// Ended jobs, by id and digest.
#[derive(Debug, Default)]
pub(super) struct RecentlyEnded {
    /// With the number of the entry in `order`, because an id can end twice.
    jobs: BTreeMap<JobId, (u64, JobDigest)>,
    order: VecDeque<(MonoTime, JobId, u64)>,
    last: u64,
}

impl RecentlyEnded {
    pub(super) fn insert(&mut self, now: MonoTime, id: JobId, digest: &JobDigest) {
        while let Some((at, oldest, number)) = self.order.front().copied()
            && (at + SECONDS < now || self.order.len() >= COUNT_MAX)
        {
            self.order.pop_front();
            if self.jobs.get(&oldest).is_some_and(|(newest, _)| *newest == number) {
                self.jobs.remove(&oldest);
            }
        }
        self.last += 1;
        self.jobs.insert(id, (self.last, digest.clone()));
        self.order.push_back((now, id, self.last));
    }

    pub(super) fn contains(&self, id: JobId, digest: &JobDigest) -> bool {
        self.jobs.get(&id).is_some_and(|(_, known)| known == digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_jobs_are_known_for_a_while() {
        let mut over = RecentlyEnded::default();
        over.insert(MonoTime(0.0), JobId(1), &"one".into());
        assert!(over.contains(JobId(1), &"one".into()));
        assert!(!over.contains(JobId(1), &"another with its id".into()));
        over.insert(MonoTime(SECONDS - 1.0), JobId(1), &"another with its id".into());
        over.insert(MonoTime(SECONDS + 1.0), JobId(2), &"two".into());
        assert!(over.contains(JobId(1), &"another with its id".into()));
        over.insert(MonoTime(2.0 * SECONDS), JobId(3), &"three".into());
        assert!(!over.contains(JobId(1), &"another with its id".into()));
        for id in 3..=COUNT_MAX as u64 + 5 {
            over.insert(MonoTime(2.0 * SECONDS), JobId(id), &"many".into());
        }
        assert_eq!((over.jobs.len(), over.order.len()), (COUNT_MAX, COUNT_MAX));
    }
}
