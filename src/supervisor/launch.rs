//! Launches: the intent is written before the start, and nothing is started twice.

use std::io;

use nix::errno::Errno;

use crate::port::disk::{Disk, IfExists};
use crate::port::supervisor::{StartFailure, UnitEvent, UnitRecord, UnitSpec};
use crate::proto::{Stream, UnitName};

use super::backend::{Backend, OutputPaths};
use super::core::Core;
use super::output::{OutputTail, extension};
use super::records::{END, RECORD, file_name};
use super::unit::{Program, Removal, Unit};

/// What to do about a launch, given what is known of its unit.
enum LaunchDecision {
    /// Nothing: the same launch is under way, or the backend is looking for its unit. The answer
    /// will come.
    Await,
    /// Report the unit that runs already.
    Adopt { pid: u32 },
    /// Refuse it, because something else has this name.
    Refuse(String),
    /// Start it, because nothing has run under this name.
    Start {
        /// Whether there is a record to replace.
        replace: bool,
        /// Whether an earlier attempt for the same job may have succeeded after all.
        adoptable: bool,
    },
}

impl Core {
    /// Start a unit, unless it is there already.
    pub(super) fn launch(&mut self, spec: UnitSpec, backend: &mut impl Backend) {
        let unit = spec.unit.clone();
        let (replace, adoptable) = match self.decide(&spec) {
            LaunchDecision::Await => return,
            LaunchDecision::Adopt { pid } => {
                return (self.sink)(UnitEvent::Started { pid }.of(&unit));
            }
            LaunchDecision::Refuse(message) => {
                return self.refuse(&unit, Errno::EEXIST as i32, message);
            }
            LaunchDecision::Start { replace, adoptable } => (replace, adoptable),
        };
        let record = UnitRecord {
            manager: backend.manager(),
            ..UnitRecord::new(spec.clone(), self.boot_id.clone())
        };
        let file = match self.store.create(&record, replace) {
            Ok(file) => file,
            Err(e) => {
                let path = self.store.disk().path(&file_name(&unit, RECORD));
                let message = format!("cannot write the record {}: {e}", path.display());
                return match e.kind() {
                    io::ErrorKind::AlreadyExists => {
                        let hint = "this version cannot read what is there";
                        self.refuse(&unit, Errno::EEXIST as i32, format!("{message} ({hint})"));
                    }
                    _ => self.fail_on_disk(&unit, &e, message),
                };
            }
        };
        let disk = self.store.disk();
        let names = [Stream::Stdout, Stream::Stderr].map(|s| file_name(&unit, extension(s)));
        let made = make_files(&**disk, &names, !adoptable);
        if let Err((path, e)) = made {
            self.units.remove(&unit);
            // The record can have replaced that of a held unit, which nothing else names any more.
            if self.store.remove(&unit) {
                backend.collect(&unit);
                backend.drop_usage(&unit);
                backend.forget(&unit);
            }
            let message = format!("cannot make the output file {path}: {e}");
            return self.fail_on_disk(&unit, &e, message);
        }
        if !adoptable {
            self.store.remove_end(&unit);
        }
        let [stdout, stderr] = names.map(|name| OutputTail::fresh(disk, name, self.limits));
        self.units.insert(unit.clone(), Unit::new(file, record, Program::Starting, stdout, stderr));
        self.note_success();
        backend.start(&spec, &self.output_paths(&unit));
    }

    pub(super) fn output_paths(&self, unit: &UnitName) -> OutputPaths {
        let path = |stream| self.store.disk().path(&file_name(unit, extension(stream)));
        let end = self.store.disk().path(&file_name(unit, END));
        OutputPaths { stdout: path(Stream::Stdout), stderr: path(Stream::Stderr), end }
    }

    fn decide(&self, spec: &UnitSpec) -> LaunchDecision {
        let Some(known) = self.units.get(&spec.unit) else {
            return LaunchDecision::Start { replace: false, adoptable: false };
        };
        let same = known.record.spec.digest == spec.digest;
        let state = match known.program {
            Program::NotStarted if known.removal != Removal::Asked => {
                return LaunchDecision::Start { replace: true, adoptable: same };
            }
            Program::Finding | Program::Starting if same => return LaunchDecision::Await,
            Program::Running if same && known.removal == Removal::No => {
                let pid = known.record.started.as_ref().map_or(0, |started| started.pid);
                return LaunchDecision::Adopt { pid };
            }
            Program::Finding | Program::NotStarted | Program::Starting => "is not known to run",
            Program::Running => "still runs",
            Program::Exited => "has run and was not forgotten yet",
            Program::Lost => "was started, was lost, and was not forgotten yet",
        };
        let whose = if same { "this job" } else { "another job with the same id" };
        LaunchDecision::Refuse(format!(
            "unit {} exists: it belongs to {whose} and {state}",
            spec.unit
        ))
    }

    /// The backend found a unit of this name already there.
    pub(super) fn handle_exists(&mut self, unit: &UnitName, backend: &mut impl Backend) {
        let Some(known) = self.units.get_mut(unit) else { return };
        match known.program {
            // An earlier life can have started it, and its record can be lost. The digest decides.
            Program::Starting => {
                known.program = Program::Finding;
                backend.find(unit, known.record.spec.digest.as_str(), None);
            }
            Program::Exited
            | Program::Finding
            | Program::Lost
            | Program::NotStarted
            | Program::Running => {}
        }
    }

    fn fail_on_disk(&mut self, unit: &UnitName, error: &io::Error, message: String) {
        self.refuse(unit, error.raw_os_error().unwrap_or(Errno::EIO as i32), message.clone());
        self.note_failure(message);
    }

    fn refuse(&self, unit: &UnitName, errnum: i32, message: String) {
        (self.sink)(UnitEvent::Failed(StartFailure { errnum, message }).of(unit));
    }
}

/// Make the output files. The supervisor does this, and not the backend, so that they are private
/// and empty.
fn make_files(
    disk: &dyn Disk,
    names: &[String; 2],
    truncate: bool,
) -> Result<(), (String, io::Error)> {
    let exists = if truncate { IfExists::Truncate } else { IfExists::Keep };
    for name in names {
        disk.create(name, exists, 0).map_err(|e| (disk.path(name).display().to_string(), e))?;
    }
    Ok(())
}
