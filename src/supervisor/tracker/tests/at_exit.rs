//! Units of which no process is left when their main process exits.

use super::*;
use crate::proto::Stage;

fn empty(unit: &UnitName) -> Call {
    Call::IsEmpty { unit: unit.clone(), group: "/seen".to_string(), is_down: false }
}

fn removal(unit: &UnitName, code: i32) -> Call {
    if code == 0 { Call::Stop(unit.clone()) } else { Call::Reset(unit.clone()) }
}

fn emptied(unit: &UnitName) -> News {
    News::Emptied { unit: unit.clone() }
}

/// A unit whose cgroup the kernel has shown, and that has exited.
fn over(unit: &UnitName, code: i32) -> Talk {
    let mut talk = Talk::ready();
    talk.seen = "/seen".to_string();
    talk.run(unit);
    talk.changed(unit, exited(code));
    talk.event(exit(unit, code));
    talk
}

/// One that is to be removed as well. Its removal is asked for next.
fn ended(unit: &UnitName, code: i32) -> Talk {
    let mut talk = over(unit, code);
    talk.tracker.collect(unit);
    talk.asked(&empty(unit));
    talk
}

/// A start that waits until the unit is removed whose end an earlier life has seen.
fn waits_behind_an_end() -> (Talk, UnitName) {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    let known = Started { pid: PID, invocation_id: "a".to_string() };
    talk.tracker.find(&unit, "digest", Some(&known));
    talk.asked(&Call::Watch(unit.clone()));
    talk.tracker.collect(&unit);
    talk.tracker.forget(&unit);
    talk.tracker.start(&spec(&unit), &output());
    (talk, unit)
}

/// [gone-means-empty]
#[test]
fn no_process_is_left_before_systemd_has_removed_the_unit() {
    for code in [0, 3] {
        let unit = unit(1);
        let mut talk = ended(&unit, code);
        let number = talk.asked(&removal(&unit, code));
        talk.silence();
        talk.tracker.handle_news(emptied(&unit));
        talk.event(BackendEvent::Empty(unit.clone()));
        talk.tracker.forget(&unit);
        talk.tracker.handle_news(News::Answer { number, answer: Ok(CallAnswer::Done) });
        if code == 0 {
            talk.nothing_asked();
            talk.changed(&unit, inactive());
        }
        talk.asked(&Call::Unwatch(unit));
        talk.silence();
    }
}

/// [late-ends]
#[test]
fn a_unit_whose_status_is_nowhere_else_stays_when_it_is_empty() {
    for code in [0, 3] {
        let unit = unit(1);
        let mut talk = over(&unit, code);
        talk.tracker.hold(&unit);
        talk.asked(&empty(&unit));
        talk.nothing_asked();
        talk.tracker.handle_news(emptied(&unit));
        talk.event(BackendEvent::Empty(unit.clone()));
        assert!(!talk.tracker.is_removing(), "nothing is waited for");
        talk.silence();
        talk.tracker.collect(&unit);
        talk.asked(&Call::ControlGroup(unit.clone()));
        talk.asked(&removal(&unit, code));
        talk.silence();
    }
}

/// [late-ends]
#[test]
fn a_unit_that_somebody_has_stopped_is_held_no_longer_than_it_has_processes() {
    let unit = unit(1);
    let mut talk = over(&unit, 0);
    talk.changed(&unit, inactive());
    talk.tracker.hold(&unit);
    talk.asked(&Call::IsEmpty { unit: unit.clone(), group: "/seen".to_string(), is_down: true });
    talk.nothing_asked();
    talk.tracker.handle_news(emptied(&unit));
    talk.event(BackendEvent::Empty(unit.clone()));
    talk.asked(&Call::Unwatch(unit));
    talk.silence();
}

/// [late-ends]
#[test]
fn a_unit_that_is_held_is_asked_about_again_after_a_reconnect() {
    let unit = unit(1);
    let mut talk = over(&unit, 0);
    talk.tracker.hold(&unit);
    talk.asked(&empty(&unit));
    talk.tracker.handle_lost();
    talk.tracker.handle_connected();
    talk.listed(&[&unit]);
    talk.looked(&unit, &exited(0));
    talk.asked(&empty(&unit));
    talk.tracker.handle_news(emptied(&unit));
    talk.event(BackendEvent::Empty(unit.clone()));
    talk.silence();
}

/// [empty-removed]
#[test]
fn what_an_earlier_life_has_seen_the_end_of_is_removed_although_a_quota_is_met() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    let known = Started { pid: PID, invocation_id: "a".to_string() };
    talk.tracker.find(&unit, "digest", Some(&known));
    talk.asked(&Call::Watch(unit.clone()));
    talk.tracker.collect(&unit);
    talk.looked(&unit, &exited(0));
    talk.event(BackendEvent::Started { unit: unit.clone(), started: known });
    talk.event(exit(&unit, 0));
    talk.asked(&Call::ControlGroup(unit.clone()));
    talk.answer(&Call::Stop(unit.clone()), Err(refusal(Refusal::QUOTA)));
    talk.tracker.forget(&unit);
    talk.answer(&Call::Later(unit.clone()), Ok(CallAnswer::Done));
    talk.looked(&unit, &exited(0));
    talk.asked(&Call::ControlGroup(unit.clone()));
    talk.answer(&Call::Stop(unit.clone()), Ok(CallAnswer::Done));
    talk.changed(&unit, inactive());
    talk.asked(&Call::Unwatch(unit));
    talk.silence();
}

/// [empty-removed]
#[test]
fn the_removal_goes_on_behind_the_report() {
    for code in [0, 3] {
        let unit = unit(1);
        let removal = removal(&unit, code);
        let mut talk = ended(&unit, code);
        talk.tracker.handle_news(emptied(&unit));
        talk.event(BackendEvent::Empty(unit.clone()));
        talk.tracker.forget(&unit);
        // systemd refuses it.
        talk.answer(&removal, Err(refusal("busy")));
        talk.answer(&Call::Later(unit.clone()), Ok(CallAnswer::Done));
        talk.looked(&unit, &exited(code));
        talk.asked(&Call::ControlGroup(unit.clone()));
        talk.asked(&removal);
        // The connection is lost, and with it perhaps the call.
        talk.tracker.handle_lost();
        talk.tracker.handle_connected();
        talk.listed(&[&unit]);
        talk.looked(&unit, &exited(code));
        talk.asked(&Call::ControlGroup(unit.clone()));
        talk.asked(&removal);
        talk.tracker.handle_lost();
        talk.tracker.handle_connected();
        talk.listed(&[]);
        talk.asked(&Call::Unwatch(unit));
        talk.silence();
    }
}

/// [empty-removed]
#[test]
fn a_start_waits_until_the_name_is_free() {
    let unit = unit(1);
    let mut talk = ended(&unit, 0);
    talk.asked(&Call::Stop(unit.clone()));
    talk.tracker.handle_news(emptied(&unit));
    talk.event(BackendEvent::Empty(unit.clone()));
    // One that nobody wants any more.
    talk.tracker.start(&spec(&unit), &output());
    assert!(talk.tracker.is_starting(&unit));
    talk.tracker.forget(&unit);
    assert!(!talk.tracker.is_starting(&unit));
    // One that is cancelled meanwhile.
    talk.tracker.start(&spec(&unit), &output());
    talk.tracker.signal(&unit, libc::SIGTERM, true);
    talk.nothing_asked();
    talk.tracker.handle_lost();
    talk.tracker.handle_connected();
    talk.listed(&[]);
    talk.asked(&Call::Unwatch(unit.clone()));
    talk.asked(&Call::Watch(unit.clone()));
    talk.answer(&Call::Start(unit.clone()), Ok(CallAnswer::Done));
    talk.nothing_asked();
    talk.changed(&unit, running("b"));
    talk.event(started(&unit, "b"));
    talk.asked(&Call::ReadBack(unit.clone()));
    talk.asked(&Call::Kill { unit, signal: libc::SIGTERM, all: true });
}

/// [gone-means-empty]
#[test]
fn what_is_left_behind_is_ended_first() {
    let unit = unit(1);
    let mut talk = ended(&unit, 0);
    talk.answer(&Call::Stop(unit.clone()), Ok(CallAnswer::Done));
    talk.silence();
    // It ignores SIGTERM, and systemd calls that a failure.
    talk.changed(&unit, Changes { active: Some(Active::Failed), ..exited(0) });
    talk.silence();
    talk.asked(&empty(&unit));
    talk.asked(&Call::Reset(unit.clone()));
    talk.tracker.handle_news(emptied(&unit));
    talk.event(BackendEvent::Empty(unit));
}

#[test]
fn one_that_is_being_stopped_is_waited_for() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.seen = "/seen".to_string();
    talk.run(&unit);
    talk.changed(&unit, Changes { active: Some(Active::Deactivating), ..exited(3) });
    talk.event(exit(&unit, 3));
    talk.tracker.collect(&unit);
    talk.asked(&Call::ControlGroup(unit.clone()));
    talk.asked(&Call::Stop(unit.clone()));
    talk.tracker.handle_news(emptied(&unit));
    talk.silence();
}

/// What a script leaves behind is not ended.
#[test]
fn a_script_that_has_exited_is_over() {
    let unit = unit(1).of_stage(Stage::Prolog, false);
    let mut talk = Talk::ready();
    talk.run(&unit);
    talk.changed(&unit, exited(0));
    talk.event(exit(&unit, 0));
    talk.tracker.collect(&unit);
    talk.event(BackendEvent::Empty(unit.clone()));
    talk.answer(&Call::Stop(unit.clone()), Ok(CallAnswer::Done));
    talk.changed(&unit, inactive());
    talk.asked(&Call::Unwatch(unit));
    talk.silence();
}

/// [empty-removed] A later life finds it, and it is forgotten before systemd has said what it is.
#[test]
fn what_is_listed_behind_its_end_is_removed_although_it_is_forgotten() {
    let (mut talk, unit) = waits_behind_an_end();
    talk.looked(&unit, &exited(3));
    talk.silence();
    talk.asked(&Call::ControlGroup(unit.clone()));
    talk.answer(&Call::Reset(unit.clone()), Ok(CallAnswer::Done));
    talk.asked(&Call::Unwatch(unit.clone()));
    talk.asked(&Call::Watch(unit.clone()));
    talk.asked(&Call::Start(unit));
}

/// [gone-means-empty] systemd names no cgroup of a unit that has failed, even if it has processes.
#[test]
fn the_kernel_is_asked_for_the_cgroup_that_it_has_shown() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.seen = "/seen".to_string();
    talk.run(&unit);
    talk.tracker.handle_lost();
    talk.tracker.handle_connected();
    talk.listed(&[&unit]);
    talk.looked(&unit, &Changes { control_group: Some(String::new()), ..exited(3) });
    talk.event(exit(&unit, 3));
    talk.tracker.collect(&unit);
    talk.asked(&empty(&unit));
}

/// [empty-removed]
#[test]
fn a_start_is_made_although_nothing_is_found_of_what_was_there() {
    let (mut talk, unit) = waits_behind_an_end();
    talk.looked(&unit, &stub());
    talk.silence();
    talk.asked(&Call::Unwatch(unit.clone()));
    talk.asked(&Call::Watch(unit.clone()));
    talk.asked(&Call::Start(unit));
}

/// [empty-removed] Somebody else has started a unit of that name.
#[test]
fn a_start_is_made_although_a_stranger_is_found() {
    let (mut talk, unit) = waits_behind_an_end();
    talk.looked(&unit, &running("b"));
    talk.silence();
    talk.asked(&Call::Unwatch(unit.clone()));
    talk.asked(&Call::Watch(unit.clone()));
    talk.asked(&Call::Start(unit));
}

/// [empty-removed]
#[test]
fn a_start_that_is_given_up_leaves_the_removal_to_go_on() {
    let unit = unit(1);
    let mut talk = ended(&unit, 0);
    let number = talk.asked(&Call::Stop(unit.clone()));
    talk.tracker.handle_news(emptied(&unit));
    talk.event(BackendEvent::Empty(unit.clone()));
    talk.tracker.start(&spec(&unit), &output());
    let message = "too late".to_string();
    talk.tracker.fail(&unit, libc::ECANCELED, message.clone());
    talk.event(BackendEvent::Failed { unit: unit.clone(), errnum: libc::ECANCELED, message });
    talk.tracker.handle_news(News::Answer { number, answer: Ok(CallAnswer::Done) });
    talk.nothing_asked();
    talk.changed(&unit, inactive());
    talk.asked(&Call::Unwatch(unit));
    talk.silence();
}
