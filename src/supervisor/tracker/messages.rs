//! What a tracker asks of the adapter that holds the bus, and what it is told.

use crate::port::supervisor::ManagerId;
use crate::proto::UnitName;

/// `ActiveState`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Active {
    /// Being started.
    Activating,
    /// Runs, or has exited with success and remains (`RemainAfterExit`).
    Active,
    /// Being stopped.
    Deactivating,
    /// Ended with a failure, and remains until reset.
    Failed,
    /// Not started, or stopped.
    Inactive,
    /// Not known yet, or a state that this module does not know.
    #[default]
    Unknown,
}

/// A call that is to be made. The adapter makes calls in the order in which it gets them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ask {
    /// Identifies the call in its answer. Numbers are never reused.
    pub number: u64,
    /// What is asked.
    pub call: Call,
}

/// What is asked of the bus, of systemd or of the kernel.
///
/// The answer is [`News::Answer`], except where said otherwise.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Call {
    /// systemd: the unit's cgroup (`Get`).
    ControlGroup(UnitName),
    /// The kernel: watch the process of [`Call::Main`], which is the unit's main process. Answered
    /// with [`News::Left`] as soon as it lives outside of this cgroup and the cgroup has no
    /// process.
    Guard {
        /// Whose main process.
        unit: UnitName,
        /// The unit's cgroup: its path below the root of the hierarchy.
        group: String,
    },
    /// The kernel: wait until this cgroup has no process. Answered with [`News::Emptied`] then.
    IsEmpty {
        /// Whose cgroup.
        unit: UnitName,
        /// Its path below the root of the hierarchy. Empty if systemd has removed it.
        group: String,
        /// systemd says that the unit is down. That counts if the kernel does not tell.
        is_down: bool,
    },
    /// systemd: send a signal (`KillUnit`).
    Kill {
        /// To which unit.
        unit: UnitName,
        /// Signal number.
        signal: i32,
        /// To all its processes, instead of the main process and its process group alone.
        all: bool,
    },
    /// A pause of about a second, before a refused call is tried again.
    Later(UnitName),
    /// A pause of some seconds, before the units are listed again.
    LaterList,
    /// A pause of about a second, before this slice is stopped again.
    LaterSlice(String),
    /// A pause of about a second, before refused starts are tried again.
    LaterStarts,
    /// A pause as long as systemd may leave a call without an answer. Answered with
    /// [`News::PatienceOver`]. There is never a second one at the same time. Also asked without a
    /// connection.
    Patience,
    /// systemd: answer (`Ping`).
    Ping,
    /// systemd: the names of this rank's units (`ListUnitsByPatterns`).
    List,
    /// systemd: when it began (`Get` of `UserspaceTimestampMonotonic`).
    Manager,
    /// The kernel: hold on to this process, so that its pid cannot become another's. Then systemd:
    /// the properties of the service interface (`GetAll`). If they still say that it runs, it was
    /// the main process that was taken hold of.
    Main {
        /// Whose main process.
        unit: UnitName,
        /// Its pid, as systemd has told it.
        pid: u32,
    },
    /// Compare the properties that were configured with those that systemd has, and log
    /// differences. Not answered.
    ReadBack(UnitName),
    /// Drop the connection, make another one, and then call
    /// [`handle_connected`](super::Tracker::handle_connected). Not answered.
    Reconnect,
    /// systemd: forget that the unit failed (`ResetFailedUnit`).
    Reset(UnitName),
    /// The kernel: the cgroup of the unit's main process, if that is the unit's, and there for this
    /// process to see. Empty otherwise.
    SeenGroup(UnitName),
    /// systemd: the properties of the service interface (`GetAll`). Followed by those of the unit
    /// interface.
    Service(UnitName),
    /// systemd: start the unit (`StartTransientUnit`).
    Start(UnitName),
    /// systemd: stop the unit (`StopUnit`).
    Stop(UnitName),
    /// systemd: stop the slice of a unit (`StopUnit`).
    StopSlice(String),
    /// systemd: send signals to this connection (`Subscribe`).
    Subscribe,
    /// systemd: the properties of the unit interface (`GetAll`).
    Unit(UnitName),
    /// The bus: deliver no more signals of the unit. The kernel: watch its cgroup and its main
    /// process no longer. Not answered. Also asked without a connection.
    Unwatch(UnitName),
    /// The bus: deliver the unit's signals (`AddMatch`).
    Watch(UnitName),
    /// The bus: deliver the signals of all units. Asked if the bus refuses more rules, so those of
    /// [`Call::Watch`] go first.
    WatchAll,
    /// The bus: say when systemd leaves it and comes back.
    WatchPresence,
    /// The bus: deliver systemd's `Reloading`.
    WatchReloading,
}

impl Call {
    /// The unit that the call is about, if any.
    pub fn unit(&self) -> Option<&UnitName> {
        match self {
            Self::ControlGroup(unit)
            | Self::Guard { unit, .. }
            | Self::IsEmpty { unit, .. }
            | Self::Kill { unit, .. }
            | Self::Later(unit)
            | Self::Main { unit, .. }
            | Self::ReadBack(unit)
            | Self::Reset(unit)
            | Self::SeenGroup(unit)
            | Self::Service(unit)
            | Self::Start(unit)
            | Self::Stop(unit)
            | Self::Unit(unit)
            | Self::Unwatch(unit)
            | Self::Watch(unit) => Some(unit),
            Self::LaterList
            | Self::LaterSlice(_)
            | Self::LaterStarts
            | Self::List
            | Self::Manager
            | Self::Patience
            | Self::Ping
            | Self::Reconnect
            | Self::StopSlice(_)
            | Self::Subscribe
            | Self::WatchAll
            | Self::WatchPresence
            | Self::WatchReloading => None,
        }
    }

    /// Whether the answer is [`News::Answer`].
    pub(super) fn is_answered(&self) -> bool {
        !matches!(
            self,
            Self::Guard { .. }
                | Self::IsEmpty { .. }
                | Self::Patience
                | Self::ReadBack(_)
                | Self::Reconnect
                | Self::Unwatch(_)
        )
    }
}

/// The call, as people are told that it has no answer.
impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self {
            Self::ControlGroup(_) | Self::Main { .. } | Self::Service(_) | Self::Unit(_) => {
                "the properties"
            }
            Self::Guard { .. } | Self::IsEmpty { .. } | Self::SeenGroup(_) => "the cgroup",
            Self::Kill { .. } => "a signal",
            Self::Later(_)
            | Self::LaterList
            | Self::LaterSlice(_)
            | Self::LaterStarts
            | Self::Patience => "a pause",
            Self::List => "the list of units",
            Self::Manager => "when it began",
            Self::Ping => "a sign of life",
            Self::ReadBack(_) => "the configured properties",
            Self::Reconnect => "a connection",
            Self::Reset(_) | Self::Stop(_) => "the removal",
            Self::Start(_) => "the start",
            Self::StopSlice(slice) => return write!(f, "the removal of {slice}"),
            Self::Subscribe => "a subscription",
            Self::Unwatch(_)
            | Self::Watch(_)
            | Self::WatchAll
            | Self::WatchPresence
            | Self::WatchReloading => "a match rule",
        };
        match self.unit() {
            Some(unit) => write!(f, "{what} of {unit}"),
            None => f.write_str(what),
        }
    }
}

/// What comes in, in the order in which the bus delivers it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum News {
    /// A call was answered.
    Answer {
        /// The call's number.
        number: u64,
        /// What was answered.
        answer: Result<CallAnswer, Refusal>,
    },
    /// A unit's properties have changed.
    Changed {
        /// Which unit.
        unit: UnitName,
        /// What has changed.
        changes: Changes,
        /// Whether the unit interface has told it. systemd sends that signal last, so the change is
        /// complete.
        whole: bool,
    },
    /// No process is left in the unit's cgroup.
    Emptied {
        /// Which unit.
        unit: UnitName,
    },
    /// The unit's main process lives outside of its cgroup, in which no process is left.
    Left {
        /// Which unit.
        unit: UnitName,
    },
    /// systemd has left the bus: it is being re-executed, or has died.
    ManagerAway,
    /// systemd is on the bus again.
    ManagerBack,
    /// The pause of [`Call::Patience`] has ended.
    PatienceOver,
    /// systemd starts (true) or finishes (false) a reload of its configuration.
    Reloading(bool),
}

/// An answer that is not an error.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CallAnswer {
    /// To [`Call::ControlGroup`] and [`Call::SeenGroup`].
    ControlGroup(String),
    /// To calls that only do something.
    Done,
    /// To [`Call::List`]: the units' names.
    Listed(Vec<String>),
    /// To [`Call::Manager`].
    Manager(ManagerId),
    /// To [`Call::Main`], [`Call::Service`] and [`Call::Unit`].
    Properties(Changes),
}

/// An answer that is an error.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// D-Bus's name of it, for instance `org.freedesktop.systemd1.UnitExists`.
    pub name: String,
    /// In words.
    pub text: String,
}

/// Properties of a unit; `None` if they were not told.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Changes {
    /// `ActiveState`.
    pub active: Option<Active>,
    /// `ActiveEnterTimestampMonotonic` is not 0: the unit has been active.
    pub was_active: Option<bool>,
    /// `Job`: whether a job for the unit is queued or runs.
    pub job: Option<bool>,
    /// `InvocationID`, in hex digits.
    pub invocation_id: Option<String>,
    /// `ExecMainPID`.
    pub main_pid: Option<u32>,
    /// `ExecMainCode`: a `CLD_*` code, 0 while the program runs.
    pub main_code: Option<i32>,
    /// `ExecMainStatus`: exit code or signal number.
    pub main_status: Option<i32>,
    /// `Result`, such as `exit-code`.
    pub result: Option<String>,
    /// The job's digest out of `LogExtraFields`; empty if there is none in it.
    pub digest: Option<String>,
    /// The job's owner, out of the same.
    pub userid: Option<u32>,
    /// How many shells the job has, out of the same.
    pub size: Option<u32>,
    /// `ControlGroup`.
    pub control_group: Option<String>,
}

impl Refusal {
    /// There is a unit of this name already.
    pub const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
    /// There is no such unit.
    pub const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";
    /// The one that should answer has left the bus.
    pub const NO_REPLY: &str = "org.freedesktop.DBus.Error.NoReply";
    /// The call cannot be made.
    pub const INVALID_ARGS: &str = "org.freedesktop.DBus.Error.InvalidArgs";
    /// Nobody has the name that the call was for.
    pub const NO_OWNER: &str = "org.freedesktop.DBus.Error.NameHasNoOwner";
    /// The bus grants no more of something: match rules, or calls without an answer.
    pub const QUOTA: &str = "org.freedesktop.DBus.Error.LimitsExceeded";
    /// A job of systemd's that must not be replaced is in the way: that of `exit.target`.
    pub const DESTRUCTIVE: &str = "org.freedesktop.systemd1.TransactionIsDestructive";
    /// The same as [`NO_OWNER`](Self::NO_OWNER), where the bus would have started somebody.
    const NO_SERVICE: &str = "org.freedesktop.DBus.Error.ServiceUnknown";

    /// Whether systemd was not there to answer. What it did with the call is not known then.
    pub fn is_absence(&self) -> bool {
        matches!(
            self.name.as_str(),
            "org.freedesktop.DBus.Error.Disconnected"
                | Self::NO_OWNER
                | Self::NO_REPLY
                | Self::NO_SERVICE
        )
    }

    /// There is no such unit.
    pub fn is_no_unit(&self) -> bool {
        matches!(
            self.name.as_str(),
            Self::NO_SUCH_UNIT | "org.freedesktop.DBus.Error.UnknownObject"
        )
    }

    /// The bus has not passed the call on. It does when other calls have been answered.
    pub(super) fn is_quota(&self) -> bool {
        self.name == Self::QUOTA
    }

    /// systemd starts nothing, because it is about to end, and stops all units. It is back if it was
    /// started again.
    pub(super) fn is_ending(&self) -> bool {
        self.name == Self::DESTRUCTIVE
    }

    /// There is such a unit already.
    pub(super) fn is_exists(&self) -> bool {
        self.name == Self::UNIT_EXISTS
    }

    /// The errno for a start that was refused like this.
    pub(super) fn errnum(&self) -> i32 {
        match self.name.as_str() {
            "org.freedesktop.DBus.Error.AccessDenied" => libc::EACCES,
            Self::INVALID_ARGS
            | "org.freedesktop.DBus.Error.PropertyReadOnly"
            | "org.freedesktop.DBus.Error.UnknownProperty"
            | "org.freedesktop.systemd1.BadUnitSetting" => libc::EINVAL,
            "org.freedesktop.DBus.Error.NoMemory" => libc::ENOMEM,
            _ => libc::EIO,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.text, self.name)
    }
}
