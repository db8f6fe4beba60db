//! The local supervisor: it starts shells on this rank and reports how they ended.
//!
//! One supervisor serves one broker rank. It owns the unit, the intent record and the output files
//! of each shell, because their order matters. It writes the intent before it starts the unit. It
//! writes the exit status before it reports the exit. It collects the unit only after that
//! (intent-first and status-first in `rfc/0004-units.md`).
//!
//! For one unit, events come in this order, each at most once except `Output`: `Started`,
//! `Output`*, `Exited`, `Output`*, `Gone`. If nothing was started, `Failed` or `NeverStarted` is
//! the only event. If something was started and cannot be found any more, the order is `Lost`,
//! `Output`*, `Gone`. The exit, the end of the output and the empty cgroup are three different
//! facts. `Exited` reports the first; `Gone` reports all three. `LeftOver` can come
//! between `Started` and `Gone`, any number of times. `Left` can come anywhere between `Started` and
//! `Gone`. After it, `Gone` says nothing about the processes that left the unit with the shell.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Note;
use super::note::MADE_AGAIN;
use crate::proto::{
    BrokerRank, EndReason, ExecMethod, JobDigest, JobId, Json, Mute, ResourceSet, Scripts, Stream,
    UnitName, Usage, WaitStatus, WallTime,
};

/// Why a shell is lost whose node has booted since it was started.
pub const REBOOTED: &str = "node was rebooted";

/// Why a shell is lost whose user manager has ended, with all that it had started ([manager-ended]).
pub const MANAGER_ENDED: &str = "its user manager has ended";

/// Bytes of one stream that are sent ahead of the leader's acknowledgement.
pub const OUTPUT_WINDOW_BYTES: u64 = 1024 * 1024;

/// Largest piece of output in one event, in bytes.
pub const OUTPUT_CHUNK_BYTES: usize = 64 * 1024;

/// Bounds of what the supervisor of a rank does. The user's shell decides how much it writes, so that is
/// bounded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// How many units systemd is asked to start at the same time (`exec.starts-in-flight`). The others
    /// wait.
    pub starts_in_flight: usize,
    /// Bytes of one stream that are reported (`exec.output-limit`). The supervisor counts and drops
    /// the rest.
    pub stream: u64,
    /// Bytes on the disk that one stream's file may take before its job is ended
    /// (`exec.output-disk-limit`).
    pub disk: u64,
}

/// [`UnitEvent::Failed`]: the shell ran, and was ended at once, because its unit did not confine it to
/// its job's resources.
pub const NOT_CONFINED: i32 = libc::ENOTRECOVERABLE;

/// The user id that nobody has (flux-core `FLUX_USERID_UNKNOWN`).
const USERID_UNKNOWN: u32 = u32::MAX;

/// All that is needed to start one shell on this rank, and to recognise it later.
///
/// It is written to disk as the intent record, so its serialised form is versioned with
/// [`UnitRecord`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct UnitSpec {
    /// The unit's deterministic name: job, rank and instance.
    pub unit: UnitName,
    /// The job.
    pub job: JobId,
    /// The rank that the unit runs on.
    pub rank: BrokerRank,
    /// SHA-256 that identifies the job. The job id is not enough: after a rollback of the KVS the
    /// same id can be issued again.
    pub digest: JobDigest,
    /// The job's owner.
    pub userid: u32,
    /// How many shells the job has.
    pub size: u32,
    /// How the owner wants the shell to be started. A supervisor knows one way; what chooses among
    /// supervisors looks at this.
    #[serde(default, skip_serializing_if = "ExecMethod::is_auto")]
    pub method: ExecMethod,
    /// The shell is started through the IMP, for a user who is not the instance owner.
    pub multiuser: bool,
    /// The scripts that come before and behind the job's shell on this rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scripts: Option<Scripts>,
    /// Of a script: when it was asked for, in seconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<WallTime>,
    /// Of an epilog: why no shell could be started on this rank. There is no record of that shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell_failed: Option<StartFailure>,
    /// Of an epilog: why the job had failed when it was asked for, as far as the rank knew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
    /// Human readable, shown by `systemctl status`.
    pub description: String,
    /// The program, then its arguments. A program without a slash is looked for in `PATH`.
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
    /// Confine the shell to its rank's part of these. They are not written: they are only needed to
    /// start it.
    #[serde(skip)]
    pub resources: Option<ResourceSet>,
    /// The unit is in a slice of its own, which keeps what its processes have used (`exec.usage`).
    #[serde(default)]
    pub measured: bool,
    /// When the processes that a shell has left behind are stopped: the time between SIGTERM and
    /// SIGKILL. `None`: no SIGKILL.
    pub stop_timeout: Option<Duration>,
}

impl UnitSpec {
    /// The slice in which the unit has one of its own: systemd's for programs of users, unless another
    /// is configured.
    pub fn parent_slice(&self) -> &str {
        self.properties.get("Slice").map_or("app.slice", String::as_str)
    }

    /// A specification that has only what the unit's name and the job's digest say.
    pub fn bare(unit: UnitName, digest: JobDigest) -> Self {
        Self {
            job: unit.job(),
            rank: unit.rank(),
            multiuser: unit.is_multiuser(),
            digest,
            userid: USERID_UNKNOWN,
            size: 0,
            method: ExecMethod::Auto,
            scripts: None,
            began: None,
            shell_failed: None,
            end_reason: None,
            description: String::new(),
            argv: Vec::new(),
            environment: BTreeMap::new(),
            unset_environment: Vec::new(),
            working_directory: None,
            properties: BTreeMap::new(),
            resources: None,
            measured: !unit.is_script(),
            stop_timeout: None,
            unit,
        }
    }
}

/// A unit could not be started.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct StartFailure {
    /// Why, as errno.
    pub errnum: i32,
    /// What failed, for people.
    pub message: String,
}

/// What is on disk about a unit: the intent, then what happened to it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct UnitRecord {
    /// The intent, written before the unit was started.
    pub spec: UnitSpec,
    /// `/proc/sys/kernel/random/boot_id` when the intent was written.
    pub boot_id: String,
    /// Which user manager was to start it, if that was known when the intent was written.
    pub manager: Option<ManagerId>,
    /// The unit was seen running with this main process.
    pub started: Option<Started>,
    /// The shell has exited with this wait status.
    pub exited: Option<WaitStatus>,
    /// The unit was collected and its cgroup is empty.
    pub gone: bool,
    /// The main process was seen outside of the unit.
    pub left: bool,
    /// What the agent wrote with [`UnitCommand::Note`], newest value of each key. [`Note::all`] reads
    /// it.
    pub notes: BTreeMap<String, Json>,
}

impl UnitRecord {
    /// A record that holds the intent and no more.
    pub fn new(spec: UnitSpec, boot_id: String) -> Self {
        let (manager, started, exited, notes) = (None, None, None, BTreeMap::new());
        Self { spec, boot_id, manager, started, exited, gone: false, left: false, notes }
    }

    /// What the unit's processes have used, if that is known.
    pub fn usage(&self) -> Option<Box<Usage>> {
        Note::all(&self.notes).find_map(|note| match note {
            Note::Usage(usage) => Some(usage),
            _ => None,
        })
    }

    /// The unit was seen running, or something in the record comes from its processes: a disk that failed
    /// can have taken the one without the other.
    pub fn has_run(&self) -> bool {
        let is_of_shell = |note: Note| match note {
            Note::BarrierEntered(_)
            | Note::BarrierClients(_)
            | Note::BarrierPassed(_)
            | Note::Commits(_)
            | Note::CriticalRanks(_) => true,
            Note::Degraded(_)
            | Note::EndReason(_)
            | Note::GivenBack
            | Note::MadeAgain { .. }
            | Note::OutputBase { .. }
            | Note::Usage(_) => false,
        };
        self.started.is_some() || Note::all(&self.notes).any(is_of_shell)
    }

    /// The record was made after the unit's own was lost ([`Note::MadeAgain`]): the unit may have run.
    pub fn is_made_again(&self) -> bool {
        self.notes.contains_key(MADE_AGAIN)
    }
}

/// Identity of a user manager on one boot of a node: when it began, in microseconds since the boot
/// (`UserspaceTimestampMonotonic`). It stays the same when systemd is executed again.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ManagerId(pub u64);

impl ManagerId {
    /// Whether both are known, and are not the same one.
    pub fn differ(one: Option<Self>, other: Option<Self>) -> bool {
        one.is_some() && other.is_some() && one != other
    }
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

/// What the node asks of its supervisor about a unit. Commands about one unit are obeyed in order.
///
/// Every supervisor keeps this contract, whichever way it starts shells. `tests/support/contract.rs`
/// is run with each.
#[derive(Clone, Debug, PartialEq)]
pub enum UnitCommand {
    /// End the processes that are left and remove the unit. The caller has kept the shell's result.
    /// Answered by `Gone`, also if there is no such unit; `Failed` or `NeverStarted` comes instead
    /// if nothing was started. A unit whose exit the supervisor has seen is collected without it.
    Collect,
    /// Remove the record and the output files. Nobody needs them any more. Nothing is reported of
    /// the unit after it.
    Forget,
    /// Write the intent, then start the unit. If the unit is already there with the same
    /// job digest it is adopted, never started a second time: `Started` comes again. With another
    /// digest, or if the unit has ended and was not forgotten, the answer is `Failed` with `EEXIST`.
    /// The specification names it, too.
    Launch(Box<UnitSpec>),
    /// Keep a fact with the unit's record, so that it is there after a restart. Answered by `Kept` or
    /// `Marked` if somebody waits for that ([`UnitEvent::of_note`]).
    Note(Note),
    /// The leader has committed this stream's bytes up to `offset`, so as many more may be sent.
    /// Bytes that a checkpoint holds may be dropped from the disk, because nobody asks for them
    /// again. For a unit that was found after a restart, the first acknowledgement of a stream says
    /// where its output begins; nothing of the stream is sent before.
    OutputAck {
        /// Which stream.
        stream: Stream,
        /// Bytes from the stream's beginning; `u64::MAX` if nobody wants the rest.
        offset: u64,
        /// Bytes from the stream's beginning that a checkpoint of the KVS holds.
        checkpointed: u64,
    },
    /// Send a signal to the unit's main process and its process group, or to all of its processes. If
    /// the program does not run yet, it gets the signal when it does.
    Signal {
        /// Signal number.
        signal: i32,
        /// Every process of the unit, instead of the main process's group alone.
        all: bool,
    },
}

/// What the supervisor reports.
#[derive(Clone, Debug, PartialEq)]
pub enum SupervisorEvent {
    /// After `Silent`: it answers again.
    Answers {
        /// What.
        who: Mute,
    },
    /// The disk of this rank's records takes none: a start has failed for it, or facts wait for longer
    /// than a full disk should last. Reported again only when it has taken one since.
    DiskFails {
        /// What could not be written, and why.
        message: String,
    },
    /// A record of an earlier life of this module, or one that was made again from a unit
    /// ([`Note::MadeAgain`]). One for each, before `Ready`. A unit whose record was lost can also be
    /// found later, when systemd has listed its units again.
    Found(Box<UnitRecord>),
    /// The supervisor is ready. It obeys commands that were sent earlier only now.
    Ready {
        /// How it starts shells.
        method: Method,
        /// A warning for the broker's log and for `stats-get`, for instance that jobs will not
        /// survive.
        notice: Option<String>,
    },
    /// systemd or the disk does not answer. Commands wait, and nothing is known of what happens to
    /// units.
    Silent {
        /// Which of them.
        who: Mute,
        /// What is waited for, for people.
        what: String,
    },
    /// News of one unit.
    Unit(UnitName, UnitEvent),
    /// There is a record of an earlier life that only a later release can read. Reported before
    /// `Ready`. The record and its unit are left alone.
    Unreadable {
        /// Which unit.
        unit: UnitName,
        /// Which file, its version, and the version that this release knows.
        message: String,
    },
    /// The supervisor cannot work at all, for instance with `exec.method = "systemd"` and no user
    /// bus. It answers all further commands with `Failed`.
    Unusable {
        /// What is wrong and what to do about it.
        message: String,
    },
}

/// What is reported of one unit.
#[derive(Clone, Debug, PartialEq)]
pub enum UnitEvent {
    /// The shell has exited; its status is on disk.
    Exited {
        /// Its raw wait status.
        status: WaitStatus,
    },
    /// Nothing was started: no process of this unit runs or has run.
    Failed(StartFailure),
    /// The unit was collected: no process is left, and all output was reported.
    Gone,
    /// Commits that a client has left ([`Note::Commits`]) are in the record, or cannot be written
    /// there.
    Kept {
        /// Whose commits.
        client: String,
        /// They are kept as long as the unit: over a restart of the broker, if the unit outlives it.
        is_written: bool,
    },
    /// The unit's cgroup is empty, but its main process lives in another cgroup. Other processes of
    /// the job may run there too. The record keeps this, and each later life of the module reports
    /// it again.
    Left,
    /// A signal to the shell's unit was asked for again, and these processes are still in it. `Left`
    /// is another matter: these have not left.
    LeftOver {
        /// For people: pid, user and name of a few of them.
        processes: String,
    },
    /// The record says that the unit was started, and it cannot be found.
    Lost {
        /// Why, for instance [`REBOOTED`].
        message: String,
    },
    /// [`Note::Degraded`] is in the record, or cannot be written there.
    Marked {
        /// It is kept as long as the unit, as with `Kept`.
        is_written: bool,
    },
    /// There is a record with an intent, but the program was never executed. The unit may be
    /// launched again.
    NeverStarted,
    /// Bytes of the shell's own output.
    Output {
        /// Which stream.
        stream: Stream,
        /// Where the first byte is, counted from the stream's beginning.
        offset: u64,
        /// At most [`OUTPUT_CHUNK_BYTES`].
        data: Vec<u8>,
    },
    /// An output file is gone, was emptied, or cannot be read: what the shell wrote, or writes from now on, may be
    /// missing from its output. Reported once in each life of the module.
    OutputLost {
        /// Why.
        message: String,
    },
    /// One of its output files takes more of the disk than [`Limits::disk`]. Reported once
    /// for each unit.
    OutputOverflow {
        /// Bytes on the disk.
        allocated: u64,
    },
    /// A stream was longer than [`Limits::stream`]. Reported just before `Gone`, when the
    /// length is final.
    OutputTruncated {
        /// Which stream.
        stream: Stream,
        /// The most bytes that were reported.
        kept: u64,
        /// How many bytes follow them, holes included.
        dropped: u64,
    },
    /// The shell runs (or ran: an exit may follow at once).
    Started {
        /// Its main process.
        pid: u32,
    },
    /// Only under the IMP: the shell has ended, and the IMP waits for the processes that the shell
    /// has left behind. Reported once in each life of the module.
    Stopping,
    /// What the unit's processes have used, if that is known. It is on disk. Reported just before
    /// `Exited` if no process is left then, else just before `Gone`.
    Usage(Box<Usage>),
}

impl UnitEvent {
    /// It, as the supervisor reports it.
    pub fn of(self, unit: &UnitName) -> SupervisorEvent {
        SupervisorEvent::Unit(unit.clone(), self)
    }

    /// The answer to a note, if somebody waits until it is kept.
    pub fn of_note(note: &Note, is_written: bool) -> Option<Self> {
        match note {
            Note::Commits(bequest) => {
                Some(Self::Kept { client: bequest.client.clone(), is_written })
            }
            Note::Degraded(_) => Some(Self::Marked { is_written }),
            Note::BarrierClients(_)
            | Note::BarrierEntered(_)
            | Note::BarrierPassed(_)
            | Note::CriticalRanks(_)
            | Note::EndReason(_)
            | Note::GivenBack
            | Note::MadeAgain { .. }
            | Note::OutputBase { .. }
            | Note::Usage(_) => None,
        }
    }
}

/// The supervisor of one rank.
pub trait Supervisor {
    /// Take a command for a unit. Its outcome is reported as [`SupervisorEvent`]s.
    fn submit(&mut self, unit: UnitName, command: UnitCommand);
}
