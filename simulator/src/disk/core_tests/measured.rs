//! What units have used, in the record before systemd may drop it.

use super::*;

fn usage(memory: u64) -> Usage {
    Usage { memory: Some(memory), ..Usage::default() }
}

fn told(life: &Life) -> Vec<UnitEvent> {
    let events = life.take().into_iter().filter_map(|event| match event {
        SupervisorEvent::Unit(_, UnitEvent::Output { .. }) => None,
        SupervisorEvent::Unit(_, event) => Some(event),
        _ => None,
    });
    events.collect()
}

fn status() -> UnitEvent {
    UnitEvent::Exited { status: WaitStatus::exited(3) }
}

/// [usage-first]
#[test]
fn what_a_unit_has_used_is_kept_and_told_before_its_exit() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.event(started(1));
    life.take();
    life.asked.usage.insert(unit(1), usage(7));
    life.event(exited(1));
    assert_eq!(told(&life), [UnitEvent::Usage(Box::new(usage(7))), status()]);
    assert_eq!(life.asked.dropped, [], "something of it may be left");
    life.asked.usage.insert(unit(1), usage(8));
    life.event(BackendEvent::Empty(unit(1)));
    assert_eq!(told(&life), [UnitEvent::Gone], "it is told once");
    assert_eq!(life.asked.dropped, [unit(1)]);
    let found = Life::new(&disk, BOOT).take().into_iter().find_map(|event| match event {
        SupervisorEvent::Found(record) => record.usage(),
        _ => None,
    });
    assert_eq!(found.as_deref(), Some(&usage(7)));
}

/// [usage-first]
#[test]
fn what_it_leaves_behind_counts_until_it_has_ended() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.event(started(1));
    life.event(exited(1));
    life.take();
    life.asked.usage.insert(unit(1), usage(9));
    life.event(BackendEvent::Empty(unit(1)));
    assert_eq!(told(&life), [UnitEvent::Usage(Box::new(usage(9))), UnitEvent::Gone]);
}

/// [usage-first]
#[test]
fn a_later_life_reads_what_an_earlier_one_has_not() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.event(started(1));
    life.event(exited(1));
    let mut next = Life::new(&disk, BOOT);
    next.asked.usage.insert(unit(1), usage(9));
    next.command(unit(1), UnitCommand::Collect);
    next.event(BackendEvent::Absent(unit(1)));
    let told = told(&next);
    assert!(told.ends_with(&[UnitEvent::Usage(Box::new(usage(9))), UnitEvent::Gone]), "{told:?}");
    assert_eq!(next.asked.dropped, [unit(1)]);
}

/// [usage-first]
#[test]
fn nothing_is_dropped_that_the_disk_has_not_taken() {
    let disk = SimDisk::without_reserves();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.event(started(1));
    life.asked.usage.insert(unit(1), usage(9));
    disk.fail_changes(Some(libc::EIO));
    life.event(exited(1));
    life.event(BackendEvent::Empty(unit(1)));
    life.command(unit(1), UnitCommand::Forget);
    assert_eq!(life.asked.dropped, []);
    disk.fail_changes(None);
    life.core.retry_late(&mut life.asked);
    assert_eq!(life.asked.dropped, [unit(1)]);
}
