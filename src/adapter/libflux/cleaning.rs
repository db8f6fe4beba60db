//! Jobs in CLEANUP: they are held there, and found again (`rfc/0008-recovery.md`, 8.3).

use std::fmt::Display;

use serde::Deserialize;
use serde_json::{Value, json};

use super::error::RpcError;
use super::flow::Promise;
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

/// Pause before what was not answered is asked again, in seconds.
const AGAIN_PAUSE: f64 = if cfg!(test) { 0.01 } else { 2.0 };

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
    /// Posts an event to a job's own eventlog, if there is one to post.
    pub(super) async fn post(&self, id: JobId, event: &JobEvent) -> Result<(), RpcError> {
        let owner = nix::unistd::getuid().as_raw();
        let Some(payload) = event.encode(id, owner) else { return Ok(()) };
        self.futures().ask(POST, &payload.to_string()).await.map(drop)
    }

    /// Holds a job in CLEANUP, and waits until the KVS has it.
    ///
    /// # Errors
    /// The job manager does not hold it.
    pub(super) async fn hold(&self, id: JobId) -> Result<(), Fault> {
        self.post(id, &JobEvent::EpilogStart).await?;
        // The job may have come to its end meanwhile.
        let was_held = |eventlog: &str| JobEventlog::read(eventlog).was_held;
        let key = id.kvs_key("eventlog");
        // Without an eventlog it was purged. It is held otherwise, and has to be let go.
        let _ = self.insist(&key, || self.watch_until(&key, was_held)).await;
        Ok(())
    }

    /// Waits until the KVS has the final release of a job. If its eventlog cannot be read, because the
    /// job was purged or the KVS serves no watches, there is nothing to wait for.
    pub(super) async fn await_release(&self, id: JobId) {
        let is_kept = |eventlog: &str| JobEventlog::read(eventlog).is_released;
        let _ = self.watch_until(&id.kvs_key("eventlog"), is_kept).await;
    }

    /// Has a job's eventlog say an event, unless it says it already, and waits until the KVS has it.
    /// `Ok(true)`: it did not say it before.
    pub(super) async fn tell(&self, id: JobId, event: JobEvent) -> Result<bool, Fault> {
        let payload = json!({ "id": id, "attrs": ["eventlog"] }).to_string();
        let text = self.futures().ask("job-manager.getattr", &payload).await?;
        let Attributes { eventlog } = serde_json::from_str(&text)
            .map_err(|error| Fault::new(libc::EPROTO, format!("job-manager.getattr: {error}")))?;
        let is_new = !eventlog.iter().any(|entry| event.is_said_by(entry));
        if is_new {
            self.post(id, &event).await?;
        }
        // The job manager commits its events later than it answers.
        let is_told = move |eventlog: &str| {
            JobEventlog::entries(eventlog).any(|entry| event.is_said_by(&entry))
        };
        self.watch_until(&id.kvs_key("eventlog"), is_told).await?;
        Ok(is_new)
    }

    /// Lists the jobs that run or are in CLEANUP. One request lists all active jobs: the job manager
    /// has no other that does not depend on a further module.
    ///
    /// The job manager has sent the start requests of all jobs that run before it reads this request,
    /// because its answer to hello came before (`hello_cb()`).
    pub(super) async fn list_active(&self) -> Result<Listing, String> {
        let failed =
            |why: &dyn Display| format!("jobs in CLEANUP cannot be found: job-manager.list: {why}");
        let payload = json!({ "max_entries": 0 });
        let answer = self.ask_until_answered("job-manager.list", &payload).await;
        let List { jobs } = serde_json::from_str(&answer.map_err(|error| failed(&error))?)
            .map_err(|error| failed(&error))?;
        let jobs_in = |state| {
            let jobs = jobs.iter().filter(move |job| job.state == state);
            jobs.map(|job| job.id).collect()
        };
        Ok(Listing { run: jobs_in(RUN), cleanup: jobs_in(CLEANUP) })
    }

    /// What there is to do for a job in CLEANUP, if anything.
    ///
    /// The job manager is asked for the eventlog, because the KVS has it later: it lacks what a
    /// module that was unloaded a moment ago has posted. A second hold would never end. `R` and
    /// `jobspec` were committed before, and the job manager has only parts of them.
    pub(super) async fn read_cleaning(&self, id: JobId) -> Result<Option<Cleaning>, String> {
        let payload = json!({ "id": id, "attrs": ["eventlog"] });
        // Without an answer it has ended meanwhile.
        let answer = self.ask_until_answered("job-manager.getattr", &payload).await;
        let Ok(text) = answer else { return Ok(None) };
        let Attributes { eventlog } = serde_json::from_str(&text)
            .map_err(|error| unled(id, &format!("job-manager.getattr: {error}")))?;
        let log: JobEventlog = eventlog.into_iter().collect();
        if !log.wants_end() {
            return Ok(None);
        }
        // What the start request was made from.
        let r = self.read(id, "R").await?;
        let jobspec = self.read(id, "jobspec").await?;
        Cleaning::read(id, log, &jobspec, &r).map_err(|why| unled(id, &why))
    }

    async fn read(&self, id: JobId, key: &str) -> Result<String, String> {
        let name = id.kvs_key(key);
        let found = self.insist(&name, || self.lookup(None, &name, false)).await;
        found.map_err(|error| unled(id, &format!("{key}: {error}")))
    }

    async fn ask_until_answered(&self, topic: &str, payload: &Value) -> Result<String, RpcError> {
        let payload = payload.to_string();
        self.insist(topic, || self.futures().ask(topic, &payload)).await
    }

    /// Asks, and asks again after each error but the one that says that nothing is there. The log says
    /// once that there is no answer, and once that there is one after all.
    async fn insist<T>(
        &self,
        what: &str,
        ask: impl Fn() -> Promise<Result<T, RpcError>>,
    ) -> Result<T, RpcError> {
        let mut has_failed = false;
        loop {
            let answer = ask().await;
            if let Err(error) = &answer
                && error.errnum != libc::ENOENT
            {
                if !has_failed {
                    let text = format!("jobs in CLEANUP: {what}: {error}: it is asked again");
                    self.handle().log(libc::LOG_ERR, &text);
                }
                has_failed = true;
                self.futures().pause(AGAIN_PAUSE).await;
                continue;
            }
            if has_failed {
                let text = format!("jobs in CLEANUP: {what}: answered");
                self.handle().log(libc::LOG_INFO, &text);
            }
            return answer;
        }
    }
}

/// The owner can still free the job.
fn unled(id: JobId, why: &impl Display) -> String {
    format!(
        "{id}: is in CLEANUP, and cannot be led to its end: {why}. `flux post-job-event {id} \
         epilog-finish` frees its resources"
    )
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::Write;
    use std::rc::Rc;

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

    /// Runs a flow over a handle that leads back to this process, until it has ended.
    fn run<T: 'static>(
        test: &str,
        services: impl FnOnce(Handle) -> Vec<MessageHandler>,
        flow: impl AsyncFnOnce(Kvs) -> T + 'static,
    ) -> Option<T> {
        if let Err(why) = flux_sys::load() {
            // What a test prints is shown only if it fails.
            let _ = writeln!(std::io::stderr(), "skipped: cleaning::{test}: {why}");
            return None;
        }
        // SAFETY: the address is a string; the handle is used by this thread alone.
        let handle = unsafe { Handle::new(libflux().flux_open(c"loop://".as_ptr(), 0)) };
        let handle = handle.expect("a handle that leads back to itself");
        let futures = Rc::new(Futures::new(handle));
        let services = services(handle);
        let kvs = Kvs::new(handle, Rc::clone(&futures));
        let ended = Rc::new(RefCell::new(None));
        let outcome = Rc::clone(&ended);
        futures.spawn(async move {
            outcome.replace(Some(flow(kvs).await));
            handle.stop_reactor();
        });
        handle.run_reactor().expect("run");
        drop(services);
        futures.close();
        handle.close();
        ended.take()
    }

    /// [cleanup-found]
    #[test]
    fn what_is_not_answered_is_asked_again() {
        let services = |handle| {
            let list = r#"{"jobs":[{"id":7,"state":16},{"id":8,"state":32}]}"#;
            vec![
                service(handle, "job-manager.list", list),
                service(handle, "job-manager.getattr", r#"{"eventlog":[]}"#),
            ]
        };
        let found = run("what_is_not_answered_is_asked_again", services, async |kvs| {
            let Listing { run, cleanup } = kvs.list_active().await.expect("a list");
            let cleaning = kvs.read_cleaning(cleanup[0]).await.expect("an eventlog");
            (run, cleanup, cleaning)
        });
        if let Some(found) = found {
            assert_eq!(found, (vec![JobId(7)], vec![JobId(8)], None));
        }
    }

    /// [cleanup-held]. Who hears that it could not be held lets nobody go.
    #[test]
    fn a_hold_is_looked_for_until_the_kvs_can_be_watched() {
        let test = "a_hold_is_looked_for_until_the_kvs_can_be_watched";
        // Its eventlog has the `epilog-start` of this service.
        let eventlog = r#"{"val":{"data":"eyJ0aW1lc3RhbXAiOjEuMCwibmFtZSI6ImVwaWxvZy1zdGFydCIsImNvbnRleHQiOnsiZGVzY3JpcHRpb24iOiJqb2ItZXhlYy1ycyJ9fQo=","type":"val","ver":1}}"#;
        let services =
            |handle| vec![service(handle, POST, ""), service(handle, "kvs-watch.lookup", eventlog)];
        let held = run(test, services, async |kvs| {
            let mut held = Vec::new();
            for _ in 0..3 {
                held.push(kvs.hold(JobId(7)).await.is_ok());
            }
            held
        });
        if let Some(held) = held {
            assert_eq!(held, [false, false, true], "two posts are refused, and then two watches");
        }
    }
}
