//! Files as releases have written them. Records and messages of a version that is in use are read;
//! others are refused in one sentence that names both versions. When a format changes, its new files
//! are added here, and the old ones stay.

use std::fs;
use std::path::{Path, PathBuf};

use job_exec_rs::port::Note;
use job_exec_rs::port::supervisor::UnitRecord;
use job_exec_rs::proto::peer::{
    CoveredRequest, KnownRequest, LeadReply, LeadRequest, OrderRequest, PeerError, Reports,
    ShellsRequest, VERSION, decode,
};
use job_exec_rs::proto::{EndReason, Idset, UnitName, WaitStatus};
use job_exec_rs::supervisor::{RecordError, parse_record};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The files below a directory of `tests/formats`, in order.
fn files(directory: &str) -> Vec<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats").join(directory);
    let entries = fs::read_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{directory}");
    files
}

fn name_of(path: &Path) -> String {
    path.file_stem().expect("a name").to_string_lossy().into_owned()
}

fn read_record(path: &Path) -> Result<Option<UnitRecord>, RecordError> {
    let stem = name_of(path);
    let unit: UnitName = format!("{stem}.service").parse().expect("a unit's name");
    parse_record(&fs::read(path).expect("a file"), &unit)
}

/// [record-newer]
#[test]
fn records_of_version_1_are_read() {
    for path in files("record-1") {
        let record = read_record(&path).expect("a record").expect("an intent");
        assert_eq!(record.spec.job.0, 6_731_191_091_200);
        assert_eq!(record.started.map(|started| started.pid), Some(4711));
        assert_eq!(record.exited, Some(WaitStatus::exited(3)));
        assert!(record.left && record.gone);
        let notes: Vec<Note> = Note::all(&record.notes).collect();
        let reason = EndReason::new("timeout", "resource allocation expired", None);
        let critical: Idset = "0-1,3".parse().expect("ranks");
        assert!(notes.contains(&Note::BarrierEntered(1)), "{notes:?}");
        assert!(notes.contains(&Note::CriticalRanks(critical)), "{notes:?}");
        assert!(notes.contains(&Note::EndReason(reason)), "{notes:?}");
    }
}

/// [record-newer]
#[test]
fn records_of_a_later_version_are_refused_in_one_sentence() {
    for path in files("record-2") {
        let error = read_record(&path).expect_err("a later release has written it");
        assert!(matches!(error, RecordError::Version { found: 2 }), "{error}");
        assert_eq!(error.to_string(), "its format has version 2, this release knows version 1");
    }
}

/// The message, written again.
fn again<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Value {
    json!(decode::<T>(bytes).expect("this release reads it"))
}

/// [peer-version]
#[test]
fn messages_of_this_version_are_read_and_written_as_they_were() {
    for path in files(&format!("peer-{VERSION}")) {
        let bytes = fs::read(&path).expect("a file");
        let name = name_of(&path);
        let written = match name.split('-').next() {
            Some("covered") => again::<CoveredRequest>(&bytes),
            Some("known") => again::<KnownRequest>(&bytes),
            Some("lead") if name == "lead-replies" => again::<Vec<LeadReply>>(&bytes),
            Some("lead") => again::<LeadRequest>(&bytes),
            Some("order") => again::<OrderRequest>(&bytes),
            Some("reports") => again::<Reports>(&bytes),
            Some("shells") => again::<ShellsRequest>(&bytes),
            _ => panic!("{name}: which message is that?"),
        };
        let kept: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(written, kept, "{name}");
    }
}

fn refusal(name: &str, bytes: &[u8]) -> Option<PeerError> {
    match name.split('-').next() {
        Some("covered") => decode::<CoveredRequest>(bytes).err(),
        Some("known") => decode::<KnownRequest>(bytes).err(),
        Some("lead") => decode::<LeadRequest>(bytes).err(),
        Some("order") => decode::<OrderRequest>(bytes).err(),
        Some("shells") => decode::<ShellsRequest>(bytes).err(),
        _ => panic!("{name}: which message is that?"),
    }
}

/// [peer-version]
#[test]
fn messages_of_another_version_are_refused_by_name() {
    for path in files(&format!("peer-{VERSION}")) {
        let bytes = fs::read(&path).expect("a file");
        let mut message: Value = serde_json::from_slice(&bytes).expect("JSON");
        // Responses have no version.
        let Some(version) = message.get_mut("version") else { continue };
        *version = json!(6);
        let error = refusal(&name_of(&path), message.to_string().as_bytes()).expect("refused");
        assert_eq!(error, PeerError::Version { met: 6 });
        let said = error.to_string();
        assert!(said.contains("protocol 6, this one speaks 7"), "{said}");
    }
}
