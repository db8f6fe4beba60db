//! Messages between coordinator and leader.

use serde::{Deserialize, Serialize};

use super::{StreamName, Version};
use crate::proto::{Idset, JobDigest, JobException, JobId, Response, StartRequest, WaitStatus};

/// From coordinator to leader: lead this job, and answer with RFC 32 responses.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LeadRequest {
    /// Always first.
    pub version: Version,
    /// What the coordinator calls the stream of the answers.
    pub stream: StreamName,
    /// The start request, without the parts that leaders do not need.
    pub start: StartRequest,
    /// Whether the job is older than the coordinator. Then an earlier coordinator may have had it
    /// started, although the job manager does not know this.
    #[serde(default)]
    pub again: bool,
    /// A fatal exception that was raised while the job had no leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<JobException>,
    /// Ranks whose modules were given up. Their shells count as lost.
    #[serde(default, skip_serializing_if = "Idset::is_empty")]
    pub lost: Idset,
    /// The status that an earlier leader has told the job manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<WaitStatus>,
    /// The largest status of shells that ended under an earlier leader. Their ranks may be gone.
    #[serde(default)]
    pub status: WaitStatus,
    /// Ranks that an earlier leader has released. They may belong to another job now.
    #[serde(default, skip_serializing_if = "Idset::is_empty")]
    pub released: Idset,
}

/// From leader to coordinator: one answer of the stream.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub enum LeadReply {
    /// For the job manager. The coordinator adds the job's id.
    Response(Response),
    /// For the coordinator alone.
    Note(LeadNote),
}

/// What a leader tells its coordinator only.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", content = "data", rename_all = "lowercase")]
pub enum LeadNote {
    /// Output was committed that no checkpoint holds yet. The coordinator tells the leader when a
    /// checkpoint holds it ([`CoveredRequest`]).
    Changed {
        /// Grows with each note of this kind.
        mark: u64,
    },
    /// The largest status so far. The leader sends it before it releases ranks, because these may
    /// be gone when the next leader asks them.
    Progress {
        /// Largest wait status so far.
        status: WaitStatus,
    },
}

/// From coordinator to leader: a checkpoint of the KVS holds what the leader has committed.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CoveredRequest {
    /// Always first.
    pub version: Version,
    /// The job.
    pub id: JobId,
    /// Tells this job from another with the same id.
    pub digest: JobDigest,
    /// The mark of the last [`LeadNote::Changed`] whose output the checkpoint holds. 0 is none.
    pub mark: u64,
    /// Whether the checkpoint also holds the job's end. Then nobody can ask for the job again.
    pub ended: bool,
}
