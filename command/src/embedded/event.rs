//! The events of an instance, for its observer.

use job_exec_rs::machine::Level;
use job_exec_rs::port::supervisor::Method;
use job_exec_rs::proto::{
    BrokerRank, Exception, ExecEvent, Idset, JobId, Stream, UnitName, WaitStatus, WallTime,
};
use serde_json::{Value, json};

/// One thing that happened, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceEvent {
    /// Seconds since the epoch.
    pub timestamp: WallTime,
    /// The job that it is about.
    pub id: Option<JobId>,
    /// What happened.
    pub what: Happening,
}

/// Everything that can happen. Names in JSON are those of RFC 21 and RFC 50 where they exist.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// The job of an earlier instance in the same directory goes on.
    Adopted {
        /// Its command.
        command: Vec<String>,
    },
    /// The job got its ranks.
    Alloc {
        /// The ranks.
        ranks: Idset,
    },
    /// The job is over for the job manager: all ranks are released.
    Clean,
    /// A real instance would drain these ranks now.
    Drain {
        /// Which ranks.
        ranks: Idset,
        /// Why.
        reason: String,
    },
    /// An exception was raised on the job.
    Exception(Exception),
    /// An entry of the job's exec eventlog is in the KVS.
    Exec(ExecEvent),
    /// All shells have ended.
    Finish {
        /// The largest wait status of all shells.
        status: WaitStatus,
    },
    /// A unit of an earlier instance that was killed was found in the same directory. It is being
    /// stopped.
    Leftover {
        /// Which.
        unit: UnitName,
    },
    /// A line for the broker's log.
    Log {
        /// The rank that logs it.
        rank: BrokerRank,
        /// Its level.
        level: Level,
        /// The line.
        text: String,
    },
    /// Another shell is lost. A real leader shell would be told.
    LostShell {
        /// The lost one's shell rank.
        rank: u32,
        /// Why it is lost. Empty if an exception says so.
        message: String,
    },
    /// Bytes that a command wrote. They have no JSON of their own, because the `log` events of the
    /// exec eventlog have them.
    Output {
        /// On which rank.
        rank: BrokerRank,
        /// To which stream.
        stream: Stream,
        /// The bytes.
        data: Vec<u8>,
    },
    /// The supervisors of all ranks are ready.
    Ready {
        /// How commands are started.
        method: Method,
        /// Why no better method is used, if there is a reason.
        notice: Option<String>,
    },
    /// All shells of a job that had started before were found again.
    Reattached,
    /// The job has released ranks.
    Release {
        /// Which: an idset, or `all`.
        ranks: String,
        /// Whether these were the last ranks.
        is_final: bool,
    },
    /// All shells have started.
    Start,
    /// A job was submitted.
    Submit {
        /// Its command.
        command: Vec<String>,
    },
    /// A unit's program has exited.
    UnitExited {
        /// Which.
        unit: UnitName,
        /// Its wait status.
        status: WaitStatus,
    },
    /// A unit was not started.
    UnitFailed {
        /// Which.
        unit: UnitName,
        /// Why.
        message: String,
    },
    /// No process of a unit is left.
    UnitGone {
        /// Which.
        unit: UnitName,
    },
    /// The main process of a unit lives outside of it.
    UnitLeft {
        /// Which.
        unit: UnitName,
    },
    /// A unit was started and can't be found.
    UnitLost {
        /// Which.
        unit: UnitName,
        /// Why.
        message: String,
    },
    /// A unit's program runs.
    UnitStarted {
        /// Which.
        unit: UnitName,
        /// Its main process.
        pid: u32,
    },
}

impl InstanceEvent {
    /// The event as a JSON object with `timestamp`, `source`, `name` and, if it has them, `id` and
    /// `context`. This is an RFC 18 event; `source` is the eventlog that it would be in. `None` if
    /// another event has the same contents.
    pub fn to_json(&self) -> Option<Value> {
        let (source, name, context) = match &self.what {
            Happening::Exec(event) => {
                ("exec.eventlog", event.name.as_str(), Value::Object(event.context.clone()))
            }
            what => describe(what)?,
        };
        let mut event = json!({ "timestamp": self.timestamp, "source": source, "name": name });
        if let Some(id) = self.id {
            event["id"] = json!(id.to_string());
        }
        if context.as_object().is_some_and(|context| !context.is_empty()) {
            event["context"] = context;
        }
        Some(event)
    }
}

fn describe(what: &Happening) -> Option<(&'static str, &'static str, Value)> {
    const JOB: &str = "eventlog";
    const UNIT: &str = "unit";
    const INSTANCE: &str = "instance";
    let of = |unit: &UnitName| json!({ "unit": unit, "rank": unit.rank() });
    let with = |mut object: Value, key: &str, value: Value| {
        object[key] = value;
        object
    };
    Some(match what {
        // The caller handles events of the exec eventlog. Output is in its `log` events.
        Happening::Exec(_) | Happening::Output { .. } => return None,
        Happening::Adopted { command } => (JOB, "adopted", json!({ "command": command })),
        Happening::Alloc { ranks } => (JOB, "alloc", json!({ "ranks": ranks.to_string() })),
        Happening::Clean => (JOB, "clean", Value::Null),
        Happening::Drain { ranks, reason } => {
            (INSTANCE, "drain", json!({ "ranks": ranks.to_string(), "reason": reason }))
        }
        Happening::Exception(exception) => (JOB, "exception", json!(exception)),
        Happening::Finish { status } => (JOB, "finish", json!({ "status": status })),
        Happening::Leftover { unit } => (UNIT, "leftover", of(unit)),
        Happening::Log { rank, level, text } => {
            let level = format!("{level:?}").to_lowercase();
            (INSTANCE, "log", json!({ "rank": rank, "level": level, "text": text }))
        }
        Happening::LostShell { rank, message } => {
            (JOB, "lost-shell", json!({ "shell_rank": rank, "message": message }))
        }
        Happening::Ready { method, notice } => {
            (INSTANCE, "ready", json!({ "method": method, "notice": notice }))
        }
        Happening::Reattached => (JOB, "reattached", Value::Null),
        Happening::Release { ranks, is_final } => {
            (JOB, "release", json!({ "ranks": ranks, "final": is_final }))
        }
        Happening::Start => (JOB, "start", Value::Null),
        Happening::Submit { command } => (JOB, "submit", json!({ "command": command })),
        Happening::UnitExited { unit, status } => {
            (UNIT, "exited", with(of(unit), "status", json!(status)))
        }
        Happening::UnitFailed { unit, message } => {
            (UNIT, "failed", with(of(unit), "message", json!(message)))
        }
        Happening::UnitGone { unit } => (UNIT, "gone", of(unit)),
        Happening::UnitLeft { unit } => (UNIT, "left", of(unit)),
        Happening::UnitLost { unit, message } => {
            (UNIT, "lost", with(of(unit), "message", json!(message)))
        }
        Happening::UnitStarted { unit, pid } => {
            (UNIT, "started", with(of(unit), "pid", json!(pid)))
        }
    })
}
