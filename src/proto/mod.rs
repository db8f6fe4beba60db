//! The vocabulary of the wire: identifiers, resource sets, requests and events.
//!
//! Messages are parsed into these types. No module after this one sees raw JSON.

mod attribute;
mod bequest;
mod cleaning;
mod digest;
mod duration;
mod end_reason;
mod entry;
mod exec_event;
mod flux_release;
mod hostlist;
mod idset;
mod job_eventlog;
mod job_id;
mod jobspec;
mod json;
mod method;
mod mute;
pub mod peer;
mod resources;
mod response;
mod rset;
mod scripts;
mod signal;
mod size;
mod start;
mod stream;
mod systemd_release;
mod testexec;
mod unit_name;
mod usage;
mod wait_status;
mod wall_time;

pub use attribute::JobspecError;
pub use bequest::{BequeathedCommit, Bequest, Commit};
pub use cleaning::Cleaning;
pub use digest::JobDigest;
pub use duration::{DurationError, format_fsd, parse_fsd};
pub use end_reason::EndReason;
pub use entry::{BarrierClients, BarrierEntry, ClientId, ENTRIES_MAX};
pub use exec_event::{EventlogError, ExecEvent, decode_eventlog};
pub use flux_release::{Fit, fits};
pub use hostlist::Hostlist;
pub use idset::{Idset, IdsetError};
pub use job_eventlog::{DegradedNodes, HOLD, JobEvent, JobEventlog, NODE_DEGRADED};
pub use job_id::{JobId, JobIdError};
pub use jobspec::Jobspec;
pub use json::Json;
pub use method::{ExecMethod, METHODS, MethodError};
pub use mute::Mute;
pub use resources::{BrokerMapping, NodeChange, ResourceNews};
pub use response::{Exception, ReleasedRanks, Response};
pub use rset::{ResourceSet, ResourceSetError};
pub use scripts::{
    DegradedNode, PERILOG_PLUGIN, PerilogRelease, Place, ScriptFailure, ScriptStop, Scripts,
};
pub use signal::{Signal, SignalError};
pub use size::{parse_size, show_size};
pub use start::{JobException, StartError, StartRequest};
pub use stream::Stream;
pub use systemd_release::{OLDEST_SYSTEMD, systemd_number};
pub use testexec::TestExec;
pub use unit_name::{InstanceId, SliceName, Stage, UnitName, UnitNameError, job_of_unit};
pub use usage::{JobUsage, Usage};
pub use wait_status::WaitStatus;
pub use wall_time::WallTime;

use serde::{Deserialize, Serialize};

/// A broker rank: a position in the instance (RFC 3).
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(transparent)]
pub struct BrokerRank(pub u32);

impl std::fmt::Display for BrokerRank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A shell rank: the index of a broker rank within one job's ranks.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(transparent)]
pub struct ShellRank(pub u32);

impl ShellRank {
    /// The leader shell: shell rank 0, on the job's first broker rank (RFC 50, `shell-exit`).
    pub const LEADER: ShellRank = ShellRank(0);
}

impl std::fmt::Display for ShellRank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The beginning of a text that is too long for an error message.
fn shortened(text: &str) -> String {
    const ENOUGH: usize = 120;
    match text.char_indices().nth(ENOUGH) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}
