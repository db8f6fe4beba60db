//! A job manager for one instance: ids, resources, responses, exceptions.

use std::collections::BTreeMap;

use job_exec_rs::machine::Event;
use job_exec_rs::proto::{
    Exception, Idset, JobException, JobId, ReleasedRanks, Response, WaitStatus, WallTime,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::event::Happening;

/// When the time in job ids begins: 2020-01-01, in milliseconds since the epoch. RFC 19 lets the
/// instance choose it. 40 bits last for 34 years.
const FLUID_EPOCH_MS: u64 = 1_577_836_800_000;
/// How many bits of an id are below its time: the generator (always 0 here) and the sequence
/// number.
const FLUID_TIME_SHIFT: u32 = 24;

/// A job to run: one command, started once on each of its ranks.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct JobRequest {
    /// Program and arguments. A program without a slash is searched in `PATH`.
    pub command: Vec<String>,
    /// Which ranks of the instance.
    pub ranks: Idset,
    /// Seconds until the job is ended. 0 is no limit.
    pub duration: f64,
}

/// How a job has ended. Of a job that was adopted: what has happened to it since.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobOutcome {
    /// The largest wait status of all ranks. `None` if nothing was started.
    pub status: Option<WaitStatus>,
    /// Exceptions, in the order in which they were raised.
    pub exceptions: Vec<Exception>,
    /// The ranks of each release, in the order of the releases.
    pub releases: Vec<String>,
}

impl JobOutcome {
    /// The exit code that `flux run` would have: the exit code in the status, or 128 plus the
    /// signal, or 1 without a status.
    pub fn exit_code(&self) -> u8 {
        let code = match self.status {
            None => 1,
            Some(status) => status.to_shell_exit().code().unwrap_or(1),
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

/// What is kept of a job that is not over, for a later instance.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct KeptJob {
    /// What was submitted.
    pub(super) submitted: JobRequest,
    /// Its `job-exec.start` request, as the job manager would send it now.
    pub(super) start: Value,
    /// Ranks that it has released.
    pub(super) released: Idset,
}

/// A job that is known.
#[derive(Debug)]
struct Job {
    outcome: JobOutcome,
    clean: bool,
    kept: KeptJob,
}

/// All jobs.
#[derive(Debug, Default)]
pub(super) struct Manager {
    jobs: BTreeMap<JobId, Job>,
    last: Option<JobId>,
}

impl Manager {
    /// Adds a job. Returns its new id and its start request.
    pub(super) fn submit(
        &mut self,
        request: &JobRequest,
        userid: u32,
        hostname: &str,
        wall: WallTime,
    ) -> (JobId, Value) {
        let id = self.next_id(wall);
        let payload = json!({
            "id": id,
            "userid": userid,
            "jobspec": jobspec(request),
            "reattach": false,
            "R": resources(request, hostname, wall),
        });
        let (submitted, start) = (request.clone(), payload.clone());
        self.adopt(id, KeptJob { submitted, start, released: Idset::new() });
        (id, payload)
    }

    /// Adds a job that has an id.
    pub(super) fn adopt(&mut self, id: JobId, kept: KeptJob) {
        self.last = self.last.max(Some(id));
        self.jobs.insert(id, Job { outcome: JobOutcome::default(), clean: false, kept });
    }

    /// What a later instance needs to go on with a job. `None` if the job is over.
    pub(super) fn kept(&self, id: JobId) -> Option<&KeptJob> {
        self.jobs.get(&id).filter(|job| !job.clean).map(|job| &job.kept)
    }

    /// The ranks that a job has released.
    pub(super) fn released(&self, id: JobId) -> Idset {
        self.kept(id).map(|kept| kept.released.clone()).unwrap_or_default()
    }

    /// Puts a new time limit into R, for a later instance. `expiration` is in seconds since the
    /// epoch.
    pub(super) fn set_expiration(&mut self, id: JobId, expiration: f64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.kept.start["R"]["execution"]["expiration"] = json!(expiration);
        }
    }

    /// The first id of this millisecond, or the next free one.
    fn next_id(&mut self, wall: WallTime) -> JobId {
        let ms = ((wall.0 * 1000.0) as u64).saturating_sub(FLUID_EPOCH_MS);
        let now = ms << FLUID_TIME_SHIFT;
        let id = JobId(self.last.map_or(now, |last| now.max(last.0 + 1)));
        self.last = Some(id);
        id
    }

    /// Jobs that are not over.
    pub(super) fn active(&self) -> Vec<JobId> {
        self.jobs.iter().filter(|(_, job)| !job.clean).map(|(id, _)| *id).collect()
    }

    pub(super) fn is_active(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| !job.clean)
    }

    /// The outcome of a job so far.
    pub(super) fn outcome(&self, id: JobId) -> JobOutcome {
        self.jobs.get(&id).map(|job| job.outcome.clone()).unwrap_or_default()
    }

    /// Raises an exception. Returns what the observer gets, and the event for every rank.
    pub(super) fn raise(&mut self, id: JobId, exception: Exception) -> Option<(Happening, Event)> {
        let job = self.jobs.get_mut(&id).filter(|job| !job.clean)?;
        job.outcome.exceptions.push(exception.clone());
        let event = Event::Exception(JobException {
            id,
            kind: exception.kind.clone(),
            severity: exception.severity,
            wait_status: None,
        });
        Some((Happening::Exception(exception), event))
    }

    /// Handles a response that is not an exception. Returns what the observer gets.
    pub(super) fn handle_response(&mut self, id: JobId, response: Response) -> Vec<Happening> {
        let Some(job) = self.jobs.get_mut(&id) else { return Vec::new() };
        match response {
            Response::Exception(exception) => vec![Happening::Exception(exception)],
            Response::Start {} => {
                job.kept.start["reattach"] = json!(true);
                vec![Happening::Start]
            }
            Response::Reattached {} => vec![Happening::Reattached],
            Response::Finish { status } => {
                job.outcome.status = Some(status);
                vec![Happening::Finish { status }]
            }
            Response::Release { ranks, is_final } => {
                if let ReleasedRanks::These(ranks) = &ranks {
                    job.kept.released = job.kept.released.union(ranks);
                }
                let ranks = ranks.to_string();
                job.outcome.releases.push(ranks.clone());
                let mut told = vec![Happening::Release { ranks, is_final }];
                if is_final {
                    job.clean = true;
                    told.push(Happening::Clean);
                }
                told
            }
        }
    }
}

/// A jobspec of version 1 (RFC 25), with one slot and one task on each rank.
fn jobspec(request: &JobRequest) -> Value {
    let slot = json!({ "type": "slot", "count": 1, "label": "task",
                       "with": [{ "type": "core", "count": 1 }] });
    let program = request.command.first();
    json!({
        "version": 1,
        "resources": [{ "type": "node", "count": request.ranks.len(), "with": [slot] }],
        "tasks": [{ "command": request.command, "slot": "task", "count": { "per_slot": 1 } }],
        "attributes": { "system": {
            "duration": request.duration,
            // The program that runs in place of a job shell. `log` events have its name.
            "exec": { "job_shell": program },
        } },
    })
}

/// An R of version 1 (RFC 20). All ranks are on this host.
fn resources(request: &JobRequest, hostname: &str, wall: WallTime) -> Value {
    let expiration = if request.duration > 0.0 { wall + request.duration } else { WallTime::UNSET };
    json!({
        "version": 1,
        "execution": {
            "R_lite": [{ "rank": request.ranks.to_string(), "children": { "core": "0" } }],
            "nodelist": vec![hostname; request.ranks.len()],
            "starttime": wall,
            "expiration": expiration,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use job_exec_rs::proto::ReleasedRanks;
    use job_exec_rs::proto::StartRequest;

    #[test]
    fn ids_grow_and_requests_are_readable() {
        let mut manager = Manager::default();
        let ranks = Idset::from_range(0..3);
        let request = JobRequest { command: vec!["true".to_string()], ranks, duration: 2.0 };
        let wall = WallTime(1_800_000_000.5);
        let (first, payload) = manager.submit(&request, 7, "node", wall);
        let (second, _) = manager.submit(&request, 7, "node", wall);
        assert!(second > first, "{second} after {first}");
        let start = StartRequest::read(payload.to_string().as_bytes()).expect("a good request");
        assert_eq!((start.id, start.userid, start.r.len()), (first, 7, 3));
        assert_eq!(start.r.expiration(), wall + 2.0);
    }

    #[test]
    fn exit_codes_are_those_of_flux_run() {
        let code = |status| JobOutcome { status, ..JobOutcome::default() }.exit_code();
        assert_eq!(code(None), 1);
        assert_eq!(code(Some(WaitStatus::exited(3))), 3);
        assert_eq!(code(Some(WaitStatus::signaled(9))), 137);
    }

    #[test]
    fn nothing_happens_to_a_job_that_is_clean() {
        let mut manager = Manager::default();
        let ranks = Idset::from_range(0..1);
        let request = JobRequest { command: vec![], ranks, duration: 0.0 };
        let (id, _) = manager.submit(&request, 0, "node", WallTime(1_800_000_000.0));
        let release = Response::Release { ranks: ReleasedRanks::All, is_final: true };
        assert_eq!(manager.handle_response(id, release).last(), Some(&Happening::Clean));
        assert!(manager.raise(id, Exception::fatal("late")).is_none());
        assert!(!manager.is_active(id) && manager.active().is_empty());
    }
}
