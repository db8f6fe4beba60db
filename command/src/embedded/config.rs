//! The configuration of an instance.

use std::path::PathBuf;

use job_exec_rs::config::Config;

/// What an instance is started with.
#[derive(Clone, Debug)]
pub struct InstanceConfig {
    /// How many ranks there are, at least one. The instance has more if an earlier one has left
    /// records of higher ranks in the same directory.
    pub ranks: u32,
    /// The same configuration as the module's. Settings that need a flux-shell are changed (see
    /// [`super`]).
    pub config: Config,
    /// Where records, output and the KVS are kept. `None` makes a temporary directory.
    pub statedir: Option<PathBuf>,
    /// Jobs that a killed instance has left in the same directory go on. Otherwise what still runs
    /// of them is stopped.
    pub adopt: bool,
    /// D-Bus address of the user bus, instead of the environment's.
    pub bus_address: Option<String>,
    /// Where the threads of the supervisors log to.
    pub dispatch: tracing::Dispatch,
}
