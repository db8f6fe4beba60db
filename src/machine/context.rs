//! What the machines of a node may look at.

use super::away::Away;
use super::mono_time::MonoTime;
use crate::config::Config;
use crate::port::supervisor::Method;
use crate::proto::{BrokerRank, InstanceId, Mute, WallTime};

/// A moment, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// For pauses and timers.
    pub mono: MonoTime,
    /// For what others read.
    pub wall: WallTime,
}

/// What every machine of a node may look at.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) now: Now,
    /// When the first event came.
    pub(super) born: Now,
    pub(super) config: &'a Config,
    pub(super) facts: &'a Facts,
    /// Shells outlive their brokers on this rank. The machines assume the same of all ranks.
    pub(super) shells_survive: bool,
    /// systemd or the disk does not answer on this rank.
    pub(super) silent: Option<(&'a Mute, &'a Silent)>,
}

/// systemd or the disk does not answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Silent {
    /// When the rank has learned it.
    pub(super) since: Now,
    /// What is waited for.
    pub(super) what: String,
    pub(super) away: Away,
}

/// What does not change while the module is loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// This rank.
    pub rank: BrokerRank,
    /// Its host, for log lines.
    pub hostname: String,
    /// The instance owner's user id. The owner's jobs need no IMP.
    pub owner: u32,
    /// Where its records are, for `stats-get`. Empty: nowhere that lasts.
    pub directory: String,
    /// Identity of the instance in unit names.
    pub instance: InstanceId,
    /// How long its node had been up when the module was loaded, in seconds.
    pub uptime: f64,
    /// How many ranks the instance has.
    pub size: u32,
    /// What shells connect to. Empty without a broker.
    pub shell_uri: String,
    /// Why shells do without the resume connector, if they do.
    pub no_connector: Option<String>,
    /// flux-core's job shell.
    pub job_shell: String,
    /// This instance is itself a job, or runs inside one. It uses no units, as it should.
    pub nested: bool,
    /// A broker that has died comes back, because the instance finds its peers by configuration.
    pub brokers_return: bool,
    /// Shells are confined to the resources of their jobs (`exec.sdexec-constrain-resources`).
    pub confines: bool,
    /// Where shells start.
    pub working_directory: Option<String>,
}

impl Facts {
    /// Shells use the resume connector.
    pub(super) fn has_connector(&self) -> bool {
        self.no_connector.is_none() && !self.shell_uri.is_empty()
    }
}

/// What the supervisor has said of itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SupervisorState {
    /// Nothing yet: it looks at what is on the node.
    Starting,
    /// All that it has found was told.
    Ready(Method),
    /// It can do nothing.
    Unusable,
}

impl SupervisorState {
    /// How shells are started, as `stats-get` says it.
    pub(super) fn launcher(self) -> &'static str {
        match self {
            Self::Ready(Method::Systemd) => "systemd",
            Self::Ready(Method::Fork) => "fork",
            Self::Starting | Self::Unusable => "none",
        }
    }
}
