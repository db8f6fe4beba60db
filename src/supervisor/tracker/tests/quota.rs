//! Tests with a bus that grants few match rules, or few calls without an answer.

use super::*;

fn quota<T>() -> Result<T, Refusal> {
    Err(refusal(Refusal::QUOTA))
}

impl Talk {
    /// A tracker whose bus has refused the rule for this unit.
    fn without_rule(unit: &UnitName) -> Self {
        let mut talk = Self::ready();
        talk.tracker.find(unit, "digest", None);
        talk.answer(&Call::Watch(unit.clone()), quota());
        talk.asked(&Call::Service(unit.clone()));
        talk.asked(&Call::Unit(unit.clone()));
        talk
    }

    /// A tracker that hears nothing of this unit, which runs.
    fn deaf(unit: &UnitName) -> Self {
        let mut talk = Self::without_rule(unit);
        talk.answer(&Call::WatchAll, quota());
        talk.listed(&[unit]);
        talk.looked(unit, &running("a"));
        talk.event(started(unit, "a"));
        talk
    }
}

#[test]
fn a_bus_that_refuses_rules_gets_one_for_all() {
    let mut talk = Talk::without_rule(&unit(1));
    talk.answer(&Call::WatchAll, Ok(CallAnswer::Done));
    talk.listed(&[&unit(1)]);
    talk.looked(&unit(1), &running("a"));
    talk.event(started(&unit(1), "a"));
    talk.tracker.find(&unit(2), "digest", None);
    talk.looked(&unit(2), &running("b"));
    talk.event(started(&unit(2), "b"));
    talk.nothing_asked();
    // A new connection has its own quota.
    talk.tracker.handle_lost();
    talk.tracker.handle_connected();
    talk.asked(&Call::WatchPresence);
    talk.asked(&Call::WatchReloading);
    talk.asked(&Call::Watch(unit(1)));
}

#[test]
fn without_any_rule_units_are_listed_again_and_again() {
    let mut talk = Talk::deaf(&unit(1));
    for _ in 0..2 {
        talk.answer(&Call::LaterList, Ok(CallAnswer::Done));
        talk.listed(&[&unit(1)]);
        talk.looked(&unit(1), &running("a"));
        talk.silence();
    }
    talk.tracker.start(&spec(&unit(2)), &output());
    let due = talk.asked(&Call::LaterList);
    talk.answer(&Call::Start(unit(2)), Ok(CallAnswer::Done));
    talk.nothing_asked();
    talk.tracker.handle_news(News::Answer { number: due, answer: Ok(CallAnswer::Done) });
    talk.listed(&[&unit(1), &unit(2)]);
    talk.looked(&unit(1), &exited(4));
    talk.event(exit(&unit(1), 4));
    talk.looked(&unit(2), &running("b"));
    talk.event(started(&unit(2), "b"));
    // When there is no unit, there is nothing to hear.
    talk.asked(&Call::LaterList);
    talk.asked(&Call::ReadBack(unit(2)));
    for job in 1..=2 {
        talk.tracker.forget(&unit(job));
        talk.asked(&Call::Unwatch(unit(job)));
    }
}

#[test]
fn without_a_rule_for_systemd_itself_units_are_listed_again_and_again() {
    let mut talk = Talk::unconnected();
    talk.tracker.handle_connected();
    talk.answer(&Call::WatchPresence, quota());
    talk.listed(&[]);
    talk.nothing_asked();
    talk.tracker.find(&unit(1), "digest", None);
    talk.asked(&Call::LaterList);
}

#[test]
fn a_start_that_meets_a_quota_is_made_after_a_pause() {
    let mut talk = Talk::ready();
    for job in 1..=4 {
        talk.tracker.start(&spec(&unit(job)), &output());
    }
    talk.asked(&Call::Watch(unit(1)));
    let first = talk.asked(&Call::Start(unit(1)));
    talk.asked(&Call::Watch(unit(2)));
    let second = talk.asked(&Call::Start(unit(2)));
    talk.asked(&Call::Watch(unit(3)));
    talk.asked(&Call::Watch(unit(4)));
    let mut starts = [first, second];
    // More often than any start is repeated.
    for _ in 0..20 {
        for number in starts {
            talk.tracker.handle_news(News::Answer { number, answer: quota() });
        }
        talk.silence();
        talk.answer(&Call::LaterStarts, Ok(CallAnswer::Done));
        starts = [1, 2].map(|job| talk.asked(&Call::Start(unit(job))));
        talk.nothing_asked();
    }
    talk.tracker.handle_news(News::Answer { number: starts[0], answer: Ok(CallAnswer::Done) });
    talk.changed(&unit(1), running("a"));
    talk.event(started(&unit(1), "a"));
    talk.asked(&Call::ReadBack(unit(1)));
    talk.asked(&Call::Start(unit(3)));
}

/// Starts of four units, of which two may be in flight, and the numbers of the first two.
fn two_of_four(talk: &mut Talk) -> [u64; 2] {
    for job in 1..=4 {
        talk.tracker.start(&spec(&unit(job)), &output());
    }
    let asked = [1, 2].map(|job| {
        talk.asked(&Call::Watch(unit(job)));
        talk.asked(&Call::Start(unit(job)))
    });
    talk.asked(&Call::Watch(unit(3)));
    talk.asked(&Call::Watch(unit(4)));
    asked
}

#[test]
fn no_start_leaves_while_one_makes_a_pause() {
    let mut talk = Talk::ready();
    let [first, second] = two_of_four(&mut talk);
    talk.tracker.handle_news(News::Answer { number: first, answer: quota() });
    let pause = talk.asked(&Call::LaterStarts);
    talk.tracker.handle_news(News::Answer { number: second, answer: Ok(CallAnswer::Done) });
    talk.changed(&unit(2), running("b"));
    talk.event(started(&unit(2), "b"));
    talk.asked(&Call::ReadBack(unit(2)));
    talk.nothing_asked();
    talk.tracker.handle_news(News::Answer { number: pause, answer: Ok(CallAnswer::Done) });
    talk.asked(&Call::Start(unit(1)));
    talk.asked(&Call::Start(unit(3)));
    talk.nothing_asked();
}

#[test]
fn after_a_pause_no_more_starts_leave_than_there_is_room_for() {
    let mut talk = Talk::ready();
    let [first, _] = two_of_four(&mut talk);
    talk.tracker.handle_news(News::Answer { number: first, answer: quota() });
    talk.answer(&Call::LaterStarts, Ok(CallAnswer::Done));
    talk.asked(&Call::Start(unit(1)));
    talk.nothing_asked();
}

#[test]
fn a_start_that_has_met_its_name_makes_room_for_one() {
    let mut talk = Talk::ready();
    let [first, _] = two_of_four(&mut talk);
    let exists = Err(refusal(Refusal::UNIT_EXISTS));
    talk.tracker.handle_news(News::Answer { number: first, answer: exists });
    talk.event(BackendEvent::Exists(unit(1)));
    talk.asked(&Call::Start(unit(3)));
    talk.nothing_asked();
}

/// Its jobs are to run when it has been started again.
#[test]
fn a_start_that_a_systemd_refuses_which_is_ending_is_made_after_a_pause() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.tracker.start(&spec(&unit), &output());
    talk.asked(&Call::Watch(unit.clone()));
    for _ in 0..20 {
        talk.answer(&Call::Start(unit.clone()), Err(refusal(Refusal::DESTRUCTIVE)));
        talk.silence();
        talk.answer(&Call::LaterStarts, Ok(CallAnswer::Done));
    }
    talk.asked(&Call::Start(unit));
}

#[test]
fn a_signal_that_meets_a_quota_is_sent_after_a_pause() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    let kill = Call::Kill { unit: unit.clone(), signal: libc::SIGTERM, all: true };
    talk.run(&unit);
    talk.tracker.signal(&unit, libc::SIGTERM, true);
    for _ in 0..20 {
        talk.answer(&kill, quota());
        talk.answer(&Call::Later(unit.clone()), Ok(CallAnswer::Done));
        talk.asked(&Call::Service(unit.clone()));
        talk.asked(&Call::Unit(unit.clone()));
    }
    talk.answer(&kill, Ok(CallAnswer::Done));
    talk.nothing_asked();
}

#[test]
fn looks_that_meet_a_quota_are_not_given_up() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.tracker.find(&unit, "digest", None);
    talk.asked(&Call::Watch(unit.clone()));
    for _ in 0..20 {
        talk.answer(&Call::Service(unit.clone()), quota());
        talk.answer(&Call::Unit(unit.clone()), quota());
        talk.answer(&Call::Later(unit.clone()), Ok(CallAnswer::Done));
    }
    talk.looked(&unit, &running("a"));
    talk.event(started(&unit, "a"));
}

/// Simulator seed 890000935: systemd kept it.
#[test]
fn a_failed_unit_is_reset_that_is_forgotten_before_a_quota_lets_it_be_looked_at() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.tracker.find(&unit, "digest", None);
    talk.asked(&Call::Watch(unit.clone()));
    talk.answer(&Call::Service(unit.clone()), quota());
    talk.answer(&Call::Unit(unit.clone()), quota());
    talk.asked(&Call::Later(unit.clone()));
    talk.tracker.forget(&unit);
    talk.asked(&Call::Unwatch(unit.clone()));
    talk.answer(&Call::Reset(unit.clone()), quota());
    talk.answer(&Call::Later(unit.clone()), Ok(CallAnswer::Done));
    talk.answer(&Call::Reset(unit), Ok(CallAnswer::Done));
}

#[test]
fn a_list_that_meets_a_quota_is_asked_for_after_a_pause() {
    let mut talk = Talk::unconnected();
    talk.tracker.handle_connected();
    for subscribed in [quota(), Ok(CallAnswer::Done)] {
        talk.take_asks();
        talk.asks.retain(|ask| matches!(ask.call, Call::Subscribe | Call::List));
        talk.answer(&Call::Subscribe, subscribed);
        talk.answer(&Call::List, quota());
        talk.answer(&Call::LaterList, Ok(CallAnswer::Done));
        assert!(!talk.tracker.is_ready());
    }
    talk.listed(&[]);
    assert!(talk.tracker.is_ready());
}
