use std::path::PathBuf;

use super::*;
use crate::adapter::host::HostDisk;
use crate::proto::{JobId, Json};

fn record(job: u64) -> UnitRecord {
    UnitRecord::new(spec(job), "boot".to_string())
}

fn spec(job: u64) -> UnitSpec {
    let instance = InstanceId::new("/test", 1);
    let unit = UnitName::new(false, BrokerRank(0), JobId(job), instance);
    UnitSpec {
        userid: 1,
        size: 1,
        argv: vec!["/bin/true".to_string()],
        ..UnitSpec::bare(unit, "d".into())
    }
}

fn started() -> Started {
    Started { pid: 5, invocation_id: "ab".repeat(16) }
}

fn store() -> (RecordStore, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (RecordStore::new(Arc::new(HostDisk::open(dir.path()).unwrap())), dir)
}

fn path(store: &RecordStore, job: u64) -> PathBuf {
    store.disk().path(&file_name(&spec(job).unit, RECORD))
}

fn load(store: &mut RecordStore) -> Vec<(RecordFile, UnitRecord)> {
    store.load(BrokerRank(0), &InstanceId::new("/test", 1)).unwrap()
}

#[test]
fn what_is_written_is_read() {
    let (mut store, _dir) = store();
    let mut record = record(1);
    let mut file = store.create(&record, false).unwrap();
    for fact in [
        Fact::Started(started()),
        Fact::Note { key: "seq".to_string(), value: Json::of(&1) },
        Fact::Note { key: "seq".to_string(), value: Json::of(&2) },
        Fact::Exited(WaitStatus::exited(3)),
        Fact::Gone(true),
    ] {
        file.append(&mut record, fact);
    }
    let text = std::fs::read_to_string(path(&store, 1)).unwrap();
    assert_eq!(
        text.lines().skip(1).collect::<Vec<_>>(),
        [
            &format!(r#"{{"started":{{"pid":5,"invocation_id":"{}"}}}}"#, "ab".repeat(16)),
            r#"{"note":{"key":"seq","value":1}}"#,
            r#"{"note":{"key":"seq","value":2}}"#,
            r#"{"exited":768}"#,
            r#"{"gone":true}"#
        ]
    );
    let read = load(&mut store);
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].1, record);
}

#[test]
fn a_torn_line_is_ignored_then_cut_off() {
    let (mut store, _dir) = store();
    let mut record = record(1);
    let mut file = store.create(&record, false).unwrap();
    file.append(&mut record, Fact::Started(started()));
    let path = path(&store, 1);
    let mut torn = std::fs::read(&path).unwrap();
    torn.extend_from_slice(br#"{"exited":25"#);
    std::fs::write(&path, &torn).unwrap();

    let (mut file, mut read) = load(&mut store).pop().unwrap();
    assert_eq!(read, record);
    file.append(&mut read, Fact::Exited(WaitStatus::exited(1)));
    let (_, again) = load(&mut store).pop().unwrap();
    assert_eq!(again.exited, Some(WaitStatus::exited(1)));
    assert_eq!(again.started, Some(started()));
}

/// [user-requests-bounded]
#[test]
fn a_record_that_grows_is_written_anew() {
    let (mut store, _dir) = store();
    let mut record = record(1);
    let mut file = store.create(&record, false).unwrap();
    file.append(&mut record, Fact::Started(started()));
    file.append(&mut record, Fact::Left(true));
    let large = "x".repeat(10_000);
    for n in 0..100 {
        let value = Json::of(&format!("{n}{large}"));
        file.append(&mut record, Fact::Note { key: "critical-ranks".to_string(), value });
        file.append(&mut record, Fact::Note { key: "other".to_string(), value: Json::of(&n) });
    }
    file.append(&mut record, Fact::Exited(WaitStatus::exited(3)));
    let size = std::fs::metadata(path(&store, 1)).unwrap().len();
    assert!(size < 2 * COMPACT_MIN_BYTES, "{size}");
    let (_, read) = load(&mut store).pop().unwrap();
    assert_eq!(read, record);
}

/// [output-set-aside]
#[test]
fn output_that_others_can_write_to_is_kept_empty_until_they_let_go() {
    let (mut store, dir) = store();
    store.create(&record(1), false).unwrap();
    let output = file_name(&spec(1).unit, extension(Stream::Stdout));
    store.disk().create(&output, IfExists::Fail, 0).unwrap();
    let handed_on = std::fs::OpenOptions::new().append(true).open(dir.path().join(&output));
    let mut handed_on = handed_on.unwrap();
    store.remove(&spec(1).unit);
    let disk = Arc::clone(store.disk());
    let names = || disk.names().unwrap();
    let [stray] = &names()[..] else { panic!("{:?}", names()) };
    assert_ne!(*stray, output, "the name is free");
    for life in [&mut store, &mut RecordStore::new(Arc::clone(&disk))] {
        std::io::Write::write_all(&mut handed_on, &[b'x'; 100_000]).unwrap();
        assert!(load(life).is_empty());
        life.trim_strays();
        assert_eq!(life.disk().extent(stray).unwrap(), Extent::default());
    }
    drop(handed_on);
    store.trim_strays();
    assert!(names().is_empty(), "{:?}", names());
}

/// [intent-whole]: the disk can fail while a replacement is written, and then not let it go.
#[test]
fn what_should_have_replaced_a_record_goes_with_it() {
    let (mut store, dir) = store();
    store.create(&record(1), false).unwrap();
    assert_eq!(load(&mut store).len(), 1);
    std::fs::write(dir.path().join(file_name(&spec(1).unit, REPLACEMENT)), "").unwrap();
    assert!(store.remove(&spec(1).unit));
    assert_eq!(store.disk().names().unwrap(), Vec::<String>::new());
}

#[test]
fn half_an_intent_is_no_record() {
    let (mut store, _dir) = store();
    let path = path(&store, 1);
    for half in ["", r#"{"version":1,"int"#] {
        std::fs::write(&path, half).unwrap();
        assert!(load(&mut store).is_empty());
        store.remove_unclaimed(|_| true);
        assert!(path.exists(), "its unit is there");
        assert!(load(&mut store).is_empty());
        store.remove_unclaimed(|_| false);
        assert!(!path.exists());
    }
}

/// [unrecorded-known]
#[test]
fn a_record_that_is_made_again_replaces_what_was_there() {
    let (mut store, _dir) = store();
    let record = record(1);
    store.create(&record, false).unwrap();
    for half in ["", "nonsense\n"] {
        std::fs::write(path(&store, 1), half).unwrap();
        let mut again = UnitRecord { started: Some(started()), ..record.clone() };
        let mut file = store.make_again(&again);
        assert!(!file.is_late());
        file.append(&mut again, Fact::Exited(WaitStatus::exited(3)));
        assert_eq!(load(&mut store).pop().unwrap().1, again);
    }
    // A directory cannot be replaced by a file: as if the disk did not take it now.
    std::fs::remove_file(path(&store, 1)).unwrap();
    std::fs::create_dir(path(&store, 1)).unwrap();
    let mut again = record.clone();
    let mut file = store.make_again(&again);
    assert!(file.is_late());
    file.append(&mut again, Fact::Exited(WaitStatus::exited(3)));
    assert!(file.is_late());
    std::fs::remove_dir(path(&store, 1)).unwrap();
    file.write_late(&again).unwrap();
    assert_eq!(load(&mut store).pop().unwrap().1, again);
}

#[test]
fn strange_records_are_left_alone_and_hold_up_nobody() {
    let (mut store, _dir) = store();
    store.create(&record(1), false).unwrap();
    let good = std::fs::read_to_string(path(&store, 1)).unwrap();
    let strange = [
        good.replace(r#""version":1"#, r#""version":2"#),
        format!("\n{good}"),
        good.clone(),
        format!("{good}nonsense\n"),
    ];
    for (job, text) in (2..).zip(&strange) {
        std::fs::write(path(&store, job), text).unwrap();
    }
    let read = load(&mut store);
    store.remove_unclaimed(|_| false);
    assert_eq!(read.iter().map(|r| r.1.spec.job).collect::<Vec<_>>(), [JobId(1)]);
    for (job, text) in (2..).zip(&strange) {
        assert_eq!(&std::fs::read_to_string(path(&store, job)).unwrap(), text);
        let error = store.create(&record(job), false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }
    let newer: Vec<UnitName> = store.take_newer().into_iter().map(|(unit, _)| unit).collect();
    assert_eq!(newer, [spec(2).unit]);
}
