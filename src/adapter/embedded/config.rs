//! What an instance is started with.

use std::path::PathBuf;

use crate::config::Config;

/// What an instance is made of.
#[derive(Clone, Debug)]
pub struct InstanceConfig {
    /// How many ranks; at least one. There can be more: ranks on which an earlier instance
    /// has left something in the same directory.
    pub ranks: u32,
    /// As the module's. What expects a flux-shell is changed (see the module's text).
    pub config: Config,
    /// Where records, output and the KVS are kept; none is a temporary directory.
    pub statedir: Option<PathBuf>,
    /// D-Bus address of the user bus, instead of the environment's.
    pub bus_address: Option<String>,
    /// Where the supervisors' threads log to.
    pub dispatch: tracing::Dispatch,
}
