//! A script that is told to end gets SIGTERM, whenever its module is loaded again.

use super::perilog::{perilog, world};
use super::{JOB, World};
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
