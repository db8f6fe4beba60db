//! Tests with a systemd that refuses, forgets, or answers in another order.

use super::super::units::START_RETRIES_MAX;
use super::*;

/// A unit that has exited, and whose stop is refused this often.
fn refused(times: u32) -> (Talk, UnitName) {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    talk.changed(&unit, exited(0));
    talk.event(exit(&unit, 0));
    talk.tracker.collect(&unit);
    for _ in 0..times {
        let group = Ok(CallAnswer::ControlGroup("/group".to_string()));
        talk.answer(&Call::ControlGroup(unit.clone()), group);
        talk.answer(&Call::Stop(unit.clone()), Err(refusal("busy")));
        // It is not repeated at once.
        talk.answer(&Call::Later(unit.clone()), Ok(CallAnswer::Done));
        talk.looked(&unit, &exited(0));
    }
    talk.asked(&Call::ControlGroup(unit.clone()));
    (talk, unit)
}

#[test]
fn a_stop_that_is_refused_is_tried_again() {
    let (mut talk, unit) = refused(3);
    talk.answer(&Call::Stop(unit.clone()), Ok(CallAnswer::Done));
    talk.changed(&unit, inactive());
    talk.asked(&Call::IsEmpty { unit: unit.clone(), group: "/group".to_string(), is_down: true });
    talk.tracker.handle_news(News::Emptied { unit: unit.clone() });
    talk.event(BackendEvent::Empty(unit));
}

#[test]
fn a_unit_that_cannot_be_stopped_is_over_when_it_is_empty() {
    let (mut talk, unit) = refused(8);
    talk.answer(&Call::Stop(unit.clone()), Err(refusal("busy")));
    let empty = Call::IsEmpty { unit: unit.clone(), group: "/group".to_string(), is_down: true };
    talk.asked(&empty);
    talk.nothing_asked();
    // All is asked again, and may be refused as often again.
    talk.tracker.handle_news(News::ManagerBack);
    talk.listed(&[&unit]);
    talk.looked(&unit, &exited(0));
    talk.asked(&Call::ControlGroup(unit.clone()));
    talk.answer(&Call::Stop(unit.clone()), Err(refusal("busy")));
    talk.asked(&Call::Later(unit.clone()));
    talk.silence();
    talk.tracker.handle_news(News::Emptied { unit: unit.clone() });
    talk.event(BackendEvent::Empty(unit));
}

/// [signal-repeated]
#[test]
fn a_signal_without_an_answer_is_sent_again() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    let kill = Call::Kill { unit: unit.clone(), signal: libc::SIGTERM, all: true };
    talk.run(&unit);
    talk.tracker.signal(&unit, libc::SIGTERM, true);
    talk.asked(&kill);
    talk.tracker.handle_lost();
    talk.nothing_asked();
    talk.tracker.handle_connected();
    talk.listed(&[&unit]);
    talk.looked(&unit, &running("a"));
    // systemd leaves before it has read the call.
    talk.answer(&kill, Err(refusal(Refusal::NO_REPLY)));
    talk.tracker.handle_news(News::ManagerAway);
    talk.nothing_asked();
    talk.tracker.handle_news(News::ManagerBack);
    talk.listed(&[&unit]);
    talk.looked(&unit, &running("a"));
    talk.answer(&kill, Ok(CallAnswer::Done));
    talk.tracker.handle_lost();
    talk.tracker.handle_connected();
    talk.listed(&[&unit]);
    talk.looked(&unit, &running("a"));
    talk.nothing_asked();
}

#[test]
fn a_reset_that_is_refused_is_tried_again() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    talk.changed(&unit, exited(3));
    talk.event(exit(&unit, 3));
    talk.tracker.collect(&unit);
    for _ in 0..2 {
        talk.asked(&Call::ControlGroup(unit.clone()));
        talk.answer(&Call::Reset(unit.clone()), Err(refusal("busy")));
        // Signals about the unit do not shorten the pause.
        talk.changed(&unit, exited(3));
        talk.answer(&Call::Later(unit.clone()), Ok(CallAnswer::Done));
        talk.looked(&unit, &exited(3));
    }
}

#[test]
fn a_look_that_is_refused_is_tried_again() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.tracker.find(&unit, "digest", None);
    talk.asked(&Call::Watch(unit.clone()));
    for _ in 0..8 {
        talk.answer(&Call::Service(unit.clone()), Err(refusal("busy")));
        // One half of the properties is of no use without the other.
        talk.answer(&Call::Unit(unit.clone()), Ok(CallAnswer::Properties(running("a"))));
        talk.answer(&Call::Later(unit.clone()), Ok(CallAnswer::Done));
    }
    talk.answer(&Call::Service(unit.clone()), Err(refusal("busy")));
    talk.asked(&Call::Unit(unit.clone()));
    talk.nothing_asked();
    talk.tracker.handle_news(News::ManagerBack);
    talk.listed(&[&unit]);
    talk.looked(&unit, &running("a"));
    talk.event(started(&unit, "a"));
}

#[test]
fn what_vanishes_between_two_answers_is_absent() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    let known = Started { pid: PID, invocation_id: "a".to_string() };
    talk.tracker.find(&unit, "digest", Some(&known));
    talk.asked(&Call::Watch(unit.clone()));
    talk.answer(
        &Call::Service(unit.clone()),
        Ok(CallAnswer::Properties(Changes { invocation_id: None, ..running("a") })),
    );
    talk.answer(&Call::Unit(unit.clone()), is(Active::Inactive));
    talk.looked(&unit, &stub());
    talk.event(BackendEvent::Absent(unit));
}

#[test]
fn half_a_look_is_none() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.tracker.find(&unit, "digest", None);
    talk.asked(&Call::Watch(unit.clone()));
    talk.answer(&Call::Service(unit.clone()), Err(refusal(Refusal::NO_OWNER)));
    talk.changed(&unit, Changes { digest: None, ..running("a") });
    talk.answer(&Call::Unit(unit.clone()), is(Active::Active));
    // There was no answer with the digest.
    talk.silence();
    talk.nothing_asked();
}

#[test]
fn an_unknown_cgroup_is_not_an_empty_one() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    talk.changed(&unit, exited(0));
    talk.tracker.collect(&unit);
    talk.answer(&Call::ControlGroup(unit.clone()), Err(refusal("busy")));
    talk.answer(&Call::Stop(unit.clone()), Ok(CallAnswer::Done));
    talk.changed(&unit, inactive());
    talk.answer(&Call::Later(unit.clone()), Ok(CallAnswer::Done));
    talk.looked(&unit, &inactive());
    talk.asked(&Call::ControlGroup(unit.clone()));
    talk.answer(&Call::Stop(unit.clone()), Ok(CallAnswer::Done));
    talk.asked(&Call::IsEmpty { unit, group: "/group".to_string(), is_down: true });
}

/// The answer to a question for the unit interface, which has this state.
fn is(active: Active) -> Result<CallAnswer, Refusal> {
    let changes = Changes { active: Some(active), job: Some(false), ..Changes::default() };
    Ok(CallAnswer::Properties(changes))
}

#[test]
fn an_answer_overtakes_the_signals_of_an_exit() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    talk.tracker.handle_news(News::ManagerBack);
    talk.listed(&[&unit]);
    talk.answer(&Call::Service(unit.clone()), Ok(CallAnswer::Properties(running("a"))));
    talk.answer(&Call::Unit(unit.clone()), is(Active::Failed));
    talk.silence();
    talk.looked(&unit, &exited(3));
    talk.event(exit(&unit, 3));
    talk.nothing_asked();
}

#[test]
fn an_answer_overtakes_the_signals_of_a_start() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.tracker.find(&unit, "digest", None);
    talk.asked(&Call::Watch(unit.clone()));
    let queued = Changes { digest: Some("digest".to_string()), ..stub() };
    talk.answer(&Call::Service(unit.clone()), Ok(CallAnswer::Properties(queued)));
    talk.answer(&Call::Unit(unit.clone()), is(Active::Failed));
    talk.looked(&unit, &exited(3));
    talk.event(started(&unit, "a"));
    talk.event(exit(&unit, 3));
    talk.nothing_asked();
}

/// A unit that has failed while its main process lives. systemd has confirmed it.
fn forsaken() -> (Talk, UnitName, Call) {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    let forsaken = Changes { active: Some(Active::Failed), ..running("a") };
    talk.changed(&unit, forsaken.clone());
    talk.looked(&unit, &forsaken);
    let empty = Call::IsEmpty { unit: unit.clone(), group: "/group".to_string(), is_down: true };
    talk.asked(&empty);
    talk.silence();
    (talk, unit, empty)
}

#[test]
fn what_has_processes_is_not_lost() {
    let (mut talk, unit, _) = forsaken();
    talk.tracker.collect(&unit);
    talk.nothing_asked();
    talk.tracker.handle_lost();
    talk.tracker.handle_news(News::Emptied { unit: unit.clone() });
    talk.event(BackendEvent::Absent(unit));

    let (mut talk, unit, _) = forsaken();
    talk.tracker.handle_news(News::Emptied { unit: unit.clone() });
    talk.event(BackendEvent::Absent(unit.clone()));
    talk.asked(&Call::Unwatch(unit.clone()));
    talk.asked(&Call::Reset(unit));
}

#[test]
fn what_was_given_up_is_looked_at_again() {
    let (mut talk, unit, empty) = forsaken();
    talk.tracker.handle_news(News::ManagerBack);
    talk.listed(&[&unit]);
    talk.tracker.handle_news(News::Emptied { unit: unit.clone() });
    talk.silence();
    let forsaken = Changes { active: Some(Active::Failed), ..running("a") };
    talk.looked(&unit, &forsaken);
    talk.looked(&unit, &forsaken);
    talk.asked(&empty);
    // systemd has the status after all. `Empty` is not reported for a unit that is not collected.
    talk.changed(&unit, exited(0));
    talk.event(exit(&unit, 0));
    talk.tracker.handle_news(News::Emptied { unit });
    talk.silence();
}

#[test]
fn a_failed_unit_that_nobody_needs_is_forgotten_in_the_end() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.tracker.handle_news(News::ManagerBack);
    talk.listed(&[&unit]);
    talk.looked(&unit, &Changes { was_active: Some(false), ..exited(203) });
    talk.answer(&Call::Reset(unit.clone()), Err(refusal("org.freedesktop.DBus.Error.NoMemory")));
    talk.answer(&Call::Later(unit.clone()), Ok(CallAnswer::Done));
    talk.answer(&Call::Reset(unit), Ok(CallAnswer::Done));
    talk.nothing_asked();
}

/// [quota-waited]
#[test]
fn a_quota_does_not_end_the_tries_to_forget_a_failed_unit() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.tracker.handle_news(News::ManagerBack);
    talk.listed(&[&unit]);
    talk.looked(&unit, &Changes { was_active: Some(false), ..exited(203) });
    for _ in 0..100 {
        talk.answer(&Call::Reset(unit.clone()), Err(refusal(Refusal::QUOTA)));
        talk.answer(&Call::Later(unit.clone()), Ok(CallAnswer::Done));
    }
    talk.answer(&Call::Reset(unit), Ok(CallAnswer::Done));
    talk.nothing_asked();
}

/// [record-newer]
#[test]
fn a_unit_of_a_later_releases_record_is_not_forgotten() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.tracker.spare(&unit);
    talk.tracker.handle_news(News::ManagerBack);
    talk.listed(&[&unit]);
    talk.nothing_asked();
}

#[test]
fn a_start_that_a_list_made_room_for_is_not_in_the_list() {
    let (mut talk, units) = (Talk::ready(), [unit(1), unit(2), unit(3)]);
    for unit in &units {
        talk.tracker.start(&spec(unit), &output());
    }
    // systemd loses two starts until they are given up, which makes room for the third.
    for _ in 0..=START_RETRIES_MAX {
        talk.silence();
        talk.tracker.handle_news(News::ManagerBack);
        talk.listed(&[]);
    }
    for unit in units.iter().take(2) {
        let Some(BackendEvent::Failed { unit: failed, .. }) = talk.next() else { panic!("{unit}") };
        assert_eq!(failed, *unit);
    }
    talk.silence();
}
