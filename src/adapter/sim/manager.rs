//! The job manager's side of RFC 32, and its checks of the responses' order.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Violation;
use crate::proto::{Idset, JobId, Response, WaitStatus};

/// A job, as the job manager knows it.
#[derive(Clone, Debug)]
pub(super) struct ManagedJob {
    pub(super) ranks: Idset,
    pub(super) started: bool,
    pub(super) pending: bool,
    pub(super) failed: bool,
    pub(super) finish: Option<WaitStatus>,
    pub(super) released: Idset,
    pub(super) ended: bool,
    /// Its stream was lost while it was being cleaned up: it is not asked for again.
    pub(super) abandoned: bool,
}

/// The job manager.
#[derive(Default)]
pub(super) struct Manager {
    pub(super) jobs: BTreeMap<JobId, ManagedJob>,
}

impl Manager {
    pub(super) fn submit(&mut self, id: JobId, ranks: Idset) {
        let job = ManagedJob {
            ranks,
            started: false,
            pending: false,
            failed: false,
            finish: None,
            released: Idset::new(),
            ended: false,
            abandoned: false,
        };
        self.jobs.insert(id, job);
    }

    /// The start request of a job, for a service that has said hello.
    pub(super) fn request(&mut self, id: JobId) -> Option<Value> {
        let job = self.jobs.get_mut(&id)?;
        if job.pending || job.ended || job.abandoned {
            return None;
        }
        job.pending = true;
        let count = job.ranks.last().unwrap_or(0) + 1;
        let hosts: Vec<String> = job.ranks.iter().map(|rank| format!("n{rank}")).collect();
        assert!(count as usize >= hosts.len());
        Some(json!({
            "id": id, "userid": 1, "jobspec": {}, "reattach": job.started,
            "R": {"version": 1, "execution": {
                "R_lite": [{"rank": job.ranks.to_string(), "children": {"core": "0"}}],
                "nodelist": hosts, "starttime": 0.0, "expiration": 0.0}},
        }))
    }

    /// The service is gone. Only jobs that run are asked for again (flux-core `start.c`).
    pub(super) fn disconnected(&mut self) {
        for job in self.jobs.values_mut().filter(|job| job.pending) {
            job.pending = false;
            job.abandoned |= job.failed || job.finish.is_some();
        }
    }

    /// A response; what it breaks of RFC 32.
    pub(super) fn respond(&mut self, id: JobId, response: &Response) -> Result<(), Violation> {
        let broken = |seen: String| Err(Violation { invariant: "always-an-end", seen });
        let Some(job) = self.jobs.get_mut(&id) else {
            return broken(format!("{id}: a response for a job that was never submitted"));
        };
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
            Response::Progress { .. } => {
                return broken(format!("{id}: {response:?} is not for us"));
            }
            Response::Exception(exception) => job.failed |= exception.severity == 0,
            Response::Finish { status } => {
                if job.finish.is_some_and(|finish| finish != *status) {
                    return broken(format!("{id}: two different statuses"));
                }
                job.finish = Some(*status);
            }
            Response::Release { ranks, is_final } => {
                let ranks = if ranks == "all" {
                    job.ranks.difference(&job.released)
                } else {
                    ranks.parse().unwrap_or_default()
                };
                job.released = job.released.union(&ranks);
                if *is_final {
                    if job.released != job.ranks {
                        let missing = job.ranks.difference(&job.released);
                        return broken(format!("{id}: ended without releasing {missing}"));
                    }
                    job.ended = true;
                }
            }
        }
        Ok(())
    }
}
