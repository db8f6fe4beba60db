//! Shells as plain child processes, where there is no user manager.
//!
//! Each child leads a process group of its own. It does not survive its supervisor: the worker
//! kills what is left when it ends. A unit of an earlier life is answered with `Absent`, because a
//! recorded pid may be another process's by now.
//!
//! A child that has exited stays a zombie until it is collected. Until then its pid, which is also
//! its process group's number, cannot be reused.
//!
//! The process that this runs in must not wait for children that it did not start. If it does (with
//! `waitpid(-1)` in an event loop), it takes the exit status, and the shell is reported as lost.

mod group;
mod pidfd;

use std::collections::{BTreeMap, VecDeque};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus as Waited, waitid};
use nix::unistd::Pid;
use tokio::task::JoinSet;

use crate::port::supervisor::{ManagerId, Method, Started, UnitSpec};
use crate::proto::{UnitName, Usage, WaitStatus};
use crate::supervisor::{Backend, BackendDriver, BackendEvent, OutputPaths};

/// Child processes of this process.
#[derive(Debug, Default)]
pub struct Fork {
    children: BTreeMap<UnitName, RunningChild>,
    events: VecDeque<BackendEvent>,
    /// One task for each thing that is waited for.
    tasks: JoinSet<(UnitName, Done)>,
}

/// A child that is not collected yet.
#[derive(Debug)]
struct RunningChild {
    child: Child,
    stop_timeout: Option<Duration>,
    exited: bool,
    collect: bool,
}

/// What was waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Done {
    /// No process is left in the group.
    Empty,
    /// The child has exited.
    Exited,
    /// The stop timeout is over.
    Timeout,
}

impl Fork {
    /// A backend without children. All its methods need a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn handle_done(&mut self, unit: UnitName, done: Done) {
        let Some(running) = self.children.get_mut(&unit) else { return };
        match done {
            Done::Empty => {
                if let Some(mut running) = self.children.remove(&unit) {
                    reap(&unit, &mut running.child);
                }
                self.events.push_back(BackendEvent::Empty(unit));
            }
            Done::Exited => {
                running.exited = true;
                let collect = running.collect;
                match peek(&running.child) {
                    Ok(status) => {
                        let unit = unit.clone();
                        self.events.push_back(BackendEvent::Exited { unit, status });
                    }
                    Err(e) => {
                        tracing::error!(%unit, error = %e,
                            "exit status lost: this process waits for children that it did not start");
                        self.events.push_back(BackendEvent::Absent(unit.clone()));
                    }
                }
                if collect {
                    self.clear(&unit);
                }
            }
            Done::Timeout => {
                if !running.exited {
                    tracing::info!(%unit, "stop timeout is over, sending SIGKILL");
                    send(&unit, running.pid(), Signal::SIGKILL as i32, true);
                }
            }
        }
    }

    /// Kill the processes that are left in the group, and wait until none is left.
    fn clear(&mut self, unit: &UnitName) {
        let Some(running) = self.children.get(unit) else { return };
        let (group, unit) = (running.pid(), unit.clone());
        self.tasks.spawn(async move {
            group::clear(group).await;
            (unit, Done::Empty)
        });
    }
}

impl RunningChild {
    fn pid(&self) -> Pid {
        // Linux pids are positive and fit an i32.
        Pid::from_raw(self.child.id() as i32)
    }
}

impl Backend for Fork {
    fn method(&self) -> Method {
        Method::Fork
    }

    fn manager(&self) -> Option<ManagerId> {
        None
    }

    fn start(&mut self, spec: &UnitSpec, output: &OutputPaths) {
        let unit = spec.unit.clone();
        let (child, pidfd) = match spawn(spec, output) {
            Ok(spawned) => spawned,
            Err(error) => {
                let (errnum, message) = (error.errnum(), error.to_string());
                return self.events.push_back(BackendEvent::Failed { unit, errnum, message });
            }
        };
        let started = Started { pid: child.id(), invocation_id: String::new() };
        self.tasks.spawn({
            let unit = unit.clone();
            async move {
                pidfd::exited(pidfd).await;
                (unit, Done::Exited)
            }
        });
        let stop_timeout = spec.stop_timeout;
        let running = RunningChild { child, stop_timeout, exited: false, collect: false };
        self.children.insert(unit.clone(), running);
        self.events.push_back(BackendEvent::Started { unit, started });
    }

    fn find(&mut self, unit: &UnitName, _digest: &str, _known: Option<&Started>) {
        self.events.push_back(BackendEvent::Absent(unit.clone()));
    }

    fn signal(&mut self, unit: &UnitName, signal: i32, all: bool) {
        let Some(running) = self.children.get(unit) else { return };
        if all || !running.exited {
            send(unit, running.pid(), signal, all);
        }
    }

    fn collect(&mut self, unit: &UnitName) {
        let Some(running) = self.children.get_mut(unit) else {
            return self.events.push_back(BackendEvent::Empty(unit.clone()));
        };
        if std::mem::replace(&mut running.collect, true) {
            return;
        }
        if running.exited {
            return self.clear(unit);
        }
        send(unit, running.pid(), Signal::SIGTERM as i32, true);
        if let Some(timeout) = running.stop_timeout {
            let unit = unit.clone();
            self.tasks.spawn(async move {
                tokio::time::sleep(timeout).await;
                (unit, Done::Timeout)
            });
        }
    }

    fn hold(&mut self, unit: &UnitName) {
        // No later life could read the status anyway.
        self.collect(unit);
    }

    fn forget(&mut self, unit: &UnitName) {
        if let Some(mut running) = self.children.remove(unit) {
            send(unit, running.pid(), Signal::SIGKILL as i32, true);
            reap(unit, &mut running.child);
        }
    }

    fn usage(&mut self, _: &UnitSpec) -> Option<Usage> {
        None
    }

    fn drop_usage(&mut self, _: &UnitName) {}

    fn spare(&mut self, _: &UnitName) {} // no child of an earlier life is left
}

impl BackendDriver for Fork {
    async fn flush(&mut self) {}

    async fn next(&mut self) -> Option<BackendEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        match self.tasks.join_next().await {
            Some(Ok((unit, done))) => self.handle_done(unit, done),
            // Tasks are neither aborted nor panic.
            Some(Err(e)) => tracing::error!(error = %e, "lost track of a child process"),
            None => std::future::pending().await,
        }
        self.events.pop_front()
    }

    async fn close(&mut self) {
        for (unit, mut running) in std::mem::take(&mut self.children) {
            if !running.exited {
                tracing::warn!(%unit, "killed: child processes do not outlive their supervisor");
            }
            send(&unit, running.pid(), Signal::SIGKILL as i32, true);
            reap(&unit, &mut running.child);
        }
    }
}

/// Why there is no child process.
#[derive(Debug, thiserror::Error)]
enum SpawnError {
    /// An output file cannot be opened.
    #[error("{}: {error}", path.display())]
    Output { path: PathBuf, error: io::Error },
    /// The child's exit could not be noticed.
    #[error("{program}: no pidfd (Linux 5.3 is needed): {error}")]
    Pidfd { program: String, error: rustix::io::Errno },
    /// The program cannot be executed.
    #[error("{program}: {}", describe(error))]
    Program { program: String, error: io::Error },
    /// Only systemd can set unit properties.
    #[error("unit properties ({names}) need systemd, this is a child process")]
    Properties { names: String },
}

impl SpawnError {
    /// The POSIX errno that classes it.
    fn errnum(&self) -> i32 {
        match self {
            Self::Output { error, .. } | Self::Program { error, .. } => {
                error.raw_os_error().unwrap_or(Errno::EIO as i32)
            }
            Self::Pidfd { error, .. } => error.raw_os_error(),
            Self::Properties { .. } => Errno::EINVAL as i32,
        }
    }
}

fn spawn(spec: &UnitSpec, output: &OutputPaths) -> Result<(Child, OwnedFd), SpawnError> {
    if !spec.properties.is_empty() {
        let names = spec.properties.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(SpawnError::Properties { names });
    }
    let program = spec.argv.first().cloned().unwrap_or_default();
    let append = |path: &Path| {
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.map_err(|error| SpawnError::Output { path: path.to_path_buf(), error })
    };
    let mut command = Command::new(&program);
    command
        .args(spec.argv.iter().skip(1))
        .stdin(Stdio::null())
        .stdout(append(&output.stdout)?)
        .stderr(append(&output.stderr)?)
        .process_group(0);
    // These are for the unit that this process runs in, not for the shell.
    for name in ["NOTIFY_SOCKET", "INVOCATION_ID"] {
        command.env_remove(name);
    }
    for name in &spec.unset_environment {
        command.env_remove(name);
    }
    command.envs(&spec.environment);
    if let Some(directory) = &spec.working_directory {
        // As with systemd, a missing directory is not an error.
        let there = Path::new(directory).is_dir();
        command.current_dir(if there { directory } else { "/" });
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Err(SpawnError::Program { program, error }),
    };
    match pidfd::open(child.id() as i32) {
        Ok(pidfd) => Ok((child, pidfd)),
        Err(error) => {
            // It has run for a moment, but its exit could not be noticed.
            let _ = child.kill();
            let _ = child.wait();
            Err(SpawnError::Pidfd { program, error })
        }
    }
}

/// The error's text without "(os error 2)", as in systemd's messages.
fn describe(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(errno) => Errno::from_raw(errno).desc().to_string(),
        None => e.to_string(),
    }
}

/// The exit status of a child that has exited. The child stays a zombie.
fn peek(child: &Child) -> io::Result<WaitStatus> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(Pid::from_raw(child.id() as i32)), flags)? {
        Waited::Exited(_, code) => Ok(WaitStatus::exited(code)),
        Waited::Signaled(_, signal, dumped) => {
            Ok(WaitStatus(signal as i32 | if dumped { 0x80 } else { 0 }))
        }
        other => Err(io::Error::other(format!("unexpected wait status {other:?}"))),
    }
}

fn reap(unit: &UnitName, child: &mut Child) {
    if let Err(e) = child.wait() {
        tracing::debug!(%unit, error = %e, "cannot reap");
    }
}

/// Send a signal. Only for a child that was not reaped, because its pid cannot be another's yet.
fn send(unit: &UnitName, pid: Pid, signal: i32, all: bool) {
    let sent = Signal::try_from(signal).and_then(|signal| match all {
        true => killpg(pid, signal),
        false => kill(pid, signal),
    });
    if let Err(e) = sent {
        tracing::debug!(%unit, signal, error = %e, "signal not sent");
    }
}
