//! Units that their main process leaves.

use super::*;

fn guest() -> UnitName {
    UnitName::new(true, BrokerRank(0), JobId(1), InstanceId::new("/test", 1))
}

fn main_of(unit: &UnitName) -> Call {
    Call::Main { unit: unit.clone(), pid: PID }
}

/// A multiuser unit that was started, with a pidfd of its main process.
fn guarded() -> (Talk, UnitName) {
    let (mut talk, unit) = (Talk::ready(), guest());
    talk.run(&unit);
    talk.answer(&main_of(&unit), Ok(CallAnswer::Properties(running("a"))));
    talk.asked(&Call::Guard { unit: unit.clone(), group: "/group".to_string() });
    talk.nothing_asked();
    (talk, unit)
}

fn emptied(unit: &UnitName) -> News {
    News::Emptied { unit: unit.clone() }
}

fn left(unit: &UnitName) -> News {
    News::Left { unit: unit.clone() }
}

#[test]
fn a_leave_is_told_once_and_before_the_unit_is_empty() {
    let (mut talk, unit) = guarded();
    talk.tracker.handle_news(emptied(&unit));
    talk.silence();
    talk.tracker.handle_news(left(&unit));
    talk.event(BackendEvent::Left(unit.clone()));
    talk.tracker.handle_news(left(&unit));
    talk.silence();
    talk.changed(&unit, exited(0));
    talk.event(exit(&unit, 0));
    talk.tracker.collect(&unit);
    let group = Ok(CallAnswer::ControlGroup("/group".to_string()));
    talk.answer(&Call::ControlGroup(unit.clone()), group);
    talk.answer(&Call::Stop(unit.clone()), Ok(CallAnswer::Done));
    talk.changed(&unit, inactive());
    talk.asked(&Call::IsEmpty { unit: unit.clone(), group: "/group".to_string(), is_down: true });
    talk.tracker.handle_news(emptied(&unit));
    talk.event(BackendEvent::Empty(unit));
}

#[test]
fn a_leave_that_is_seen_after_the_exit_is_told() {
    let (mut talk, unit) = guarded();
    talk.changed(&unit, exited(0));
    talk.event(exit(&unit, 0));
    talk.tracker.handle_news(left(&unit));
    talk.event(BackendEvent::Left(unit));
}

#[test]
fn a_process_that_systemd_has_reaped_is_not_guarded() {
    let (mut talk, unit) = (Talk::ready(), guest());
    talk.run(&unit);
    talk.answer(&main_of(&unit), Ok(CallAnswer::Properties(exited(0))));
    talk.nothing_asked();
    // The pid may have been reused before the pidfd was opened.
    talk.tracker.handle_news(left(&unit));
    talk.silence();
}

#[test]
fn what_was_not_answered_or_refused_is_asked_again() {
    let (mut talk, unit) = (Talk::ready(), guest());
    talk.run(&unit);
    talk.asked(&main_of(&unit));
    for connection in 0..2 {
        talk.tracker.handle_lost();
        talk.tracker.handle_connected();
        talk.listed(&[&unit]);
        talk.looked(&unit, &running("a"));
        if connection == 0 {
            talk.answer(&main_of(&unit), Err(refusal("busy")));
            talk.answer(&Call::Later(unit.clone()), Ok(CallAnswer::Done));
            talk.looked(&unit, &running("a"));
            talk.answer(&main_of(&unit), Ok(CallAnswer::Properties(running("a"))));
            talk.asked(&Call::Guard { unit: unit.clone(), group: "/group".to_string() });
        }
        // The kernel needs to be told once only.
        talk.nothing_asked();
    }
    talk.silence();
    // The kernel's news count without a connection, too.
    talk.tracker.handle_lost();
    talk.tracker.handle_news(left(&unit));
    talk.event(BackendEvent::Left(unit));
}

#[test]
fn a_guarded_unit_that_is_absent_is_lost_when_the_kernel_says_so() {
    let (mut talk, unit) = guarded();
    talk.tracker.handle_lost();
    talk.tracker.handle_connected();
    talk.listed(&[]);
    talk.asked(&Call::IsEmpty { unit: unit.clone(), group: "/group".to_string(), is_down: true });
    talk.tracker.handle_news(left(&unit));
    talk.event(BackendEvent::Left(unit.clone()));
    talk.silence();
    talk.tracker.handle_news(emptied(&unit));
    talk.event(BackendEvent::Absent(unit));
}

#[test]
fn a_guarded_unit_that_is_down_is_lost_when_the_kernel_says_so() {
    let (mut talk, unit) = guarded();
    let down = Changes { active: Some(Active::Inactive), ..running("a") };
    talk.changed(&unit, down.clone());
    talk.looked(&unit, &down);
    talk.asked(&Call::IsEmpty { unit: unit.clone(), group: "/group".to_string(), is_down: true });
    talk.tracker.handle_news(left(&unit));
    talk.event(BackendEvent::Left(unit.clone()));
    talk.tracker.handle_news(emptied(&unit));
    talk.event(BackendEvent::Absent(unit));
}

/// [leftovers-killed]
#[test]
fn an_imp_that_waits_for_what_its_shell_has_left_is_told_once() {
    let (mut talk, unit) = guarded();
    let stopping = Changes { active: Some(Active::Deactivating), ..Changes::default() };
    for _ in 0..2 {
        talk.changed(&unit, stopping.clone());
    }
    talk.event(BackendEvent::Stopping(unit.clone()));
    talk.silence();
    talk.changed(&unit, exited(3));
    talk.event(exit(&unit, 3));
}
