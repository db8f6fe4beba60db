//! Records: what a later life of this module needs to know about each unit.
//!
//! One append-only file of JSON lines per unit, `<directory>/<unit stem>.record`. The first
//! line is the intent; each later line is one fact. Nothing is synced to disk: the page cache
//! survives a crash of the broker, and after a crash of the host the shells are gone too.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::port::disk::{Disk, Extent, IfExists};
use crate::port::supervisor::{ManagerId, Started, UnitRecord, UnitSpec};
use crate::proto::{BrokerRank, InstanceId, Json, Stream, UnitName, WaitStatus};

use super::output::extension;

/// Version of the record format. A record of another version is reported and left alone.
const VERSION: u32 = 1;

/// The extension of a record's file name, after the unit's stem.
pub(super) const RECORD: &str = "record";
/// The extension of the file that says how a unit ended which may not remain ([`super::end`]).
pub(super) const END: &str = "end";
/// The extension of a record that will replace another, while it is being written.
const REPLACEMENT: &str = "new";
/// The extension that is added to the name of an output file that was set aside.
pub(super) const STRAY: &str = "stray";
/// How many names are tried for a file that is set aside.
const STRAY_NAMES_MAX: u32 = 1000;

/// Room for facts that is reserved with each record, in bytes. So a full disk does not take those
/// that decide what becomes of the job: it was started, how often it has entered the barrier, why it
/// was ended, and its status. They take less than 1 KiB, but for a long exception's note.
const FACTS_ROOM: usize = 4096;

/// A record shorter than this is never rewritten, in bytes.
const COMPACT_MIN_BYTES: u64 = 64 * 1024;

/// The first line of a record.
#[derive(Deserialize, Serialize)]
struct Intent {
    version: u32,
    intent: UnitSpec,
    boot_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    manager: Option<ManagerId>,
}

/// Each later line of a record.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fact {
    /// The shell has exited.
    Exited(WaitStatus),
    /// Collected, and all output was reported.
    Gone(bool),
    /// Its main process was seen outside of the unit.
    Left(bool),
    /// Something to keep for the agent.
    Note {
        /// Its name.
        key: String,
        /// Its value.
        value: Json,
    },
    /// The unit was seen running.
    Started(Started),
}

/// A record on disk.
#[derive(Debug)]
pub(super) struct RecordFile {
    disk: Arc<dyn Disk>,
    name: String,
    /// An incomplete line follows. It is cut off before the next append.
    is_torn: bool,
    /// Facts that could not be written yet, in order. Only the newest of each kind and key is kept.
    late: Vec<Fact>,
    /// Why they could not be written.
    why_late: Option<String>,
    /// The file is not there, or is of no use: the whole record is to be written.
    is_missing: bool,
    /// Its length when it was last rewritten, in bytes; 0 if not known.
    compact: u64,
    /// The length of its whole lines, in bytes.
    length: u64,
}

/// Why a file cannot be read as a record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A whole line cannot be read.
    #[error("line {line}: {source}")]
    Json {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// It is the record of another unit than its file name says.
    #[error("it is the record of unit {0}")]
    OtherUnit(UnitName),
    /// It has no version.
    #[error("it has no version, this release knows version {VERSION}")]
    NoVersion,
    /// Another release of this module has written it.
    #[error("its format has version {found}, this release knows version {VERSION}")]
    Version {
        /// Its version.
        found: u64,
    },
}

/// The records and output files of a state directory.
#[derive(Debug)]
pub(super) struct RecordStore {
    disk: Arc<dyn Disk>,
    /// Output files that were set aside, see [`set_aside`](Self::set_aside).
    strays: RefCell<BTreeSet<String>>,
    /// Files that nobody needs, and that the disk has not let go.
    unremoved: RefCell<BTreeSet<String>>,
    /// The rank and the instance whose records were read.
    whose: Option<(BrokerRank, InstanceId)>,
    /// Units of which there was half a record, and no more, when the records were read.
    unclaimed: BTreeSet<UnitName>,
    /// Records that only a later release can read, with what is to be said of them.
    newer: Vec<(UnitName, String)>,
}

impl RecordStore {
    /// The records on `disk`.
    pub(super) fn new(disk: Arc<dyn Disk>) -> Self {
        let (strays, unremoved) = (RefCell::default(), RefCell::default());
        Self { disk, strays, unremoved, whose: None, unclaimed: BTreeSet::new(), newer: Vec::new() }
    }

    /// Where the files are.
    pub(super) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Write a record that holds the intent and no more. One that exists already is only replaced if the
    /// caller knows it (`replace`), because another version may have written it.
    pub(super) fn create(&self, record: &UnitRecord, replace: bool) -> io::Result<RecordFile> {
        let unit = &record.spec.unit;
        let name = file_name(unit, RECORD);
        let replace = replace || self.unremoved.borrow().contains(&name);
        let content = whole(record)?;
        if replace {
            // The old record stays until the new one is complete, because its unit may run after
            // all.
            let new = file_name(unit, REPLACEMENT);
            write_file(self.disk(), &new, IfExists::Truncate, &content)?;
            self.disk.rename(&new, &name)?;
        } else {
            write_file(self.disk(), &name, IfExists::Fail, &content)?;
        }
        self.claim(unit);
        Ok(self.file(name, content.len(), false))
    }

    fn file(&self, name: String, length: usize, is_torn: bool) -> RecordFile {
        RecordFile {
            disk: Arc::clone(&self.disk),
            name,
            is_torn,
            late: Vec::new(),
            why_late: None,
            is_missing: false,
            compact: 0,
            length: length as u64,
        }
    }

    /// Read all records of `rank` in `instance`. Records that cannot be read are logged and left
    /// alone. Half a record, and output without a record, stay until
    /// [`remove_unclaimed`](Self::remove_unclaimed), because their unit may run.
    pub(super) fn load(
        &mut self,
        rank: BrokerRank,
        instance: &InstanceId,
    ) -> io::Result<Vec<(RecordFile, UnitRecord)>> {
        let mut records = Vec::new();
        let ours = |unit: &UnitName| unit.rank() == rank && unit.instance() == instance;
        for name in self.disk.names()? {
            if let Some(unit) = unit_of(&name, REPLACEMENT).filter(ours) {
                // An earlier life ended before this file replaced the record. The record is
                // complete.
                self.remove_file(&unit, name.clone());
            }
            if stray_of(&name).is_some_and(|unit| ours(&unit)) {
                self.strays.borrow_mut().insert(name.clone());
            }
            let Some(unit) = unit_of(&name, RECORD).filter(ours) else { continue };
            let path = self.disk.path(&name);
            match self.read(&name, &unit) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => {
                    tracing::info!(%unit, path = %path.display(), "a record without a complete intent says nothing: its unit decides");
                    self.unclaimed.insert(unit);
                }
                Err(e @ RecordError::Version { found }) if found > u64::from(VERSION) => {
                    let text = format!("cannot read the record {}: {e}", path.display());
                    self.newer.push((unit, text));
                }
                Err(e) => {
                    tracing::warn!(%unit, path = %path.display(), error = %e, "cannot read a record, leaving it alone unless its unit is there");
                }
            }
        }
        self.whose = Some((rank, instance.clone()));
        // A directory has no order; the events should have one.
        records.sort_by(|a, b| a.1.spec.unit.cmp(&b.1.spec.unit));
        Ok(records)
    }

    /// Take the records that `load` has found and that only a later release can read.
    pub(super) fn take_newer(&mut self) -> Vec<(UnitName, String)> {
        std::mem::take(&mut self.newer)
    }

    /// Note the files without a record: also those of a unit that has ended since the records were read.
    fn find_unclaimed(&mut self) -> io::Result<()> {
        let Some((rank, instance)) = &self.whose else { return Ok(()) };
        let names: BTreeSet<String> = self.disk.names()?.into_iter().collect();
        for extension in [extension(Stream::Stdout), extension(Stream::Stderr), END] {
            let units = names.iter().filter_map(|name| unit_of(name, extension));
            for unit in units.filter(|unit| unit.rank() == *rank && unit.instance() == instance) {
                if !names.contains(&file_name(&unit, RECORD)) {
                    self.unclaimed.insert(unit);
                }
            }
        }
        Ok(())
    }

    /// Remove what has neither a record nor a unit. A crash has lost the record before the unit was
    /// started, or with the node, so nobody will ask for the rest.
    pub(super) fn remove_unclaimed(&mut self, is_known: impl Fn(&UnitName) -> bool) {
        if let Err(error) = self.find_unclaimed() {
            tracing::warn!(%error, "cannot look for files without a record");
        }
        for unit in std::mem::take(&mut self.unclaimed) {
            if !is_known(&unit) {
                tracing::info!(%unit, "removing files without a record and without a unit");
                self.remove(&unit);
            }
        }
    }

    /// Write a record in the place of one that was lost. If that fails, it is tried again later, as
    /// for a fact.
    pub(super) fn make_again(&self, record: &UnitRecord) -> RecordFile {
        let mut file = self.file(file_name(&record.spec.unit, RECORD), 0, false);
        file.is_missing = true;
        if let Err(e) = file.write(record) {
            let path = self.disk.path(&file.name);
            tracing::error!(unit = %record.spec.unit, path = %path.display(), error = %e,
                "cannot write a record: trying again later");
        }
        file
    }

    fn read(
        &self,
        name: &str,
        unit: &UnitName,
    ) -> Result<Option<(RecordFile, UnitRecord)>, RecordError> {
        let bytes = self.disk.read(name)?;
        let whole = whole_lines(&bytes);
        let is_torn = whole < bytes.len();
        let record = parse_record(&bytes, unit)?;
        Ok(record.map(|record| (self.file(name.to_string(), whole, is_torn), record)))
    }

    /// Remove the record and both output files. Returns whether the record is gone.
    pub(super) fn remove(&self, unit: &UnitName) -> bool {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let name = file_name(unit, extension(stream));
            if !self.set_aside(unit, &name) {
                self.remove_file(unit, name);
            }
        }
        self.remove_end(unit);
        // A disk that failed while a replacement was written can have kept the replacement, too.
        self.remove_file(unit, file_name(unit, REPLACEMENT));
        self.remove_file(unit, file_name(unit, RECORD));
        !self.unremoved.borrow().contains(&file_name(unit, RECORD))
    }

    /// Remove what says how the unit ended.
    pub(super) fn remove_end(&self, unit: &UnitName) {
        if unit.is_multiuser() {
            self.remove_file(unit, file_name(unit, END));
        }
    }

    /// Remove a file, now or when the disk lets it go.
    fn remove_file(&self, unit: &UnitName, name: String) {
        match self.disk.remove(&name) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => {
                let path = self.disk.path(&name);
                tracing::warn!(%unit, path = %path.display(), error = %e, "cannot remove file");
                self.unremoved.borrow_mut().insert(name);
            }
        }
    }

    /// The unit is used again: what was to be removed stays.
    fn claim(&self, unit: &UnitName) {
        let mut unremoved = self.unremoved.borrow_mut();
        let mut claim = |extension| unremoved.remove(&file_name(unit, extension));
        claim(extension(Stream::Stdout));
        claim(extension(Stream::Stderr));
        claim(END);
        claim(RECORD);
    }

    /// Whether there are files to be removed.
    pub(super) fn has_unremoved(&self) -> bool {
        !self.unremoved.borrow().is_empty()
    }

    /// Try again to remove what could not be removed. Returns the units whose records are gone now.
    pub(super) fn remove_again(&self) -> Vec<UnitName> {
        let is_gone = |name: &String| match self.disk.remove(name) {
            Ok(()) => true,
            Err(e) => e.kind() == io::ErrorKind::NotFound,
        };
        let mut unremoved = self.unremoved.borrow_mut();
        let gone: Vec<String> = unremoved.iter().filter(|name| is_gone(name)).cloned().collect();
        unremoved.retain(|name| !gone.contains(name));
        gone.iter().filter_map(|name| unit_of(name, RECORD)).collect()
    }
}

impl RecordStore {
    /// Keep an output file that a process can still write to although the unit has ended. A user's
    /// job can have passed the descriptor to a process outside of the unit, and that could fill the
    /// disk through a removed file unseen. So the file gets another name, and stays empty until it
    /// is closed. Returns true if the file was kept.
    fn set_aside(&self, unit: &UnitName, name: &str) -> bool {
        if !self.disk.has_writer(name).unwrap_or(false) {
            return false;
        }
        let names = (0..STRAY_NAMES_MAX).map(|n| format!("{name}.{n}.{STRAY}"));
        let free = |stray: &String| self.disk.create(stray, IfExists::Fail, 0).is_ok();
        let Some(stray) = names.into_iter().find(free) else { return false };
        if let Err(e) = self.disk.rename(name, &stray) {
            tracing::warn!(%unit, name, error = %e, "cannot keep an output file that is still open");
            let _ = self.disk.remove(&stray);
            return false;
        }
        tracing::warn!(%unit, file = stray,
            "a process outside of the job has its output open: keeping it empty until it is closed");
        self.strays.borrow_mut().insert(stray);
        self.trim_strays();
        true
    }

    /// Empty the files that were set aside, and remove those that no process can write to any more.
    pub(super) fn trim_strays(&self) {
        self.strays.borrow_mut().retain(|stray| match self.disk.has_writer(stray) {
            Ok(true) => {
                let trimmed = self.disk.extent(stray).and_then(|extent| {
                    if extent == Extent::default() {
                        Ok(())
                    } else {
                        self.disk.set_length(stray, 0)
                    }
                });
                if let Err(e) = trimmed {
                    tracing::warn!(file = stray, error = %e, "cannot empty an output file that is still open");
                }
                true
            }
            Ok(false) => {
                let _ = self.disk.remove(stray);
                false
            }
            Err(e) => e.kind() != io::ErrorKind::NotFound,
        });
    }
}

impl RecordFile {
    /// Add a fact, to the file and to `record`. A fact that cannot be written is logged and kept
    /// for later.
    pub(super) fn append(&mut self, record: &mut UnitRecord, fact: Fact) {
        let was_late = self.is_late();
        self.late.retain(|late| !fact.replaces(late));
        self.late.push(fact.clone());
        apply(record, fact.clone());
        if let Err(e) = self.write(record)
            && !was_late
        {
            let path = self.disk.path(&self.name);
            tracing::error!(unit = %record.spec.unit, path = %path.display(), ?fact, error = %e,
                "cannot write to the record: the fact is lost if the broker dies");
        }
        if let Err(e) = self.compact(record) {
            tracing::debug!(unit = %record.spec.unit, error = %e, "cannot rewrite its record");
        }
    }

    /// Rewrite the record with each fact once, if it has become twice as long. A user's job decides
    /// how many notes are written, so a record must not grow without bound.
    fn compact(&mut self, record: &UnitRecord) -> io::Result<()> {
        if self.is_late() || self.length < COMPACT_MIN_BYTES.max(self.compact.saturating_mul(2)) {
            return Ok(());
        }
        // If this fails, it is tried again when the length has doubled once more.
        self.compact = self.length;
        self.rewrite(record)
    }

    /// Write the whole record, and put it into the place of what is there.
    fn rewrite(&mut self, record: &UnitRecord) -> io::Result<()> {
        let bytes = whole(record)?;
        let new = self.name.replace(&format!(".{RECORD}"), &format!(".{REPLACEMENT}"));
        write_file(&self.disk, &new, IfExists::Truncate, &bytes)?;
        self.disk.rename(&new, &self.name).inspect_err(|_| {
            let _ = self.disk.remove(&new);
        })?;
        self.compact = bytes.len() as u64;
        self.length = self.compact;
        Ok(())
    }

    /// Whether facts could not be written yet.
    pub(super) fn is_late(&self) -> bool {
        self.is_missing || !self.late.is_empty()
    }

    /// Why facts could not be written yet.
    pub(super) fn why_late(&self) -> Option<String> {
        let path = self.disk.path(&self.name);
        self.why_late
            .as_ref()
            .map(|why| format!("cannot write the record {}: {why}", path.display()))
    }

    /// Whether somebody has removed the file.
    pub(super) fn is_removed(&self) -> bool {
        let extent = self.disk.extent(&self.name);
        !self.is_missing && extent.is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    }

    /// Write the facts that could not be written before.
    pub(super) fn write_late(&mut self, record: &UnitRecord) -> io::Result<()> {
        if self.is_late() {
            self.write(record)?;
            let path = self.disk.path(&self.name);
            tracing::info!(path = %path.display(), "the record is complete again");
        }
        Ok(())
    }

    fn write(&mut self, record: &UnitRecord) -> io::Result<()> {
        let written = self.try_write(record);
        self.why_late = written.as_ref().err().map(io::Error::to_string);
        written
    }

    fn try_write(&mut self, record: &UnitRecord) -> io::Result<()> {
        if self.is_missing {
            self.rewrite(record)?;
            (self.is_missing, self.is_torn) = (false, false);
            self.late.clear();
            return Ok(());
        }
        let appended = self.append_late();
        if appended.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            let path = self.disk.path(&self.name);
            tracing::warn!(path = %path.display(), "the record was removed: it is made again");
            self.is_missing = true;
            return self.try_write(record);
        }
        appended
    }

    fn append_late(&mut self) -> io::Result<()> {
        let lines = self.late.iter().map(line).collect::<io::Result<Vec<_>>>()?.concat();
        if self.is_torn {
            self.disk.set_length(&self.name, self.length)?;
            self.is_torn = false;
        }
        self.disk.append(&self.name, &lines).inspect_err(|_| self.is_torn = true)?;
        self.length += lines.len() as u64;
        self.late.clear();
        Ok(())
    }
}

impl Fact {
    /// Whether this fact makes `earlier` unnecessary.
    fn replaces(&self, earlier: &Self) -> bool {
        match (self, earlier) {
            (Self::Note { key, .. }, Self::Note { key: earlier, .. }) => key == earlier,
            _ => std::mem::discriminant(self) == std::mem::discriminant(earlier),
        }
    }
}

/// Writes a record, with room for facts.
fn write_file(
    disk: &Arc<dyn Disk>,
    name: &str,
    exists: IfExists,
    content: &[u8],
) -> io::Result<()> {
    let room = content.len() + FACTS_ROOM;
    let written = disk.create(name, exists, room as u64).and_then(|()| disk.append(name, content));
    written.inspect_err(|e| {
        // An incomplete intent is worth nothing. A file that was there before is another's.
        if e.kind() != io::ErrorKind::AlreadyExists {
            let _ = disk.remove(name);
        }
    })
}

fn apply(record: &mut UnitRecord, fact: Fact) {
    match fact {
        Fact::Exited(status) => record.exited = Some(status),
        Fact::Gone(gone) => record.gone = gone,
        Fact::Left(left) => record.left = left,
        Fact::Note { key, value } => {
            record.notes.insert(key, value);
        }
        Fact::Started(started) => record.started = Some(started),
    }
}

/// The bytes of a record with each fact once.
fn whole(record: &UnitRecord) -> io::Result<Vec<u8>> {
    let (intent, boot_id) = (record.spec.clone(), record.boot_id.clone());
    let intent = Intent { version: VERSION, intent, boot_id, manager: record.manager };
    let mut bytes = line(&intent)?;
    let notes = record
        .notes
        .iter()
        .map(|(key, value)| Fact::Note { key: key.clone(), value: value.clone() });
    let facts = record.started.clone().map(Fact::Started).into_iter().chain(notes);
    let facts = facts.chain(record.left.then_some(Fact::Left(true)));
    let facts = facts.chain(record.exited.map(Fact::Exited));
    for fact in facts.chain(record.gone.then_some(Fact::Gone(true))) {
        bytes.extend(line(&fact)?);
    }
    Ok(bytes)
}

/// One line of a record. Each write is whole lines, so only the last line of a file can be
/// incomplete.
fn line(line: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The name of one of the unit's files.
pub(super) fn file_name(unit: &UnitName, extension: &str) -> String {
    format!("{}.{extension}", unit.stem())
}

/// The unit whose output file was set aside under this name.
fn stray_of(name: &str) -> Option<UnitName> {
    let stem = name.strip_suffix(STRAY)?.strip_suffix('.')?;
    let (file, _) = stem.rsplit_once('.')?;
    [Stream::Stdout, Stream::Stderr].into_iter().find_map(|s| unit_of(file, extension(s)))
}

fn unit_of(name: &str, extension: &str) -> Option<UnitName> {
    let stem = name.strip_suffix(extension)?.strip_suffix('.')?;
    format!("{stem}.service").parse().ok()
}

/// How many bytes are whole lines. An incomplete line can follow, or zeros, which a crash of the
/// node leaves in place of data. After such a crash nothing of the unit runs any more.
fn whole_lines(bytes: &[u8]) -> usize {
    let written = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    bytes[..written].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1)
}

/// What a file with these bytes says of `unit`. `None`: not even the intent is complete. Public for
/// the fuzz target.
///
/// # Errors
///
/// If a whole line cannot be read, or if the record is another unit's or of another version.
#[doc(hidden)]
pub fn parse_record(bytes: &[u8], unit: &UnitName) -> Result<Option<UnitRecord>, RecordError> {
    let whole = &bytes[..whole_lines(bytes)];
    if whole.is_empty() {
        return Ok(None);
    }
    let mut lines = whole.split(|b| *b == b'\n').enumerate();
    let first = lines.next().map_or(whole, |(_, line)| line);
    let json = |line| move |source| RecordError::Json { line, source };
    let head: Value = serde_json::from_slice(first).map_err(json(1))?;
    let found = head.get("version").and_then(Value::as_u64).ok_or(RecordError::NoVersion)?;
    if found != u64::from(VERSION) {
        return Err(RecordError::Version { found });
    }
    let Intent { intent: spec, boot_id, manager, .. } =
        serde_json::from_value(head).map_err(json(1))?;
    if spec.unit != *unit {
        return Err(RecordError::OtherUnit(spec.unit));
    }
    let mut record = UnitRecord { manager, ..UnitRecord::new(spec, boot_id) };
    for (index, line) in lines.filter(|(_, line)| !line.is_empty()) {
        apply(&mut record, serde_json::from_slice(line).map_err(json(index + 1))?);
    }
    Ok(Some(record))
}

#[cfg(test)]
mod tests;
