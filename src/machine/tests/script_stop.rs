//! A script that is told to end gets SIGTERM, whenever its module is loaded again.

use super::perilog::{perilog, running, world};
use super::{JOB, World};
use crate::machine::event::Event;
use crate::port::supervisor::UnitEvent;
use crate::proto::{Stage, WaitStatus};

const SIGTERM: (u32, i32) = (1, libc::SIGTERM);

/// A job whose prolog on rank 0 has ended, and that on rank 1 was asked for.
fn asked() -> World {
    let mut world = world(2, perilog());
    world.start("0-1", false);
    world.script_started(0, Stage::Prolog);
    world.script_exited(0, Stage::Prolog, WaitStatus(0));
    world
}

/// [script-told]
#[test]
fn a_script_is_told_when_it_runs() {
    let mut world = asked();
    world.cancel();
    world.pass(20.0);
    assert_eq!((world.signals.len(), world.drained.len()), (0, 0), "systemd has not started it");
    world.script_started(1, Stage::Prolog);
    assert_eq!(world.signals, [SIGTERM]);
    world.pass(9.0);
    assert_eq!(world.drained.len(), 0);
    world.pass(2.0);
    assert_eq!(world.drained, [format!("1 prolog canceled then timed out for job {JOB}")]);
}

/// [script-told]
#[test]
fn a_script_that_is_found_is_told_again_to_end() {
    let mut world = asked();
    world.script_started(1, Stage::Prolog);
    (0..2).for_each(|rank| world.make_lasting(rank));
    world.cancel();
    world.pass(9.0);
    assert_eq!(world.signals, [SIGTERM]);
    world.unload(1);
    world.signals.clear();
    world.load(1);
    world.make_lasting(1);
    world.pass(9.0);
    assert_eq!(world.signals, [SIGTERM], "the first may not have been sent");
    assert_eq!(world.drained.len(), 0);
    // Its leader asks again, and hears of it.
    world.pass(60.0);
    assert_eq!(world.drained, [format!("1 prolog canceled then timed out for job {JOB}")]);
}

/// [script-told] [script-stuck]
#[test]
fn nobody_waits_for_ever_for_a_script_that_is_not_known_to_run() {
    let mut world = asked();
    world.cancel();
    world.pass(200.0);
    assert_eq!(world.signals, []);
    assert_eq!(world.drained, [format!("1 prolog canceled then timed out for job {JOB}")]);
}

/// A job whose prolog on rank 0 has ended, and that on rank 1 runs and has 20 s.
fn limited() -> World {
    let mut config = perilog();
    config.prolog.as_mut().expect("a prolog").timeout = Some(20.0);
    let mut world = world(2, config);
    world.start("0-1", false);
    (0..2).for_each(|rank| world.script_started(rank, Stage::Prolog));
    world.script_exited(0, Stage::Prolog, WaitStatus(0));
    world
}

/// [found-in-time]
#[test]
fn a_script_that_ended_in_time_while_its_module_was_away_is_no_failure() {
    for has_ended in [false, true] {
        let mut world = limited();
        world.make_lasting(1);
        world.unload(1);
        world.pass(25.0);
        let found = world.load_unseen(1);
        world.pass(0.5);
        assert_eq!(world.signals, [], "systemd has not said yet whether it has ended");
        let started = UnitEvent::Started { pid: 100 }.of(&found[0].spec.unit);
        world.happen(1, Event::Supervisor(started));
        world.pass(0.01);
        assert_eq!(world.signals, [], "perhaps it has, and that is told next");
        if has_ended {
            world.script_exited(1, Stage::Prolog, WaitStatus(0));
        }
        world.pass(1.0);
        assert_eq!(world.signals, if has_ended { vec![] } else { vec![SIGTERM] });
        world.pass(20.0);
        assert_eq!(world.drained.is_empty(), has_ended, "{:?}", world.drained);
    }
}

/// [found-in-time]
#[test]
fn so_is_one_that_ended_while_its_broker_was_stopped() {
    for has_ended in [false, true] {
        let mut world = limited();
        world.stop_all();
        world.pass(0.5);
        assert_eq!(world.signals, [], "perhaps it has ended, and that is told next");
        if has_ended {
            world.script_exited(1, Stage::Prolog, WaitStatus(0));
        }
        world.pass(1.0);
        assert_eq!(world.signals, if has_ended { vec![] } else { vec![SIGTERM] });
        world.pass(9.0);
        assert!(world.drained.is_empty(), "{:?}", world.drained);
    }
}

/// [found-in-time]
#[test]
fn so_is_an_epilog_that_ended_within_its_limit() {
    for has_ended in [false, true] {
        let config = crate::config::PerilogConfig { epilog_limit: Some(20.0), ..perilog() };
        let mut world = running(2, config);
        world.make_lasting(1);
        (0..2).for_each(|rank| world.exited(rank, WaitStatus(0)));
        world.pass(0.1);
        (0..2).for_each(|rank| world.script_started(rank, Stage::Epilog));
        world.script_exited(0, Stage::Epilog, WaitStatus(0));
        world.unload(1);
        world.pass(25.0);
        let found = world.load_unseen(1);
        // Its leader asks for it again.
        world.pass(60.0);
        let epilog = found.iter().find(|record| record.spec.unit.stage() == Stage::Epilog);
        let epilog = &epilog.expect("an epilog").spec.unit;
        world.report(1, epilog, UnitEvent::Started { pid: 100 });
        world.pass(0.01);
        if has_ended {
            world.script_exited(1, Stage::Epilog, WaitStatus(0));
        }
        world.pass(60.0);
        assert_eq!(world.drained.is_empty(), has_ended, "{:?}", world.drained);
    }
}
