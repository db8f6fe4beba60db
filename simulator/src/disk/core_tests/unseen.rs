//! Units that ended while nobody watched.

use super::*;

/// A life that has launched a unit under the IMP.
fn launched(disk: &SimDisk) -> (Life, UnitName) {
    let mut life = Life::new(disk, BOOT);
    let unit = UnitName::new(true, BrokerRank(0), JobId(1), instance());
    let spec = Box::new(UnitSpec { multiuser: true, ..sample::spec(unit.clone()) });
    life.command(unit.clone(), UnitCommand::Launch(spec));
    (life, unit)
}

fn ended_unseen(unit: &UnitName) -> [SupervisorEvent; 2] {
    let exited = UnitEvent::Exited { status: WaitStatus::exited(0) };
    [UnitEvent::Started { pid: 0 }, exited].map(|event| event.of(unit))
}

/// The broker was killed between the record of the intent and that of the start, and the shell ended
/// with success before the next one was there.
#[test]
fn a_unit_under_the_imp_that_has_ended_is_not_started_again() {
    let disk = SimDisk::default();
    let (_, unit) = launched(&disk);
    disk.leave_end(&unit, WaitStatus::exited(0));
    let mut life = Life::unlisted(&disk, BOOT);
    assert!(matches!(life.take()[..], [SupervisorEvent::Found(_)]));
    life.event(BackendEvent::Absent(unit.clone()));
    assert_eq!(life.take(), ended_unseen(&unit));
    life.command(unit.clone(), UnitCommand::Forget);
    assert_eq!(disk.files(), Vec::<String>::new());
}

/// A user manager that is executed anew can lose the call, or the reply of one whose unit has ended.
#[test]
fn a_start_under_the_imp_without_a_trace_is_made_again_unless_it_has_ended() {
    let disk = SimDisk::default();
    let (mut life, unit) = launched(&disk);
    life.event(BackendEvent::Absent(unit.clone()));
    assert_eq!((life.asked.starts.len(), life.take().len()), (2, 0));
    disk.leave_end(&unit, WaitStatus::exited(0));
    life.event(BackendEvent::Absent(unit.clone()));
    assert_eq!(life.take(), ended_unseen(&unit));
    assert_eq!(life.asked.starts.len(), 2);
}

/// [manager-ended]
#[test]
fn a_start_under_the_imp_is_not_made_again_by_another_user_manager() {
    for has_ended in [false, true] {
        let disk = SimDisk::default();
        let (mut life, unit) = launched(&disk);
        if has_ended {
            disk.leave_end(&unit, WaitStatus::exited(0));
        }
        life.event(BackendEvent::ManagerEnded(unit.clone()));
        let message = MANAGER_ENDED.to_string();
        let lost = vec![UnitEvent::Lost { message }.of(&unit)];
        assert_eq!(life.take(), if has_ended { ended_unseen(&unit).to_vec() } else { lost });
        assert_eq!(life.asked.starts.len(), 1);
    }
}

/// [manager-ended]: a module is gone before it has recorded that the shell was started, and so is its
/// user manager, with the shell, when the next module looks for it.
#[test]
fn what_another_user_manager_may_have_run_is_lost() {
    for (then, now, is_lost) in [(7, 8, true), (7, 7, false)] {
        let disk = SimDisk::default();
        let mut life = Life::new(&disk, BOOT);
        life.asked.manager = Some(then);
        life.launch(1);
        let mut next = Life::new(&disk, BOOT);
        next.take();
        next.asked.manager = Some(now);
        next.event(BackendEvent::Absent(unit(1)));
        let message = MANAGER_ENDED.to_string();
        let told = if is_lost { UnitEvent::Lost { message } } else { UnitEvent::NeverStarted };
        assert_eq!(next.take(), [told.of(&unit(1))], "{then}, {now}");
    }
}

/// A crash of the node can have lost the record of one and kept this.
#[test]
fn what_another_unit_of_the_name_has_left_goes_before_the_next_is_started() {
    let disk = SimDisk::default();
    let unit = UnitName::new(true, BrokerRank(0), JobId(1), instance());
    disk.leave_end(&unit, WaitStatus::exited(0));
    Life::new(&disk, BOOT);
    assert_eq!(disk.files(), Vec::<String>::new(), "nobody asks for it");
    let mut life = Life::new(&disk, BOOT);
    disk.leave_end(&unit, WaitStatus::exited(0));
    let spec = Box::new(UnitSpec { multiuser: true, ..sample::spec(unit.clone()) });
    life.command(unit.clone(), UnitCommand::Launch(spec));
    life.event(BackendEvent::Absent(unit));
    assert_eq!((life.asked.starts.len(), life.take().len()), (2, 0), "it has not ended");
}

/// It can have left the file.
#[test]
fn the_end_of_another_unit_of_the_name_is_not_this_ones() {
    let disk = SimDisk::default();
    let (mut life, unit) = launched(&disk);
    let started = Started { pid: 5, invocation_id: "ab".repeat(16) };
    life.event(BackendEvent::Started { unit: unit.clone(), started });
    disk.leave_end(&unit, WaitStatus::exited(0));
    life.take();
    life.event(BackendEvent::Replaced(unit));
    assert!(matches!(life.take()[..], [SupervisorEvent::Unit(_, UnitEvent::Lost { .. })]));
}

#[test]
fn a_start_under_the_imp_is_not_made_again_for_ever() {
    let disk = SimDisk::default();
    let (mut life, unit) = launched(&disk);
    let mut tries = 0;
    while life.take().is_empty() {
        life.event(BackendEvent::Absent(unit.clone()));
        tries += 1;
        assert_eq!(life.asked.starts.len().min(9), (tries + 1).min(9));
    }
    assert_eq!(tries, 9);
}

/// The disk has taken the one fact, and not the other.
#[test]
fn a_shell_that_has_entered_a_barrier_was_started() {
    let disk = SimDisk::default();
    let mut life = Life::new(&disk, BOOT);
    life.launch(1);
    life.command(unit(1), note(1));
    let mut life = Life::unlisted(&disk, BOOT);
    life.take();
    life.event(BackendEvent::Absent(unit(1)));
    assert!(matches!(life.take()[..], [SupervisorEvent::Unit(_, UnitEvent::Lost { .. })]));
}
