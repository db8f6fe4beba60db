//! What the instance does in place of a flux-shell.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use job_exec_rs::port::supervisor::{UnitEvent, UnitSpec};
use job_exec_rs::proto::{JobId, UnitName};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use super::manager::JobRequest;

/// Why a command cannot be run, in the form of a supervisor's failure.
#[derive(Debug, PartialEq)]
pub(super) struct LaunchError {
    pub(super) errnum: i32,
    pub(super) message: String,
}

/// The commands of jobs, and the units in the shell barrier.
#[derive(Debug, Default)]
pub(super) struct Shells {
    commands: BTreeMap<JobId, JobRequest>,
    /// Events that are held until the unit leaves the barrier: its exit, and all after it.
    in_barrier: BTreeMap<UnitName, VecDeque<UnitEvent>>,
}

impl Shells {
    pub(super) fn add(&mut self, id: JobId, request: JobRequest) {
        self.commands.insert(id, request);
    }

    pub(super) fn remove(&mut self, id: JobId) {
        self.commands.remove(&id);
    }

    /// Replaces the job shell by the user's command.
    ///
    /// # Errors
    /// If the job has no command, or there is no such program. The message is that of a supervisor.
    pub(super) fn complete_spec(&self, spec: &mut UnitSpec) -> Result<(), LaunchError> {
        let Some(request) = self.commands.get(&spec.job) else {
            let message = format!("{}: nobody submitted this job", spec.job);
            return Err(LaunchError { errnum: libc::EINVAL, message });
        };
        let (name, arguments) = request.command.split_first().ok_or_else(|| LaunchError {
            errnum: libc::EINVAL,
            message: "the command is empty".to_string(),
        })?;
        let directory = spec.working_directory.as_deref().unwrap_or("/");
        let program = find(name, Path::new(directory), std::env::var_os("PATH").as_deref())?;
        spec.argv = [program].into_iter().chain(arguments.iter().cloned()).collect();
        // Flux commands could not find this namespace.
        spec.environment.remove("FLUX_KVS_NAMESPACE");
        let size = request.ranks.len().to_string();
        let task = request.ranks.index_of(spec.rank.0).unwrap_or_default();
        for (key, value) in [
            ("FLUX_JOB_ID", spec.job.to_string()),
            ("FLUX_JOB_SIZE", size.clone()),
            ("FLUX_JOB_NNODES", size),
            ("FLUX_TASK_RANK", task.to_string()),
            ("FLUX_TASK_LOCAL_ID", "0".to_string()),
            ("FLUX_BROKER_RANK", spec.rank.to_string()),
        ] {
            spec.environment.insert(key.to_string(), value);
        }
        Ok(())
    }

    /// Notes that the unit runs and enters the barrier.
    pub(super) fn enter_barrier(&mut self, unit: UnitName) {
        self.in_barrier.insert(unit, VecDeque::new());
    }

    /// Returns the event, or holds it if the unit is in the barrier and the event is an exit or
    /// comes after one.
    pub(super) fn pass_or_hold(&mut self, unit: &UnitName, event: UnitEvent) -> Option<UnitEvent> {
        match self.in_barrier.get_mut(unit) {
            Some(held) if !held.is_empty() || matches!(event, UnitEvent::Exited { .. }) => {
                held.push_back(event);
                None
            }
            Some(_) | None => Some(event),
        }
    }

    /// Notes that the unit leaves the barrier. Returns the events that were held.
    pub(super) fn leave_barrier(&mut self, unit: &UnitName) -> VecDeque<UnitEvent> {
        self.in_barrier.remove(unit).unwrap_or_default()
    }

    /// Units of a job that are in the barrier.
    pub(super) fn units_in_barrier(&self, id: JobId) -> Vec<UnitName> {
        self.in_barrier.keys().filter(|unit| unit.job() == id).cloned().collect()
    }
}

/// The absolute path of a program, because systemd needs one.
fn find(name: &str, directory: &Path, path: Option<&OsStr>) -> Result<String, LaunchError> {
    let failed = |errno: Errno| LaunchError {
        errnum: errno as i32,
        message: format!("{name}: {}", errno.desc()),
    };
    let is_program = |path: &Path| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    let program: PathBuf = if name.contains('/') {
        // If it does not exist, or is not a program, the supervisor reports that.
        directory.join(name)
    } else {
        let directories = std::env::split_paths(path.unwrap_or_default());
        let mut candidates = directories.map(|d| directory.join(d).join(name));
        candidates.find(|path| is_program(path)).ok_or_else(|| failed(Errno::ENOENT))?
    };
    program.into_os_string().into_string().map_err(|_| failed(Errno::EILSEQ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use job_exec_rs::proto::{BrokerRank, InstanceId, WaitStatus};

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let path = Some(OsStr::new("/nonexistent:/bin"));
        let find = |name| find(name, Path::new("/srv"), path).map_err(|e| e.errnum);
        assert_eq!(find("sh"), Ok("/bin/sh".to_string()));
        assert_eq!(find("./x"), Ok("/srv/./x".to_string()));
        assert_eq!(find("/bin/x"), Ok("/bin/x".to_string()));
        assert_eq!(find("no-such-program"), Err(libc::ENOENT));
    }

    #[test]
    fn an_exit_waits_for_the_barrier_and_output_does_not_overtake_it() {
        let id = JobId(5);
        let unit = UnitName::new(false, BrokerRank(0), id, InstanceId::new("/x", 0));
        let mut shells = Shells::default();
        let exited = UnitEvent::Exited { status: WaitStatus(0) };
        let gone = UnitEvent::Gone;
        assert!(shells.pass_or_hold(&unit, gone.clone()).is_some(), "not in the barrier");
        shells.enter_barrier(unit.clone());
        assert!(shells.pass_or_hold(&unit, gone.clone()).is_some(), "still runs");
        assert!(shells.pass_or_hold(&unit, exited.clone()).is_none());
        assert!(shells.pass_or_hold(&unit, gone.clone()).is_none());
        assert_eq!(shells.units_in_barrier(id), std::slice::from_ref(&unit));
        assert_eq!(shells.leave_barrier(&unit), [exited, gone]);
        assert!(shells.units_in_barrier(id).is_empty());
    }
}
