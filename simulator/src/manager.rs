//! A model of the job manager. It speaks RFC 32 and checks the order of responses. Its eventlogs go
//! back to a checkpoint with the KVS. Then it issues ids again that it has forgotten.

use std::collections::BTreeMap;

use job_exec_rs::proto::{
    Cleaning, Idset, JobDigest, JobEventlog, JobId, ReleasedRanks, Response, StartRequest,
    WaitStatus,
};
use serde_json::{Value, json};

use super::Violation;

/// Shortest duration, in seconds. A duration of 0 would mean no limit.
const TICK: f64 = 0.001;

/// The resources that a job was given. With them it can be started.
#[derive(Clone, Debug)]
pub(super) struct Allocation {
    pub(super) id: JobId,
    /// The job's user.
    pub(super) userid: u32,
    pub(super) ranks: Idset,
    /// [`JobDigest`] of the job with these resources.
    pub(super) digest: String,
    /// Whether there is a time limit.
    pub(super) limited: bool,
    /// Seconds since the epoch; each is later than the last.
    pub(super) starttime: f64,
}

/// A job, as the job manager knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct ManagedJob {
    pub(super) allocation: Option<Allocation>,
    /// When it was submitted.
    pub(super) submitted_at: f64,
    /// The job's user.
    pub(super) userid: u32,
    /// How long it may run, in seconds. 0 is no limit.
    pub(super) duration: f64,
    /// When it was told that all its shells were started.
    pub(super) started_at: Option<f64>,
    /// Whether the execution service was asked to start it.
    pub(super) pending: bool,
    pub(super) failed: bool,
    /// The type of its first fatal exception. It decides how the job's end is called.
    pub(super) exception: Option<String>,
    pub(super) finish: Option<WaitStatus>,
    /// Ranks that it has back, in parts or all. Its eventlog says so.
    pub(super) released: Idset,
    /// Those that the service has said, or could know of: they were in the KVS when it has looked.
    pub(super) told: Idset,
    pub(super) ended: bool,
    /// Since when it is in CLEANUP.
    pub(super) cleaning_since: Option<f64>,
    /// The service has brought it there.
    pub(super) cleaned_by_service: bool,
    /// `epilog-start` that have no `epilog-finish`. It is freed only when there is none.
    pub(super) holds: u32,
    /// Nodes of which its eventlog says that they are degraded.
    pub(super) degraded: Idset,
    /// Whether it was freed when the job manager was started again, because it was in CLEANUP and
    /// not held.
    pub(super) abandoned: bool,
}

impl ManagedJob {
    /// It has got a fatal exception of this type.
    pub(super) fn fail(&mut self, kind: &str, now: f64) {
        self.cleaning_since.get_or_insert(now);
        self.failed = true;
        self.exception.get_or_insert_with(|| kind.to_string());
    }
}

/// The job manager.
#[derive(Clone, Default)]
pub(super) struct Manager {
    pub(super) jobs: BTreeMap<JobId, ManagedJob>,
    last: u64,
    /// It was started again, and no service has said hello to it.
    is_fresh: bool,
    /// R has its hosts as a hostlist, as Flux writes it, and not one by one. The digests of jobs depend
    /// on that, and so does what becomes of seeds that are known.
    has_hostlists: bool,
}

impl Manager {
    pub(super) fn new(has_hostlists: bool) -> Self {
        Self { has_hostlists, ..Self::default() }
    }

    /// Makes a job with the next id. An id that the KVS has forgotten is issued again.
    pub(super) fn submit(&mut self, userid: u32, duration: f64, now: f64) -> JobId {
        self.last += 1;
        let id = JobId(self.last << 24);
        let job = ManagedJob { userid, duration, submitted_at: now, ..ManagedJob::default() };
        self.jobs.insert(id, job);
        id
    }

    /// Gives a job its resources, at `wall` seconds since the epoch. Returns `None` if it has
    /// resources or has ended.
    pub(super) fn allocate(&mut self, id: JobId, ranks: Idset, wall: f64) -> Option<Allocation> {
        let has_hostlists = self.has_hostlists;
        let job = self.jobs.get_mut(&id)?;
        if job.allocation.is_some() || job.ended {
            return None;
        }
        let limited = job.duration > 0.0;
        let digest = String::new();
        let userid = job.userid;
        let mut allocation = Allocation { id, userid, ranks, digest, limited, starttime: wall };
        let payload = payload(id, &allocation, job, has_hostlists);
        if let Ok(start) = StartRequest::read(payload.to_string().as_bytes()) {
            allocation.digest = JobDigest::new(id, userid, &start.r).as_str().to_string();
        }
        job.allocation = Some(allocation.clone());
        Some(allocation)
    }

    /// Changes the time limit of a job.
    pub(super) fn set_expiration(&mut self, id: JobId, expiration: f64) {
        if let Some(job) = self.jobs.get_mut(&id)
            && let Some(allocation) = &job.allocation
        {
            job.duration = (expiration - allocation.starttime).max(TICK);
        }
    }

    /// Takes the start request of a job. `None` if none is due.
    pub(super) fn take_start_request(&mut self, id: JobId) -> Option<Value> {
        let has_hostlists = self.has_hostlists;
        let job = self.jobs.get_mut(&id)?;
        if job.pending || job.ended || job.cleaning_since.is_some() {
            return None;
        }
        let allocation = job.allocation.as_ref()?;
        let payload = payload(id, allocation, job, has_hostlists);
        job.told = job.released.clone();
        job.pending = true;
        Some(payload)
    }

    /// The service has looked up which ranks of a job were released.
    pub(super) fn set_told(&mut self, id: JobId, released: Idset) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.told = released;
        }
    }

    /// Whether this job, which runs, may have to wait for its prolog: the job manager was started
    /// again, and does not know that the prolog had ended.
    pub(super) fn may_wait_for_prolog(&self, id: JobId) -> bool {
        self.is_fresh && self.jobs.get(&id).is_some_and(|job| job.started_at.is_none())
    }

    /// A service has said hello.
    pub(super) fn handle_hello(&mut self) {
        self.is_fresh = false;
    }

    /// The jobs that run. Those that were not asked for wait for their prolog.
    pub(super) fn running(&self) -> Vec<JobId> {
        let runs = |job: &ManagedJob| {
            job.allocation.is_some() && !job.ended && job.cleaning_since.is_none()
        };
        self.jobs.iter().filter(|(_, job)| runs(job)).map(|(id, _)| *id).collect()
    }

    /// Whether nobody may end the shells of the job with this digest: it has its resources, or one with
    /// its id waits for its prolog, and the service does not know its digest yet.
    pub(super) fn may_have(&self, id: JobId, digest: &str) -> bool {
        let Some(job) = self.jobs.get(&id).filter(|job| !job.ended && !job.abandoned) else {
            return false;
        };
        let waits = !job.pending && job.cleaning_since.is_none();
        job.allocation.as_ref().is_some_and(|known| known.digest == digest || waits)
    }

    /// The jobs in CLEANUP whose resources the service has not given back, or that it holds.
    pub(super) fn cleaning(&self) -> Vec<JobId> {
        let is_it = |job: &ManagedJob| {
            let has_resources = job.allocation.is_some() && !job.ended;
            job.cleaning_since.is_some() && !job.abandoned && (has_resources || job.holds > 0)
        };
        self.jobs.iter().filter(|(_, job)| is_it(job)).map(|(id, _)| *id).collect()
    }

    /// What the KVS has of a job in CLEANUP.
    pub(super) fn read_cleaning(&mut self, id: JobId) -> Option<Cleaning> {
        let has_hostlists = self.has_hostlists;
        let job = self.jobs.get_mut(&id)?;
        let allocation = job.allocation.as_ref()?;
        let log = JobEventlog {
            userid: Some(allocation.userid),
            has_resources: !job.ended,
            is_started: job.started_at.is_some(),
            exception: job.exception.clone(),
            finish: job.finish,
            released: job.released.clone(),
            is_released: job.ended,
            is_held: job.holds > 0,
            was_held: job.holds > 0,
        };
        let start = payload(id, allocation, job, has_hostlists);
        job.told = job.released.clone();
        let (jobspec, r) = (start["jobspec"].to_string(), start["R"].to_string());
        Cleaning::read(id, log, &jobspec, &r).ok().flatten()
    }

    /// The service has gone. The job manager asks again only for jobs that run (flux-core
    /// `job-manager/start.c`).
    pub(super) fn handle_disconnect(&mut self) {
        for job in self.jobs.values_mut() {
            job.pending = false;
        }
    }

    /// Starts again from the eventlogs. Jobs in CLEANUP are freed unless they are held.
    pub(super) fn restart(&mut self) {
        self.is_fresh = true;
        self.handle_disconnect();
        for job in self.jobs.values_mut().filter(|job| !job.ended) {
            job.abandoned |= job.cleaning_since.is_some() && job.holds == 0;
        }
    }

    /// Handles a response, or the event that the service posts instead.
    pub(super) fn handle_response(
        &mut self,
        id: JobId,
        response: &Response,
        now: f64,
    ) -> Result<(), Violation> {
        let ends = match response {
            Response::Exception(exception) => exception.severity == 0,
            Response::Finish { .. } => true,
            Response::Reattached {} | Response::Release { .. } | Response::Start {} => false,
        };
        if let Some(job) = self.jobs.get_mut(&id) {
            job.cleaned_by_service |= ends && job.cleaning_since.is_none();
        }
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
                if job.started_at.is_some() || job.finish.is_some() {
                    return broken(format!("{id}: start comes after start or finish"));
                }
                job.started_at = Some(now);
            }
            Response::Reattached {} => {
                if job.started_at.is_none() {
                    return broken(format!("{id}: reattached, but it was never started"));
                }
            }
            Response::Exception(exception) if exception.severity == 0 => {
                job.fail(&exception.kind, now);
            }
            Response::Exception(_) => (),
            Response::Finish { status } => {
                if job.finish.is_some_and(|finish| finish != *status) {
                    return broken(format!("{id}: two different statuses"));
                }
                if job.started_at.is_none() && !job.failed {
                    return broken(format!("{id}: finish of a job that never started"));
                }
                job.cleaning_since.get_or_insert(now);
                job.finish = Some(*status);
            }
            Response::Release { ranks, is_final } => {
                let ranks = match ranks {
                    ReleasedRanks::All => all.difference(&job.released),
                    ReleasedRanks::These(ranks) => ranks.clone(),
                };
                job.released = job.released.union(&ranks);
                job.told = job.told.union(&ranks);
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

/// How many degraded nodes a job says that it bears.
pub(super) fn tolerance(id: JobId) -> u32 {
    (id.0 >> 24) as u32 % 3
}

fn payload(id: JobId, allocation: &Allocation, job: &ManagedJob, has_hostlists: bool) -> Value {
    let Allocation { userid, ranks, starttime, .. } = allocation;
    let hosts: Vec<String> = if has_hostlists {
        vec![format!("n[{ranks}]")]
    } else {
        ranks.iter().map(|rank| format!("n{rank}")).collect()
    };
    let expiration = if job.duration > 0.0 { starttime + job.duration } else { 0.0 };
    let exec = json!({ "prolog-tolerance": tolerance(id) });
    let jobspec = json!({ "attributes": { "system": { "exec": exec } } });
    json!({
        "id": id, "userid": userid, "jobspec": jobspec, "reattach": job.started_at.is_some(),
        "R": {"version": 1, "execution": {
            "R_lite": [{"rank": ranks.to_string(), "children": {"core": "0"}}],
            "nodelist": hosts, "starttime": starttime, "expiration": expiration}},
    })
}
