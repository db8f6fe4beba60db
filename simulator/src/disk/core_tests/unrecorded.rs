//! Units that systemd has, and that nobody has asked about.

use super::*;

/// What systemd knows of the unit of a job.
fn unrecorded(job: u64) -> BackendEvent {
    let started = Some(Started { pid: 5, invocation_id: "ab".repeat(16) });
    let (userid, size) = (7, 2);
    let unit = unit(job);
    let digest = "digest".into();
    BackendEvent::Unrecorded(Box::new(UnrecordedUnit { unit, digest, userid, size, started }))
}

/// [unrecorded-known]
#[test]
fn a_unit_without_a_record_is_found_and_gets_one() {
    let extensions: [&[&str]; 2] = [&["record"], &["record", "out", "err"]];
    for (lost, output_lost) in extensions.into_iter().zip([false, true]) {
        let disk = SimDisk::default();
        let mut life = Life::new(&disk, BOOT);
        life.launch(1);
        life.event(started(1));
        let out = disk.path(&format!("{}.out", unit(1).stem()));
        assert_eq!(disk.write_output(&out, b"output"), 6);
        assert_eq!(disk.lose_files(lost).len(), lost.len());

        let mut next = Life::unlisted(&disk, BOOT);
        next.event(unrecorded(1));
        next.event(BackendEvent::Listed);
        let found = next.take();
        let [SupervisorEvent::Found(record)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((record.spec.userid, record.spec.size), (7, 2));
        assert_eq!(record.spec.digest.as_str(), "digest");
        let notes: Vec<Note> = Note::all(&record.notes).collect();
        assert_eq!(notes, [Note::MadeAgain { output_lost }]);
        assert_eq!(next.asked.finds, [unit(1)]);
        assert_eq!(disk.contents(&output(1)).is_some(), !output_lost, "output stays");
        next.event(started(1));
        next.event(exited(1));
        next.take();

        let mut last = Life::new(&disk, BOOT);
        let [SupervisorEvent::Found(again), SupervisorEvent::Unit(_, UnitEvent::Exited { status })] =
            &last.take()[..]
        else {
            panic!("it has a record now");
        };
        assert_eq!((again.notes.len(), *status), (1, WaitStatus::exited(3)));
        last.command(unit(1), UnitCommand::Forget);
        assert_eq!(disk.files(), Vec::<String>::new());
    }
}

/// [empty-removed]
#[test]
fn a_unit_that_is_there_after_its_end_is_removed() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.event(started(1));
    life.event(unrecorded(1));
    assert_eq!(life.asked.finds, [], "its end is not through");
    life.event(exited(1));
    life.event(BackendEvent::Empty(unit(1)));

    let mut next = Life::unlisted(&disk, BOOT);
    next.take();
    let BackendEvent::Unrecorded(found) = unrecorded(1) else { panic!("a unit") };
    let other = Some(Started { pid: 5, invocation_id: "cd".repeat(16) });
    let another = UnrecordedUnit { started: other, ..*found };
    next.event(BackendEvent::Unrecorded(Box::new(another)));
    assert_eq!(next.asked.finds, [], "it is another one");
    next.event(unrecorded(1));
    assert_eq!((&next.asked.finds, &next.asked.collects), (&vec![unit(1)], &vec![unit(1)]));
    [started(1), exited(1), BackendEvent::Empty(unit(1))].into_iter().for_each(|e| next.event(e));
    assert_eq!(next.take(), [], "nobody has asked for its end");
}

/// [unrecorded-known] [status-first]
#[test]
fn a_record_that_finds_no_space_is_made_again_later() {
    let disk = SimDisk::default();
    disk.set_full(true);
    let mut life = Life::unlisted(&disk, BOOT);
    life.event(unrecorded(1));
    life.event(started(1));
    life.event(exited(1));
    life.command(unit(1), UnitCommand::Collect);
    assert_eq!((life.asked.collects.len(), disk.files().len()), (0, 0), "systemd alone knows it");
    disk.set_full(false);
    life.core.write_late(&mut life.asked);
    assert_eq!(life.asked.collects, [unit(1)]);
    assert!(facts(&disk, 1).contains(&json!({"exited": 768})));
}

/// [unrecorded-known]. A unit whose record a newer release has written is spared.
#[test]
fn torn_and_unreadable_records_are_made_again() {
    for text in ["", "{\"version\":1,\"int", "nonsense\n", "{\"version\":0}\n"] {
        let disk = SimDisk::default();
        disk.create(&record(1), IfExists::Fail, 0).unwrap();
        disk.append(&record(1), text.as_bytes()).unwrap();
        let mut life = Life::unlisted(&disk, BOOT);
        life.event(unrecorded(1));
        life.event(BackendEvent::Listed);
        assert_eq!((life.take().len(), life.asked.finds.len()), (1, 1), "{text}");
        assert_ne!(disk.contents(&record(1)).unwrap(), text.as_bytes(), "{text}");
    }
}

/// [unrecorded-known]: nobody knows whether the unit of such a record has run.
#[test]
fn a_unit_whose_record_was_made_again_is_lost_if_it_cannot_be_found() {
    let BackendEvent::Unrecorded(found) = unrecorded(1) else { panic!("a unit") };
    let mut life = Life::unlisted(&SimDisk::default(), BOOT);
    life.event(BackendEvent::Unrecorded(Box::new(UnrecordedUnit { started: None, ..*found })));
    life.event(BackendEvent::Listed);
    life.take();
    life.event(BackendEvent::Absent(unit(1)));
    assert!(matches!(life.take()[..], [SupervisorEvent::Unit(_, UnitEvent::Lost { .. })]));
}
