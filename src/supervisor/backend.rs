//! What the supervisor's core needs of a way to start shells.

use std::future::Future;
use std::path::PathBuf;

use crate::port::supervisor::{Method, Started, UnitSpec};
use crate::proto::{UnitName, WaitStatus};

/// Where a unit's output goes: files, because they outlive us and no reader can stall them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OutputPaths {
    /// Appended to by file descriptor 1.
    pub stdout: PathBuf,
    /// Appended to by file descriptor 2.
    pub stderr: PathBuf,
}

/// A way to start shells and to know how they ended.
///
/// The methods only note what is wanted: they never block and never fail. The outcome is a
/// [`BackendEvent`]. Calls for a unit that the backend does not know are ignored, except where
/// said otherwise.
pub trait Backend {
    /// How it starts shells.
    fn method(&self) -> Method;

    /// Start a unit. Answered by `Started`, `Failed`, `Exists` or `Replaced`.
    fn start(&mut self, spec: &UnitSpec, output: &OutputPaths);

    /// Look for a unit that was, or may have been, started: in an earlier life (`known` is
    /// what was recorded), or by a start that was answered with `Exists`. Without a record of
    /// its start, the job's digest says whether it is the one. Answered by `Started` (then
    /// `Exited`, if it has), `Absent` or `Replaced`.
    fn find(&mut self, unit: &UnitName, digest: &str, known: Option<&Started>);

    /// Send a signal to the main process, or to all processes.
    fn signal(&mut self, unit: &UnitName, signal: i32, all: bool);

    /// End what is left of the unit and remove it. Answered by `Empty`, also when there is no
    /// such unit any more; `Exited` comes before it if the main process still ran.
    fn collect(&mut self, unit: &UnitName);

    /// Nothing more is to be said about this unit.
    fn forget(&mut self, unit: &UnitName);
}

/// A [`Backend`] on a thread of its own: what is wanted goes out, events come in.
pub trait BackendDriver: Backend {
    /// Send what is due. Not cancelled by the core, so it may be in the middle of a write.
    fn flush(&mut self) -> impl Future<Output = ()>;

    /// The next event; `None`: something is due, see [`flush`](BackendDriver::flush). Dropped and
    /// called again at any time without losing an event.
    fn next(&mut self) -> impl Future<Output = Option<BackendEvent>>;

    /// The worker ends: give back what must not outlive it. Units that can, go on.
    fn close(&mut self) -> impl Future<Output = ()>;
}

/// What a [`Backend`] reports.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BackendEvent {
    /// There is no such unit: it never was, or its last trace is gone. Its cgroup is empty.
    Absent {
        /// Which unit.
        unit: UnitName,
    },
    /// No process is left and the unit was removed.
    Empty {
        /// Which unit.
        unit: UnitName,
    },
    /// A unit of this name was already there; nothing was started.
    Exists {
        /// Which unit.
        unit: UnitName,
    },
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
    /// The main process lives outside of its unit, and nothing else is in it. `Empty` and
    /// `Absent` say no more than that from now on.
    Left {
        /// Which unit.
        unit: UnitName,
    },
    /// There is a unit of this name, but it is not the one that was recorded or meant.
    Replaced {
        /// Which unit.
        unit: UnitName,
    },
    /// A unit under the IMP is being stopped, and its main process still runs: the shell has
    /// ended, and the IMP waits for what it has left behind.
    Stopping {
        /// Which unit.
        unit: UnitName,
    },
    /// The program runs, or ran.
    Started {
        /// Which unit.
        unit: UnitName,
        /// Its identity.
        started: Started,
    },
}
