//! What the supervisor's core needs of a way to start shells.

use std::future::Future;
use std::path::PathBuf;

use crate::port::supervisor::{ManagerId, Method, Started, UnitSpec};
use crate::proto::{JobDigest, UnitName, Usage, WaitStatus};

/// Where a unit's output goes: to files, because they outlive this process, and because no slow
/// reader can stall the writer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OutputPaths {
    /// Appended to by file descriptor 1.
    pub stdout: PathBuf,
    /// Appended to by file descriptor 2.
    pub stderr: PathBuf,
    /// Made at the end of a unit under the IMP, which may not remain: it says how the unit ended.
    pub end: PathBuf,
}

/// A way to start shells and to know how they ended.
///
/// The methods only note what to do: they never block and never fail. The outcome is a
/// [`BackendEvent`]. Calls for a unit that the backend does not know are ignored, except where said
/// otherwise.
pub trait Backend {
    /// How it starts shells. With systemd, `Listed` is reported soon after the first connection, and
    /// after each later one. With `fork` there are no units of an earlier life, and no `Listed`.
    fn method(&self) -> Method;

    /// Which user manager has listed its units last. `None`: none has.
    fn manager(&self) -> Option<ManagerId>;

    /// Start a unit. Answered by `Started`, `Failed`, `Exists`, `ManagerEnded` or `Replaced`; under
    /// the IMP by `Absent`, too: there is no trace of it, and the caller knows whether it has ended.
    fn start(&mut self, spec: &UnitSpec, output: &OutputPaths);

    /// Look for a unit that was started, or may have been: in an earlier life (`known` is what was
    /// recorded then), or by a start that was answered with `Exists`. If its start was not
    /// recorded, the job's digest decides whether a unit of this name is the right one. Answered by
    /// `Started` (followed by `Exited` if it has exited), `Absent` or `Replaced`.
    fn find(&mut self, unit: &UnitName, digest: &str, known: Option<&Started>);

    /// Send a signal to the main process and its process group, or to all processes. If the program
    /// does not run yet, it gets the signal when it does.
    fn signal(&mut self, unit: &UnitName, signal: i32, all: bool);

    /// End the processes that are left and remove the unit. Answered by `Empty` when no process is
    /// left, also if there is no such unit any more. If the main process was still running, `Exited`
    /// comes first.
    fn collect(&mut self, unit: &UnitName);

    /// The same without the removal: the unit stays, because nothing else has its status. To be
    /// followed by `collect`.
    fn hold(&mut self, unit: &UnitName);

    /// Report nothing more about this unit. Its removal goes on.
    fn forget(&mut self, unit: &UnitName);

    /// What the processes of a unit have used, if none of them is left. `None` also if it is not
    /// known.
    fn usage(&mut self, spec: &UnitSpec) -> Option<Usage>;

    /// Nobody asks for the usage of a unit any more, because its record has it, or goes.
    fn drop_usage(&mut self, unit: &UnitName);

    /// Leave this unit alone: there is a record of it that only a later release can read. Comes
    /// before anything that the backend finds.
    fn spare(&mut self, unit: &UnitName);
}

/// The part of a [`Backend`] that waits: it sends what was asked for, and receives events.
pub trait BackendDriver: Backend {
    /// Send the calls that are due. The worker never cancels this, so that no write is cut off.
    fn flush(&mut self) -> impl Future<Output = ()>;

    /// Wait for the next event. `None`: something is due, see [`flush`](BackendDriver::flush). May
    /// be dropped and called again at any time without losing an event.
    fn next(&mut self) -> impl Future<Output = Option<BackendEvent>>;

    /// Prepare for the end of the worker: end what must not outlive it. systemd units go on
    /// running.
    fn close(&mut self) -> impl Future<Output = ()>;
}

/// What a [`Backend`] reports.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BackendEvent {
    /// There is no such unit, or no trace of it any more. Its cgroup is empty.
    Absent(UnitName),
    /// There is no such unit, and the user manager that was told to start it has ended. It may have run.
    ManagerEnded(UnitName),
    /// No process is left, and the unit was removed, or is about to be: a start of this name waits
    /// for that.
    Empty(UnitName),
    /// A unit of this name was already there; nothing was started.
    Exists(UnitName),
    /// The main process has ended.
    Exited {
        /// Which unit.
        unit: UnitName,
        /// Its raw wait status.
        status: WaitStatus,
    },
    /// Nothing was started.
    Failed {
        /// Which unit.
        unit: UnitName,
        /// A POSIX errno that classes the failure.
        errnum: i32,
        /// What went wrong.
        message: String,
    },
    /// systemd has not answered a call in time. What became of the call, and what happens on the node,
    /// is not known until it answers again.
    Silent {
        /// What is waited for.
        what: String,
    },
    /// systemd answers again.
    Answers,
    /// Each unit of this rank that nobody has asked about was reported as `Unrecorded`.
    Listed,
    /// The unit's cgroup is empty, but its main process lives in another cgroup. From now on
    /// `Empty` and `Absent` speak of the unit's own cgroup only.
    Left(UnitName),
    /// A signal to the unit was asked for again, and these processes are still in it.
    LeftOver {
        /// Which unit.
        unit: UnitName,
        /// For people: pid, user and name of a few of them.
        processes: String,
    },
    /// There is a unit of this name, but it is another one than recorded or expected.
    Replaced(UnitName),
    /// A unit under the IMP is being stopped, and its main process still runs. So the shell has
    /// ended, and the IMP waits for the processes that the shell has left behind.
    Stopping(UnitName),
    /// The program runs, or ran.
    Started {
        /// Which unit.
        unit: UnitName,
        /// Its identity.
        started: Started,
    },
    /// There is a unit of this rank and instance that nobody has asked about. It is reported again
    /// after the next list, unless it was asked about since.
    Unrecorded(Box<UnrecordedUnit>),
}

/// What systemd knows of a unit whose record was lost.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnrecordedUnit {
    /// Its name, and so job and rank.
    pub unit: UnitName,
    /// The digest of the job that it was started for.
    pub digest: JobDigest,
    /// The job's owner.
    pub userid: u32,
    /// How many shells the job has.
    pub size: u32,
    /// Its identity, if its program is known to have been executed.
    pub started: Option<Started>,
}
