//! Why there is no instance.

use std::io;
use std::path::PathBuf;

use crate::proto::{BrokerRank, Idset};

/// Why there is no instance.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// Another instance uses the directory.
    #[error("{}: another instance runs on this state directory", path.display())]
    Busy {
        /// Which.
        path: PathBuf,
    },
    /// The state directory can't be used.
    #[error("{}: {error}", path.display())]
    Directory {
        /// Which file or directory.
        path: PathBuf,
        /// What is wrong.
        error: io::Error,
    },
    /// A job wants no ranks, or ranks that are not there.
    #[error("the job's ranks are '{asked}', and the instance has {size}")]
    Ranks {
        /// Which.
        asked: Idset,
        /// How many there are.
        size: u32,
    },
    /// A supervisor has no thread.
    #[error("cannot start the supervisor of rank {rank}: {error}")]
    Thread {
        /// Whose.
        rank: BrokerRank,
        /// What is wrong.
        error: io::Error,
    },
    /// A supervisor can't work, in its own words.
    #[error("{0}")]
    Unusable(String),
}
