//! Why the module cannot be loaded, or has to end.

use std::io;
use std::path::PathBuf;

use super::handlers::SERVICE;
use crate::adapter::libflux::{HandleError, RpcError};
use crate::adapter::systemd::PropertyError;
use crate::config::ConfigError;
use crate::proto::PERILOG_PLUGIN;

/// Why the module cannot be loaded, or has to end. The broker's log has the text.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    /// The broker's configuration is not JSON.
    #[error("config.get: {0}")]
    ConfigNotJson(serde_json::Error),
    /// The `[exec]` table or an argument is wrong.
    #[error("error parsing config: {0}")]
    Config(#[from] ConfigError),
    /// No descriptor is left.
    #[error("eventfd: {0}")]
    EventFd(io::Error),
    /// libflux refuses something.
    #[error(transparent)]
    Handle(#[from] HandleError),
    /// The broker does not say where flux-shell is.
    #[error("flux-core names no job shell")]
    NoJobShell,
    /// The broker does not say where it listens.
    #[error("local-uri is not set")]
    NoLocalUri,
    /// flux-core is too old.
    #[error("{0}")]
    OldFlux(String),
    /// There is no directory for records.
    #[error("neither statedir nor rundir is set")]
    NoPlace,
    /// The job manager keeps to the service that has its jobs.
    #[error(
        "job-manager.exec-hello: {error}: another service than '{SERVICE}' executes jobs that have \
         not ended; wait for their end, or remove that service first"
    )]
    OtherService {
        /// What it says.
        error: RpcError,
    },
    /// The configuration bounds what shells use, and nothing here can.
    #[error("exec.{key}: {message}")]
    NotConfined {
        /// The key that bounds them.
        key: &'static str,
        /// Why they cannot be bounded.
        message: String,
    },
    /// Units are configured, and there is no systemd, or nothing here may be a unit.
    #[error("{configured}: {message}")]
    NoSystemd {
        /// Key and value that ask for units.
        configured: String,
        /// What is wrong with it.
        message: String,
    },
    /// There are records of shells, and without systemd these would be taken for lost.
    #[error(
        "shells that run, or whose end is in no checkpoint yet, are recorded in {directory}, and \
         systemd, which starts them, cannot be used: {message}",
        directory = directory.display()
    )]
    Recorded {
        /// Where the records are.
        directory: PathBuf,
        /// What is wrong with systemd.
        message: String,
    },
    /// `exec.sdexec-properties` has a property that may not be set.
    #[error("error parsing config: exec.sdexec-properties: {0}")]
    Property(#[from] PropertyError),
    /// Each script would run twice.
    #[error(
        "exec.perilog.enable = true, and the job manager has {PERILOG_PLUGIN} loaded: each prolog and \
         epilog would run twice; remove it first (flux jobtap remove {PERILOG_PLUGIN})"
    )]
    PerilogTwice,
    /// A request to the broker has failed.
    #[error("{topic}: {error}")]
    Request {
        /// Which.
        topic: &'static str,
        /// How.
        error: RpcError,
    },
    /// The service cannot be registered.
    #[error("cannot register the service '{SERVICE}' for {name}: {error}")]
    Service {
        /// The module's name.
        name: String,
        /// Why not.
        error: RpcError,
    },
    /// Another module has the service.
    #[error(
        "cannot register the service '{SERVICE}' for {name}: another module serves it \
         (flux-core's own job-exec?); remove that one first: flux module remove job-exec"
    )]
    ServiceTaken {
        /// The module's name.
        name: String,
    },
    /// The disk holds the supervisor's thread up.
    #[error("the disk with {directory} does not answer", directory = directory.display())]
    DiskSilent {
        /// Where records are to be.
        directory: PathBuf,
    },
    /// The supervisor's thread cannot be started.
    #[error("supervisor thread: {0}")]
    Thread(io::Error),
    /// The supervisor's thread has ended before it said anything.
    #[error("the supervisor thread ended at once")]
    ThreadEnded,
}

impl LoadError {
    /// Names the request that has failed.
    pub(super) fn request(topic: &'static str) -> impl FnOnce(RpcError) -> Self {
        move |error| Self::Request { topic, error }
    }
}
