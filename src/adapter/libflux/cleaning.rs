//! Jobs in CLEANUP: they are held there, and found again (`rfc/0008-recovery.md`, 8.3).

use std::rc::Rc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::error::RpcError;
use super::kvs::Kvs;
use crate::machine::{Fault, Listing};
use crate::proto::{Cleaning, JobEvent, JobEventlog, JobId};

/// `FLUX_JOB_STATE_RUN` and `FLUX_JOB_STATE_CLEANUP` (flux-core `libjob/job.h`).
const RUN: u64 = 16;
const CLEANUP: u64 = 32;
/// The job manager's built-in plugin that posts events (flux-core `plugins/post-event.c`).
const POST: &str = "job-manager.post-event.post";

/// The answer to `job-manager.getattr` (flux-core `job-manager/getattr.c`).
#[derive(Deserialize)]
struct Attributes {
    eventlog: Vec<Value>,
}

/// A job in CLEANUP, and what there is to do for it, if anything.
type Found = (JobId, Option<Cleaning>);
/// Takes each job that is found, or says what is wrong with one.
type Each = Rc<dyn Fn(Result<Found, String>)>;

/// Pause before what was not answered is asked again, in seconds.
const AGAIN_PAUSE: f64 = if cfg!(test) { 0.01 } else { 2.0 };

type Answered = Box<dyn FnOnce(Result<String, RpcError>)>;
type Ask = Rc<dyn Fn(&Kvs, Answered)>;

/// The answer to `job-manager.list`.
#[derive(Deserialize)]
struct List {
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

    /// Waits until the KVS has the final release of a job. If its eventlog cannot be read, because the
    /// job was purged or the KVS serves no watches, there is nothing to wait for.
    pub(super) fn await_release(&self, id: JobId, done: impl FnOnce() + 'static) {
        let is_kept = |eventlog: &str| JobEventlog::read(eventlog).is_released;
        self.watch_until(&id.kvs_key("eventlog"), is_kept, |_| done());
    }

    /// Has a job's eventlog say an event, unless it says it already, and waits until the KVS has it.
    /// `Ok(true)`: it did not say it before.
    pub(super) fn tell(
        &self,
        id: JobId,
        event: JobEvent,
        done: impl FnOnce(Result<bool, Fault>) + 'static,
    ) {
        let this = self.clone();
        let payload = json!({ "id": id, "attrs": ["eventlog"] }).to_string();
        self.futures().rpc("job-manager.getattr", None, &payload, move |result| {
            let said = result.map_err(Fault::from).and_then(|text| {
                let attributes = serde_json::from_str::<Attributes>(&text);
                let wrong =
                    |error| Fault::new(libc::EPROTO, format!("job-manager.getattr: {error}"));
                Ok(attributes.map_err(wrong)?.eventlog.iter().any(|entry| event.is_said_by(entry)))
            });
            match said {
                Err(fault) => done(Err(fault)),
                Ok(true) => this.wait_told(id, event, move |result| done(result.map(|()| false))),
                Ok(false) => this.clone().post(id, &event.clone(), move |posted| match posted {
                    Err(error) => done(Err(error.into())),
                    Ok(_) => this.wait_told(id, event, move |result| done(result.map(|()| true))),
                }),
            }
        });
    }

    /// The job manager commits its events later than it answers.
    fn wait_told(
        &self,
        id: JobId,
        event: JobEvent,
        done: impl FnOnce(Result<(), Fault>) + 'static,
    ) {
        let says = move |eventlog: &str| {
            JobEventlog::entries(eventlog).any(|entry| event.is_said_by(&entry))
        };
        let done = |result: Result<(), RpcError>| done(result.map_err(Fault::from));
        self.watch_until(&id.kvs_key("eventlog"), says, done);
    }

    /// Finds the jobs in CLEANUP that have to be led to their end. One request lists all active
    /// jobs: the job manager has no other that does not depend on a further module.
    ///
    /// `listed` comes first. The job manager has sent the start requests of all jobs that run before
    /// it reads the list request, because its answer to hello came before (`hello_cb()`).
    pub(super) fn find_cleaning(
        &self,
        listed: impl FnOnce(Listing) + 'static,
        each: impl Fn(Result<Found, String>) + 'static,
    ) {
        let (this, each): (Self, Each) = (self.clone(), Rc::new(each));
        let payload = json!({ "max_entries": 0 });
        self.insist("job-manager.list", payload, move |result| {
            let failed = |reason: String| {
                format!("jobs in CLEANUP cannot be found: job-manager.list: {reason}")
            };
            let listing = result.map_err(|error| failed(error.to_string())).and_then(|text| {
                serde_json::from_str::<List>(&text).map_err(|error| failed(error.to_string()))
            });
            match listing {
                Ok(List { jobs }) => {
                    let jobs_in = |state| {
                        let jobs = jobs.iter().filter(move |job| job.state == state);
                        jobs.map(|job| job.id).collect::<Vec<JobId>>()
                    };
                    let (run, cleanup) = (jobs_in(RUN), jobs_in(CLEANUP));
                    listed(Listing { run, cleanup: cleanup.clone() });
                    for id in cleanup {
                        this.read_cleaning(id, Rc::clone(&each));
                    }
                }
                Err(text) => each(Err(text)),
            }
        });
    }

    /// The job manager is asked for the eventlog, because the KVS has it later: it lacks what a
    /// module that was unloaded a moment ago has posted. A second hold would never end. `R` and
    /// `jobspec` were committed before, and the job manager has only parts of them.
    fn read_cleaning(&self, id: JobId, each: Each) {
        let payload = json!({ "id": id, "attrs": ["eventlog"] });
        let this = self.clone();
        self.insist("job-manager.getattr", payload, move |result| {
            if result.as_ref().is_err_and(|error| error.errnum == libc::ENOENT) {
                // It has ended meanwhile.
                return each(Ok((id, None)));
            }
            let attributes = result.map_err(|error| error.to_string()).and_then(|text| {
                serde_json::from_str::<Attributes>(&text).map_err(|error| error.to_string())
            });
            match attributes {
                Err(error) => each(Err(unled(id, &format!("job-manager.getattr: {error}")))),
                Ok(Attributes { eventlog }) => {
                    let log: JobEventlog = eventlog.into_iter().collect();
                    if log.wants_end() {
                        this.read_request(id, log, each);
                    } else {
                        each(Ok((id, None)));
                    }
                }
            }
        });
    }

    /// Reads what the start request was made from.
    fn read_request(&self, id: JobId, log: JobEventlog, each: Each) {
        let this = self.clone();
        self.read(id, "R", Rc::clone(&each), move |r| {
            this.read(id, "jobspec", Rc::clone(&each), move |jobspec| {
                match Cleaning::read(id, log, &jobspec, &r) {
                    Ok(cleaning) => each(Ok((id, cleaning))),
                    Err(error) => each(Err(unled(id, &error))),
                }
            });
        });
    }

    fn read(&self, id: JobId, key: &'static str, each: Each, then: impl FnOnce(String) + 'static) {
        let name = id.kvs_key(key);
        let what = name.clone();
        let ask: Ask = Rc::new(move |kvs, done| kvs.lookup_then(None, &name, false, done));
        let then: Answered = Box::new(move |result| match result {
            Ok(text) => then(text),
            Err(error) => each(Err(unled(id, &format!("{key}: {error}")))),
        });
        self.ask_until_answered(what, ask, then, false);
    }

    /// Asks the job manager until it answers.
    fn insist(
        &self,
        topic: &'static str,
        payload: Value,
        then: impl FnOnce(Result<String, RpcError>) + 'static,
    ) {
        let payload = payload.to_string();
        let ask: Ask = Rc::new(move |kvs, done| kvs.futures().rpc(topic, None, &payload, done));
        self.ask_until_answered(topic.to_string(), ask, Box::new(then), false);
    }

    /// Asks, and asks again after each error but the one that says that nothing is there. The log says
    /// once that there is no answer, and once that there is one after all.
    fn ask_until_answered(&self, what: String, ask: Ask, then: Answered, has_failed: bool) {
        let this = self.clone();
        let again = Rc::clone(&ask);
        ask(
            self,
            Box::new(move |result| match result {
                Err(error) if error.errnum != libc::ENOENT => {
                    if !has_failed {
                        let text = format!("jobs in CLEANUP: {what}: {error}: it is asked again");
                        this.handle().log(libc::LOG_ERR, &text);
                    }
                    let kvs = this.clone();
                    this.futures().after(AGAIN_PAUSE, move || {
                        kvs.ask_until_answered(what, again, then, true);
                    });
                }
                result => {
                    if has_failed {
                        let text = format!("jobs in CLEANUP: {what}: answered");
                        this.handle().log(libc::LOG_INFO, &text);
                    }
                    then(result);
                }
            }),
        );
    }
}

/// The owner can still free the job.
fn unled(id: JobId, why: &impl std::fmt::Display) -> String {
    format!(
        "{id}: is in CLEANUP, and cannot be led to its end: {why}. `flux post-job-event {id} \
         epilog-finish` frees its resources"
    )
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::Write;

    use flux_sys::libflux;

    use super::super::{Futures, Handle, Message, MessageHandler};
    use super::*;

    /// Refuses the first two requests, then answers.
    fn service(handle: Handle, topic: &str, answer: &'static str) -> MessageHandler {
        let refused = RefCell::new(0);
        let body = move |message: Message| {
            let mut refused = refused.borrow_mut();
            let sent = if *refused < 2 {
                *refused += 1;
                message.respond_error(handle, libc::EIO, "no")
            } else {
                message.respond(handle, Some(answer))
            };
            sent.expect("sent");
        };
        MessageHandler::new(handle, topic, false, false, body).expect("a handler")
    }

    /// [cleanup-found]
    #[test]
    fn what_is_not_answered_is_asked_again() {
        if let Err(why) = flux_sys::load() {
            let test = "cleaning::what_is_not_answered_is_asked_again";
            // What a test prints is shown only if it fails.
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
            return;
        }
        // SAFETY: the address is a string; the handle is used by this thread alone.
        let handle = unsafe { Handle::new(libflux().flux_open(c"loop://".as_ptr(), 0)) };
        let handle = handle.expect("a handle that leads back to itself");
        let futures = Rc::new(Futures::new(handle));
        let list = r#"{"jobs":[{"id":7,"state":16},{"id":8,"state":32}]}"#;
        let services = [
            service(handle, "job-manager.list", list),
            service(handle, "job-manager.getattr", r#"{"eventlog":[]}"#),
        ];
        let listings = Rc::new(RefCell::new(Vec::new()));
        let listed = Rc::clone(&listings);
        let found = Rc::new(RefCell::new(Vec::new()));
        let each = Rc::clone(&found);
        Kvs::new(handle, Rc::clone(&futures)).find_cleaning(
            move |listing| listed.borrow_mut().push((listing.run, listing.cleanup)),
            move |result| {
                each.borrow_mut().push(result.map(|(id, cleaning)| (id, cleaning.is_some())));
                handle.stop_reactor();
            },
        );
        handle.run_reactor().expect("run");
        assert_eq!(*listings.borrow(), [(vec![JobId(7)], vec![JobId(8)])]);
        assert_eq!(*found.borrow(), [Ok((JobId(8), false))]);
        drop(services);
        futures.close();
        handle.close();
    }
}
