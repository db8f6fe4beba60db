//! An id that was given to two runs of a job.

use super::perilog::{perilog, preparing, world};
use crate::config::PerilogConfig;
use crate::machine::Event;
use crate::port::supervisor::{SupervisorEvent, UnitEvent};
use crate::proto::{Stage, WaitStatus};

const FAILED: WaitStatus = WaitStatus(1 << 8);
const DONE: WaitStatus = WaitStatus(0);

/// The id was given out again when the KVS had gone back, and meanwhile scripts are run by the IMP.
#[test]
fn what_happens_to_a_script_of_another_run_does_not_happen_to_this_one() {
    let mut world = preparing(1, perilog());
    let other = world.unit_of(0).of_stage(Stage::Prolog, true);
    for event in [UnitEvent::NeverStarted, UnitEvent::Exited { status: FAILED }, UnitEvent::Gone] {
        world.report(0, &other, event);
    }
    assert_eq!((world.exceptions().len(), world.drained.len()), (0, 0));
    world.script_exited(0, Stage::Prolog, DONE);
    world.pass(0.05);
    world.all_started(0..1);
}

/// Simulator seed 850010928. Its record would stay, and its name with it.
#[test]
fn the_record_of_another_runs_script_goes_when_nothing_of_it_is_left() {
    let mut world = world(1, PerilogConfig { prolog: None, ..perilog() });
    world.start("0", false);
    world.all_started(0..1);
    let other = world.unit_of_stage(0, Stage::Prolog);
    let mut record = world.disks[0].records[&world.unit_of(0)].clone();
    (record.spec.unit, record.spec.digest) = (other.clone(), "other".into());
    world.disks[0].records.insert(other.clone(), record.clone());
    world.happen(0, Event::Supervisor(SupervisorEvent::Found(Box::new(record))));
    world.report(0, &other, UnitEvent::Exited { status: DONE });
    assert!(world.disks[0].records.contains_key(&other));
    world.report(0, &other, UnitEvent::Gone);
    assert!(!world.disks[0].records.contains_key(&other));
}
