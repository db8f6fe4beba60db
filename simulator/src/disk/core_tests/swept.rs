//! Somebody removes files of the state directory under a running module.

use super::*;

const ALL: &[&str] = &["record", "out", "err"];

fn gone(records: &[u64]) -> Grown {
    let records = records.iter().map(|job| unit(*job)).collect();
    Grown::These { files: Default::default(), records, strays: false }
}

/// What a later life is told of a job's record.
fn found(disk: &SimDisk, job: u64) -> UnitRecord {
    let told = Life::new(disk, BOOT).take();
    let is_found = |event: SupervisorEvent| match event {
        SupervisorEvent::Found(record) if record.spec.job == JobId(job) => Some(*record),
        _ => None,
    };
    told.into_iter().find_map(is_found).expect("a record")
}

/// [swept-made-again]
#[test]
fn a_record_that_was_removed_is_made_again_from_memory() {
    for is_noticed in [false, true] {
        let disk = SimDisk::default();
        let mut life = Life::new(&disk, BOOT);
        life.launch(1);
        life.event(started(1));
        life.command(unit(1), note(3));
        let before = found(&disk, 1);
        disk.lose_files(ALL);
        if is_noticed {
            life.core.handle_growth(&gone(&[1, 2]), &mut life.asked);
            assert_eq!(found(&disk, 1), before);
        }
        life.event(exited(1));
        let after = UnitRecord { exited: Some(WaitStatus::exited(3)), ..before };
        assert_eq!(found(&disk, 1), after);
        assert_eq!(life.asked.collects, [unit(1)], "the status is on the disk");
        life.event(BackendEvent::Empty(unit(1)));
        assert_eq!(life.take().last(), Some(&UnitEvent::Gone.of(&unit(1))));
        life.command(unit(1), UnitCommand::Forget);
        assert_eq!(disk.files(), Vec::<String>::new());
        life.core.handle_growth(&gone(&[1]), &mut life.asked);
        assert_eq!(disk.files(), Vec::<String>::new(), "nobody needs it");
    }
}

/// [swept-made-again] [fact-late]
#[test]
fn on_a_full_disk_a_record_that_was_removed_is_made_again_later() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.event(started(1));
    disk.lose_files(ALL);
    disk.set_full(true);
    life.core.handle_growth(&Grown::Any, &mut life.asked);
    life.event(exited(1));
    assert!(life.core.is_late());
    assert_eq!(life.asked.collects, [], "systemd alone knows the status");
    disk.set_full(false);
    life.core.write_late(&mut life.asked);
    assert_eq!(life.asked.collects, [unit(1)]);
    assert_eq!(found(&disk, 1).exited, Some(WaitStatus::exited(3)));
}

/// [missing-said]
#[test]
fn output_that_was_removed_is_said_once_to_be_missing() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    for job in 1..3 {
        life.launch(job);
    }
    life.event(started(1));
    life.take();
    disk.lose_files(&["err"]);
    (0..3).for_each(|_| life.core.handle_growth(&Grown::Any, &mut life.asked));
    let lost = |life: &Life| {
        let told = life.take();
        told.iter()
            .filter(|event| matches!(event, SupervisorEvent::Unit(_, UnitEvent::OutputLost { .. })))
            .count()
    };
    assert_eq!(lost(&life), 1, "the other has not run");
    // systemd makes the file when it executes the program.
    disk.open_output(&format!("{}.err", unit(2).stem()));
    life.event(started(2));
    assert_eq!(lost(&life), 0);
    // The next life has to say it as well, because nobody may have heard it.
    let mut next = Life::new(&disk, BOOT);
    next.event(started(1));
    assert_eq!(lost(&next), 1);
}

#[test]
fn a_job_can_be_started_after_all_was_removed() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    disk.lose_files(ALL);
    life.launch(2);
    assert_eq!(life.asked.starts, [unit(1), unit(2)]);
    assert_eq!(life.take(), []);
}
