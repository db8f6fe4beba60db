//! Jobs in CLEANUP: they are held there, and found again (`rfc/0008-recovery.md`, 8.3).

use std::rc::Rc;

use serde::Deserialize;
use serde_json::json;

use super::error::RpcError;
use super::kvs::Kvs;
use crate::machine::Fault;
use crate::proto::{Cleaning, JobEvent, JobEventlog, JobId};

/// `FLUX_JOB_STATE_CLEANUP` (flux-core `libjob/job.h`).
const CLEANUP: u64 = 32;
/// The job manager's built-in plugin that posts events (flux-core `plugins/post-event.c`).
const POST: &str = "job-manager.post-event.post";

/// Takes each job that is found, or says what is wrong with one.
type Each = Rc<dyn Fn(Result<Cleaning, String>)>;

/// The answer to `job-manager.list`.
#[derive(Deserialize)]
struct Listing {
    jobs: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    id: JobId,
    state: u64,
}

impl Kvs {
    /// Posts an event to a job's own eventlog.
    pub(super) fn post(
        &self,
        id: JobId,
        event: &JobEvent,
        done: impl FnOnce(Result<String, RpcError>) + 'static,
    ) {
        let owner = nix::unistd::getuid().as_raw();
        if let Some(payload) = event.encode(id, owner) {
            self.futures().rpc(POST, None, &payload.to_string(), done);
        }
    }

    /// Holds a job in CLEANUP, and waits until the KVS has it.
    pub(super) fn hold(&self, id: JobId, done: impl FnOnce(Result<(), Fault>) + 'static) {
        let this = self.clone();
        self.post(id, &JobEvent::EpilogStart, move |posted| match posted {
            Err(error) => done(Err(error.into())),
            Ok(_) => this.watch_until(
                &id.kvs_key("eventlog"),
                // The job may have come to its end meanwhile.
                |eventlog| JobEventlog::read(eventlog).was_held,
                |result| done(result.map_err(Fault::from)),
            ),
        });
    }

    /// Finds the jobs in CLEANUP that have to be led to their end. One request lists all active
    /// jobs: the job manager has no other that does not depend on a further module.
    pub(super) fn find_cleaning(&self, each: impl Fn(Result<Cleaning, String>) + 'static) {
        let (this, each): (Self, Each) = (self.clone(), Rc::new(each));
        let payload = json!({ "max_entries": 0 }).to_string();
        self.futures().rpc("job-manager.list", None, &payload, move |result| {
            let failed = |reason: String| {
                format!("jobs in CLEANUP cannot be found: job-manager.list: {reason}")
            };
            let listing = result.map_err(|error| failed(error.to_string())).and_then(|text| {
                serde_json::from_str::<Listing>(&text).map_err(|error| failed(error.to_string()))
            });
            match listing {
                Ok(Listing { jobs }) => {
                    for job in jobs.iter().filter(|job| job.state == CLEANUP) {
                        this.clone().read_cleaning(job.id, Rc::clone(&each));
                    }
                }
                Err(text) => each(Err(text)),
            }
        });
    }

    fn read_cleaning(self, id: JobId, each: Each) {
        let this = self.clone();
        self.read(id, "eventlog", Rc::clone(&each), move |eventlog| {
            let log = JobEventlog::read(&eventlog);
            if !log.wants_end() {
                return;
            }
            let next = this.clone();
            this.read(id, "R", Rc::clone(&each), move |r| {
                next.read(id, "jobspec", Rc::clone(&each), move |jobspec| {
                    match Cleaning::read(id, log, &jobspec, &r) {
                        Ok(Some(cleaning)) => each(Ok(cleaning)),
                        Ok(None) => (),
                        Err(error) => each(Err(unled(id, &error))),
                    }
                });
            });
        });
    }

    fn read(&self, id: JobId, key: &'static str, each: Each, then: impl FnOnce(String) + 'static) {
        self.lookup(None, &id.kvs_key(key), false, move |result| match result {
            Ok(text) => then(text),
            Err(error) => each(Err(unled(id, &format!("{key}: {error}")))),
        });
    }
}

/// The owner can still free the job.
fn unled(id: JobId, why: &impl std::fmt::Display) -> String {
    format!(
        "{id}: is in CLEANUP, and cannot be led to its end: {why}. `flux post-job-event {id} \
         epilog-finish` frees its resources"
    )
}
