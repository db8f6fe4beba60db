//! Which nodes are drained: this instance's resource module tells, and the eventlog of the job that
//! this instance is in its parent (`rfc/0012-perilog.md`, 12.5).

use std::rc::Rc;

use serde_json::{Value, json};

use super::{Driver, Futures, Handle, RpcError};
use crate::machine::{Event, Level};
use crate::proto::{BrokerMapping, DegradedNodes, JobId, ResourceNews, WallTime};

/// flux-core `resource/reslog.c`
const JOURNAL: &str = "resource.journal";
/// flux-core `job-info/watch.c`
const WATCH: &str = "job-info.eventlog-watch";

/// Follows what rank 0's resource module tells.
pub fn watch_nodes(futures: &Futures, driver: &Rc<Driver>) {
    let driver = Rc::downgrade(driver);
    futures.stream(JOURNAL, 0, "{}", move |result| {
        let Some(driver) = driver.upgrade() else { return };
        match result.map(|text| ResourceNews::read(&text)) {
            Ok(Ok(news)) => driver.handle(Event::Resources(news)),
            Ok(Err(error)) => driver.log(Level::Error, &format!("{JOURNAL}: {error}")),
            // There is nothing that could drain nodes.
            Err(RpcError { errnum: libc::ENOSYS, .. }) => (),
            // The resource module is unloaded, mostly because the broker ends.
            Err(RpcError { errnum: libc::ENODATA, .. }) => {
                driver.log(Level::Info, &format!("{JOURNAL} has ended: no drained nodes are told"));
            }
            Err(error) => {
                let text = "jobs are not told of drained nodes until this module is loaded again";
                driver.log(Level::Warning, &format!("{text}: {JOURNAL}: {error}"));
            }
        }
    });
}

/// A connection to the parent instance, which tells of this instance's nodes.
pub struct ParentWatch {
    parent: Handle,
    /// Emptied before the connection is closed.
    futures: Option<Futures>,
}

/// What an instance knows of itself as a job.
pub struct OwnJob {
    /// Of the parent's broker on rank 0's node.
    pub parent_uri: String,
    /// Its id there.
    pub id: JobId,
    /// Which of its brokers run on which of the job's nodes.
    pub mapping: BrokerMapping,
    /// How many brokers it has.
    pub size: u32,
}

impl ParentWatch {
    /// Begins to follow the job's eventlog. If the parent cannot be reached, that is logged.
    pub fn start(handle: Handle, job: OwnJob, driver: &Rc<Driver>) -> Option<Self> {
        let parent = match handle.connect_beside(&job.parent_uri) {
            Ok(parent) => parent,
            Err(error) => {
                let text = "nodes that the parent instance drains are not drained here";
                driver.log(Level::Warning, &format!("{text}: {error}"));
                return None;
            }
        };
        let futures = Futures::new(parent);
        let payload = json!({ "id": job.id, "path": "eventlog", "flags": 0 }).to_string();
        let driver = Rc::downgrade(driver);
        futures.stream_anywhere(WATCH, &payload, move |result| {
            let Some(driver) = driver.upgrade() else { return };
            match result {
                Ok(text) => read(&text, &job).into_iter().for_each(|event| driver.handle(event)),
                // The job has ended, and so does this instance.
                Err(RpcError { errnum: libc::ENODATA, .. }) => (),
                Err(error) => {
                    let text = "nodes that the parent instance drains are no longer drained here";
                    driver.log(Level::Warning, &format!("{text}: {error}"));
                }
            }
        });
        Some(Self { parent, futures: Some(futures) })
    }
}

impl Drop for ParentWatch {
    fn drop(&mut self) {
        drop(self.futures.take());
        self.parent.close();
    }
}

/// Reads an answer of the watch: one event of the eventlog.
fn read(answer: &str, job: &OwnJob) -> Option<Event> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    let entry: Value = serde_json::from_str(answer["event"].as_str()?).ok()?;
    let nodes = DegradedNodes::from_entry(&entry)?;
    let brokers_of = |shell| job.mapping.brokers_of(&[shell].into_iter().collect(), job.size);
    let shells = nodes.shell_ranks.iter().map(brokers_of);
    Some(Event::ParentDegraded {
        at: WallTime(entry["timestamp"].as_f64()?),
        nodes: shells.zip(nodes.reasons).collect(),
    })
}
