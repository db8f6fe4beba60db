//! The local supervisor: what starts shells on this rank and knows how they ended.
//!
//! One supervisor serves one broker rank. It owns the unit, the intent record and the
//! output files of each shell, because their order matters: the intent is on disk before
//! the unit starts, the exit status is on disk before anybody hears of it, and the unit is
//! collected only after that (intent-first and status-first in `rfc/0004-units.md`).
//!
//! For one unit, events come in this order, each at most once except `Output`:
//! `Started`, `Output`*, `Exited`, `Output`*, `Gone`; or `Failed` or `NeverStarted` alone, when
//! nothing was started; or `Lost`, when something was started and cannot be found any more, then what it
//! wrote, and `Gone`.
//! Exit, end of output and empty cgroup are three different facts: `Exited` is the first,
//! `Gone` says all three. `Left` can come anywhere between `Started` and `Gone`: then `Gone` says
//! nothing about the processes that went with the shell.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::proto::{BrokerRank, JobId, Stream, UnitName, WaitStatus};

/// Bytes of one stream that are sent ahead of the leader's acknowledgement.
pub const OUTPUT_WINDOW_BYTES: u64 = 1024 * 1024;

/// Largest piece of output in one event, in bytes.
pub const OUTPUT_CHUNK_BYTES: usize = 64 * 1024;

/// What a shell's own output may take on its node. A user's shell writes it, so it is bounded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutputLimits {
    /// Bytes of one stream that are reported (`exec.output-limit`). What is behind them is
    /// counted and dropped.
    pub stream: u64,
    /// Bytes on the disk that one stream's file may reach before its job is ended
    /// (`exec.output-disk-limit`).
    pub disk: u64,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self { stream: 64 << 20, disk: 1 << 30 }
    }
}

/// All that is needed to start one shell on this rank, and to know it again later.
///
/// It is written to disk as the intent record, so its serialised form is versioned with
/// [`UnitRecord`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UnitSpec {
    /// The unit's deterministic name: job, rank and instance.
    pub unit: UnitName,
    /// The job.
    pub job: JobId,
    /// The rank that the unit runs on.
    pub rank: BrokerRank,
    /// SHA-256 over what makes the job this job; ids can be issued again after a rollback.
    pub digest: String,
    /// The job's owner.
    pub userid: u32,
    /// Shells that the job has; 0 in the record of a release that did not keep it.
    #[serde(default)]
    pub size: u32,
    /// The shell is started through the IMP, for a user who is not the instance owner.
    pub multiuser: bool,
    /// Human readable, shown by `systemctl status`.
    pub description: String,
    /// Absolute path of the program, then its arguments.
    pub argv: Vec<String>,
    /// Variables set on top of the broker's own environment.
    pub environment: BTreeMap<String, String>,
    /// Variables of the broker's environment that the shell must not see.
    pub unset_environment: Vec<String>,
    /// Where the shell starts; a directory that is missing is not an error.
    pub working_directory: Option<String>,
    /// Further unit properties, name and value as `systemctl set-property` takes them
    /// (`exec.sdexec-properties`). Unknown names and bad values fail the launch.
    pub properties: BTreeMap<String, String>,
    /// A unit that failed may vanish before anybody has read its status: there will be nobody
    /// to do it when this instance is gone.
    #[serde(default)]
    pub forget_failed: bool,
    /// How long systemd waits after SIGTERM before SIGKILL when what a shell left behind
    /// is stopped; `None` is for ever.
    pub stop_timeout: Option<Duration>,
}

/// What is on disk about a unit: the intent, then what happened to it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct UnitRecord {
    /// The intent, written before the unit was started.
    pub spec: UnitSpec,
    /// `/proc/sys/kernel/random/boot_id` when the intent was written.
    pub boot_id: String,
    /// The unit was seen running with this main process.
    pub started: Option<Started>,
    /// The shell has exited with this wait status.
    pub exited: Option<WaitStatus>,
    /// The unit was collected and its cgroup is empty.
    pub gone: bool,
    /// The main process was seen outside of the unit.
    #[serde(default)]
    pub left: bool,
    /// What the agent wrote with [`UnitCommand::Note`], newest value of each key.
    pub notes: BTreeMap<String, Value>,
}

/// Identity of a running unit: a name can be used again, an invocation can not.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Started {
    /// Main process.
    pub pid: u32,
    /// systemd's `InvocationID`, 32 hex digits; empty where the method has none.
    pub invocation_id: String,
}

/// How shells are started.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Plain child processes: they do not survive their supervisor.
    Fork,
    /// Transient units of `systemd --user`: they outlive every broker.
    Systemd,
}

/// What the node asks of its supervisor. Commands for one unit are obeyed in order.
#[derive(Clone, Debug, PartialEq)]
pub enum UnitCommand {
    /// The shell's result is kept elsewhere or recorded: end what is left of it and remove
    /// the unit. Answered by `Gone`.
    Collect {
        /// Which unit.
        unit: UnitName,
    },
    /// The job is over for everyone: remove the record and the output files.
    Forget {
        /// Which unit.
        unit: UnitName,
    },
    /// Write the intent, then start the unit. If the unit is already there with the same
    /// job digest it is adopted, never started a second time.
    Launch(Box<UnitSpec>),
    /// Keep a fact with the unit's record, so that it is there after a restart.
    Note {
        /// Which unit.
        unit: UnitName,
        /// Name of the fact; a later value replaces an earlier one.
        key: String,
        /// The fact.
        value: Value,
    },
    /// The leader has committed this stream's bytes up to `offset`: this opens the window. What
    /// a checkpoint holds may be dropped from disk: nobody asks for it again. Output of a unit found after a restart
    /// is not sent before the first of these for its stream said where to begin.
    OutputAck {
        /// Which unit.
        unit: UnitName,
        /// Which stream.
        stream: Stream,
        /// Bytes from the stream's beginning; `u64::MAX` when nobody wants any of it.
        offset: u64,
        /// Bytes from the stream's beginning that a checkpoint of the KVS holds.
        checkpointed: u64,
    },
    /// Send a signal to the unit's main process, or to all of its processes.
    Signal {
        /// Which unit.
        unit: UnitName,
        /// Signal number.
        signal: i32,
        /// Every process of the unit, instead of its main process alone.
        all: bool,
    },
}

/// What the supervisor reports.
#[derive(Clone, Debug, PartialEq)]
pub enum UnitEvent {
    /// The shell has exited; its status is on disk.
    Exited {
        /// Which unit.
        unit: UnitName,
        /// Its raw wait status.
        status: WaitStatus,
    },
    /// Nothing was started: no process of this unit runs or has run.
    Failed {
        /// Which unit.
        unit: UnitName,
        /// A POSIX errno that classes the failure.
        errnum: i32,
        /// What went wrong, in words for the job's owner.
        message: String,
    },
    /// A record of an earlier life of this module. One for each, before `Ready`.
    Found(Box<UnitRecord>),
    /// Collected: no process is left and all output was reported.
    Gone {
        /// Which unit.
        unit: UnitName,
    },
    /// The main process lives outside of its unit, whose cgroup is empty: processes of the job
    /// may run where nobody looks for them. Kept in the record, and said again in each life.
    Left {
        /// Which unit.
        unit: UnitName,
    },
    /// The record says that the unit was started, and it cannot be found.
    Lost {
        /// Which unit.
        unit: UnitName,
        /// Why, for instance "node was rebooted".
        message: String,
    },
    /// The record of an earlier life has an intent, and nothing of this unit was ever executed: it
    /// may be launched again.
    NeverStarted {
        /// Which unit.
        unit: UnitName,
    },
    /// Bytes of the shell's own output.
    Output {
        /// Which unit.
        unit: UnitName,
        /// Which stream.
        stream: Stream,
        /// Of the first byte, from the stream's beginning.
        offset: u64,
        /// At most [`OUTPUT_CHUNK_BYTES`].
        data: Vec<u8>,
    },
    /// Its output fills the disk: more of it was found there than
    /// [`OutputLimits::disk`]. Once for each unit.
    OutputOverflow {
        /// Which unit.
        unit: UnitName,
        /// Bytes on the disk.
        allocated: u64,
    },
    /// A stream was longer than [`OutputLimits::stream`]. Comes before `Gone`, when it is known
    /// how long.
    OutputTruncated {
        /// Which unit.
        unit: UnitName,
        /// Which stream.
        stream: Stream,
        /// Bytes that were reported, at most.
        kept: u64,
        /// Bytes behind them, holes included.
        dropped: u64,
    },
    /// The supervisor is ready for commands (commands sent earlier wait for this).
    Ready {
        /// How it starts shells.
        method: Method,
        /// Said once in the broker's log and in `stats-get`, for instance that jobs will
        /// not survive.
        notice: Option<String>,
    },
    /// The shell runs (or ran: an exit may follow at once).
    Started {
        /// Which unit.
        unit: UnitName,
        /// Its main process.
        pid: u32,
    },
    /// Under the IMP the shell has ended, and the IMP, which has not, waits for what it has left
    /// behind. Once in each life of the module.
    Stopping {
        /// Which unit.
        unit: UnitName,
    },
    /// The supervisor cannot work at all, for instance `exec.method = "systemd"` without a
    /// user bus. Commands are refused with `Failed` from here on.
    Unusable {
        /// What is wrong and what to do about it.
        message: String,
    },
}

impl UnitEvent {
    /// The unit that it is about, if it is about one.
    pub fn unit(&self) -> Option<&UnitName> {
        match self {
            Self::Exited { unit, .. }
            | Self::Failed { unit, .. }
            | Self::Gone { unit }
            | Self::Left { unit }
            | Self::Lost { unit, .. }
            | Self::NeverStarted { unit }
            | Self::Output { unit, .. }
            | Self::OutputOverflow { unit, .. }
            | Self::OutputTruncated { unit, .. }
            | Self::Started { unit, .. }
            | Self::Stopping { unit } => Some(unit),
            Self::Found(record) => Some(&record.spec.unit),
            Self::Ready { .. } | Self::Unusable { .. } => None,
        }
    }
}

/// The supervisor of one rank.
pub trait Supervisor {
    /// Hand over a command; its outcome comes back as [`UnitEvent`]s.
    fn submit(&mut self, command: UnitCommand);
}
