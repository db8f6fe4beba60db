//! Messages between the modules of an instance: coordinator, leader and agents.
//!
//! Every request carries [`VERSION`]; a peer that speaks another is refused by name
//! (`rfc/0002-messages.md`).

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{BrokerRank, Idset, JobException, JobId, StartRequest, Stream, WaitStatus};

/// Version of these messages.
pub const VERSION: u32 = 4;

/// Topic of coordinator to leader, streaming, below the service name.
pub const LEAD: &str = "lead";
/// Topic of agent to parent or coordinator, below the service name.
pub const KNOWN: &str = "known";
/// Topic of coordinator to leader, without response, below the service name.
pub const COVERED: &str = "covered";
/// Topic of leader or parent to agent, streaming, below the service name.
pub const SHELLS: &str = "shells";
/// Topic of leader or parent to agent, without response, below the service name.
pub const ORDER: &str = "order";

/// Coordinator to leader: lead this job, and answer with RFC 32 responses.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LeadRequest {
    /// [`VERSION`].
    pub version: u32,
    /// The start request, without what no leader needs.
    pub start: StartRequest,
    /// The job is older than the coordinator: an earlier one may have had it started, although
    /// the job manager does not know it.
    #[serde(default)]
    pub again: bool,
    /// A fatal exception that was raised while there was no leader to hear it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<JobException>,
    /// Ranks whose modules were given up on: their shells count as lost.
    #[serde(default, skip_serializing_if = "Idset::is_empty")]
    pub lost: Idset,
    /// The status that an earlier leader has told the job manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<WaitStatus>,
    /// The largest status of shells that had ended before: their ranks may be gone.
    #[serde(default)]
    pub status: WaitStatus,
    /// Ranks that an earlier leader has released: they may belong to another job by now.
    #[serde(default, skip_serializing_if = "Idset::is_empty")]
    pub released: Idset,
}

/// What a [`KnownRequest`] wants to know.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// Of a leader: is it still the job's leader of this generation?
    Leader {
        /// As in [`ShellsRequest`].
        generation: u64,
    },
    /// Of the coordinator: does the job manager have this job running?
    Manager,
    /// Of a parent in the tree, or the leader: is the job still in its hands?
    Parent,
}

/// Agent to coordinator, parent or leader; leader to coordinator.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct KnownRequest {
    /// [`VERSION`].
    pub version: u32,
    /// The job.
    pub id: JobId,
    /// SHA-256 of what makes this job this job: its id may have been issued again.
    pub digest: String,
    /// What is asked.
    pub question: Question,
}

/// Coordinator to leader: a checkpoint of the KVS holds what was committed before.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CoveredRequest {
    /// [`VERSION`].
    pub version: u32,
    /// The job.
    pub id: JobId,
    /// SHA-256 of what makes this job this job.
    pub digest: String,
    /// The leader's last [`super::Response::Changed`] that it holds; 0 is none.
    pub mark: u64,
    /// It holds the job's end as well: nobody can ask for the job again.
    pub ended: bool,
}

/// Whether shells may be started.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Only report what is there.
    Adopt,
    /// Start what was never started.
    Start,
}

/// How to run one job's shells; the same for every rank.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ShellCommand {
    /// The job's owner.
    pub userid: u32,
    /// Shells that the job has.
    pub size: u32,
    /// Through the IMP, for a guest.
    pub multiuser: bool,
    /// SHA-256 of what makes this job this job.
    pub digest: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables on top of each broker's environment.
    pub environment: std::collections::BTreeMap<String, String>,
    /// `exec.sdexec-properties`.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub properties: std::collections::BTreeMap<String, String>,
    /// Seconds between SIGTERM and SIGKILL for what a shell leaves behind; none is for ever.
    #[serde(default, deserialize_with = "duration_in", skip_serializing_if = "Option::is_none")]
    pub stop_timeout: Option<f64>,
}

/// How much of one rank's output is in the exec eventlog already.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct OutputPosition {
    /// Which rank.
    pub rank: BrokerRank,
    /// Which stream.
    pub stream: Stream,
    /// Bytes from the beginning.
    pub offset: u64,
}

/// Leader, or parent, to agent: run (or find again) the job's shells on `ranks`, the first
/// hop's subtree, and answer with [`Reports`] until the job is forgotten.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ShellsRequest {
    /// [`VERSION`].
    pub version: u32,
    /// The job.
    pub id: JobId,
    /// Who asks: the leader's rank, or the parent's.
    pub parent: BrokerRank,
    /// The leader's rank.
    pub leader: BrokerRank,
    /// When the leader has asked, in seconds since the epoch by its clock: what reaches a rank
    /// much later may be from a leader that is no more.
    pub issued: f64,
    /// Counts the leaders of the job, from 1: an older one's messages may still be on their
    /// way. 0 if it is not known.
    pub generation: u64,
    /// The receiver and all ranks below it in the tree.
    pub ranks: Idset,
    /// Children of one node of the tree.
    pub arity: u32,
    /// Start or only report.
    pub mode: Mode,
    /// What to run.
    pub command: ShellCommand,
    /// Where output goes on; what is not named starts at 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<OutputPosition>,
}

/// Leader, or parent, to agent: act on the shells of `ranks`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct OrderRequest {
    /// [`VERSION`].
    pub version: u32,
    /// The job.
    pub id: JobId,
    /// The leader's, as in [`ShellsRequest`].
    pub generation: u64,
    /// The receiver, if it is among them, and ranks below it.
    pub ranks: Idset,
    /// What to do.
    pub order: Order,
}

/// What agents are told after the start.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The leader has this output durably.
    Acknowledge {
        /// Which stream.
        stream: Stream,
        /// Bytes from the beginning.
        offset: u64,
        /// Bytes that a checkpoint holds: they can't be asked back, whatever happens.
        #[serde(default)]
        checkpointed: u64,
    },
    /// Let shells go that entered the shell barrier up to `count` times; with an error, also
    /// every later entry.
    Barrier {
        /// How many barriers are complete.
        count: u32,
        /// POSIX errno that fails the barrier, or 0.
        errnum: i32,
    },
    /// The job is over: forget it.
    Forget,
    /// Send a signal.
    Signal {
        /// Signal number.
        signal: i32,
        /// To all processes of the unit, not the shell (or IMP) alone.
        all: bool,
    },
}

/// Agent to leader, or parent: what happened, of several ranks at once.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Reports {
    /// In the order in which it happened.
    pub reports: Vec<RankReport>,
}

/// The same news of one or more ranks.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RankReport {
    /// Where.
    pub ranks: Idset,
    /// What.
    pub report: Report,
}

/// News of a shell. Reports can come twice (a new leader is told everything again): they say
/// what is, not what changed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// The shell has entered the shell barrier so many times.
    Barrier {
        /// Times, in all.
        entered: u32,
    },
    /// A nested instance said which shells it can't do without.
    CriticalRanks {
        /// Shell ranks.
        ranks: Idset,
    },
    /// The shell has exited.
    Exited {
        /// Its wait status.
        status: WaitStatus,
    },
    /// No process was started.
    Failed {
        /// POSIX errno.
        errnum: i32,
        /// Why.
        message: String,
    },
    /// Nothing is left of it on its node.
    Gone,
    /// The unit's main process was seen outside of the unit: [`Report::Gone`] says nothing about
    /// processes that went with it.
    Left,
    /// It was started and can't be found.
    Lost {
        /// Why.
        message: String,
    },
    /// An earlier life of the rank's module has meant to start it, and did not.
    NeverStarted,
    /// The shell's own output.
    Output {
        /// Which stream.
        stream: Stream,
        /// Of the first byte.
        offset: u64,
        /// The bytes.
        #[serde(serialize_with = "bytes_out", deserialize_with = "bytes_in")]
        data: Vec<u8>,
    },
    /// The shell's own output fills its node's disk.
    OutputOverflow {
        /// Bytes on the disk.
        allocated: u64,
    },
    /// One of its streams was longer than is kept.
    OutputTruncated {
        /// Which stream.
        stream: Stream,
        /// Bytes that are reported at most.
        kept: u64,
        /// Bytes behind them.
        dropped: u64,
    },
    /// A rank's module does not answer. Its shells are neither alive nor dead to us.
    Unreachable {
        /// POSIX errno: `EHOSTUNREACH` when its broker is gone.
        errnum: i32,
        /// In words.
        message: String,
    },
    /// The ranks' parent in the tree is unreachable: the leader has to talk to them itself.
    Orphaned,
    /// It was asked for, or was found on disk, and more is not known yet.
    Pending,
    /// The shell runs, or has run.
    Running,
    /// The shell has ended, and what it has left behind cannot be.
    Unkillable,
}

/// Why a rank is drained whose shell has left its unit.
pub fn left_reason(id: JobId) -> String {
    format!("processes of job {id} may run outside of their unit")
}

/// JSON has no bytes: each becomes the character of the same number.
fn bytes_out<S: Serializer>(data: &[u8], out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&data.iter().map(|b| char::from(*b)).collect::<String>())
}

fn bytes_in<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(input)?;
    text.chars()
        .map(|c| {
            u8::try_from(u32::from(c))
                .map_err(|_| serde::de::Error::custom(format!("output data: {c:?} is no byte")))
        })
        .collect()
}

/// Seconds that a [`Duration`] can hold: what reads them later need not ask again.
fn duration_in<'de, D: Deserializer<'de>>(input: D) -> Result<Option<f64>, D::Error> {
    let seconds = Option::<f64>::deserialize(input)?;
    match seconds.filter(|seconds| Duration::try_from_secs_f64(*seconds).is_err()) {
        Some(bad) => Err(serde::de::Error::custom(format!("{bad} s is no duration"))),
        None => Ok(seconds),
    }
}

/// Reads a peer's request, and refuses a version that is not ours.
///
/// # Errors
/// In words, for the peer and the job's owner.
pub fn decode<T: serde::de::DeserializeOwned>(payload: &Value) -> Result<T, String> {
    match payload.get("version").and_then(Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => T::deserialize(payload)
            .map_err(|error| format!("malformed message of another job-exec-rs: {error}")),
        Some(version) => Err(format!(
            "a job-exec-rs that speaks protocol {version} was met, this one speaks {VERSION}: \
             load the same release on every rank"
        )),
        None => Err("message of another job-exec-rs has no version".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn output_bytes_round_trip() {
        let report =
            Report::Output { stream: Stream::Stdout, offset: 3, data: (0..=255).collect() };
        let text = json!(report).to_string();
        assert_eq!(serde_json::from_str::<Report>(&text).ok(), Some(report));
    }

    #[test]
    fn a_stop_timeout_is_a_duration() {
        let command = |stop_timeout: Value| {
            let command = json!({
                "userid": 1, "size": 1, "multiuser": false, "digest": "d", "argv": [], "environment": {},
                "stop_timeout": stop_timeout,
            });
            ShellCommand::deserialize(command).map(|command| command.stop_timeout)
        };
        assert_eq!(command(json!(5)).ok(), Some(Some(5.0)));
        assert_eq!(command(json!(null)).ok(), Some(None));
        for bad in [json!(-1), json!(1e300), json!("5s")] {
            assert!(command(bad).is_err());
        }
    }

    #[test]
    fn another_version_is_refused_by_name() {
        let order = OrderRequest {
            version: VERSION,
            id: JobId(1),
            generation: 1,
            ranks: Idset::from_range(0..2),
            order: Order::Forget,
        };
        assert_eq!(decode(&json!(order)), Ok(order.clone()));
        let mut other = json!(order);
        other["version"] = json!(VERSION + 1);
        let error = decode::<OrderRequest>(&other).expect_err("refused");
        assert!(error.contains("protocol 5") && error.contains("speaks 4"), "{error}");
        let error = decode::<OrderRequest>(&json!({})).expect_err("refused");
        assert!(error.contains("no version"), "{error}");
    }
}
