//! A new release is loaded under running jobs, one rank after the other. For a while ranks are
//! different releases, and refuse each other's requests.

use super::World;
use crate::proto::WaitStatus;
use crate::proto::peer::StreamEnd;

const REASON: &str = "another job-exec-rs speaks protocol 9";

/// A job on ranks 1 and 2 that runs. Its shells outlive their brokers. From now on the module of a
/// rank that is not loaded is one that cannot read requests.
fn running() -> World {
    let mut world = World::running(3, "1-2");
    (0..3).for_each(|rank| world.make_lasting(rank));
    world.unloaded = StreamEnd::Incompatible { reason: REASON.to_string() };
    world
}

fn end(world: &mut World) {
    for rank in 1..3 {
        world.exited(rank, WaitStatus(0));
    }
    world.pass(10.0);
    assert_eq!(world.status(), Some(WaitStatus(0)));
    assert_eq!((world.notes(), world.raised.len()), (vec![], 0));
    world.assert_ended();
}

#[test]
fn a_rank_that_is_another_release_for_a_while_costs_nothing() {
    for rank in 1..3 {
        let mut world = running();
        world.unload(rank);
        world.pass(20.0);
        let said = |text: &&String| text.contains(REASON);
        assert_eq!(world.warnings.iter().filter(said).count(), 1, "{:?}", world.warnings);
        world.load(rank);
        world.make_lasting(rank);
        world.pass(10.0);
        end(&mut world);
    }
}

#[test]
fn all_ranks_are_loaded_anew_in_any_order() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let mut world = running();
        for rank in order {
            world.unload(rank);
        }
        for rank in order {
            world.load(rank);
            world.make_lasting(rank);
            if rank == 0 {
                world.start("1-2", true);
            }
            world.pass(10.0);
        }
        end(&mut world);
    }
}

#[test]
fn a_rank_that_stays_another_release_is_given_up_on_and_the_job_says_why() {
    let mut world = running();
    world.unload(2);
    world.pass(400.0);
    assert!(world.notes().iter().any(|note| note.contains(REASON)), "{:?}", world.notes());
    assert_eq!(world.drained.len(), 1, "{:?}", world.drained);
    world.exited(1, WaitStatus(0));
    world.pass(10.0);
    assert!(world.released().iter().any(|(_, is_final)| *is_final), "{:?}", world.responses);
}
