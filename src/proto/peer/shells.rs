//! Requests to agents.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::{StreamName, Version};
use crate::proto::{
    BrokerRank, EndReason, ExecMethod, Idset, JobDigest, JobId, ResourceSet, Scripts, Stream,
    WallTime,
};

/// Whether shells may be started.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Only report the shells that exist.
    Adopt,
    /// The same. No shell is going to be started: scripts that have to follow can run.
    Conclude,
    /// Run prologs that have not run. Shells wait for [`Order::Launch`].
    Prepare,
    /// Start shells that were never started, each after its rank's prolog.
    Start,
}

/// How to run the shells of a job. It is the same for every rank.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ShellCommand {
    /// The job's user.
    pub userid: u32,
    /// How many shells the job has.
    pub size: u32,
    /// Whether the shells run under the IMP, for a guest.
    pub multiuser: bool,
    /// Tells this job from another with the same id.
    pub digest: JobDigest,
    /// How the owner wants the shells to be started.
    #[serde(default, skip_serializing_if = "ExecMethod::is_auto")]
    pub method: ExecMethod,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Environment variables, in addition to each broker's environment.
    pub environment: BTreeMap<String, String>,
    /// `exec.sdexec-properties`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// Confine each shell to its rank's part of these: R.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceSet>,
    /// When the job got its resources, in seconds since the epoch by rank 0's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated: Option<WallTime>,
    /// The scripts before and behind the shells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scripts: Option<Scripts>,
    /// Seconds between SIGTERM and SIGKILL for processes that a shell leaves behind. `None` is for
    /// ever.
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
    /// Bytes from the beginning of the stream.
    pub offset: u64,
}

/// From leader or parent to agent: run (or find again) the job's shells on `ranks`, and answer with
/// [`Reports`](super::Reports) until the job is forgotten.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ShellsRequest {
    /// Always first.
    pub version: Version,
    /// What the sender calls the stream of the answers.
    pub stream: StreamName,
    /// The job.
    pub id: JobId,
    /// The rank that asks: the leader's, or the parent's.
    pub parent: BrokerRank,
    /// The leader's rank.
    pub leader: BrokerRank,
    /// When the leader has asked, in seconds since the epoch by its clock. A request that reaches a
    /// rank much later may be from a leader that no longer exists.
    pub issued: WallTime,
    /// Counts the leaders of the job, from 1, because messages of an earlier leader may still
    /// arrive. 0 means that it is not known.
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
    /// Always first.
    pub version: Version,
    /// The job.
    pub id: JobId,
    /// Tells it from another job with the same id, whose shell can still be there.
    pub digest: JobDigest,
    /// The leader's generation, as in [`ShellsRequest`].
    pub generation: u64,
    /// The ranks that the order is for. Each is the receiver or below it in the tree.
    pub ranks: Idset,
    /// What to do.
    pub order: Order,
}

/// An order to agents, after the start.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The leader has written this output to the KVS.
    Acknowledge {
        /// Which stream.
        stream: Stream,
        /// Bytes from the beginning of the stream.
        offset: u64,
        /// How many bytes a checkpoint holds. No leader can need these again.
        #[serde(default)]
        checkpointed: u64,
    },
    /// Release shells that have entered the shell barrier up to `count` times.
    Barrier {
        /// How many barriers are complete.
        count: u32,
        /// Whether no other barrier can complete. Then every later entry fails (`EIO`).
        failed: bool,
    },
    /// No shell is going to be started any more: scripts that have to follow can run. A prolog that
    /// runs is told to end if its configuration wants that.
    Conclude {
        /// The fatal exception of the job; none if its shells have ended by themselves.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<EndReason>,
    },
    /// The job is over: forget it.
    Forget,
    /// The administrator wants scripts ended that nobody waits for.
    KillScripts,
    /// All prologs of the job have ended well: start the shells.
    Launch,
    /// Send a signal.
    Signal {
        /// Signal number.
        signal: i32,
        /// Whether all processes of the unit get it, or only the shell (or IMP).
        all: bool,
        /// The exception for which the shell is ended. The agent keeps it before it sends the
        /// signal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<EndReason>,
    },
}

/// Reads seconds that fit into a [`Duration`], so that nobody has to check this later.
fn duration_in<'de, D: Deserializer<'de>>(input: D) -> Result<Option<f64>, D::Error> {
    let seconds = Option::<f64>::deserialize(input)?;
    match seconds.filter(|seconds| Duration::try_from_secs_f64(*seconds).is_err()) {
        Some(bad) => Err(serde::de::Error::custom(format!("{bad} s is no duration"))),
        None => Ok(seconds),
    }
}
