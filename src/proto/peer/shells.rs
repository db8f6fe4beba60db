//! From leader or parent to agent.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::Version;
use crate::proto::{BrokerRank, Idset, JobDigest, JobId, Stream};

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
    /// Tells this job from another that had its id.
    pub digest: JobDigest,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables on top of each broker's environment.
    pub environment: BTreeMap<String, String>,
    /// `exec.sdexec-properties`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
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
    /// Always first.
    pub version: Version,
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
    /// Always first.
    pub version: Version,
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
    /// Let shells go that entered the shell barrier up to `count` times.
    Barrier {
        /// How many barriers are complete.
        count: u32,
        /// No other barrier will complete: every later entry fails (`EIO`).
        failed: bool,
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

/// Seconds that a [`Duration`] can hold: what reads them later need not ask again.
fn duration_in<'de, D: Deserializer<'de>>(input: D) -> Result<Option<f64>, D::Error> {
    let seconds = Option::<f64>::deserialize(input)?;
    match seconds.filter(|seconds| Duration::try_from_secs_f64(*seconds).is_err()) {
        Some(bad) => Err(serde::de::Error::custom(format!("{bad} s is no duration"))),
        None => Ok(seconds),
    }
}
