//! Questions about a job: is it still known?

use serde::{Deserialize, Serialize};

use super::Version;
use crate::proto::{JobDigest, JobId};

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
    /// Always first.
    pub version: Version,
    /// The job.
    pub id: JobId,
    /// Tells this job from another that had its id.
    pub digest: JobDigest,
    /// What is asked.
    pub question: Question,
}

/// The answer to a [`KnownRequest`].
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct KnownAnswer {
    /// Yes.
    pub known: bool,
}
