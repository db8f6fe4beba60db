//! A record that only a later release can read: unknown is not dead.

use super::{World, facts, ready};
use crate::machine::{Event, Node};
use crate::port::supervisor::SupervisorEvent;
use crate::proto::{Response, WaitStatus};

/// An older release is loaded on a rank.
fn load_older(world: &mut World, rank: usize) {
    world.unload(rank);
    let node = Node::new(world.config.clone(), facts(rank as u32));
    world.nodes[rank] = Some(ready(node));
    let unit = world.unit_of(rank);
    let message = "its format has version 2, this release knows version 1".to_string();
    world.happen(rank, Event::Supervisor(SupervisorEvent::Unreadable { unit, message }));
}

fn assert_untouched(world: &World) {
    assert_eq!(world.responses, [Response::Start {}]);
    assert_eq!((world.signals.len(), world.drained.len()), (0, 0));
    assert!(world.errors.iter().all(|text| text.contains("version 2")), "{:?}", world.errors);
    assert_eq!(world.errors.len(), 1, "{:?}", world.errors);
}

fn end(mut world: World) {
    for rank in 1..4 {
        world.exited(rank, WaitStatus::exited(0));
    }
    world.pass(1.0);
    assert_eq!(world.notes(), [""; 0]);
    assert_eq!(world.status(), Some(WaitStatus(0)));
    world.assert_ended();
}

/// [record-newer]
#[test]
fn nothing_is_ended_until_a_release_is_loaded_that_can_read_it() {
    for rank in 1..4 {
        let mut world = World::running(4, "1-3");
        load_older(&mut world, rank);
        world.pass(1000.0);
        assert_untouched(&world);
        world.unload(rank);
        world.load(rank);
        world.pass(10.0);
        end(world);
    }
}

/// [record-newer]
#[test]
fn a_later_leader_waits_for_it_too() {
    let mut world = World::running(4, "1-3");
    load_older(&mut world, 2);
    world.pass(10.0);
    world.unload(1);
    world.load(1);
    world.pass(1000.0);
    assert_untouched(&world);
    world.unload(2);
    world.load(2);
    world.pass(10.0);
    end(world);
}

/// [record-newer]
#[test]
fn a_job_that_is_cancelled_meanwhile_ends_and_the_rank_is_drained() {
    let mut world = World::running(4, "1-3");
    load_older(&mut world, 2);
    world.pass(10.0);
    world.cancel();
    for rank in [1, 3] {
        world.exited(rank, WaitStatus::exited(1));
    }
    world.pass(3000.0);
    assert!(
        world.drained.iter().any(|text| text.starts_with("2 unkillable")),
        "{:?}",
        world.drained
    );
    assert!(matches!(world.responses.last(), Some(Response::Release { is_final: true, .. })));
    let node = world.nodes[2].as_ref().expect("a node");
    assert_eq!(node.left_over(), "");
    assert_eq!(world.disks[2].records.len(), 1, "the record stays");
}
