//! A systemd that does not answer.

use super::*;

/// The pause of the tracker's patience ends, after all that is asked until now was sent.
fn wait(talk: &mut Talk) {
    talk.take_asks();
    talk.tracker.handle_news(News::PatienceOver);
    talk.take_asks();
}

/// All calls are answered but these.
fn answer_all_but(talk: &mut Talk, kept: &[u64]) {
    for number in (0..100).filter(|number| !kept.contains(number)) {
        talk.tracker.handle_news(News::Answer { number, answer: Ok(CallAnswer::Done) });
    }
}

#[track_caller]
fn silent(talk: &mut Talk, awaited: &str) {
    match talk.next() {
        Some(BackendEvent::Silent { what }) => assert!(what.starts_with(awaited), "{what}"),
        other => panic!("expected a silence, got {other:?}"),
    }
}

#[test]
fn starts_without_an_answer_are_looked_for_and_make_room() {
    let mut talk = Talk::ready();
    let units = [unit(1), unit(2), unit(3)];
    let starts = units.each_ref().map(|unit| {
        talk.start(unit);
        // Two may be in flight.
        if *unit == units[2] { 0 } else { talk.asked(&Call::Start(unit.clone())) }
    });
    talk.nothing_asked();
    answer_all_but(&mut talk, &starts);
    // They were asked for in the course of a pause, so it does not count.
    wait(&mut talk);
    talk.silence();
    talk.nothing_asked();
    wait(&mut talk);
    silent(&mut talk, "the start of");
    talk.asked(&Call::Reconnect);
    talk.nothing_asked();
    talk.silence();
    // The first was started after all, and the second is gone without a trace.
    talk.tracker.handle_connected();
    talk.listed(&[&units[0]]);
    assert_eq!(talk.next(), Some(BackendEvent::Answers));
    talk.answer(&Call::Service(units[0].clone()), Ok(CallAnswer::Properties(running("a"))));
    talk.answer(&Call::Unit(units[0].clone()), Ok(CallAnswer::Properties(running("a"))));
    talk.event(started(&units[0], "a"));
    talk.asked(&Call::Start(units[1].clone()));
    talk.asked(&Call::ReadBack(units[0].clone()));
    talk.asked(&Call::Start(units[2].clone()));
    talk.nothing_asked();
}

#[test]
fn an_answer_in_time_is_no_silence() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.start(&unit);
    let number = talk.asked(&Call::Start(unit));
    answer_all_but(&mut talk, &[number]);
    wait(&mut talk);
    talk.tracker.handle_news(News::Answer { number, answer: Ok(CallAnswer::Done) });
    wait(&mut talk);
    talk.silence();
    talk.asked(&Call::Ping);
    talk.nothing_asked();
}

/// systemd was reloaded before it had started the unit (seed 905004444).
#[test]
fn a_rule_without_an_answer_is_noticed_although_the_start_is_made_again() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.tracker.start(&spec(&unit), &output());
    let rule = talk.asked(&Call::Watch(unit.clone()));
    talk.asked(&Call::Start(unit.clone()));
    talk.tracker.handle_news(News::Reloading(true));
    talk.tracker.handle_news(News::Reloading(false));
    talk.listed(&[]);
    talk.asked(&Call::Start(unit.clone()));
    answer_all_but(&mut talk, &[rule]);
    wait(&mut talk);
    wait(&mut talk);
    silent(&mut talk, "a match rule of");
    talk.asked(&Call::Reconnect);
}

#[test]
fn a_systemd_that_hangs_while_units_run_is_noticed() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    answer_all_but(&mut talk, &[]);
    wait(&mut talk);
    let number = talk.asked(&Call::Ping);
    talk.tracker.handle_news(News::Answer { number, answer: Ok(CallAnswer::Done) });
    wait(&mut talk);
    talk.asked(&Call::Ping);
    wait(&mut talk);
    silent(&mut talk, "a sign of life");
    talk.asked(&Call::Reconnect);
    // Nothing has ended because of it.
    talk.silence();
    talk.tracker.handle_connected();
    wait(&mut talk);
    wait(&mut talk);
    // Said once only.
    talk.silence();
}

#[test]
fn one_that_does_not_come_back_is_reported() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    answer_all_but(&mut talk, &[]);
    talk.tracker.handle_news(News::ManagerAway);
    wait(&mut talk);
    wait(&mut talk);
    silent(&mut talk, "systemd on the user bus");
    talk.nothing_asked();
    talk.tracker.handle_news(News::ManagerBack);
    talk.listed(&[&unit]);
    assert_eq!(talk.next(), Some(BackendEvent::Answers));
}
