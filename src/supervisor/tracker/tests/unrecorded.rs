//! Units that nobody has asked about.

use super::*;
use crate::supervisor::backend::UnrecordedUnit;

fn found(started: Option<Started>) -> BackendEvent {
    BackendEvent::Unrecorded(Box::new(UnrecordedUnit {
        unit: unit(1),
        digest: "digest".into(),
        userid: 1,
        size: 4,
        started,
    }))
}

fn pid_of(invocation: &str) -> Option<Started> {
    Some(Started { pid: PID, invocation_id: invocation.to_string() })
}

/// Connected to a systemd that has this unit.
fn listed() -> Talk {
    let mut talk = Talk::unconnected();
    talk.tracker.handle_connected();
    talk.listed(&[&unit(1)]);
    assert_eq!(talk.tracker.next_event(), None, "it was not looked at yet");
    talk
}

/// [unrecorded-known]
#[test]
fn a_unit_that_nobody_asked_about_is_told_with_what_systemd_knows() {
    for all in [running("a"), exited(0), exited(3)] {
        let mut talk = listed();
        talk.looked(&unit(1), &all);
        assert_eq!(talk.tracker.next_event(), Some(found(pid_of("a"))));
        assert_eq!(talk.tracker.next_event(), Some(BackendEvent::Listed));
        talk.nothing_asked();
        // It is then looked for as any other.
        talk.tracker.find(&unit(1), "digest", pid_of("a").as_ref());
        talk.asked(&Call::Watch(unit(1)));
        talk.looked(&unit(1), &all);
        talk.event(started(&unit(1), "a"));
    }
}

#[test]
fn one_whose_start_is_not_decided_is_told_without_it() {
    let mut talk = listed();
    let activating =
        Changes { active: Some(Active::Activating), was_active: Some(false), ..running("a") };
    talk.looked(&unit(1), &activating);
    talk.event(found(None));
}

/// [failed-forgotten]
#[test]
fn what_never_ran_and_what_is_not_ours_is_only_swept() {
    let not_executed = Changes { was_active: Some(false), ..exited(203) };
    let strange = Changes { digest: Some(String::new()), ..running("a") };
    for all in [not_executed, strange, stub()] {
        let mut talk = listed();
        talk.looked(&unit(1), &all);
        assert_eq!(talk.tracker.next_event(), Some(BackendEvent::Listed));
        talk.answer(&Call::Reset(unit(1)), Ok(CallAnswer::Done));
        talk.silence();
        talk.nothing_asked();
    }
}

#[test]
fn a_look_that_is_refused_is_repeated() {
    let mut talk = listed();
    for _ in 0..8 {
        let refused = Err(refusal("org.freedesktop.DBus.Error.NoMemory"));
        talk.answer(&Call::Service(unit(1)), refused);
        talk.asked(&Call::Unit(unit(1)));
        talk.answer(&Call::Later(unit(1)), Ok(CallAnswer::Done));
    }
    assert_eq!(talk.tracker.next_event(), None);
    talk.looked(&unit(1), &running("a"));
    talk.event(found(pid_of("a")));
}

#[test]
fn a_look_without_an_end_is_given_up() {
    let mut talk = listed();
    for last in (0..=8).map(|n| n == 8) {
        let refused = Err(refusal("org.freedesktop.DBus.Error.NoMemory"));
        talk.answer(&Call::Service(unit(1)), refused);
        talk.asked(&Call::Unit(unit(1)));
        if !last {
            talk.answer(&Call::Later(unit(1)), Ok(CallAnswer::Done));
        }
    }
    assert_eq!(talk.tracker.next_event(), Some(BackendEvent::Listed));
}

/// [absence-is-no-exit]
#[test]
fn a_list_that_is_out_of_date_tells_nothing() {
    let mut talk = listed();
    talk.tracker.handle_news(News::Reloading(true));
    talk.looked(&unit(1), &stub());
    assert_eq!(talk.tracker.next_event(), None, "while it reloads its units look ended");
    talk.tracker.handle_news(News::Reloading(false));
    talk.listed(&[&unit(1)]);
    talk.looked(&unit(1), &running("a"));
    talk.event(found(pid_of("a")));

    let mut talk = listed();
    talk.tracker.handle_lost();
    talk.tracker.handle_connected();
    talk.listed(&[]);
    assert_eq!(talk.tracker.next_event(), Some(BackendEvent::Listed), "it has vanished");
}

#[test]
fn who_asks_about_it_hears_of_it_alone() {
    let mut talk = listed();
    talk.tracker.find(&unit(1), "digest", None);
    assert_eq!(talk.tracker.next_event(), Some(BackendEvent::Listed));
    talk.take_asks();
    let watched = talk.asks.iter().position(|ask| ask.call == Call::Watch(unit(1)));
    talk.asks.drain(..watched.expect("it is watched") + 1);
    talk.looked(&unit(1), &running("a"));
    talk.event(started(&unit(1), "a"));
    talk.silence();
}
