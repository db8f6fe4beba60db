//! A disk that takes nothing for a while.

use super::*;

#[test]
fn a_unit_is_not_collected_before_its_status_is_durable() {
    let disk = SimDisk::without_reserves();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.event(started(1));
    disk.set_full(true);
    life.event(BackendEvent::Exited { unit: unit(1), status: WaitStatus(0) });
    life.command(unit(1), UnitCommand::Collect);
    assert_eq!(life.asked.collects, [], "systemd alone knows the status");
    assert_eq!(life.asked.holds, [unit(1)]);
    disk.set_full(false);
    life.core.write_late(&mut life.asked);
    assert_eq!(life.asked.collects, [unit(1)]);
}

/// [late-ends].
#[test]
fn a_disk_that_takes_nothing_holds_up_no_end() {
    let disk = SimDisk::without_reserves();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.event(started(1));
    disk.fail_changes(Some(libc::EROFS));
    life.event(exited(1));
    life.event(BackendEvent::Empty(unit(1)));
    assert_eq!(life.take().last(), Some(&UnitEvent::Gone.of(&unit(1))));
    assert_eq!((life.asked.holds.len(), life.asked.collects.len()), (1, 0));
    life.command(unit(1), UnitCommand::Forget);
    assert_eq!(life.asked.collects, [], "the record stays, and lacks the status");
    disk.fail_changes(None);
    life.core.retry_late(&mut life.asked);
    assert_eq!(life.asked.collects, [unit(1)], "nobody asks for the status any more");
    assert_eq!((disk.files(), life.core.is_late()), (Vec::new(), false));
}

/// After the KVS went back, a job had the id of one whose unit was held.
#[test]
fn a_start_that_the_disk_refuses_keeps_no_unit_of_its_name() {
    let disk = SimDisk::without_reserves();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.event(started(1));
    disk.fail_changes(Some(libc::EIO));
    life.event(exited(1));
    life.event(BackendEvent::Empty(unit(1)));
    life.command(unit(1), UnitCommand::Forget);
    life.take();
    life.launch(1);
    assert_eq!(life.failure().0, libc::EIO);
    disk.fail_changes(None);
    life.core.retry_late(&mut life.asked);
    assert_eq!(life.asked.collects, [unit(1)]);
    assert_eq!((disk.files(), life.core.is_late()), (Vec::new(), false));
}

/// Its record can be written again, its output files cannot.
#[test]
fn a_start_without_output_files_keeps_no_unit_of_its_name() {
    let disk = SimDisk::without_reserves();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    let intent = disk.contents(&record(1)).unwrap().len();
    life.event(started(1));
    disk.fail_changes(Some(libc::EIO));
    life.event(exited(1));
    life.event(BackendEvent::Empty(unit(1)));
    life.command(unit(1), UnitCommand::Forget);
    life.take();
    disk.fail_changes(None);
    for output in disk.files().iter().filter(|name| **name != record(1)) {
        disk.remove(output).unwrap();
    }
    disk.set_room(Some(intent as u64));
    life.launch(1);
    let (errnum, message) = life.failure();
    assert!(errnum == libc::ENOSPC && message.contains("output file"), "{message}");
    assert_eq!(life.asked.collects, [unit(1)]);
    assert_eq!(disk.files(), Vec::<String>::new());
}

/// [disk-drains].
#[test]
fn a_disk_that_takes_no_records_is_told_once() {
    let told = |life: &Life| -> Vec<String> {
        let told = life.take().into_iter().filter_map(|event| match event {
            SupervisorEvent::DiskFails { message } => Some(message),
            _ => None,
        });
        told.collect()
    };
    let disk = SimDisk::without_reserves();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.event(started(1));
    disk.fail_changes(Some(libc::EROFS));
    life.command(unit(1), note(1));
    for _ in 0..9 {
        life.core.retry_late(&mut life.asked);
    }
    assert_eq!(told(&life), [""; 0], "it may be full for a moment");
    life.core.retry_late(&mut life.asked);
    life.core.retry_late(&mut life.asked);
    life.launch(2);
    let first = told(&life);
    assert!(matches!(&first[..], [why] if why.contains("Read-only file system")), "{first:?}");
    disk.fail_changes(None);
    life.core.retry_late(&mut life.asked);
    life.launch(3);
    disk.fail_changes(Some(libc::EDQUOT));
    for job in [4, 5] {
        life.launch(job);
    }
    let second = told(&life);
    assert!(matches!(&second[..], [why] if why.contains("quota")), "{second:?}");
}
