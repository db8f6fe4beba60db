//! Errors of an instance.

use std::io;
use std::path::PathBuf;

use job_exec_rs::proto::{BrokerRank, Idset};

/// Why an instance cannot start, or cannot take a job.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// Another instance uses the directory.
    #[error("{}: another instance runs on this state directory", path.display())]
    Busy {
        /// Which.
        path: PathBuf,
    },
    /// The state directory cannot be used.
    #[error("{}: {error}", path.display())]
    Directory {
        /// Which file or directory.
        path: PathBuf,
        /// What is wrong.
        error: io::Error,
    },
    /// A job asks for no ranks, or for ranks that do not exist.
    #[error("the job's ranks are '{asked}', and the instance has {size}")]
    Ranks {
        /// Which.
        asked: Idset,
        /// How many ranks the instance has.
        size: u32,
    },
    /// The thread of a supervisor cannot be started.
    #[error("cannot start the supervisor of rank {rank}: {error}")]
    Thread {
        /// The rank of the supervisor.
        rank: BrokerRank,
        /// What is wrong.
        error: io::Error,
    },
    /// A supervisor cannot work. The text is the supervisor's.
    #[error("{0}")]
    Unusable(String),
}
