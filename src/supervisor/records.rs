//! Intent records: what a later life of this module needs to know about a unit.
//!
//! One append-only file of JSON lines per unit, `<directory>/<unit stem>.record`. The first
//! line is the intent; each later line is one fact. Nothing is synced to disk: the page cache
//! survives a crash of the broker, and after a crash of the host the shells are gone too.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::port::supervisor::{Started, UnitRecord, UnitSpec};
use crate::proto::{BrokerRank, InstanceId, UnitName, WaitStatus};

/// Version of the record format. A record of another version is reported and left alone.
const VERSION: u32 = 1;

/// The first line of a record.
#[derive(Deserialize, Serialize)]
struct Intent {
    version: u32,
    intent: UnitSpec,
    boot_id: String,
}

/// Each later line of a record.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fact {
    /// The shell has exited.
    Exited(WaitStatus),
    /// Collected, and all output was reported.
    Gone(bool),
    /// Something to keep for the agent.
    Note {
        /// Its name.
        key: String,
        /// Its value.
        value: Value,
    },
    /// The unit was seen running.
    Started(Started),
}

/// A record on disk.
#[derive(Debug)]
pub(super) struct RecordFile {
    path: PathBuf,
    /// Where a torn last line begins, to be cut off before the next append.
    torn_at: Option<u64>,
}

/// Why a file cannot be read as a record.
#[derive(Debug, thiserror::Error)]
enum RecordError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("line {line}: {source}")]
    Json { line: usize, source: serde_json::Error },
    #[error("version {found:?}, this module reads version {VERSION}")]
    Version { found: Option<u64> },
    #[error("it is the record of unit {0}")]
    OtherUnit(UnitName),
}

/// The directory that holds records and output files.
#[derive(Clone, Debug)]
pub(super) struct RecordStore {
    directory: PathBuf,
}

impl RecordStore {
    /// Make the directory, private to the instance owner, where it is missing.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(Self { directory: directory.to_path_buf() })
    }

    /// A file of this unit.
    pub(super) fn path(&self, unit: &UnitName, extension: &str) -> PathBuf {
        self.directory.join(format!("{}.{extension}", unit.stem()))
    }

    /// Write the intent of a unit. A record that is already there is only replaced if the
    /// caller knows it (`replace`): one that this version cannot read is not ours to lose.
    pub(super) fn create(
        &self,
        spec: &UnitSpec,
        boot_id: &str,
        replace: bool,
    ) -> io::Result<(RecordFile, UnitRecord)> {
        let path = self.path(&spec.unit, "record");
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600);
        if replace {
            options.create(true).truncate(true);
        } else {
            options.create_new(true);
        }
        let intent =
            Intent { version: VERSION, intent: spec.clone(), boot_id: boot_id.to_string() };
        let mut file = options.open(&path)?;
        if let Err(e) = write_line(&mut file, &intent) {
            // Half an intent says no more than none.
            let _ = std::fs::remove_file(&path);
            return Err(e);
        }
        let record = UnitRecord {
            spec: spec.clone(),
            boot_id: intent.boot_id,
            started: None,
            exited: None,
            gone: false,
            notes: BTreeMap::new(),
        };
        Ok((RecordFile { path, torn_at: None }, record))
    }

    /// Read all records of `rank` in `instance`. What is no readable record is reported and
    /// left alone.
    pub(super) fn load(
        &self,
        rank: BrokerRank,
        instance: &InstanceId,
    ) -> io::Result<Vec<(RecordFile, UnitRecord)>> {
        let mut records = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let Some(unit) = record_unit(&path) else { continue };
            if unit.rank() != rank || unit.instance() != instance {
                continue;
            }
            match read(&path, &unit) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => {
                    tracing::warn!(%unit, path = %path.display(), "record without a whole intent: nothing was started, removed");
                    let _ = std::fs::remove_file(&path);
                }
                Err(e) => {
                    tracing::warn!(%unit, path = %path.display(), error = %e, "unreadable record left alone");
                }
            }
        }
        // The directory's order is arbitrary; the events' order should not be.
        records.sort_by(|a, b| a.1.spec.unit.cmp(&b.1.spec.unit));
        Ok(records)
    }

    /// Remove the record and both output files.
    pub(super) fn remove(&self, unit: &UnitName) {
        for extension in ["out", "err", "record"] {
            let path = self.path(unit, extension);
            match std::fs::remove_file(&path) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    tracing::warn!(%unit, path = %path.display(), error = %e, "cannot remove file");
                }
            }
        }
    }
}

impl RecordFile {
    /// Add a fact, to the file and to `record`. A failure to write is logged and no more: the
    /// unit runs, and what is true in memory stays true.
    pub(super) fn append(&mut self, record: &mut UnitRecord, fact: Fact) {
        if let Err(e) = self.write(&fact) {
            tracing::error!(unit = %record.spec.unit, path = %self.path.display(), ?fact, error = %e,
                "cannot write to the record: the fact is lost if the broker dies");
        }
        apply(record, fact);
    }

    fn write(&mut self, fact: &Fact) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        if let Some(length) = self.torn_at {
            file.set_len(length)?;
            self.torn_at = None;
        }
        let before = file.metadata()?.len();
        write_line(&mut file, fact).inspect_err(|_| self.torn_at = Some(before))
    }
}

fn apply(record: &mut UnitRecord, fact: Fact) {
    match fact {
        Fact::Exited(status) => record.exited = Some(status),
        Fact::Gone(gone) => record.gone = gone,
        Fact::Note { key, value } => {
            record.notes.insert(key, value);
        }
        Fact::Started(started) => record.started = Some(started),
    }
}

/// One write per line, so that only the last line of a file can be torn.
fn write_line(file: &mut File, line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)
}

fn record_unit(path: &Path) -> Option<UnitName> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".record")?;
    format!("{stem}.service").parse().ok()
}

/// `None`: not even the intent was written whole.
fn read(path: &Path, unit: &UnitName) -> Result<Option<(RecordFile, UnitRecord)>, RecordError> {
    let bytes = std::fs::read(path)?;
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let torn_at = (whole < bytes.len()).then_some(whole as u64);
    let mut lines = bytes[..whole].split(|b| *b == b'\n').enumerate();
    let Some((_, first)) = lines.next().filter(|(_, line)| !line.is_empty()) else {
        return Ok(None);
    };
    let json = |line| move |source| RecordError::Json { line, source };
    let head: Value = serde_json::from_slice(first).map_err(json(1))?;
    let found = head.get("version").and_then(Value::as_u64);
    if found != Some(u64::from(VERSION)) {
        return Err(RecordError::Version { found });
    }
    let Intent { intent: spec, boot_id, .. } = serde_json::from_value(head).map_err(json(1))?;
    if spec.unit != *unit {
        return Err(RecordError::OtherUnit(spec.unit));
    }
    let mut record = UnitRecord {
        spec,
        boot_id,
        started: None,
        exited: None,
        gone: false,
        notes: BTreeMap::new(),
    };
    for (index, line) in lines.filter(|(_, line)| !line.is_empty()) {
        apply(&mut record, serde_json::from_slice(line).map_err(json(index + 1))?);
    }
    Ok(Some((RecordFile { path: path.to_path_buf(), torn_at }, record)))
}

#[cfg(test)]
mod tests;
