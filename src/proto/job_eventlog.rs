//! The job's own eventlog (RFC 21), which the job manager writes: `eventlog` in the job's directory
//! of the primary namespace.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    ExecEvent, Idset, JobException, JobId, ReleasedRanks, ResourceSet, Response, WaitStatus,
};

/// The description of our `epilog-start` and `epilog-finish`. It tells them from those of others.
pub const HOLD: &str = "job-exec-rs";

/// The name of [`JobEvent::NodeDegraded`].
pub const NODE_DEGRADED: &str = "node-degraded";

/// Degraded nodes of a job, and what is wrong with each: its prolog has marked it, or the instance
/// has drained or lost it while the job runs. All members are in the order of the ranks.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DegradedNodes {
    /// Broker ranks of the instance that runs the job.
    pub ranks: Idset,
    /// The job's shell ranks.
    pub shell_ranks: Idset,
    /// Host names, as a hostlist (RFC 29).
    pub nodelist: String,
    /// One for each node.
    pub reasons: Vec<String>,
}

impl DegradedNodes {
    /// Nodes of the job that has the resources R, with a reason for each.
    pub fn new(r: &ResourceSet, ranks: Idset, reasons: Vec<String>) -> Self {
        let shell_rank = |rank| r.shell_rank(rank).map(|shell| shell.0);
        let shell_ranks = ranks.ranks().filter_map(shell_rank).collect();
        Self { shell_ranks, nodelist: r.hosts(&ranks), reasons, ranks }
    }

    /// Reads an entry of an eventlog, if it is such an event.
    pub fn from_entry(entry: &Value) -> Option<Self> {
        if entry["name"] != NODE_DEGRADED {
            return None;
        }
        Self::deserialize(&entry["context"]).ok()
    }
}

/// An event that this service posts there itself (`job-manager.post-event.post`).
#[derive(Clone, Debug, PartialEq)]
pub enum JobEvent {
    /// `node-degraded`: prologs have marked nodes of the job, or the instance has drained them.
    NodeDegraded(DegradedNodes),
    /// `epilog-finish`: the job manager may free the job.
    EpilogFinish,
    /// `epilog-start`: the job manager frees the job only after an `epilog-finish`, also when it
    /// was started again meanwhile (flux-core `job-manager/event.c`, `event_job_action()`).
    EpilogStart,
    /// What the job manager posts for a response. It does so only for a job that it has asked for.
    Response(Response),
}

impl JobEvent {
    /// Whether an entry of an eventlog is this event.
    pub fn is_said_by(&self, entry: &Value) -> bool {
        let Some(event) = self.encode(JobId(0), 0) else { return false };
        entry["name"] == event["name"] && entry["context"] == event["context"]
    }

    /// The payload of the request. `owner` is the instance owner. None: there is no such event.
    pub fn encode(&self, id: JobId, owner: u32) -> Option<Value> {
        let response;
        let (name, context) = match self {
            Self::EpilogFinish => {
                ("epilog-finish", Some(json!({ "description": HOLD, "status": 0 })))
            }
            Self::EpilogStart => ("epilog-start", Some(json!({ "description": HOLD }))),
            Self::NodeDegraded(nodes) => (NODE_DEGRADED, Some(json!(nodes))),
            Self::Response(Response::Reattached {}) => return None,
            Self::Response(Response::Start {}) => ("start", None),
            Self::Response(said) => {
                response = said.encode(id);
                let mut context = response["data"].clone();
                if matches!(said, Response::Exception(_)) {
                    context["userid"] = json!(owner);
                }
                (response["type"].as_str()?, Some(context))
            }
        };
        let mut payload = json!({ "id": id, "name": name });
        if let Some(context) = context {
            payload["context"] = context;
        }
        Some(payload)
    }
}

/// How far a job is, according to its eventlog.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobEventlog {
    /// The job's user.
    pub userid: Option<u32>,
    /// It has resources: `alloc`, and no `free`.
    pub has_resources: bool,
    /// Its shells were started.
    pub is_started: bool,
    /// The type of its first fatal exception.
    pub exception: Option<String>,
    /// The status with which it has finished.
    pub finish: Option<WaitStatus>,
    /// Ranks that the job manager has received in partial releases.
    pub released: Idset,
    /// The job manager has received all ranks.
    pub is_released: bool,
    /// There is an `epilog-start` of ours without its `epilog-finish`.
    pub is_held: bool,
    /// There is an `epilog-start` of ours.
    pub was_held: bool,
}

impl JobEventlog {
    /// Reads an eventlog as the KVS has it.
    pub fn read(eventlog: &str) -> Self {
        Self::entries(eventlog).collect()
    }

    /// The entries of an eventlog as the KVS has it, one to a line. A line that cannot be read says
    /// nothing.
    pub fn entries(eventlog: &str) -> impl Iterator<Item = Value> {
        eventlog.lines().filter_map(|line| serde_json::from_str(line).ok())
    }

    fn add(&mut self, name: &str, context: &Map<String, Value>) {
        let is_ours = context.get("description").is_some_and(|text| text == HOLD);
        match name {
            "submit" => {
                self.userid = context.get("userid").and_then(|id| u32::deserialize(id).ok())
            }
            "alloc" => self.has_resources = true,
            "free" => self.has_resources = false,
            "start" => self.is_started = true,
            "exception" if context.get("severity").is_some_and(|severity| severity == 0) => {
                let kind = context.get("type").and_then(Value::as_str).unwrap_or_default();
                self.exception.get_or_insert_with(|| kind.to_string());
            }
            "finish" if self.finish.is_none() => {
                self.finish = context.get("status").and_then(|s| WaitStatus::deserialize(s).ok());
            }
            "release" => match context.get("final") {
                Some(Value::Bool(true)) => self.is_released = true,
                Some(Value::Bool(false)) => {
                    let ranks = context.get("ranks").map(ReleasedRanks::deserialize);
                    if let Some(Ok(ReleasedRanks::These(ranks))) = ranks {
                        self.released = self.released.union(&ranks);
                    }
                }
                _ => (),
            },
            "epilog-start" if is_ours => (self.is_held, self.was_held) = (true, true),
            "epilog-finish" if is_ours => self.is_held = false,
            _ => (), // events that say nothing about where the execution is
        }
    }

    /// The first fatal exception.
    pub fn job_exception(&self, id: JobId) -> Option<JobException> {
        let kind = self.exception.clone()?;
        Some(JobException { id, kind, severity: 0, wait_status: None })
    }
}

/// From events.
impl FromIterator<Value> for JobEventlog {
    fn from_iter<T: IntoIterator<Item = Value>>(events: T) -> Self {
        let mut log = Self::default();
        for event in events {
            if let Ok(event) = ExecEvent::deserialize(event) {
                log.add(&event.name, &event.context);
            }
        }
        log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: JobId = JobId(7);

    fn line(name: &str, context: Value) -> String {
        json!({ "timestamp": 1.0, "name": name, "context": context }).to_string() + "\n"
    }

    #[test]
    fn partial_releases_are_found_among_other_events() {
        let release =
            |ranks, is_final: bool| line("release", json!({ "ranks": ranks, "final": is_final }));
        let mut eventlog = line("submit", json!({ "userid": 1, "flags": 0 }));
        eventlog += "{\"timestamp\":2.0,\"name\":\"start\"}\nnonsense\n";
        eventlog += &release("5-6", false);
        eventlog += &release("x", false);
        eventlog += &release("9", false);
        let log = JobEventlog::read(&eventlog);
        assert_eq!((log.released.to_string().as_str(), log.is_released), ("5-6,9", false));
        assert_eq!((log.userid, log.is_started), (Some(1), true));
        eventlog += &release("7", true);
        let log = JobEventlog::read(&eventlog);
        assert_eq!((log.released.to_string().as_str(), log.is_released), ("5-6,9", true));
        assert_eq!(JobEventlog::read(""), JobEventlog::default());
    }

    #[test]
    fn only_our_own_hold_counts_and_the_first_fatal_exception() {
        let exception =
            |kind, severity| line("exception", json!({ "type": kind, "severity": severity }));
        let mut eventlog = line("alloc", json!({}));
        eventlog += &line("epilog-start", json!({ "description": "job-manager.epilog" }));
        eventlog += &exception("note", 1);
        eventlog += &exception("cancel", 0);
        eventlog += &exception("timeout", 0);
        let log = JobEventlog::read(&eventlog);
        assert!(log.has_resources && !log.is_held && !log.is_started);
        assert_eq!(log.job_exception(ID).map(|e| e.kind), Some("cancel".to_string()));
        let post = |event: &JobEvent| {
            let payload = event.encode(ID, 500).expect("an event");
            line(payload["name"].as_str().expect("a name"), payload["context"].clone())
        };
        eventlog += &post(&JobEvent::EpilogStart);
        assert!(JobEventlog::read(&eventlog).is_held);
        eventlog += &post(&JobEvent::EpilogFinish);
        eventlog += &line("free", json!({}));
        let log = JobEventlog::read(&eventlog);
        assert!(log.was_held && !log.is_held && !log.has_resources);
    }

    #[test]
    fn a_response_becomes_the_event_that_the_job_manager_posts() {
        let post = |response| JobEvent::Response(response).encode(ID, 500);
        let status = WaitStatus::exited(3);
        let said = |name, context: Value| Some(json!({"id": 7, "name": name, "context": context}));
        assert_eq!(post(Response::Finish { status }), said("finish", json!({"status": 0x300})));
        let ranks = ReleasedRanks::All;
        let release = said("release", json!({"ranks": "all", "final": true}));
        assert_eq!(post(Response::Release { ranks, is_final: true }), release);
        let exception = super::super::Exception::fatal("no");
        let raised = json!({"severity": 0, "type": "exec", "note": "no", "userid": 500});
        assert_eq!(post(Response::Exception(exception)), said("exception", raised));
        assert_eq!(post(Response::Start {}), Some(json!({"id": 7, "name": "start"})));
        assert_eq!(post(Response::Reattached {}), None);
    }
}
