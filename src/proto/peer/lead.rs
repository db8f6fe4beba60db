//! Between coordinator and leader.

use serde::{Deserialize, Serialize};

use super::Version;
use crate::proto::{Idset, JobDigest, JobException, JobId, Response, StartRequest, WaitStatus};

/// Coordinator to leader: lead this job, and answer with RFC 32 responses.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LeadRequest {
    /// Always first.
    pub version: Version,
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

/// Leader to coordinator: one answer of the stream.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub enum LeadReply {
    /// For the job manager; the coordinator adds the job's id.
    Response(Response),
    /// For the coordinator alone.
    Note(LeadNote),
}

/// What a leader tells its coordinator, and the coordinator tells nobody.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", content = "data", rename_all = "lowercase")]
pub enum LeadNote {
    /// Output was committed that no checkpoint holds yet. The leader wants to hear when one does
    /// ([`CoveredRequest`]).
    Changed {
        /// Grows with each of these.
        mark: u64,
    },
    /// The largest status so far, said before ranks are released: they may be gone when the next
    /// leader asks.
    Progress {
        /// Largest wait status so far.
        status: WaitStatus,
    },
}

/// Coordinator to leader: a checkpoint of the KVS holds what was committed before.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CoveredRequest {
    /// Always first.
    pub version: Version,
    /// The job.
    pub id: JobId,
    /// Tells this job from another that had its id.
    pub digest: JobDigest,
    /// The leader's last [`LeadNote::Changed`] that it holds; 0 is none.
    pub mark: u64,
    /// It holds the job's end as well: nobody can ask for the job again.
    pub ended: bool,
}
