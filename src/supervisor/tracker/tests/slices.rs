//! Slices of units.

use super::*;
use crate::proto::SliceName;

fn slice(unit: &UnitName) -> String {
    SliceName::new(unit, spec(unit).digest.as_str()).under("app.slice")
}

fn list(talk: &mut Talk, names: &[String]) {
    talk.tracker.handle_news(News::ManagerBack);
    let number = talk.list();
    let answer = Ok(CallAnswer::Listed(names.to_vec()));
    talk.tracker.handle_news(News::Answer { number, answer });
}

/// [slice-stopped]
#[test]
fn a_slice_is_stopped_once_when_nobody_needs_it() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    talk.tracker.drop_usage(&unit);
    assert!(talk.tracker.is_removing(), "systemd refuses who has gone from the bus");
    talk.answer(&Call::StopSlice(slice(&unit)), Ok(CallAnswer::Done));
    assert!(!talk.tracker.is_removing());
    talk.tracker.drop_usage(&unit);
    talk.nothing_asked();
}

#[test]
fn a_unit_that_is_not_measured_has_none() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.tracker.start(&UnitSpec { measured: false, ..spec(&unit) }, &output());
    talk.asked(&Call::Watch(unit.clone()));
    talk.asked(&Call::Start(unit.clone()));
    talk.tracker.drop_usage(&unit);
    talk.nothing_asked();
}

/// [slice-stopped]
#[test]
fn what_a_list_has_and_nobody_needs_is_stopped() {
    let mut talk = Talk::unconnected();
    talk.tracker.handle_connected();
    talk.listed(&[]);
    let [found, running, stale, later] = [1, 2, 3, 4].map(unit);
    talk.tracker.find(&found, "digest", None);
    talk.tracker.spare(&later);
    talk.take_asks();
    talk.asks.clear();
    let other = SliceName::new(&found, "0123").under("app.slice");
    let names = [
        slice(&found),
        found.to_string(),
        slice(&running),
        running.to_string(),
        slice(&stale),
        slice(&later),
        other.clone(),
    ];
    list(&mut talk, &names);
    talk.take_asks();
    let stopped: Vec<Call> = talk.asks.drain(..).map(|ask| ask.call).collect();
    let stopped: Vec<&Call> =
        stopped.iter().filter(|call| matches!(call, Call::StopSlice(_))).collect();
    // A unit that is there would go with it, even if the job is another one.
    assert_eq!(stopped, [&Call::StopSlice(slice(&stale))]);
    for unit in [found, running] {
        talk.tracker.drop_usage(&unit);
        let mut names = vec![slice(&unit)];
        names.extend((unit == self::unit(1)).then(|| other.clone()));
        names.sort();
        for name in names {
            talk.asked(&Call::StopSlice(name));
        }
    }
}

/// [slice-stopped]
#[test]
fn one_that_is_not_stopped_is_tried_again() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    talk.tracker.drop_usage(&unit);
    talk.answer(&Call::StopSlice(slice(&unit)), Err(refusal("busy")));
    talk.answer(&Call::LaterSlice(slice(&unit)), Ok(CallAnswer::Done));
    talk.asked(&Call::StopSlice(slice(&unit)));
}

/// [slice-stopped]
#[test]
fn one_whose_stop_was_lost_is_stopped_although_its_unit_is_still_there() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    talk.tracker.drop_usage(&unit);
    talk.answer(&Call::StopSlice(slice(&unit)), Err(refusal(Refusal::NO_OWNER)));
    for is_listed in [true, false, true] {
        let names = [slice(&unit), unit.to_string()];
        list(&mut talk, if is_listed { &names } else { &[] });
        talk.take_asks();
        let is_asked = talk.asks.drain(..).any(|ask| ask.call == Call::StopSlice(slice(&unit)));
        let is_first = is_listed && talk.tracker.main_pid(&unit).is_some();
        assert_eq!(is_asked, is_first, "what is not listed is forgotten");
    }
}

/// Its record was lost, and it ended under the IMP, which keeps nothing of it, before it was looked at.
/// [slice-stopped]
#[test]
fn that_of_a_unit_which_vanishes_before_it_is_looked_at_is_stopped() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    list(&mut talk, &[unit.to_string(), slice(&unit)]);
    talk.looked(&unit, &stub());
    talk.asked(&Call::StopSlice(slice(&unit)));
}

/// The same, and it vanishes while systemd says nothing of it.
/// [slice-stopped]
#[test]
fn that_of_a_unit_which_a_later_list_has_not_is_stopped() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    list(&mut talk, &[unit.to_string(), slice(&unit)]);
    talk.take_asks();
    talk.asks.clear();
    list(&mut talk, &[slice(&unit)]);
    talk.asked(&Call::StopSlice(slice(&unit)));
}

/// The rank was drained, and the job is over: its unit goes when its last process has ended.
/// [slice-stopped]
#[test]
fn that_of_a_unit_which_nobody_wants_goes_with_it() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.run(&unit);
    talk.changed(&unit, exited(0));
    talk.event(exit(&unit, 0));
    talk.tracker.collect(&unit);
    talk.answer(
        &Call::ControlGroup(unit.clone()),
        Ok(CallAnswer::ControlGroup("/group".to_string())),
    );
    talk.tracker.forget(&unit);
    talk.answer(&Call::Stop(unit.clone()), Ok(CallAnswer::Done));
    talk.changed(&unit, inactive());
    talk.asked(&Call::Unwatch(unit.clone()));
    talk.asked(&Call::StopSlice(slice(&unit)));
}

/// It was started without, or by a release that has none.
/// [slice-stopped]
#[test]
fn a_unit_that_has_none_holds_up_no_end_of_the_module() {
    let (mut talk, unit) = (Talk::ready(), unit(1));
    talk.tracker.find(&unit, "digest", None);
    talk.tracker.drop_usage(&unit);
    assert!(!talk.tracker.is_removing());
}
