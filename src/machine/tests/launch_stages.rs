//! When the ranks of a job have reached the stages of its launch (`rfc/0003-machines.md`, launch-told).

use serde_json::{Value, json};

use super::World;
use super::perilog::{DONE, perilog, prepared, world};
use crate::proto::{Stage, WaitStatus};

fn told(world: &World) -> Vec<Value> {
    let ours = world.events.iter().filter(|event| event.name == "debug.timeline");
    ours.map(|event| json!(event.context)).collect()
}

/// All enter the barrier, the rank `last` half a second after the others.
fn enter(world: &mut World, last: usize) {
    (0..3).filter(|rank| *rank != last).for_each(|rank| _ = world.enter_barrier(rank));
    world.pass(0.5);
    world.enter_barrier(last);
    world.pass(0.1);
}

/// [launch-told]
#[test]
fn the_slowest_rank_of_each_stage_is_named() {
    let mut world = prepared(world(3, perilog()), 3);
    for rank in [2, 1, 0] {
        world.pass(1.0);
        world.script_exited(rank, Stage::Prolog, DONE);
    }
    world.pass(0.1);
    for rank in [0, 2, 1] {
        world.pass(1.0);
        world.started(rank);
    }
    enter(&mut world, 2);
    enter(&mut world, 0);
    let commits = world.commits;
    world.pass(10.0);
    assert_eq!((told(&world), world.commits), (vec![], commits), "nothing is committed for it");
    for rank in 0..3 {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(20.0);
    let [stages] = &told(&world)[..] else { panic!("{:?}", world.events) };
    let host = |stage: &str| stages[stage][1].as_str().expect("a host").to_string();
    let stages_in_order = ["prepared", "running", "barrier-1", "barrier-2"];
    assert_eq!(stages_in_order.map(host), ["n0", "n1", "n2", "n0"]);
    let seconds = stages_in_order.map(|stage| stages[stage][0].as_f64().expect("seconds"));
    assert!(seconds.is_sorted() && seconds[0] >= 3.0, "{seconds:?}");
    let names = world.event_names();
    let at = |name: &str| names.iter().position(|other| *other == name);
    assert!(at("debug.timeline") < at("complete"), "{names:?}");
}

/// [launch-told]
#[test]
fn who_takes_over_has_launched_nothing() {
    let mut world = World::running(3, "1-2");
    world.make_lasting(1);
    world.make_lasting(2);
    world.unload(1);
    world.load(1);
    world.pass(10.0);
    for rank in 1..3 {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(20.0);
    assert_eq!((told(&world), world.status()), (vec![], Some(WaitStatus(0))));
}
