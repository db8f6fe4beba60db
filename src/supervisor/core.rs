//! The order in which things happen to units, whichever backend starts the shells.
//!
//! The core holds the units, their records and their output. It never waits: commands,
//! backend events and grown output files come in, calls to the [`Backend`] and
//! [`SupervisorEvent`]s go out.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use nix::errno::Errno;

use crate::port::Note;
use crate::port::disk::Disk;
use crate::port::supervisor::{
    Limits, MANAGER_ENDED, Method, REBOOTED, StartFailure, Started, SupervisorEvent, UnitCommand,
    UnitEvent, UnitRecord,
};
use crate::proto::{BrokerRank, InstanceId, Mute, Stream, UnitName, WaitStatus};

use super::backend::{Backend, BackendEvent};
use super::end;
use super::output::{Grown, OutputTail, extension};
use super::records::{Fact, RecordFile, RecordStore, file_name};
use super::unit::{Program, Removal, Unit};

/// What is called with each event.
pub type Sink = Box<dyn Fn(SupervisorEvent) + Send>;

/// The units of one rank.
pub struct Core {
    pub(super) store: RecordStore,
    pub(super) boot_id: String,
    pub(super) limits: Limits,
    pub(super) sink: Sink,
    pub(super) units: BTreeMap<UnitName, Unit>,
    /// Units with facts that could not be written yet, in the order in which they are tried again.
    pub(super) late: VecDeque<UnitName>,
    /// How often late facts were tried again without success.
    retries: u32,
    /// It was reported that the disk takes no records, and it has taken none since.
    has_failed: bool,
    /// All that an earlier life has left on the node was reported.
    is_settled: bool,
}

/// How often a start is made again of which there is no trace.
const LOST_STARTS_MAX: u32 = 8;

/// How often late facts are tried again by the clock before it is reported that the disk fails.
const RETRIES_MAX: u32 = 10;

impl Core {
    /// No units yet; `disk` is the rank's state directory, `boot_id` is this boot's.
    pub fn new(disk: Arc<dyn Disk>, boot_id: String, limits: Limits, sink: Sink) -> Self {
        Self {
            store: RecordStore::new(disk),
            boot_id,
            limits,
            sink,
            units: BTreeMap::new(),
            late: VecDeque::new(),
            retries: 0,
            has_failed: false,
            is_settled: false,
        }
    }

    /// Send an event to whoever listens to this supervisor.
    pub fn report(&self, event: SupervisorEvent) {
        (self.sink)(event);
    }

    /// Whether all that an earlier life has left on the node was reported: records, and units without
    /// one.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Report the records of an earlier life, and have the backend look for their units.
    pub fn recover(
        &mut self,
        rank: BrokerRank,
        instance: &InstanceId,
        backend: &mut impl Backend,
    ) -> io::Result<()> {
        for (file, record) in self.store.load(rank, instance)? {
            self.take_over(file, record, backend);
        }
        match backend.method() {
            Method::Fork => self.settle(),
            Method::Systemd => {}
        }
        for (unit, message) in self.store.take_newer() {
            backend.spare(&unit);
            (self.sink)(SupervisorEvent::Unreadable { unit, message });
        }
        Ok(())
    }

    /// Report a record that is not of this life, and have the backend look for its unit.
    pub(super) fn take_over(
        &mut self,
        file: RecordFile,
        record: UnitRecord,
        backend: &mut impl Backend,
    ) {
        (self.sink)(SupervisorEvent::Found(Box::new(record.clone())));
        let unit = record.spec.unit.clone();
        let disk = self.store.disk();
        let limits = self.limits;
        let is_damaged = record.boot_id != self.boot_id;
        let tail = |stream| {
            let base = Note::all(&record.notes).find_map(|note| match note {
                Note::OutputBase { stream: of, offset } if of == stream => Some(offset),
                _ => None,
            });
            let name = file_name(&unit, extension(stream));
            OutputTail::found(disk, name, limits, base.unwrap_or(0), is_damaged)
        };
        let (stdout, stderr) = (tail(Stream::Stdout), tail(Stream::Stderr));
        let found = Unit::new(file, record, Program::Finding, stdout, stderr);
        self.units.insert(unit.clone(), found);
        self.recover_unit(&unit, backend);
    }

    /// What has neither a record nor a unit by now is of no use.
    fn settle(&mut self) {
        if !std::mem::replace(&mut self.is_settled, true) {
            let units = &self.units;
            self.store.remove_unclaimed(|unit| units.contains_key(unit));
            self.store.trim_strays();
        }
    }

    fn recover_unit(&mut self, unit: &UnitName, backend: &mut impl Backend) {
        let Some(found) = self.units.get_mut(unit) else { return };
        let this_boot = found.record.boot_id == self.boot_id;
        if found.record.left {
            (self.sink)(UnitEvent::Left.of(unit));
        }
        if let Some(status) = found.record.exited {
            found.program = Program::Exited;
            (self.sink)(UnitEvent::Exited { status }.of(unit));
        }
        let is_found = found.program != Program::Finding;
        if found.record.gone {
            // `Gone` is reported again when the unit is collected.
            if !is_found {
                self.report_lost(unit, "its end was not seen");
            }
        } else if this_boot {
            backend.find(unit, found.record.spec.digest.as_str(), found.record.started.as_ref());
        } else if !is_found {
            // The node was booted since, so no process is left and there is nothing to look for.
            self.report_lost(unit, REBOOTED);
        }
    }

    /// Obey a command for a unit.
    pub fn handle_command(
        &mut self,
        unit: &UnitName,
        command: UnitCommand,
        backend: &mut impl Backend,
    ) {
        self.write_late(backend);
        match command {
            UnitCommand::Collect => self.collect(unit, backend),
            UnitCommand::Forget => self.forget(unit, backend),
            UnitCommand::Launch(spec) => self.launch(*spec, backend),
            UnitCommand::Note(note) => {
                self.record_fact(unit, Fact::Note { key: note.key(), value: note.value() });
                let is_written = self.units.get(unit).is_some_and(|known| !known.file.is_late());
                if let Some(answer) = UnitEvent::of_note(&note, is_written) {
                    (self.sink)(answer.of(unit));
                }
            }
            UnitCommand::OutputAck { stream, offset, checkpointed } => {
                let Some(known) = self.look_up(unit, "output acknowledgement") else { return };
                known.tail(stream).ack(offset, checkpointed);
                self.report_output(unit);
            }
            UnitCommand::Signal { signal, all } => {
                if self.look_up(unit, "signal").is_some() {
                    backend.signal(unit, signal, all);
                }
            }
        }
    }

    /// Report what output files that grew hold now, and make again what was removed.
    pub fn handle_growth(&mut self, grown: &Grown, backend: &mut impl Backend) {
        self.write_late(backend);
        match grown {
            Grown::Any => {
                self.store.trim_strays();
                for unit in self.units.keys().cloned().collect::<Vec<_>>() {
                    self.keep_record(&unit);
                    self.report_output(&unit);
                }
            }
            Grown::These { files, records, strays } => {
                if *strays {
                    self.store.trim_strays();
                }
                records.iter().for_each(|unit| self.keep_record(unit));
                files.iter().for_each(|(unit, _)| self.report_output(unit));
            }
        }
    }

    /// Handle an event of the backend.
    pub fn handle_event(&mut self, event: BackendEvent, backend: &mut impl Backend) {
        tracing::trace!(?event, "backend");
        self.write_late(backend);
        match event {
            BackendEvent::Absent(unit) => {
                let why = match backend.method() {
                    Method::Fork => "started by fork, which does not survive a restart",
                    Method::Systemd => "no trace of it is left on the node",
                };
                self.handle_absent(&unit, why, backend);
            }
            BackendEvent::ManagerEnded(unit) => self.handle_absent(&unit, MANAGER_ENDED, backend),
            BackendEvent::Empty(unit) => {
                // Else it was removed because it was listed behind its end.
                if self.look_up(&unit, "end").is_some_and(|known| known.removal == Removal::Asked) {
                    self.set_empty(&unit, backend);
                } else {
                    self.drop_usage(&unit, backend);
                }
            }
            BackendEvent::Exists(unit) => self.handle_exists(&unit, backend),
            BackendEvent::Exited { unit, status } => self.handle_exited(&unit, status, backend),
            BackendEvent::Failed { unit, errnum, message } => {
                self.handle_failed(&unit, errnum, message)
            }
            BackendEvent::Left(unit) => self.handle_left(&unit),
            BackendEvent::LeftOver { unit, processes } => self.report_left_over(&unit, processes),
            BackendEvent::Answers => (self.sink)(SupervisorEvent::Answers { who: Mute::Systemd }),
            BackendEvent::Silent { what } => {
                (self.sink)(SupervisorEvent::Silent { who: Mute::Systemd, what });
            }
            BackendEvent::Listed => self.settle(),
            BackendEvent::Stopping(unit) => {
                if self
                    .look_up(&unit, "stop")
                    .is_some_and(|known| known.program == Program::Running)
                {
                    (self.sink)(UnitEvent::Stopping.of(&unit));
                }
            }
            BackendEvent::Replaced(unit) => self.handle_replaced(&unit, backend),
            BackendEvent::Started { unit, started } => self.handle_started(&unit, started, backend),
            BackendEvent::Unrecorded(found) => self.handle_unrecorded(*found, backend),
        }
    }

    fn handle_started(&mut self, unit: &UnitName, started: Started, backend: &mut impl Backend) {
        let Some(known) = self.units.get_mut(unit) else { return };
        match known.program {
            Program::Finding | Program::Starting => {}
            // A backend that finds a unit again reports all that has happened to it.
            Program::Exited | Program::Lost | Program::NotStarted | Program::Running => return,
        }
        let pid = started.pid;
        let news = known.record.started.as_ref() != Some(&started);
        known.program = Program::Running;
        let removal = known.removal;
        if news {
            self.record_fact(unit, Fact::Started(started));
        }
        (self.sink)(UnitEvent::Started { pid }.of(unit));
        if removal == Removal::Asked {
            backend.collect(unit);
        }
        self.report_output(unit);
    }

    fn handle_exited(&mut self, unit: &UnitName, status: WaitStatus, backend: &mut impl Backend) {
        if self.units.get(unit).is_some_and(|known| known.program == Program::Running) {
            self.set_exited(unit, status, backend);
            // The agent will order it, too. Until then the job's end would wait for two threads.
            self.collect(unit, backend);
        }
    }

    /// Whoever hears of an end has heard of the start.
    fn set_ended_unseen(
        &mut self,
        unit: &UnitName,
        status: WaitStatus,
        backend: &mut impl Backend,
    ) {
        let Some(known) = self.units.get(unit) else { return };
        let (program, started) = (known.program, known.record.started.clone());
        if program != Program::Running {
            let pid = started.as_ref().map_or(0, |started| started.pid);
            if started.is_none() {
                let started = Started { pid, invocation_id: String::new() };
                self.record_fact(unit, Fact::Started(started));
            }
            (self.sink)(UnitEvent::Started { pid }.of(unit));
        }
        self.set_exited(unit, status, backend);
    }

    fn set_exited(&mut self, unit: &UnitName, status: WaitStatus, backend: &mut impl Backend) {
        let Some(known) = self.units.get_mut(unit) else { return };
        // Output that was written before the exit is reported before it. A full window does not
        // delay the exit.
        known.pump(&*self.sink);
        known.program = Program::Exited;
        if known.record.exited != Some(status) {
            self.record_fact(unit, Fact::Exited(status));
        }
        self.measure(unit, backend);
        (self.sink)(UnitEvent::Exited { status }.of(unit));
    }

    /// The record is written before the event is sent, because a later life must not trust this
    /// unit's empty cgroup either.
    fn handle_left(&mut self, unit: &UnitName) {
        let Some(known) = self.look_up(unit, "leave") else { return };
        if !known.record.left {
            self.record_fact(unit, Fact::Left(true));
            (self.sink)(UnitEvent::Left.of(unit));
        }
    }

    /// No rank is drained for the processes of a script.
    fn report_left_over(&self, unit: &UnitName, processes: String) {
        let may_live = |known: &Unit| {
            matches!(known.program, Program::Running | Program::Exited)
                && matches!(known.removal, Removal::No | Removal::Asked)
        };
        if !unit.is_script() && self.units.get(unit).is_some_and(may_live) {
            (self.sink)(UnitEvent::LeftOver { processes }.of(unit));
        }
    }

    fn handle_failed(&mut self, unit: &UnitName, errnum: i32, message: String) {
        self.set_not_started(unit);
        (self.sink)(UnitEvent::Failed(StartFailure { errnum, message }).of(unit));
    }

    fn report_never_started(&mut self, unit: &UnitName) {
        self.set_not_started(unit);
        (self.sink)(UnitEvent::NeverStarted.of(unit));
    }

    fn set_not_started(&mut self, unit: &UnitName) {
        let Some(known) = self.look_up(unit, "failure") else { return };
        known.program = Program::NotStarted;
        known.removal = Removal::No;
    }

    /// There is no such unit. Under the IMP it can have ended well, or its start was lost.
    fn handle_absent(&mut self, unit: &UnitName, why: &str, backend: &mut impl Backend) {
        let Some(known) = self.look_up(unit, "absence") else { return };
        let (program, removal) = (known.program, known.removal);
        let why = if known.has_other_manager(backend) { MANAGER_ENDED } else { why };
        if !matches!(program, Program::Finding | Program::Running | Program::Starting) {
            return self.lose(unit, why, backend);
        }
        if let Some(status) = end::read(&**self.store.disk(), unit) {
            self.set_ended_unseen(unit, status, backend);
        } else if program == Program::Starting
            && unit.is_multiuser()
            && removal == Removal::No
            && why != MANAGER_ENDED
        {
            return self.start_again(unit, backend);
        }
        self.lose(unit, why, backend);
    }

    /// Nothing of it is left.
    fn lose(&mut self, unit: &UnitName, why: &str, backend: &mut impl Backend) {
        let Some(known) = self.look_up(unit, "absence") else { return };
        let (program, is_asked) = (known.program, known.removal == Removal::Asked);
        let may_have_started = known.record.has_run()
            || known.record.is_made_again()
            || known.has_other_manager(backend);
        match program {
            Program::Finding if !may_have_started => return self.report_never_started(unit),
            Program::Finding | Program::Running | Program::Starting => self.report_lost(unit, why),
            Program::Exited | Program::Lost | Program::NotStarted => {}
        }
        if is_asked {
            self.set_empty(unit, backend);
        }
    }

    /// There is no trace of the start of a unit under the IMP, and it has not ended: the call was lost.
    fn start_again(&mut self, unit: &UnitName, backend: &mut impl Backend) {
        let paths = self.output_paths(unit);
        let Some(known) = self.units.get_mut(unit) else { return };
        known.lost_starts += 1;
        if known.lost_starts > LOST_STARTS_MAX {
            let message = "systemd accepts the unit, but does not start it".to_string();
            return self.handle_failed(unit, Errno::EIO as i32, message);
        }
        backend.start(&known.record.spec, &paths);
    }

    fn report_lost(&mut self, unit: &UnitName, why: &str) {
        if let Some(known) = self.units.get_mut(unit) {
            known.program = Program::Lost;
            (self.sink)(UnitEvent::Lost { message: why.to_string() }.of(unit));
        }
    }

    fn handle_replaced(&mut self, unit: &UnitName, backend: &mut impl Backend) {
        let Some(known) = self.look_up(unit, "replacement") else { return };
        let waiting = matches!(known.program, Program::Finding | Program::Starting);
        if waiting && known.record.started.is_none() {
            let message = format!("unit {unit} exists, and it is not this job's");
            return self.handle_failed(unit, Errno::EEXIST as i32, message);
        }
        // What says how a unit of this name ended can be of the other one.
        self.lose(unit, "a unit of its name is there, but it is not the one started", backend);
    }

    fn collect(&mut self, unit: &UnitName, backend: &mut impl Backend) {
        let Some(known) = self.look_up(unit, "collection") else {
            // No record, so no process is left. The caller still waits for an answer.
            (self.sink)(UnitEvent::Gone.of(unit));
            return;
        };
        match (known.removal, known.program) {
            (Removal::Asked | Removal::Empty | Removal::Gone, _) => {}
            (Removal::No, Program::Exited) if known.record.gone => self.set_empty(unit, backend),
            (Removal::No, Program::Exited) if known.file.is_late() => {
                known.removal = Removal::Asked;
                known.is_held = true;
                backend.hold(unit);
            }
            (Removal::No, Program::Exited | Program::Running) => {
                known.removal = Removal::Asked;
                backend.collect(unit);
            }
            // This continues when the backend has said whether the unit exists.
            (Removal::No, Program::Finding | Program::Starting) => {
                known.removal = Removal::Asked;
            }
            (Removal::No, Program::Lost) => self.set_empty(unit, backend),
            // `Failed` was the answer already.
            (Removal::No, Program::NotStarted) => {}
        }
    }

    fn set_empty(&mut self, unit: &UnitName, backend: &mut impl Backend) {
        self.measure(unit, backend);
        if let Some(known) = self.units.get_mut(unit) {
            known.removal = Removal::Empty;
            self.report_gone_if_done(unit);
            self.drop_usage(unit, backend);
        }
    }

    fn forget(&mut self, unit: &UnitName, backend: &mut impl Backend) {
        if let Some(known) = self.units.remove(unit) {
            if known.may_run() {
                tracing::warn!(%unit, phase = ?known.program, "forgetting a unit that may still run");
            }
            // A record that stays without its status needs the unit that has it: a later life would
            // take the unit for lost.
            if self.store.remove(unit) {
                if known.is_held {
                    backend.collect(unit);
                }
                if known.is_empty() || matches!(known.program, Program::Lost | Program::NotStarted)
                {
                    backend.drop_usage(unit);
                }
            }
        } else {
            self.store.remove(unit);
        }
        backend.forget(unit);
        self.store.trim_strays();
    }

    /// Report new output, and then `Gone` if the output was all that was missing.
    fn report_output(&mut self, unit: &UnitName) {
        let Some(known) = self.units.get_mut(unit) else { return };
        match known.removal {
            Removal::Asked | Removal::No => {
                known.pump(&*self.sink);
            }
            Removal::Empty => self.report_gone_if_done(unit),
            Removal::Gone => {}
        }
        self.note_late(unit);
    }

    /// Report `Gone` if no process is left and all output was reported.
    fn report_gone_if_done(&mut self, unit: &UnitName) {
        let Some(known) = self.units.get_mut(unit) else { return };
        if known.removal != Removal::Empty || !known.pump(&*self.sink) {
            return;
        }
        known.removal = Removal::Gone;
        known.report_truncated(&*self.sink);
        if !known.record.gone {
            self.record_fact(unit, Fact::Gone(true));
        }
        (self.sink)(UnitEvent::Gone.of(unit));
    }

    /// Write a fact to the unit's record, now or when the disk has space again.
    pub(super) fn record_fact(&mut self, unit: &UnitName, fact: Fact) {
        let Some(known) = self.look_up(unit, "fact") else { return };
        known.file.append(&mut known.record, fact);
        self.note_late(unit);
    }

    /// Facts of a unit that could not be written are tried again.
    fn note_late(&mut self, unit: &UnitName) {
        let is_late = self.units.get(unit).is_some_and(|known| known.file.is_late());
        if is_late && !self.late.contains(unit) {
            self.late.push_back(unit.clone());
        }
    }

    /// Make a record again that somebody has removed.
    fn keep_record(&mut self, unit: &UnitName) {
        let Some(known) = self.units.get_mut(unit) else { return };
        if known.file.is_removed() {
            tracing::warn!(%unit, "the record was removed: it is made again");
            known.file = self.store.make_again(&known.record);
            self.note_late(unit);
        }
    }

    /// Try again to write facts that could not be written. Stops at the first unit that fails
    /// again, because most often all fail for the same reason.
    pub fn write_late(&mut self, backend: &mut impl Backend) {
        for _ in 0..self.late.len() {
            let Some(unit) = self.late.pop_front() else { return };
            let Some(known) = self.units.get_mut(&unit) else { continue };
            if known.file.write_late(&known.record).is_err() {
                return self.late.push_back(unit);
            }
            if std::mem::take(&mut known.is_held) {
                backend.collect(&unit);
            }
            self.drop_usage(&unit, backend);
            self.note_success();
        }
    }

    /// The same, because time has passed.
    pub fn retry_late(&mut self, backend: &mut impl Backend) {
        self.write_late(backend);
        for unit in self.store.remove_again() {
            backend.collect(&unit);
            backend.drop_usage(&unit);
            backend.forget(&unit);
        }
        let Some(unit) = self.late.front() else { return };
        self.retries = self.retries.saturating_add(1);
        if self.retries >= RETRIES_MAX
            && let Some(why) = self.units.get(unit).and_then(|known| known.file.why_late())
        {
            self.note_failure(why);
        }
    }

    /// The disk takes records.
    pub(super) fn note_success(&mut self) {
        (self.retries, self.has_failed) = (0, false);
    }

    /// The disk does not take a record.
    pub(super) fn note_failure(&mut self, message: String) {
        if !std::mem::replace(&mut self.has_failed, true) {
            (self.sink)(SupervisorEvent::DiskFails { message });
        }
    }

    /// Whether facts, or files that are to go, wait for the disk.
    pub fn is_late(&self) -> bool {
        !self.late.is_empty() || self.store.has_unremoved()
    }

    fn look_up(&mut self, unit: &UnitName, what: &str) -> Option<&mut Unit> {
        let known = self.units.get_mut(unit);
        if known.is_none() {
            tracing::debug!(%unit, "{what} for a unit that is not known");
        }
        known
    }
}
