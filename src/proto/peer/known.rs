//! Questions whether a job is still known.

use serde::{Deserialize, Serialize};

use super::{StreamName, Version};
use crate::proto::{BrokerRank, JobDigest, JobId};

/// What a [`KnownRequest`] wants to know.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// To a leader: is it still the job's leader of this generation?
    Leader {
        /// As in [`ShellsRequest`](super::ShellsRequest).
        generation: u64,
    },
    /// To the coordinator: is the job running for the job manager?
    Manager,
    /// To a parent in the tree, or the leader: does it still have the job?
    Parent,
    /// To a leader or agent that has said nothing: does it have this request?
    Request {
        /// The rank that has made it.
        from: BrokerRank,
        /// Its stream.
        stream: StreamName,
    },
}

/// From agent to coordinator, parent or leader, from leader to coordinator, and from each of them to
/// whom it has asked.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct KnownRequest {
    /// Always first.
    pub version: Version,
    /// The job.
    pub id: JobId,
    /// Tells this job from another with the same id. [`Question::Request`] does not need it.
    pub digest: JobDigest,
    /// What is asked.
    pub question: Question,
}

/// The answer to a [`KnownRequest`].
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct KnownAnswer {
    /// Whether the answer is yes.
    pub known: bool,
}
