//! The job manager: its side of RFC 32, with checks of the responses' order, its eventlogs,
//! which go back to a checkpoint with the KVS, and job ids that it then issues again.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Violation;
use crate::proto::{Idset, JobDigest, JobId, ReleasedRanks, Response, StartRequest, WaitStatus};

/// Shortest duration, in seconds: 0 would be none.
const TICK: f64 = 0.001;

/// Resources that a job was given: with them it can be started.
#[derive(Clone, Debug)]
pub(super) struct Allocation {
    pub(super) id: JobId,
    /// Whose job it is.
    pub(super) userid: u32,
    pub(super) ranks: Idset,
    /// What makes this job, with these resources, this job.
    pub(super) digest: String,
    /// There is a time limit.
    pub(super) limited: bool,
    /// Seconds since the epoch; no two allocations have the same.
    starttime: f64,
}

/// A job, as the job manager knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct ManagedJob {
    pub(super) allocation: Option<Allocation>,
    /// Whose it is.
    pub(super) userid: u32,
    /// Seconds that it may run; 0 is for ever.
    pub(super) duration: f64,
    pub(super) started: bool,
    /// The execution service has been asked for it.
    pub(super) pending: bool,
    pub(super) failed: bool,
    pub(super) finish: Option<WaitStatus>,
    pub(super) released: Idset,
    pub(super) ended: bool,
    /// Its stream was lost while it was being cleaned up: it is not asked for again.
    pub(super) abandoned: bool,
}

/// The job manager.
#[derive(Clone, Default)]
pub(super) struct Manager {
    pub(super) jobs: BTreeMap<JobId, ManagedJob>,
    last: u64,
}

impl Manager {
    /// A new job with the next id: one that the KVS has forgotten is issued again.
    pub(super) fn submit(&mut self, userid: u32, duration: f64) -> JobId {
        self.last += 1;
        let id = JobId(self.last << 24);
        self.jobs.insert(id, ManagedJob { userid, duration, ..ManagedJob::default() });
        id
    }

    /// The scheduler gives a job its resources, at `wall` seconds since the epoch, unless it has
    /// some.
    pub(super) fn allocate(&mut self, id: JobId, ranks: Idset, wall: f64) -> Option<Allocation> {
        let job = self.jobs.get_mut(&id)?;
        if job.allocation.is_some() || job.ended {
            return None;
        }
        let limited = job.duration > 0.0;
        let digest = String::new();
        let userid = job.userid;
        let mut allocation = Allocation { id, userid, ranks, digest, limited, starttime: wall };
        let payload = payload(id, &allocation, job);
        if let Ok(start) = StartRequest::read(payload.to_string().as_bytes()) {
            allocation.digest = JobDigest::new(id, userid, &start.r).as_str().to_string();
        }
        job.allocation = Some(allocation.clone());
        Some(allocation)
    }

    /// A user moves the time limit of a job.
    pub(super) fn set_expiration(&mut self, id: JobId, expiration: f64) {
        if let Some(job) = self.jobs.get_mut(&id)
            && let Some(allocation) = &job.allocation
        {
            job.duration = (expiration - allocation.starttime).max(TICK);
        }
    }

    /// The start request of a job, for a service that has said hello.
    pub(super) fn take_start_request(&mut self, id: JobId) -> Option<Value> {
        let job = self.jobs.get_mut(&id)?;
        if job.pending || job.ended || job.abandoned {
            return None;
        }
        let payload = payload(id, job.allocation.as_ref()?, job);
        job.pending = true;
        Some(payload)
    }

    /// The service is gone. Only jobs that run are asked for again (flux-core `start.c`).
    pub(super) fn handle_disconnect(&mut self) {
        for job in self.jobs.values_mut().filter(|job| job.pending) {
            job.pending = false;
            job.abandoned |= job.failed || job.finish.is_some();
        }
    }

    /// It comes up again from its eventlogs. They do not tell of partial releases.
    pub(super) fn restart(&mut self) {
        for job in self.jobs.values_mut().filter(|job| !job.ended) {
            job.pending = false;
            job.released = Idset::new();
            job.abandoned |= job.failed || job.finish.is_some();
        }
    }

    /// A response; what it breaks of RFC 32.
    pub(super) fn handle_response(
        &mut self,
        id: JobId,
        response: &Response,
    ) -> Result<(), Violation> {
        let broken = |seen: String| Err(Violation { invariant: "always-an-end", seen });
        let Some(job) = self.jobs.get_mut(&id) else {
            return broken(format!("{id}: a response for a job that was never submitted"));
        };
        let all = job.allocation.as_ref().map_or_else(Idset::new, |a| a.ranks.clone());
        if job.ended {
            return broken(format!("{id}: {response:?} after the final release"));
        }
        match response {
            Response::Start {} => {
                if job.started || job.finish.is_some() {
                    return broken(format!("{id}: start out of order"));
                }
                job.started = true;
            }
            Response::Reattached {} => {
                if !job.started {
                    return broken(format!("{id}: reattached, never started"));
                }
            }
            Response::Exception(exception) => job.failed |= exception.severity == 0,
            Response::Finish { status } => {
                if job.finish.is_some_and(|finish| finish != *status) {
                    return broken(format!("{id}: two different statuses"));
                }
                if !job.started && !job.failed {
                    return broken(format!("{id}: finish of a job that never started"));
                }
                job.finish = Some(*status);
            }
            Response::Release { ranks, is_final } => {
                let ranks = match ranks {
                    ReleasedRanks::All => all.difference(&job.released),
                    ReleasedRanks::These(ranks) => ranks.clone(),
                };
                // SentState again after a restart, which is no harm: partial releases are only noted
                // (flux-core `job-manager/start.c`).
                job.released = job.released.union(&ranks);
                if *is_final {
                    if job.released != all {
                        let missing = all.difference(&job.released);
                        return broken(format!("{id}: ended without releasing {missing}"));
                    }
                    job.ended = true;
                }
            }
        }
        Ok(())
    }
}

fn payload(id: JobId, allocation: &Allocation, job: &ManagedJob) -> Value {
    let Allocation { userid, ranks, starttime, .. } = allocation;
    let hosts: Vec<String> = ranks.iter().map(|rank| format!("n{rank}")).collect();
    let expiration = if job.duration > 0.0 { starttime + job.duration } else { 0.0 };
    json!({
        "id": id, "userid": userid, "jobspec": {}, "reattach": job.started,
        "R": {"version": 1, "execution": {
            "R_lite": [{"rank": ranks.to_string(), "children": {"core": "0"}}],
            "nodelist": hosts, "starttime": starttime, "expiration": expiration}},
    })
}
